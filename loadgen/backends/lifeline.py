"""Tells whether a connection of an adapter is still alive, and how its calls wait.

Owns: a connection's only end (lost, timed out or closed), reported once; the time-outs of calls; the message about a
server that does not answer. Must never: know a system, or reconnect: a run has to see a loss as a loss.
"""

from __future__ import annotations

import asyncio
from types import TracebackType

from .base import BackendError, OnError


def no_server(where: str, server: str, rival: str, error: Exception) -> BackendError:
    """Return the error of a connection that could not be made. ``server``: its kind; ``rival``: its name for `bench
    rivals`."""
    why = str(error) or "it does not answer"
    return BackendError(
        "connect", f"{where}: no {server} ({why}): start one there (bench rivals up {rival}), or mend --url"
    )


class Call:
    """A call under way: wrap it in ``async with``. If the client library swallows cancellation, call ``check`` after
    each step."""

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
        """Raise ``BackendError`` if the connection has ended, or the call has."""
        self._lifeline.check()
        if self.deadline.expired():
            raise self._late()

    def progress(self) -> None:
        """Restart the time-out: the server has answered. ``BackendError`` as in ``check``."""
        self.check()
        self.deadline.reschedule(asyncio.get_running_loop().time() + self._timeout_s)

    def _late(self) -> BackendError:
        # This ends the connection, because it is unknown what a late server still does with the call.
        return self._lifeline.end("timeout", f"{self._what}: no progress within {self._timeout_s:g} s")


class Lifeline:
    """The life of one connection. ``where``: its URL, for messages. ``on_error`` gets a loss once, and nothing after
    ``close``."""

    def __init__(self, where: str, on_error: OnError) -> None:
        self._where = where
        self._on_error = on_error
        self._end: BackendError | None = None
        self._closed = False
        self._call: Call | None = None

    def check(self) -> None:
        """Raise ``BackendError`` if the connection has ended."""
        if self._end is not None:
            # A new one each time: raising the same exception again would grow its traceback.
            raise BackendError(self._end.code, str(self._end))

    def end(self, code: str, text: str) -> BackendError:
        """Fail all calls from now on; the one under way fails at once. Returns the reason of the first end."""
        if self._end is None:
            self._end = BackendError(code, f"{self._where}: {text}")
            if self._call is not None and not self._call.deadline.expired():
                self._call.deadline.reschedule(0.0)
        return BackendError(self._end.code, str(self._end))

    def lose(self, why: str) -> BackendError:
        """End a connection that is gone; ``why``: in the library's words. The first time, ``on_error`` gets it."""
        first = self._end is None
        error = self.end("connection_lost", f"the connection was lost: {why}")
        if first:
            self._on_error("connection_lost")
        return error

    def report(self, code: str) -> None:
        """Report another failure that no call waits for."""
        if not self._closed:
            self._on_error(code)

    def close(self) -> bool:
        """Close; return whether this is the first time."""
        first = not self._closed
        self._closed = True
        self.end("closed", "the connection is closed")
        return first

    def call(self, what: str, timeout_s: float) -> Call:
        """Return the guard for a call. ``BackendError`` if the connection has ended or ends meanwhile, or ``timeout_s``
        after the last progress, which ends the connection."""
        return Call(self, what, timeout_s)

    def enter(self, call: Call) -> None:
        """Begin a call; only ``Call`` uses this."""
        self.check()
        self._call = call

    def leave(self) -> None:
        """End a call; only ``Call`` uses this."""
        self._call = None
