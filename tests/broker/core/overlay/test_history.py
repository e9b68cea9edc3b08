"""A history against a list of all deliveries."""

from __future__ import annotations

from collections.abc import Hashable

from hypothesis import given
from hypothesis import strategies as st

from ingeborg.broker.core.overlay.history import SWEEP_EVERY, History, Key
from ingeborg.broker.core.overlay.roots import HISTORY_S, Root, Vector

#: Each message's root, and its seconds after the message before.
deliveries = st.lists(st.tuples(st.sampled_from("pqr"), st.sampled_from([0.0, 0.5, 3.0])), max_size=40)


def filled(drawn: list[tuple[str, float]], bytes_max: int = 1 << 20) -> tuple[History, dict[Hashable, Root], list[Key]]:
    """Return a history, the vector's rows, and all deliveries, each message of one byte."""
    history = History(bytes_max)
    rows: dict[Hashable, Root] = {}
    keys: list[Key] = []
    now = 0.0
    for name, pause in drawn:
        now += pause
        row = rows.setdefault(name, Root(name, now, 0))
        row.seq += 1
        row.at = now
        keys.append((name, row.seq))
        history.append(keys[-1], 1, 0, now, now)
    return history, rows, keys


@given(drawn=deliveries, had=st.dictionaries(st.sampled_from("pqr"), st.integers(0, 20)), bytes_max=st.integers(1, 60))
def test_what_another_lacks_is_sent_or_named(drawn: list[tuple[str, float]], had: Vector, bytes_max: int) -> None:
    history, rows, keys = filled(drawn, bytes_max)
    now = sum(pause for _, pause in drawn)
    floors, sent = history.lacking(had, rows, float("-inf"), now)
    assert sent == [key for key in keys if key in set(sent)], "in the order of delivery"
    assert all(key[1] > had.get(key[0], 0) for key in sent)
    for name, row in rows.items():
        for number in range(had.get(name, 0) + 1, row.seq + 1):
            assert (name, number) in sent or number <= floors[name]
    assert all(floors[name] > had.get(name, 0) for name in floors)
    assert all(history.find(key, now) is not None for key in sent)


@given(drawn=deliveries)
def test_what_is_young_and_fits_is_there(drawn: list[tuple[str, float]]) -> None:
    history, _, keys = filled(drawn)
    now = 0.0
    for (_, pause), key in zip(drawn, keys, strict=True):
        now += pause
        end = sum(each for _, each in drawn)
        assert (history.find(key, end) is not None) == (end - now <= HISTORY_S)


def test_old_and_many_messages_are_dropped() -> None:
    history, _, _ = filled([("p", 1.0)] * 10 * SWEEP_EVERY)
    assert len(history.records) <= SWEEP_EVERY + HISTORY_S + 1
    history, _, keys = filled([("p", 0.0)] * 1000, bytes_max=80)
    assert 70 <= len(history.records) <= 80
    assert list(history.records) == keys[-len(history.records) :]


def test_a_payload_beyond_the_limit_leaves_an_empty_history() -> None:
    history = History(bytes_max=10)
    history.append(("p", 1), 11, 0, 0.0, 0.0)
    assert not history.records


def test_a_new_node_gets_what_was_delivered_since_it_began() -> None:
    history, rows, _ = filled([("p", 1.0), ("q", 1.0), ("p", 1.0), ("q", 1.0)])
    assert history.lacking({}, rows, 2.5, 4.0) == ({"p": 1, "q": 1}, [("p", 2), ("q", 2)])
    assert history.lacking({}, rows, 3.5, 4.0) == ({"q": 1, "p": 2}, [("q", 2)])
