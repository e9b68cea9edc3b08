"""A desk with nothing behind it, so that a part can be driven alone: no router, no store, links that nothing leaves by.

Owns: what a part has asked for. Must never: answer by itself; the test says what comes of it. The base and its desk are
the real ones, for a part compiled takes no others; what the desk has handed on is looked for where it lies then.
"""

from __future__ import annotations

from collections import Counter
from string import ascii_lowercase
from typing import Any

from ingeborg.broker.core.base import Base
from ingeborg.broker.core.effects import StoreCall
from ingeborg.broker.core.limits import SIZES, Limits, Sizes
from ingeborg.broker.core.links.calls import Call
from ingeborg.broker.core.links.frames import Answer
from ingeborg.broker.core.links.link import Link
from ingeborg.broker.core.model import Endpoint, Shape

ME = Endpoint("me", "m", "ws://me", 0)

#: Peers that a part can answer, and send what is meant for the present link only.
PEERS = (*ascii_lowercase, "new", "stranger")


class Stored:
    """A call to the store."""

    def __init__(self, call: StoreCall, desk: FakeDesk) -> None:
        self.operation = call.operation
        self.arguments = call.arguments
        self._number = call.number
        self._desk = desk

    def end(self, result: Any = None, error: Exception | None = None) -> None:
        """This is what comes of it."""
        self._desk.stores.ended(self._number, result, error, self._desk.now)


class FakeDesk:
    """``base`` is what an assembly is given, ``real`` what a part is; ``now`` is the test's to set. What is asked for
    comes to lists, and stays in them until the test takes it out."""

    def __init__(
        self,
        now: float = 100.0,
        unix_s: float = 0.0,
        *,
        limits: Limits | None = None,
        sizes: Sizes = SIZES,
        shape: Shape | None = None,
    ) -> None:
        self.base = base = Base(ME, now, unix_s, limits, sizes, shape)
        self.real, self.counters, self.stores = base.desk, base.counters, base.stores
        self.jobs, self.acts = base.jobs, base.acts
        self._calls = base.calls
        base.calls.links.update({peer: Link("here") for peer in PEERS})
        self._stored: list[Stored] = []
        self._asked: list[Call] = []
        self._linked: dict[int, Any] = {}
        self._answers: list[tuple[str, int, Any]] = []
        self._declined: list[tuple[str, int, str]] = []

    @property
    def now(self) -> float:
        """Monotonic seconds."""
        return self.real.now

    @now.setter
    def now(self, now: float) -> None:
        self.real.now = now

    @property
    def counts(self) -> Counter[str]:
        """What is counted."""
        return self.real.counts

    @property
    def drops(self) -> Counter[str]:
        """What is dropped."""
        return self.real.drops

    @property
    def stored(self) -> list[Stored]:
        """Calls of the store."""
        self._stored += [Stored(call, self) for call in self.stores.take()]
        return self._stored

    @property
    def asked(self) -> list[Call]:
        """Requests to peers."""
        self._look()
        return self._asked

    @property
    def linked(self) -> dict[int, Any]:
        """Number of a request -> what goes over the present link in its place."""
        self._look()
        return self._linked

    @property
    def answers(self) -> list[tuple[str, int, Any]]:
        """Of peers' requests: the peer, the request's number, the value."""
        self._look()
        return self._answers

    @property
    def declined(self) -> list[tuple[str, int, str]]:
        """Of peers' requests: the peer, the request's number, the code."""
        self._look()
        return self._declined

    def _look(self) -> None:
        asked = dict(self._calls._calls)
        self._calls._calls.clear()
        self._asked += asked.values()
        for peer, link in self._calls.links.items():
            for number, said in link._out:
                if isinstance(said, Answer):
                    if said.code:
                        self._declined.append((peer, number, said.code))
                    else:
                        self._answers.append((peer, number, said.value))
                elif number in asked and said is not asked[number].request:
                    self._linked[number] = said
            link._out.clear()

    def work(self) -> None:
        """Do all jobs to their ends, but those that wait for something."""
        while self.jobs:
            job = self.jobs.popleft()
            for parked in job:
                if parked:
                    break
