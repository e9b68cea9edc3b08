"""Whether a connection of an adapter is still there, and how its calls wait.

Owns: the one end a connection has (lost, timed out or closed), told once; the time-outs of calls; what is said of a
server that is not there. Must never: know a system, or reconnect: a run has to see a loss as a loss.
"""

from __future__ import annotations

import asyncio
from types import TracebackType

from .base import BackendError, OnError


def no_server(where: str, server: str, rival: str, error: Exception) -> BackendError:
    """Of a connection that could not be made. ``server``: what it should have been; ``rival``: `bench rivals`' name."""
    why = str(error) or "it does not answer"
    return BackendError(
        "connect", f"{where}: no {server} ({why}): start one there (bench rivals up {rival}), or mend --url"
    )


class Call:
    """A call under way: ``async with`` this around it. A step of it has to be followed by ``check`` where the client
    library swallows cancellation."""

    def __init__(self, lifeline: Lifeline, what: str, timeout_s: float) -> None:
        self._lifeline = lifeline
        self._what = what
        self._timeout_s = timeout_s
        self.deadline = asyncio.timeout(timeout_s)

    async def __aenter__(self) -> Call:
        self._lifeline.enter(self)
        await self.deadline.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._lifeline.leave()
        try:
            await self.deadline.__aexit__(kind, error, traceback)
        except TimeoutError:
            raise self._late() from None
        if isinstance(error, TimeoutError):  # the library's own
            raise self._late() from error
        if error is None:
            self.check()

    def check(self) -> None:
        """``BackendError`` if the connection has ended, or the call has."""
        self._lifeline.check()
        if self.deadline.expired():
            raise self._late()

    def progress(self) -> None:
        """The server has answered: from here on it has the whole time again. ``BackendError`` as ``check``."""
        self.check()
        self.deadline.reschedule(asyncio.get_running_loop().time() + self._timeout_s)

    def _late(self) -> BackendError:
        # Ends the connection: what a late server still makes of the call is unknown.
        return self._lifeline.end("timeout", f"{self._what}: no progress within {self._timeout_s:g} s")


class Lifeline:
    """Of one connection. ``where``: its URL, for messages. ``on_error`` hears of a loss once, and of nothing after
    ``close``."""

    def __init__(self, where: str, on_error: OnError) -> None:
        self._where = where
        self._on_error = on_error
        self._end: BackendError | None = None
        self._closed = False
        self._call: Call | None = None

    def check(self) -> None:
        """``BackendError`` if the connection has ended."""
        if self._end is not None:
            # A new one each time: an exception that is raised again would grow its traceback.
            raise BackendError(self._end.code, str(self._end))

    def end(self, code: str, text: str) -> BackendError:
        """From now on all calls fail; the one under way does at once. The reason: of the first end."""
        if self._end is None:
            self._end = BackendError(code, f"{self._where}: {text}")
            if self._call is not None and not self._call.deadline.expired():
                self._call.deadline.reschedule(0.0)
        return BackendError(self._end.code, str(self._end))

    def lose(self, why: str) -> BackendError:
        """The connection is gone; ``why``: in the library's words. The first time, ``on_error`` hears of it."""
        first = self._end is None
        error = self.end("connection_lost", f"the connection was lost: {why}")
        if first:
            self._on_error("connection_lost")
        return error

    def report(self, code: str) -> None:
        """Something else failed that no call waits for."""
        if not self._closed:
            self._on_error(code)

    def close(self) -> bool:
        """Whether this is the first time."""
        first = not self._closed
        self._closed = True
        self.end("closed", "the connection is closed")
        return first

    def call(self, what: str, timeout_s: float) -> Call:
        """Around a call. ``BackendError`` if the connection has ended or ends meanwhile, or ``timeout_s`` after the
        last progress, which ends the connection."""
        return Call(self, what, timeout_s)

    def enter(self, call: Call) -> None:
        """``Call``'s."""
        self.check()
        self._call = call

    def leave(self) -> None:
        """``Call``'s."""
        self._call = None
