"""Compares the causal oracle with one that keeps whole vectors and knows no trick."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingeborg.bench.errors import BenchError
from ingeborg.bench.overlay import record as module
from ingeborg.bench.overlay.record import DOUBLE, Record, Violation


def record_of(*deliveries: tuple[int, int, int]) -> Record:
    """Record deliveries (node, root, number), one a slot."""
    record = Record()
    for slot, (node, root, number) in enumerate(deliveries):
        record.delivered(slot, node, root, number, 0 if node == root else 1)
    return record


def test_what_comes_after_a_message_that_knew_it_is_a_violation() -> None:
    record = record_of((0, 0, 1), (1, 0, 1), (1, 1, 1), (2, 1, 1), (2, 0, 1))
    assert record.violations == 1
    assert record.named == [Violation(node=2, message=0, slot=4)]


def test_two_messages_of_one_root_that_change_places_are_a_violation() -> None:
    assert record_of((0, 0, 1), (0, 0, 2), (1, 0, 2), (1, 0, 1)).violations == 1


def test_messages_that_do_not_know_each_other_come_in_any_order() -> None:
    assert record_of((0, 0, 1), (1, 1, 1), (2, 0, 1), (2, 1, 1), (3, 1, 1), (3, 0, 1)).violations == 0


def test_a_message_that_never_comes_is_lost_and_violates_nothing() -> None:
    assert record_of((0, 0, 1), (0, 0, 2), (1, 0, 2)).violations == 0


def test_a_root_knows_what_the_messages_knew_that_it_got() -> None:
    """0 sends a, 1 gets it and sends b, 2 gets only b and sends c: a node that gets c and then a has a after c."""
    record = record_of((0, 0, 1), (1, 0, 1), (1, 1, 1), (2, 1, 1), (2, 2, 1), (3, 2, 1), (3, 0, 1))
    assert record.violations == 1


def test_a_double_is_counted_and_is_no_violation() -> None:
    record = record_of((0, 0, 1), (1, 0, 1), (1, 0, 1), (0, 0, 1))
    assert (record.doubles, record.violations) == (2, 0)
    assert [*record.hops] == [0, 1, DOUBLE, DOUBLE]


def test_what_nobody_has_broadcast_is_counted() -> None:
    record = record_of((1, 0, 1))
    assert (record.unknown, len(record.slots)) == (1, 0)


def test_a_run_has_at_most_so_many_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MESSAGES_MAX", 2)
    with pytest.raises(BenchError, match="more than 2 messages"):
        record_of((0, 0, 1), (0, 0, 2), (0, 0, 3))


def test_only_the_first_violations_are_named() -> None:
    many = module.NAMED_MAX + 5
    sent = [(0, 0, number) for number in range(1, many + 2)]
    got = [(1, 0, number) for number in range(many + 1, 0, -1)]
    record = record_of(*sent, *got)
    assert record.violations == many
    assert len(record.named) == module.NAMED_MAX


@st.composite
def schedules(draw: st.DrawFn) -> list[tuple[int, int, int]]:
    """Draw broadcasts of three nodes, each delivered by some of four, in any order after it."""
    sent: list[tuple[int, int]] = []
    numbers = [0, 0, 0]
    lacking: list[list[tuple[int, int]]] = [[], [], [], []]
    steps: list[tuple[int, int, int]] = []
    for _ in range(draw(st.integers(1, 25))):
        node = draw(st.integers(0, 3))
        if node < 3 and (not lacking[node] or draw(st.booleans())):
            numbers[node] += 1
            message = (node, numbers[node])
            sent.append(message)
            steps.append((node, *message))
            for other in range(4):
                if other != node:
                    lacking[other].append(message)
        elif lacking[node]:
            message = lacking[node].pop(draw(st.integers(0, len(lacking[node]) - 1)))
            steps.append((node, *message))
    return steps


@given(schedules())
def test_it_finds_what_whole_sets_find(steps: list[tuple[int, int, int]]) -> None:
    past: dict[tuple[int, int], set[tuple[int, int]]] = {}
    got: list[set[tuple[int, int]]] = [set() for _ in range(4)]
    known: list[set[tuple[int, int]]] = [set() for _ in range(4)]
    violations = 0
    for node, *message in steps:
        mid = (message[0], message[1])
        if node == mid[0]:
            past[mid] = set(known[node])
        elif mid in known[node] and mid not in got[node]:
            violations += 1
        got[node].add(mid)
        known[node] |= past[mid] | {mid}
    assert record_of(*steps).violations == violations
