"""Tracks whether an adapter's connection is still alive, and limits how long its calls wait.

Owns: the end of a connection, which is lost, timed out or closed. Only the first of these is reported. Also owns: the
time-outs of calls, and the message about a server that does not answer. Must never: depend on a particular system, or
reconnect, because a run has to count a lost connection.
"""

from __future__ import annotations

import asyncio
from types import TracebackType

from .base import BackendError, OnError


def no_server(where: str, server: str, rival: str, error: Exception) -> BackendError:
    """Return the error for a connection that could not be made. ``server``: the kind of server. ``rival``: its name in
    `bench rivals`."""
    why = str(error) or "it does not answer"
    return BackendError(
        "connect", f"{where}: no {server} ({why}): start one there (bench rivals up {rival}), or correct --url"
    )


class Call:
    """The guard of a call, used with ``async with``. If the client library swallows cancellation, run ``check`` after
    each step of the call."""

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
        if isinstance(error, TimeoutError):  # the library's own time-out
            raise self._late() from error
        if error is None:
            self.check()

    def check(self) -> None:
        """Raise ``BackendError`` if the connection has ended or the call has timed out."""
        self._lifeline.check()
        if self.deadline.expired():
            raise self._late()

    def progress(self) -> None:
        """Restart the time-out, because the server has answered. Raises ``BackendError`` like ``check``."""
        self.check()
        self.deadline.reschedule(asyncio.get_running_loop().time() + self._timeout_s)

    def _late(self) -> BackendError:
        # End the connection, because it is unknown what a late server will still do with the call.
        return self._lifeline.end("timeout", f"{self._what}: no progress within {self._timeout_s:g} s")


class Lifeline:
    """The life of one connection. ``where``: its URL, for messages. ``on_error`` is called only once for a loss, and
    never after ``close``."""

    def __init__(self, where: str, on_error: OnError) -> None:
        self._where = where
        self._on_error = on_error
        self._end: BackendError | None = None
        self._closed = False
        self._call: Call | None = None

    def check(self) -> None:
        """Raise ``BackendError`` if the connection has ended."""
        if self._end is not None:
            # Raise a new exception each time, because raising the same exception again would extend its traceback.
            raise BackendError(self._end.code, str(self._end))

    def end(self, code: str, text: str) -> BackendError:
        """End the connection: all later calls fail, and a call under way fails immediately. Return the error of the
        first end."""
        if self._end is None:
            self._end = BackendError(code, f"{self._where}: {text}")
            if self._call is not None and not self._call.deadline.expired():
                self._call.deadline.reschedule(0.0)
        return BackendError(self._end.code, str(self._end))

    def lose(self, why: str) -> BackendError:
        """End a lost connection. ``why``: the reason in the library's words. Report the loss, unless the connection had
        already ended."""
        first = self._end is None
        error = self.end("connection_lost", f"the connection was lost: {why}")
        if first:
            self._on_error("connection_lost")
        return error

    def report(self, code: str) -> None:
        """Report a failure that does not end the connection, and that no call waits for."""
        if not self._closed:
            self._on_error(code)

    def close(self) -> bool:
        """Close the connection. Return whether this is the first call."""
        first = not self._closed
        self._closed = True
        self.end("closed", "the connection is closed")
        return first

    def call(self, what: str, timeout_s: float) -> Call:
        """Return the guard for a call. It raises ``BackendError`` if the connection has ended or ends meanwhile. If the
        call makes no progress for ``timeout_s``, the guard ends the connection and raises ``BackendError``."""
        return Call(self, what, timeout_s)

    def enter(self, call: Call) -> None:
        """Begin a call; only ``Call`` uses this."""
        self.check()
        self._call = call

    def leave(self) -> None:
        """End a call; only ``Call`` uses this."""
        self._call = None
