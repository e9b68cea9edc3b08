"""Calls to the store: each reports its outcome once, and none waits forever."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ingeborg.broker.core.model import StoreError, StoreLost, StoreMisconfigured, StoreUnavailable, TooManyFilters
from ingeborg.broker.core.stores import STORE_TIMEOUT_S, StoreCalls


class Caller:
    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.stores = StoreCalls(self.counts)
        self.told: list[tuple[Any, Any, str]] = []  # context, result, error's kind

    def make(self, context: Any, now: float = 0.0, operation: str = "topics") -> int:
        """Make a call. Returns the number with which it leaves."""
        self.stores.make(operation, ("anna",), self.done, context, now)
        (call,) = self.stores.take()
        assert call[1:] == (operation, ("anna",))
        return call.number

    def done(self, context: Any, result: Any, error: Exception | None) -> None:
        self.told.append((context, result, type(error).__name__ if error is not None else ""))


def test_the_calls_of_a_turn_leave_together_in_their_order_and_once() -> None:
    caller = Caller()
    for operation in ("subscribe", "topics", "subscribe"):
        caller.stores.make(operation, (), caller.done, None, 0.0)
    assert [call.operation for call in caller.stores.take()] == ["subscribe", "topics", "subscribe"]
    assert caller.stores.take() == []
    assert len(caller.stores) == 3  # under way until each has an outcome


def test_the_answer_finds_who_asked_whatever_the_order_of_answers() -> None:
    caller = Caller()
    first, second = caller.make("first"), caller.make("second")
    caller.stores.ended(second, ["t"], None, 1.0)
    caller.stores.ended(first, None, StoreUnavailable("no quorum"), 1.0)
    assert caller.told == [("second", ["t"], ""), ("first", None, "StoreUnavailable")]
    assert len(caller.stores) == 0


def test_a_failure_of_the_store_is_counted_and_a_fault_of_the_asker_is_not() -> None:
    caller = Caller()
    caller.stores.ended(caller.make("down"), None, StoreUnavailable("no quorum"), 1.0)
    caller.stores.ended(caller.make("bad cursor"), None, ValueError("no such page"), 1.0)
    assert [kind for *_, kind in caller.told] == ["StoreUnavailable", "ValueError"]
    assert caller.counts == {"store_errors": 1}
    assert caller.stores.results == {("topics", "error"): 1, ("topics", "success"): 1}


def test_an_overdue_call_is_given_up_once_and_its_late_answer_not_listened_to() -> None:
    caller = Caller()
    early, late = caller.make("early", 0.0), caller.make("late", 1.0)
    caller.stores.tick(STORE_TIMEOUT_S - 0.001)
    assert caller.told == []
    caller.stores.tick(STORE_TIMEOUT_S)
    assert caller.told == [("early", None, "TimeoutError")]
    assert caller.counts == {"store_errors": 1}
    caller.stores.ended(early, ["t"], None, STORE_TIMEOUT_S)
    caller.stores.ended(late, ["t"], None, STORE_TIMEOUT_S)
    assert caller.told[1:] == [("late", ["t"], "")]


def test_how_long_each_took_is_observed_by_operation() -> None:
    caller = Caller()
    number, other = caller.make(None, 10.0, "subscribe"), caller.make(None, 10.0, "topics")
    caller.stores.ended(number, None, None, 10.25)
    caller.stores.ended(other, None, StoreUnavailable(""), 12.0)
    assert {operation: times.sum_s for operation, times in caller.stores.times.items()} == {
        "subscribe": 0.25,
        "topics": 2.0,
    }


class EachOnce(RuleBasedStateMachine):
    """The rules make calls, answer them in any order, answer them twice, and let them time out."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.caller = Caller()
        self.deadlines: dict[int, float] = {}  # deadlines of the calls under way
        self.expected: list[int] = []  # numbers of the calls that have reported their end

    @rule()
    def make(self) -> None:
        number = self.caller.make(len(self.deadlines) + len(self.expected) + 1, self.now)
        assert number not in self.deadlines
        self.deadlines[number] = self.now + STORE_TIMEOUT_S

    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        """Answer a call, perhaps one that has been answered already, or has timed out."""
        numbers = [*self.deadlines, *self.expected]
        if not numbers:
            return
        number = data.draw(st.sampled_from(numbers))
        self.caller.stores.ended(number, "result", None, self.now)
        if self.deadlines.pop(number, None) is not None:
            self.expected.append(number)

    @rule(seconds=st.sampled_from([0.0, 0.1, 1.0, STORE_TIMEOUT_S]))
    def tick(self, seconds: float) -> None:
        self.now += seconds
        self.caller.stores.tick(self.now)
        for number, deadline in list(self.deadlines.items()):
            if deadline <= self.now:
                del self.deadlines[number]
                self.expected.append(number)

    @invariant()
    def each_was_told_once(self) -> None:
        assert [context for context, *_ in self.caller.told] == self.expected
        assert len(self.caller.stores) == len(self.deadlines)


TestEachOnce = EachOnce.TestCase


@pytest.mark.parametrize("kind", [StoreError, StoreUnavailable, StoreMisconfigured, TooManyFilters, StoreLost])
def test_the_log_has_no_error_that_its_store_has_not_told_it(kind: type[StoreError]) -> None:
    error = kind("why")
    assert (str(error), error.is_logged) == ("why", False)
