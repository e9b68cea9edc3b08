"""The desk: what a part of the core may ask for, and nothing else.

Owns: what every part needs: both clocks, counters, calls to the store and to peers, jobs, effects. Must never: lead
from one part to another. What two parts share is given to both when they are made, under its own type.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from .counters import Counters
from .effects import Act
from .links.calls import NOT_HOME, Asker, Calls
from .links.frames import Answer
from .links.requests import Request
from .metrics import Metric, counter
from .stores import StoreCalls, StoreDone

Job = Iterator[bool]
"""Work in slices of a few milliseconds. One that yields true waits for something, and is put back (``Desk.job``) by the
part that knows that it has come."""


class Desk:
    """One endpoint's. ``now``: monotonic seconds, of the event that is being dealt with."""

    def __init__(
        self,
        now: float,
        counters: Counters,
        calls: Calls,
        stores: StoreCalls,
        jobs: deque[Job],
        acts: list[Act],
        unix_s: float = 0.0,
    ) -> None:
        """``unix_s``: Unix time in seconds, at ``now``."""
        self.now = now
        self._unix_s = unix_s  # at the last tick,
        self._ticked_at = now
        self.counts = counters.counts
        self.drops = counters.drops
        self._calls = calls
        self._stores = stores
        self._jobs = jobs
        self._acts = acts

    @property
    def unix_s(self) -> float:
        """Unix time in seconds, of the event that is being dealt with."""
        return self._unix_s + (self.now - self._ticked_at)

    def tick(self, unix_s: float) -> None:
        """It is ``unix_s`` now: this clock may have been set back or on."""
        self._unix_s, self._ticked_at = unix_s, self.now

    def counted(self, name: str, help: str) -> Metric:
        """One of ``counts``, as a part tells it."""
        return counter(name, help, self.counts[name])

    def store(self, operation: str, arguments: tuple[Any, ...], done: StoreDone, context: Any = None) -> None:
        """Call the store at the end of the turn; ``done`` is told (context, result, error)."""
        self.counts["store_calls"] += 1
        self._stores.make(operation, arguments, done, context, self.now)

    def number(self) -> int:
        """A number for a request, never used before by this incarnation."""
        return self._calls.number()

    def ask(
        self,
        peer: str,
        request: Request,
        asker: Asker,
        context: Any = None,
        number: int = 0,
        linked: Request | None = None,
    ) -> None:
        """Make a request to the peer; the asker is told what comes of it.

        ``number``: one that was drawn before; 0: a new one. ``linked``: goes over the present link instead, since it
        means the same there, and only there.
        """
        self._calls.make(peer, request, asker, context, self.now, number, linked)

    def cast(self, peers: Iterable[str], request: Request, asker: Asker, context: Any = None) -> None:
        """Make the same request to many peers; the asker is told what comes of each."""
        for peer in peers:
            self._calls.make(peer, request, asker, context, self.now)

    def answer(self, peer: str, number: int, value: Any = None) -> None:
        """Answer a peer's request."""
        self._calls.put(peer, (number, Answer("", value)))

    def decline(self, peer: str, number: int, code: str, info: Any = "") -> None:
        """Refuse a peer's request with an error code, or ``NOT_HOME``."""
        if code == NOT_HOME:
            self.counts["not_home"] += 1
        self._calls.put(peer, (number, Answer(code, info)))

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
