"""The database of all records, cached or not: the interface that the broker needs, and LMDB.

Owns: the interface, and LMDB's file with its threads. Must never: depend on a policy, or lose a record silently.

Writes are durable, with many records in one transaction. Writes have their own thread, because a commit waits a few
milliseconds for the disk. A read of LMDB takes a microsecond if the file is in the system's memory. In a run of this
size, the file is there. So the event loop reads directly.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, Protocol

import lmdb

from ingeborg.bench.errors import BenchError

FILE_BYTES_MAX: Final = 1 << 30
"""Number of bytes of address space, and not of disk. This is a hundred times the data of the document's largest run."""

Items = Sequence[tuple[int, bytes]]


class DatabaseError(BenchError):
    """Raised if the database has failed, or lacks a record that it has confirmed."""


class Database(Protocol):
    """Records by their numbers."""

    async def open(self) -> None:
        """Open the database, before all other calls. Raises ``DatabaseError``."""

    async def write(self, items: Items) -> None:
        """Write the items. All items are safe when this method returns. Raises ``DatabaseError``."""

    def read(self, numbers: Sequence[int]) -> list[bytes] | Awaitable[list[bytes]]:
        """Return the records' payloads, directly or as an awaitable. The call or the awaitable raises
        ``DatabaseError``."""

    async def close(self) -> None:
        """Close the database, after all other calls and after any error."""


class Lmdb:
    """LMDB in its own directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._env: Any = None
        self._writer = ThreadPoolExecutor(1, "writer")

    async def open(self) -> None:
        """Create the directory, which must not exist."""
        try:
            self._directory.mkdir(parents=True)
            self._env = lmdb.open(str(self._directory), map_size=FILE_BYTES_MAX)
        except (OSError, lmdb.Error) as error:
            raise DatabaseError(f"LMDB cannot be opened in {self._directory}: {error}") from error

    async def write(self, items: Items) -> None:
        """Write all items in one transaction."""
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._writer, self._write, items)
        except (OSError, lmdb.Error) as error:
            raise DatabaseError(f"LMDB in {self._directory} cannot be written: {error}") from error

    def _write(self, items: Items) -> None:
        rows = [(_key(number), payload) for number, payload in items]
        # Write all rows with one call, because LMDB releases Python's lock in each call. With many calls, this thread
        # might wait for a long time after each call, until the event loop releases the lock.
        with self._env.begin(write=True) as transaction, transaction.cursor() as cursor:
            cursor.putmulti(rows)

    def read(self, numbers: Sequence[int]) -> list[bytes]:
        """Read all records from one snapshot."""
        try:
            with self._env.begin() as transaction:
                get = transaction.get
                found: list[bytes | None] = [get(_key(number)) for number in numbers]
        except lmdb.Error as error:
            raise DatabaseError(f"LMDB in {self._directory} cannot be read: {error}") from error
        return whole(numbers, found)

    async def close(self) -> None:
        """Close LMDB after pending work has ended."""
        await asyncio.to_thread(self._writer.shutdown)
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
