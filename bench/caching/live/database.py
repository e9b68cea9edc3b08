"""The store of every record, cached or not: the broker's contract for a database, and LMDB.

Owns: the contract, and LMDB's file with its threads. Must never: know a policy, or lose a record silently.

Writes are durable, with many records in one transaction, in their own thread: a commit waits for the disk, some
milliseconds. A read of LMDB takes a microsecond if the file is in the system's memory, as for a run of this size. So
the event loop reads directly. With a thread (``THREAD``) the hand-over takes milliseconds next to a busy loop: the
reads of an answer took 0.05 ms in the loop, and 5 ms in a thread.
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
"""The place where LMDB is read."""

READS: Final = (LOOP, THREAD)

FILE_BYTES_MAX: Final = 1 << 30
"""Bytes of address space, not of disk: a hundred times the volume of the document's largest run."""

Items = Sequence[tuple[int, bytes]]


class DatabaseError(BenchError):
    """The database has failed, or lacks something written."""


class Database(Protocol):
    """Records by their numbers."""

    async def open(self) -> None:
        """Open it, before everything else. Raises ``DatabaseError``."""

    async def write(self, items: Items) -> None:
        """Write the items; all are safe on return. Raises ``DatabaseError``."""

    def read(self, numbers: Sequence[int]) -> list[bytes] | Awaitable[list[bytes]]:
        """Return their payloads, directly or as an awaitable. Raises ``DatabaseError``, or the awaitable does."""

    async def close(self) -> None:
        """Close it, after everything else and after any error."""


class Lmdb:
    """LMDB in its own directory. ``reads``: ``LOOP`` or ``THREAD``."""

    def __init__(self, directory: Path, reads: str = LOOP) -> None:
        self._directory = directory
        self._in_thread = reads == THREAD
        self._env: Any = None
        self._writer = ThreadPoolExecutor(1, "writer")
        self._reader = ThreadPoolExecutor(1, "reader")

    async def open(self) -> None:
        """Create the directory, which must not exist."""
        try:
            self._directory.mkdir(parents=True)
            self._env = lmdb.open(str(self._directory), map_size=FILE_BYTES_MAX)
        except (OSError, lmdb.Error) as error:
            raise DatabaseError(f"LMDB cannot be opened in {self._directory}: {error}") from error

    async def write(self, items: Items) -> None:
        """Write all in one transaction."""
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._writer, self._write, items)
        except (OSError, lmdb.Error) as error:
            raise DatabaseError(f"LMDB in {self._directory} cannot be written: {error}") from error

    def _write(self, items: Items) -> None:
        rows = [(_key(number), payload) for number, payload in items]
        # One call writes all rows: LMDB releases Python's lock in each call, and the event loop would then keep it for
        # long.
        with self._env.begin(write=True) as transaction, transaction.cursor() as cursor:
            cursor.putmulti(rows)

    def read(self, numbers: Sequence[int]) -> list[bytes] | Awaitable[list[bytes]]:
        """Read from one snapshot."""
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
        """Let pending work end first."""
        for pool in (self._writer, self._reader):
            await asyncio.to_thread(pool.shutdown)
        if self._env is not None:
            self._env.close()


_key = struct.Struct(">I").pack


def whole(numbers: Sequence[int], found: Sequence[bytes | None]) -> list[bytes]:
    """Return the found payloads if none is missing. Raises ``DatabaseError``."""
    payloads = [payload for payload in found if payload is not None]
    if len(payloads) < len(numbers):
        missing = next(number for number, payload in zip(numbers, found, strict=True) if payload is None)
        raise DatabaseError(f"the database has lost record {missing}, which it had confirmed")
    return payloads
