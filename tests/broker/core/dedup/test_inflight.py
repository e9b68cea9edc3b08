"""The messages and bytes under way, against sums of lists."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ingeborg.broker.core.dedup.inflight import InFlight

MESSAGES_MAX, BYTES_MAX = 6, 100


@given(st.lists(st.one_of(st.integers(0, 60), st.just(-1), st.integers(0, 150).map(lambda size: (size,)))))
def test_it_is_too_much_from_either_bound_on_and_little_below_half_of_both(
    steps: list[int | tuple[int]],
) -> None:
    """Each step is a number or a tuple. A number: a message of this size begins; -1: the oldest ends. A tuple: the
    bytes on the fullest link."""
    inflight = InFlight(MESSAGES_MAX, BYTES_MAX)
    sizes: list[int] = []
    link = 0
    for step in steps:
        if isinstance(step, tuple):
            (link,) = step
            inflight.links(link)
        elif step >= 0:
            inflight.begin(step)
            sizes.append(step)
        elif sizes:
            inflight.end(sizes.pop(0))
        assert (inflight.messages, inflight.bytes) == (len(sizes), sum(sizes))
        too_much = len(sizes) >= MESSAGES_MAX or sum(sizes) >= BYTES_MAX or link > BYTES_MAX
        assert inflight.congested == too_much
        little = len(sizes) < MESSAGES_MAX / 2 and sum(sizes) < BYTES_MAX / 2 and link <= BYTES_MAX
        assert inflight.eased == little


def test_between_half_and_the_bound_it_is_neither_too_much_nor_little() -> None:
    inflight = InFlight(4, 1000)
    for _ in range(3):
        inflight.begin(1)
    assert (inflight.congested, inflight.eased) == (False, False)
    inflight.begin(1)
    assert inflight.congested
    inflight.end(1)
    assert (inflight.congested, inflight.eased) == (False, False)
    inflight.end(1)
    assert not inflight.eased  # two of four are not below half
    inflight.end(1)
    assert inflight.eased


def test_a_full_link_is_too_much_though_no_message_is_under_way() -> None:
    inflight = InFlight(4, 1000)
    inflight.links(1001)
    assert (inflight.congested, inflight.eased) == (True, False)
    inflight.begin(1)
    inflight.end(1)
    assert inflight.congested  # the end of a message does not empty the link
    inflight.links(1000)
    assert (inflight.congested, inflight.eased) == (False, True)
