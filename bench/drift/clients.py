"""Clients of a counted endpoint: each sends one chunk, waits for everything that follows, and sends the next.

Owns: the waiting, and how long it may take. Must never: send a chunk while answers to the last one are due. So the
endpoint has the same turns in every run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Self

import orjson

from ingeborg.bench.budgets.light import dial
from ingeborg.bench.errors import BenchError
from ingeborg.protocol.outgoing import OutgoingSocket

#: The longest wait for everything that a chunk leads to, in seconds: normally milliseconds, but more under valgrind and
#: other load.
PATIENCE_S = 120.0


class NotThere(BenchError):
    """The endpoint is older than the thing that a case measures."""


class Client:
    """One connection, and one client on it. ``notes``: how many notifications arrived. ``replies``: replies not taken
    yet. ``words``: likewise all other messages, such as positions and gaps."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.notes = 0
        self.replies: list[bytes] = []
        self.words: list[bytes] = []
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
        """Wait for this number of replies, and until this number of notifications has arrived in all.

        Returns:
            The replies, which are taken.

        Raises:
            BenchError: they did not arrive in time.
        """
        await self._wait(lambda: len(self.replies) >= replies and self.notes >= notes)
        taken, self.replies = self.replies[:replies], self.replies[replies:]
        return taken

    async def word(self) -> bytes:
        """Return the next message that is neither a reply nor a notification. ``BenchError``: it did not arrive in
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
                f"have arrived, and {(self.replies + self.words)[-2:]!r}"
            ) from None

    async def ask(self, command: str, **fields: Any) -> dict[str, Any]:
        """Send a command; return its reply, good or bad."""
        self.send(self.frame(command, **fields))
        [reply] = await self.until(replies=1)
        found: dict[str, Any] = orjson.loads(reply)
        return found

    async def ok(self, command: str, **fields: Any) -> dict[str, Any]:
        """The same; ``BenchError``: the endpoint refused it."""
        reply = await self.ask(command, **fields)
        if reply.get("result") != "success":
            raise BenchError(f"{self.name}: {command} was refused: {reply}")
        return reply
