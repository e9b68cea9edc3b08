"""Clients of an endpoint that is counted: each sends one thing, waits for all that comes of it, and sends the next.

Owns: what is waited for, and for how long. Must never: send while something is due, unless it is in the same chunk. So
the turns of the endpoint are the same in every run.
"""

from __future__ import annotations

import asyncio
from typing import Any, Self

import orjson

from ingeborg.bench.errors import BenchError
from ingeborg.bench.guards.light import dial
from ingeborg.protocol.outgoing import OutgoingSocket

#: For all that one chunk leads to, in seconds: milliseconds, but under valgrind, on a machine that others use.
PATIENCE_S = 120.0


class NotThere(BenchError):
    """The endpoint cannot do what a case measures: it is of a time before that."""


class Client:
    """One connection, and one client on it. ``notes``: notifications that came; ``replies``: all else, in its order."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.notes = 0
        self.replies: list[bytes] = []
        self._due = 0
        self._socket: OutgoingSocket | None = None
        self._came = asyncio.Event()

    async def open(self, url: str) -> Self:
        """Connect."""
        self._socket = await dial(url, self._message)
        return self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """The connection ends."""
        if self._socket is not None:
            await self._socket.end()
            self._socket = None

    def _message(self, _: OutgoingSocket, data: bytes) -> None:
        if b'"broadcast"' in data:
            self.notes += 1
        else:
            self.replies.append(bytes(data))
        self._came.set()

    def frame(self, command: str, **fields: Any) -> bytes:
        """A command of this client's."""
        return orjson.dumps({"command": command, "client_id": self.name, **fields})

    def send(self, *frames: bytes) -> None:
        """All in one chunk."""
        assert self._socket is not None, "not connected"
        self._socket.write(*frames)

    async def until(self, *, replies: int = 0, notes: int = 0) -> list[bytes]:
        """Wait until so many replies have come since the last call, and so many notifications in all.

        Returns:
            The replies, which are taken.

        Raises:
            BenchError: they did not come in time.
        """
        try:
            async with asyncio.timeout(PATIENCE_S):
                while len(self.replies) < replies or self.notes < notes:
                    self._came.clear()
                    await self._came.wait()
        except TimeoutError:
            raise BenchError(
                f"{self.name}: {len(self.replies)} of {replies} replies and {self.notes} of {notes} notifications came "
                f"within {PATIENCE_S:g} s; the last reply was {self.replies[-1:]!r}"
            ) from None
        taken, self.replies = self.replies, []
        return taken

    async def ask(self, command: str, **fields: Any) -> dict[str, Any]:
        """Send a command, and wait for its reply, whatever it is."""
        self.send(self.frame(command, **fields))
        [reply] = await self.until(replies=1)
        found: dict[str, Any] = orjson.loads(reply)
        return found

    async def ok(self, command: str, **fields: Any) -> dict[str, Any]:
        """The same; ``BenchError``: it was refused."""
        reply = await self.ask(command, **fields)
        if reply.get("result") != "success":
            raise BenchError(f"{self.name}: {command} was refused: {reply}")
        return reply
