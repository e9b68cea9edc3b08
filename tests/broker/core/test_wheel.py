"""A timer wheel against a naive one: a list that is searched from front to back."""

from __future__ import annotations

import math

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ingeborg.broker.core.wheel import Wheel

SLOT_S = 0.25

#: Times that a float holds exactly, as it does ``SLOT_S``: rounding must not decide when one is due.
times = st.integers(-40, 400).map(lambda eighths: eighths / 8)


def due_at(at: float) -> float:
    """Return the end of the slot that the time is in."""
    return math.ceil(at / SLOT_S) * SLOT_S


class BesideAList(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 3.1
        self.wheel: Wheel[int] = Wheel(self.now, SLOT_S)
        self.row: list[tuple[float, int, int]] = []  # its due time, the thing, its slot in the wheel
        self.things = 0

    @rule(at=times)
    def add(self, at: float) -> None:
        self.things += 1
        slot = self.wheel.add(self.things, at)
        next_slot = (math.floor(self.now / SLOT_S) + 1) * SLOT_S
        self.row.append((max(due_at(at), next_slot), self.things, slot))

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        if self.row:
            entry = data.draw(st.sampled_from(self.row))
            self.row.remove(entry)
            self.wheel.remove(entry[1], entry[2])

    @rule(data=st.data())
    def remove_what_is_not_there(self, data: st.DataObject) -> None:
        self.wheel.remove(-1, data.draw(st.sampled_from([entry[2] for entry in self.row] or [0])))

    @rule(now=times | st.just(1e6))
    def look(self, now: float) -> None:
        """Take everything due. Now and then the clock is set back, or forward by days."""
        self.now = now
        due = sorted((entry for entry in self.row if entry[0] <= now), key=lambda entry: entry[0])
        self.row = [entry for entry in self.row if entry[0] > now]
        assert self.wheel.due(now) == [thing for _, thing, _ in due]

    @invariant()
    def as_many_are_there(self) -> None:
        assert len(self.wheel) == len(self.row)


TestBesideAList = BesideAList.TestCase


def test_nothing_comes_before_its_time_or_twice() -> None:
    wheel: Wheel[str] = Wheel(100.0, 0.5)
    wheel.add("tea", 100.7)
    assert [wheel.due(now) for now in (100.5, 100.7, 100.9, 101.0, 101.0, 102.0)] == [[], [], [], ["tea"], [], []]


def test_what_is_due_already_comes_with_the_next_slot() -> None:
    wheel: Wheel[str] = Wheel(100.0, 0.5)
    wheel.add("late", 50.0)
    assert wheel.due(100.4) == []
    assert wheel.due(100.5) == ["late"]


def test_a_thing_that_has_come_due_can_be_added_again_at_once() -> None:
    wheel: Wheel[str] = Wheel(0.0, 1.0)
    wheel.add("ping", 1.0)
    for now in range(1, 5):
        assert wheel.due(now) == ["ping"]
        wheel.add("ping", now + 1.0)
    assert len(wheel) == 1
