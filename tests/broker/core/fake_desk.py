"""A desk that writes down what a part asks for, so that a part can be driven alone: no router, no link, no store.

Owns: what was asked. Must never: answer by itself; the test says what comes of it. ``test_desk.py`` holds it to what
a desk does.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

from ingeborg.broker.core.desk import Desk, Job
from ingeborg.broker.core.effects import Act
from ingeborg.broker.core.links.calls import NOT_HOME, TIMEOUT_S, Asker, Call, Calls, Kind
from ingeborg.broker.core.links.link import Item
from ingeborg.broker.core.operators.counters import Counters
from ingeborg.broker.core.stores import StoreCalls, StoreDone


class Stored(NamedTuple):
    """A call to the store."""

    operation: str
    arguments: tuple[Any, ...]
    done: StoreDone
    context: Any

    def end(self, result: Any = None, error: Exception | None = None) -> None:
        """This is what comes of it."""
        self.done(self.context, result, error)


class FakeDesk(Desk):
    """``now`` is the test's to set."""

    def __init__(self, now: float = 100.0) -> None:
        self.counters = Counters()
        self.jobs: deque[Job] = deque()
        self.acts: list[Act] = []
        super().__init__(now, self.counters, Calls(), StoreCalls(self.counters.counts), self.jobs, self.acts)
        self.stored: list[Stored] = []
        self.asked: list[Call] = []
        self.linked: dict[int, Item] = {}  # number of a call -> what goes over the present link instead
        self.answers: list[tuple[str, int, Any]] = []  # peer, number, value
        self.declined: list[tuple[str, int, str]] = []  # peer, number, code

    def store(self, operation: str, arguments: tuple[Any, ...], done: StoreDone, context: Any = None) -> None:
        self.counts["store_calls"] += 1
        self.stored.append(Stored(operation, arguments, done, context))

    def ask(
        self,
        kind: Kind,
        peer: str,
        arguments: Item,
        asker: Asker,
        context: Any = None,
        number: int = 0,
        linked: Item | None = None,
    ) -> None:
        call = Call(number or self.number(), kind, peer, arguments, asker, context, self.now + TIMEOUT_S)
        self.asked.append(call)
        if linked is not None:
            self.linked[call.number] = linked

    def answer(self, peer: str, number: int, value: Any = None) -> None:
        self.answers.append((peer, number, value))

    def decline(self, peer: str, number: int, code: str, info: Any = "") -> None:
        if code == NOT_HOME:
            self.counts["not_home"] += 1
        self.declined.append((peer, number, code))

    def work(self) -> None:
        """Do all jobs to their ends, but those that wait for something."""
        while self.jobs:
            job = self.jobs.popleft()
            for parked in job:
                if parked:
                    break
