"""Pages of bytes that belong to slots: their content, and the commands to an endpoint that stores them.

Owns: the bytes of a page, and the caller's end of the side channel. Must never: import the broker. The endpoint's end
of the channel is ``ingeborg.bench.micro.paged``.

The side channel is a Unix socket of the endpoint's process. Each command and each answer is a line of JSON. Answers
come in the order of the commands. ``ingeborg.bench.micro.paged`` lists the commands.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any

import orjson

from ingeborg.bench.errors import BenchError

#: The head of a page: its slot, its number within the slot, and its version.
HEAD = struct.Struct("<HIQ")

#: Maximum size of an answer's line. An answer can have a row for each of a hundred thousand pages.
_LINE_BYTES_MAX = 1 << 24

#: Pause between two attempts to reach a process that has not opened its side channel yet, in seconds.
_AGAIN_S = 0.02


class SideLost(BenchError):
    """The process is gone, or did not answer in time. It is unknown whether the process carried out the command."""


def page(slot: int, number: int, version: int, size: int) -> bytes:
    """Return the bytes of a page. Its head and its size determine all bytes."""
    head = HEAD.pack(slot, number, version)
    seed = blake2b(head).digest()
    return (head + seed * (size // len(seed) + 1))[: max(size, HEAD.size)]


def digest(pages: Iterable[bytes]) -> str:
    """Hash the pages of a slot, in the order of their numbers."""
    found = blake2b(digest_size=16)
    for each in pages:
        found.update(each)
    return found.hexdigest()


class Side:
    """The side channel of one process. Create it with ``opened``."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._waiting: deque[asyncio.Future[dict[str, Any]]] = deque()
        self._task = asyncio.create_task(self._read())
        self.over = False

    @classmethod
    async def opened(cls, path: Path, within_s: float) -> Side:
        """Connect as soon as the process has opened its side channel. Raises ``SideLost`` if the process takes too
        long."""
        try:
            async with asyncio.timeout(within_s):
                while True:
                    with suppress(OSError):
                        return cls(*await asyncio.open_unix_connection(path, limit=_LINE_BYTES_MAX))
                    await asyncio.sleep(_AGAIN_S)
        except TimeoutError:
            raise SideLost(f"no side channel within {within_s:g} s") from None

    async def ask(self, do: str, within_s: float = 30.0, **fields: Any) -> dict[str, Any]:
        """Send a command and return the answer. Raises ``SideLost``, or ``BenchError`` if the endpoint refused the
        command."""
        if self.over:
            raise SideLost(f"{do}: the process has ended")
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting.append(answer)
        self._writer.write(orjson.dumps({"do": do, **fields}) + b"\n")
        try:
            async with asyncio.timeout(within_s):
                found = await answer
        except TimeoutError:  # the answer may still arrive later, when no caller waits for it
            raise SideLost(f"{do}: no answer within {within_s:g} s") from None
        if "failed" in found:
            raise BenchError(f"{do}: {found['failed']}")
        return found

    async def close(self) -> None:
        """Close the channel."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._writer.close()

    async def _read(self) -> None:
        try:
            while line := await self._reader.readline():
                answer = self._waiting.popleft()
                if not answer.done():
                    answer.set_result(orjson.loads(line))
        except OSError:
            pass  # somebody killed it
        finally:
            self.over = True
            for answer in self._waiting:
                if not answer.done():
                    answer.set_exception(SideLost("the process has ended"))
