"""The desk: what a part of the core may ask for, and nothing else.

Owns: the ten things that every part needs: the time, counters, calls to the store and to peers, jobs, effects. Must
never: lead from one part to another. What two parts share is given to both when they are made, under its own type.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from .counters import Counters
from .effects import Act
from .links.calls import NOT_HOME, Asker, Calls, Kind
from .links.link import Item
from .stores import StoreCalls, StoreDone

Job = Iterator[bool]
"""Work in slices of a few milliseconds. One that yields true waits for something, and is put back (``Desk.job``) by the
part that knows that it has come."""


class Desk:
    """One endpoint's. ``now``: monotonic seconds, of the event that is being dealt with."""

    def __init__(
        self, now: float, counters: Counters, calls: Calls, stores: StoreCalls, jobs: deque[Job], acts: list[Act]
    ) -> None:
        self.now = now
        self.counts = counters.counts
        self.drops = counters.drops
        self._calls = calls
        self._stores = stores
        self._jobs = jobs
        self._acts = acts

    def store(self, operation: str, arguments: tuple[Any, ...], done: StoreDone, context: Any = None) -> None:
        """Call the store at the end of the turn; ``done`` is told (context, result, error)."""
        self.counts["store_calls"] += 1
        self._stores.make(operation, arguments, done, context, self.now)

    def number(self) -> int:
        """A number for a request, never used before by this incarnation."""
        return self._calls.number()

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
        """Make a request to the peer; the asker is told what comes of it.

        ``number``: one that was drawn before; 0: a new one. ``linked``: arguments that go over the present link
        instead, since they mean the same there, and only there.
        """
        self._calls.make(kind, peer, arguments, asker, context, self.now, number, linked)

    def answer(self, peer: str, number: int, value: Any = None) -> None:
        """Answer a peer's request."""
        self._calls.put(peer, (-number, "", value))

    def decline(self, peer: str, number: int, code: str, info: Any = "") -> None:
        """Refuse a peer's request with an error code, or ``NOT_HOME``."""
        if code == NOT_HOME:
            self.counts["not_home"] += 1
        self._calls.put(peer, (-number, code, info))

    def job(self, job: Job) -> None:
        """Do this in slices, in turns to come."""
        self._jobs.append(job)

    def emit(self, act: Act) -> None:
        """Have the shell do this at the end of the turn."""
        self._acts.append(act)


def in_turn(step: Callable[..., None], *arguments: Any) -> Job:
    """A job of one slice."""
    step(*arguments)
    yield from ()
