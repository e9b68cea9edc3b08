"""The passive view: its bounds, and the effect of a shuffle."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ingeborg.broker.core.overlay.node import Peer
from ingeborg.broker.core.overlay.passive import Passive

from .paper import Paper

names = st.lists(st.integers(0, 30), max_size=20)


@given(seed=st.integers(0, 99), noted=names, brought=names, neighbours=names, sent=names)
def test_it_keeps_its_bounds_and_holds_no_neighbours(
    seed: int, noted: list[int], brought: list[int], neighbours: list[int], sent: list[int]
) -> None:
    passive = Passive(Paper(seed), 7, size_max=6)
    active: dict[Peer, None] = dict.fromkeys(neighbours)
    for peer in noted:
        passive.note(peer)
        if peer in active:
            passive.forget(peer)
    before = dict(passive.names)
    passive.merge(brought, active, sent)
    assert len(passive.names) <= 6
    assert 7 not in passive.names
    assert not set(passive.names) & set(active)
    new = {peer for peer in brought if peer != 7 and peer not in active}
    assert set(passive.names) <= set(before) | new
    if len(set(before) | new) <= 6:
        assert set(passive.names) == set(before) | new


def test_what_was_sent_goes_before_anything_else() -> None:
    passive = Passive(Paper(1), 0, size_max=4)
    for peer in (1, 2, 3, 4):
        passive.note(peer)
    passive.merge([5, 6], {}, [2, 4])
    assert sorted(passive.names, key=str) == [1, 3, 5, 6]


def test_some_are_drawn_without_repetition() -> None:
    passive = Passive(Paper(1), 0)
    for peer in range(1, 9):
        passive.note(peer)
    assert len(set(passive.some(4))) == 4
    assert len(passive.some(100)) == 8
