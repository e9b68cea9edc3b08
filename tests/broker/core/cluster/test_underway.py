"""Waiters for the end of events, against a naive model that scans everything after each event."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ingeborg.broker.core.cluster.underway import UnderWay

THINGS = st.integers(0, 5)


class BesideAModel(RuleBasedStateMachine):
    """Compares waiters with the model. They have numbers in the order of arrival."""

    def __init__(self) -> None:
        super().__init__()
        self.under_way = UnderWay()
        self.called: list[int] = []
        self.things: set[int] = set()
        self.waiters: dict[int, set[int]] = {}  # waiter -> the things whose end it waits for
        self.expected: list[int] = []
        self.count = 0

    @rule(thing=THINGS)
    def begin(self, thing: int) -> None:
        self.under_way.begin(thing)
        self.things.add(thing)

    @rule(thing=THINGS)
    def end(self, thing: int) -> None:
        """End a thing. Ending one that is not under way changes nothing."""
        self.under_way.end(thing)
        self.things.discard(thing)
        for waiter, awaited in list(self.waiters.items()):
            awaited.discard(thing)
            if not awaited:
                del self.waiters[waiter]
                self.expected.append(waiter)

    @rule()
    def wait(self) -> None:
        self.count += 1
        waiter = self.count
        self.under_way.after(lambda: self.called.append(waiter))
        if self.things:
            self.waiters[waiter] = set(self.things)
        else:
            self.expected.append(waiter)

    @invariant()
    def the_same_have_been_called_in_the_same_order(self) -> None:
        assert self.called == self.expected
        assert len(self.under_way) == len(self.things)


TestBesideAModel = BesideAModel.TestCase


def test_what_begins_later_keeps_nobody_waiting() -> None:
    under_way, called = UnderWay(), []
    under_way.begin("first")
    under_way.after(lambda: called.append("went on"))
    under_way.begin("second")
    under_way.end("first")
    assert called == ["went on"]
    assert len(under_way) == 1


def test_who_goes_on_may_begin_something_and_wait_for_it_at_once() -> None:
    under_way, called = UnderWay(), []
    under_way.begin("write")

    def then() -> None:
        called.append("written")
        under_way.begin("keys")
        under_way.after(lambda: called.append("handed on"))

    under_way.after(then)
    under_way.after(lambda: called.append("written, too"))
    under_way.end("write")
    assert called == ["written", "written, too"]
    under_way.end("keys")
    assert called == ["written", "written, too", "handed on"]
