"""Clients of a counted endpoint. Each client sends one chunk, waits for every reply and notification, and sends the
next.

Owns: the waiting, and how long it may take. Must never: send a chunk while answers to the previous chunk are due,
because the endpoint must have the same turns in every run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Self

import orjson

from ingeborg.bench.budgets.light import dial
from ingeborg.bench.errors import BenchError
from ingeborg.protocol.outgoing import OutgoingSocket

#: The longest wait, in seconds, for all answers to a chunk. The answers normally take milliseconds. They take longer
#: under valgrind and on a busy machine.
PATIENCE_S = 120.0


class NotThere(BenchError):
    """Raised if the endpoint is too old to have the feature that a case measures."""


class Client:
    """One connection, and one client on it. ``notes``: number of notifications that arrived. ``replies``: replies that
    the script has not taken yet. ``words``: all other messages that the script has not taken yet, such as positions and
    gaps."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.notes = 0
        self.replies: list[bytes] = []
        self.words: list[bytes] = []
        self._socket: OutgoingSocket | None = None
        self._came = asyncio.Event()

    async def open(self, url: str) -> Self:
        """Connect to the endpoint."""
        self._socket = await dial(url, self._message)
        return self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End the connection."""
        if self._socket is not None:
            await self._socket.end()
            self._socket = None

    def _message(self, _: OutgoingSocket, data: bytes) -> None:
        if b'"broadcast"' in data:
            self.notes += 1
        elif b'"result"' in data or b'"error"' in data:
            self.replies.append(bytes(data))
        else:
            self.words.append(bytes(data))
        self._came.set()

    def frame(self, command: str, **fields: Any) -> bytes:
        """Return the frame of a command from this client."""
        return orjson.dumps({"command": command, "client_id": self.name, **fields})

    def send(self, *frames: bytes) -> None:
        """Send the frames in one chunk."""
        assert self._socket is not None, "not connected"
        self._socket.write(*frames)

    async def until(self, *, replies: int = 0, notes: int = 0) -> list[bytes]:
        """Wait until ``replies`` replies have arrived, and until ``notes`` notifications have arrived since the
        connection began.

        Returns:
            The replies, which are removed from ``self.replies``.

        Raises:
            BenchError: the messages did not arrive in time.
        """
        await self._wait(lambda: len(self.replies) >= replies and self.notes >= notes)
        taken, self.replies = self.replies[:replies], self.replies[replies:]
        return taken

    async def word(self) -> bytes:
        """Return the next message that is neither a reply nor a notification. Raises ``BenchError`` if none arrives in
        time."""
        await self._wait(lambda: bool(self.words))
        return self.words.pop(0)

    async def _wait(self, done: Callable[[], bool]) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not done():
                    self._came.clear()
                    await self._came.wait()
        except TimeoutError:
            raise BenchError(
                f"{self.name}: the endpoint did not answer within {PATIENCE_S:g} s; {self.notes} notifications "
                f"have arrived; the last other messages are {(self.replies + self.words)[-2:]!r}"
            ) from None

    async def ask(self, command: str, **fields: Any) -> dict[str, Any]:
        """Send a command, and return its reply. The reply may report success or an error."""
        self.send(self.frame(command, **fields))
        [reply] = await self.until(replies=1)
        found: dict[str, Any] = orjson.loads(reply)
        return found

    async def ok(self, command: str, **fields: Any) -> dict[str, Any]:
        """Send a command, and return its reply. Raises ``BenchError`` if the endpoint refused the command."""
        reply = await self.ask(command, **fields)
        if reply.get("result") != "success":
            raise BenchError(f"{self.name}: {command} was refused: {reply}")
        return reply
