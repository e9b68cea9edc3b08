"""Where every record is, cached or not: what the broker asks of a database, and LMDB.

Owns: the contract, and the file of LMDB with its threads. Must never: know a policy, or lose a record in silence.

Writes are durable, many in one transaction, in a thread of their own: a commit waits for the disk, some milliseconds.
Reads of LMDB take a microsecond each where the file is in the system's memory, as that of a run of this size is. So
they are made in the event loop. In a thread, which ``THREAD`` is for, the way there and back takes milliseconds beside
a loop that is busy: those of an answer were read in 0.05 ms in the loop, and in 5 ms in a thread.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

import lmdb

from ingeborg.bench.errors import BenchError

LOOP, THREAD = "loop", "thread"
"""Where LMDB is read."""

READS: Final = (LOOP, THREAD)

FILE_BYTES_MAX: Final = 1 << 30
"""Of address space, not of disk: a hundred times what the document's largest run writes."""

Items = Sequence[tuple[int, bytes]]


class DatabaseError(BenchError):
    """The database has failed, or has not what was written to it."""


class Database(Protocol):
    """Records by their numbers."""

    async def open(self) -> None:
        """Before everything else. Raises ``DatabaseError``."""

    async def write(self, items: Items) -> None:
        """All are safe when it returns. Raises ``DatabaseError``."""

    def read(self, numbers: Sequence[int]) -> list[bytes] | Awaitable[list[bytes]]:
        """Their payloads, at once where that is how it reads. Raises ``DatabaseError``, or the awaitable does."""

    async def close(self) -> None:
        """After everything else; whatever has happened."""


class Lmdb:
    """In a directory of its own. ``reads``: ``LOOP`` or ``THREAD``."""

    def __init__(self, directory: Path, reads: str = LOOP) -> None:
        self._directory = directory
        self._in_thread = reads == THREAD
        self._env: Any = None
        self._writer = ThreadPoolExecutor(1, "writer")
        self._reader = ThreadPoolExecutor(1, "reader")

    async def open(self) -> None:
        """Make the directory, which must not be there."""
        try:
            self._directory.mkdir(parents=True)
            self._env = lmdb.open(str(self._directory), map_size=FILE_BYTES_MAX)
        except (OSError, lmdb.Error) as error:
            raise DatabaseError(f"LMDB cannot be opened in {self._directory}: {error}") from error

    async def write(self, items: Items) -> None:
        """One transaction."""
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._writer, self._write, items)
        except (OSError, lmdb.Error) as error:
            raise DatabaseError(f"LMDB in {self._directory} cannot be written: {error}") from error

    def _write(self, items: Items) -> None:
        rows = [(_key(number), payload) for number, payload in items]
        # One call for all: LMDB lets go of Python's lock for each, and the loop would have it for long.
        with self._env.begin(write=True) as transaction, transaction.cursor() as cursor:
            cursor.putmulti(rows)

    def read(self, numbers: Sequence[int]) -> list[bytes] | Awaitable[list[bytes]]:
        """Of one snapshot."""
        if not self._in_thread:
            return self._read(numbers)
        return asyncio.get_running_loop().run_in_executor(self._reader, partial(self._read, numbers))

    def _read(self, numbers: Sequence[int]) -> list[bytes]:
        try:
            with self._env.begin() as transaction:
                get = transaction.get
                found: list[bytes | None] = [get(_key(number)) for number in numbers]
        except lmdb.Error as error:
            raise DatabaseError(f"LMDB in {self._directory} cannot be read: {error}") from error
        return whole(numbers, found)

    async def close(self) -> None:
        """What is under way comes to its end first."""
        for pool in (self._writer, self._reader):
            await asyncio.to_thread(pool.shutdown)
        if self._env is not None:
            self._env.close()


_key = struct.Struct(">I").pack


def whole(numbers: Sequence[int], found: Sequence[bytes | None]) -> list[bytes]:
    """What was found, if nothing is missing. Raises ``DatabaseError``."""
    payloads = [payload for payload in found if payload is not None]
    if len(payloads) < len(numbers):
        missing = next(number for number, payload in zip(numbers, found, strict=True) if payload is None)
        raise DatabaseError(f"the database has lost record {missing}, which it had confirmed")
    return payloads
