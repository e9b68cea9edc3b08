"""The desk: all services that a part of the core can use.

Owns: both clocks, counters, calls to the store and to peers, jobs, and effects. Must never: give one part access to
another. If two parts share an object, both receive that object itself when they are created.
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
from .model import NO_LOAD
from .stores import StoreCalls, StoreDone

Job = Iterator[bool]
"""Work in slices of a few milliseconds. A job yields true if it has to wait for an event. The part that handles this
event then queues the job again (``Desk.job``)."""


class Desk:
    """One endpoint's desk.

    Its methods never block. They raise no errors for failures of a peer or the store. In a later turn, they report such
    a failure to the asker of the request, or to the ``done`` callback of the store call.

    ``now``: the time of the event that the endpoint is handling, in monotonic seconds.
    """

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
        """Make the desk.

        Args:
            now: monotonic seconds.
            counters: the counters that the parts share.
            calls: the requests to peers that have no answer yet.
            stores: the store calls that have no result yet.
            jobs: the queue of jobs.
            acts: the list of acts that the next ``flush`` returns.
            unix_s: Unix time in seconds, at ``now``.
        """
        self.now = now
        self._unix_s = unix_s  # at the last tick
        self._ticked_at = now
        self.counts = counters.counts
        self.drops = counters.drops
        self._calls = calls
        self._stores = stores
        self.load = NO_LOAD  # since the last tick
        self._jobs = jobs
        self._acts = acts

    @property
    def unix_s(self) -> float:
        """Unix time in seconds of the event that the endpoint is handling."""
        return self._unix_s + (self.now - self._ticked_at)

    def tick(self, unix_s: float) -> None:
        """Set Unix time to ``unix_s`` seconds. Unix time can jump forwards and backwards."""
        self._unix_s, self._ticked_at = unix_s, self.now

    def counted(self, name: str, help: str) -> Metric:
        """Return one of ``counts`` as a metric.

        Args:
            name: the counter's name, without the prefix that all metrics share.
            help: the help text for operators.
        """
        return counter(name, help, self.counts[name])

    def store(self, operation: str, arguments: tuple[Any, ...], done: StoreDone, context: Any = None) -> None:
        """Call the store at the end of the turn.

        Args:
            operation: the name of a method of ``Store``.
            arguments: its positional arguments.
            done: a function that is called once, in a later turn, with (context, result, error). ``error`` is ``None``
                if the call succeeded, and a ``TimeoutError`` if the store did not answer within ``STORE_TIMEOUT_S``.
            context: an object for ``done``, passed through unchanged.
        """
        self.counts["store_calls"] += 1
        self._stores.make(operation, arguments, done, context, self.now)

    def number(self) -> int:
        """Return a number for a request. This incarnation has never used the number before."""
        return self._calls.number()

    def ask(
        self,
        peer: str,
        request: Request,
        asker: Asker,
        context: Any = None,
        number: int = 0,
        linked: Request | None = None,
        can_wait: bool = False,
    ) -> None:
        """Send a request to a peer. The desk reports the outcome by calling the asker's ``answered``, ``failed`` or
        ``lost``.

        Args:
            peer: the peer's incarnation.
            request: the request's record.
            asker: gets the outcome, once, in a later turn.
            context: an object for the asker, passed through unchanged in ``Call.context``.
            number: a number from ``number()``, or 0 to draw a new number.
            linked: a record to send instead of ``request`` over the present link. It means the same as ``request`` on
                this link, but not on any later link to the peer.
            can_wait: whether the request says that its answer can wait (``answer_later``).
        """
        self._calls.make(peer, request, asker, context, self.now, number, linked, can_wait)

    def hurry(self) -> None:
        """Ask the peers to send the answers that were allowed to wait, because a client needs an outcome now."""
        self._calls.hurry()

    def cast(self, peers: Iterable[str], request: Request, asker: Asker, context: Any = None) -> None:
        """Send the same request to many peers. The asker gets an outcome for each peer.

        Args:
            peers: the peers' incarnations.
            request: the request's record.
            asker: gets each outcome, as for ``ask``.
            context: an object for the asker, the same for all peers.
        """
        for peer in peers:
            self._calls.make(peer, request, asker, context, self.now)

    def answer(self, peer: str, number: int, value: Any = None) -> None:
        """Answer a peer's request.

        Args:
            peer: the peer's incarnation.
            number: the request's number.
            value: the answer, in the form that the request's record defines. ``None`` for the usual answer to this kind
                of request (``Request.usual``), which has to exist.
        """
        if value is None:
            self._calls.answer_usually(peer, number)
        else:
            self._calls.put(peer, (number, Answer("", value)))

    def answer_later(self, peer: str, number: int) -> None:
        """Give the usual answer to a peer's request that says that the answer can wait. The answer goes to the peer
        with the next frame, at the latest at the next tick, so that it does not wake the peer up. If the peer has said
        that it waits for this answer (``Hurry``), the answer goes immediately.

        Args:
            peer: the peer's incarnation.
            number: the request's number.
        """
        self._calls.answer_usually(peer, number, True)

    def decline(self, peer: str, number: int, code: str, info: Any = "") -> None:
        """Refuse a peer's request.

        Args:
            peer: the peer's incarnation.
            number: the request's number.
            code: an error code, or ``NOT_HOME``.
            info: details for the asker.
        """
        if code == NOT_HOME:
            self.counts["not_home"] += 1
        self._calls.put(peer, (number, Answer(code, info)))

    def job(self, job: Job) -> None:
        """Queue a job, whose slices the endpoint runs in later turns.

        Args:
            job: an iterator, each step of which is one slice. It yields true to leave the queue until a part queues it
                again.
        """
        self._jobs.append(job)

    def emit(self, act: Act) -> None:
        """Have the shell carry out an act at the end of the turn."""
        self._acts.append(act)


def in_turn(step: Callable[..., None], *arguments: Any) -> Job:
    """Return a job of one slice, which calls ``step`` with the arguments."""
    step(*arguments)
    yield from ()
