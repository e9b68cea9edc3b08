"""A desk with nothing behind it, so that a test can drive a part alone: no router, no store, and no open link.

Owns: the requests of a part. Must never: answer on its own; the test decides the outcomes. The base and its desk are
the real ones, because a compiled part takes no others. The fake desk reads the requests from the places where the real
desk leaves them.
"""

from __future__ import annotations

from collections import Counter
from string import ascii_lowercase
from typing import Any

from msgspec import msgpack

from ingeborg.broker.core.base import Base
from ingeborg.broker.core.effects import StoreCall
from ingeborg.broker.core.limits import SIZES, Limits, Sizes
from ingeborg.broker.core.links.calls import Call
from ingeborg.broker.core.links.frames import Answer, UsualAnswers
from ingeborg.broker.core.links.link import Link
from ingeborg.broker.core.model import Endpoint, Shape

from .queued import taken

ME = Endpoint("me", "m", "ws://me", 0)

#: Peers that a part can answer, and to which it can send requests for the present link only.
PEERS = (*ascii_lowercase, "new", "stranger")


class Stored:
    """A call to the store."""

    def __init__(self, call: StoreCall, desk: FakeDesk) -> None:
        self.operation = call.operation
        self.arguments = call.arguments
        self._number = call.number
        self._desk = desk

    def end(self, result: Any = None, error: Exception | None = None) -> None:
        """End the call with this outcome."""
        self._desk.stores.ended(self._number, result, error, self._desk.now)


class FakeDesk:
    """``base``: the argument of an assembly. ``real``: the argument of a part. ``now``: set by the test. Requests
    collect in lists until the test takes them out."""

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
        """Counts by name."""
        return self.real.counts

    @property
    def drops(self) -> Counter[str]:
        """Drops by reason."""
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
        """The number of a request -> the request that goes over the present link in its place."""
        self._look()
        return self._linked

    @property
    def answers(self) -> list[tuple[str, int, Any]]:
        """Answers to peers' requests: the peer, the request's number, the value (``None`` for the usual one)."""
        self._look()
        return self._answers

    @property
    def declined(self) -> list[tuple[str, int, str]]:
        """Refusals of peers' requests: the peer, the request's number, the code."""
        self._look()
        return self._declined

    def _look(self) -> None:
        asked = dict(self._calls._calls)
        self._calls._calls.clear()
        self._asked += asked.values()
        for peer, link in self._calls.links.items():
            for number, said in taken(link):
                if isinstance(said, UsualAnswers):
                    self._answers += [(peer, answered, None) for answered in said.numbers]
                elif isinstance(said, Answer):
                    if said.code:
                        self._declined.append((peer, number, said.code))
                    else:
                        self._answers.append((peer, number, msgpack.decode(said.value)))
                elif number in asked and said != asked[number].request:
                    self._linked[number] = said

    def work(self) -> None:
        """Finish all jobs, except those that wait for something."""
        while self.jobs:
            job = self.jobs.popleft()
            for parked in job:
                if parked:
                    break
