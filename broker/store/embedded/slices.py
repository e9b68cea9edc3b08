"""Long reads of the embedded store, which are split into slices so that the event loop can run other work in between.

Owns: the length of a slice, the turns of concurrent reads, and the place where a read of a database resumes. Must
never: hold a transaction across an ``await``, know the data, or import asyncio at the top level, because writer
processes import this module and start sooner without asyncio.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, cast

import lmdb

from ingeborg.broker.store.embedded.layout import Lane
from ingeborg.protocol.hashes import HASH_BYTES

if TYPE_CHECKING:
    import asyncio

SLICE_S: Final = 0.002
"""How long a read may block the event loop. In 2 ms, it reads about 500 small subscriber sets."""

LOOKS: Final = 32
"""How many topics or members are read between two checks of the clock. This takes 0.05 ms."""

Call = Callable[[str, Iterable[Any]], Awaitable[list[Any]]]
"""A function that calls a writer. Its arguments are the operation and the frames."""

Reading = Callable[[Lane, str | None], AbstractContextManager[tuple[lmdb.Transaction, lmdb.Cursor]]]
"""A function that opens a read transaction of a lane, and a cursor on one of its databases (``None`` for the unnamed
one)."""


class Slices:
    """The slices of one open store."""

    def __init__(
        self,
        reading: Reading,
        holds: Callable[[Lane, str], bool],
        stamp: Callable[[Lane], int],
        turns: asyncio.Lock,
    ) -> None:
        """Keep references to the parts of the store. ``holds`` tells whether a database has any entry. ``stamp``
        returns the greatest stamp that a lane has assigned. ``turns`` is a lock that a read of several slices holds
        until it is finished. Without it, every such read would run one slice in each pass of the event loop, and the
        loop would have to wait for all."""
        self.reading, self.holds, self.stamp, self._turns = reading, holds, stamp, turns

    async def through(self, read_slice: Callable[[], bool]) -> None:
        """Call ``read_slice`` until it returns true, at most once in a pass of the event loop."""
        if read_slice():
            return
        from asyncio import sleep  # imported here, because writers do not need it

        async with self._turns:
            while True:
                await sleep(0)
                if read_slice():
                    return

    async def each(
        self, lane: Lane, database: str, items: Sequence[Any], look: Callable[[lmdb.Transaction, lmdb.Cursor, Any], Any]
    ) -> list[Any]:
        """Call ``look`` for each item, and return the results."""
        found: list[Any] = []

        def read_slice() -> bool:
            with self.reading(lane, database) as (txn, cursor):
                until = perf_counter() + SLICE_S
                while len(found) < len(items):
                    found.append(look(txn, cursor, items[len(found)]))
                    if perf_counter() >= until:
                        return len(found) == len(items)
            return True

        if items:
            await self.through(read_slice)
        return found


def from_cursor(cursor: str, is_one: Callable[[bytes], bool]) -> bytes:
    """Return the place at which the previous page ended. Raises ``ValueError`` for an invalid cursor."""
    try:
        found = bytes.fromhex(cursor)
    except ValueError:
        found = b""
    if not found or found.hex() != cursor or not is_one(found):
        raise ValueError(f"{cursor[:64]!r} is not a cursor of this store")
    return found


def value_of(txn: lmdb.Transaction, key: bytes, database: Any) -> bytes | None:
    """Return the database's value for the key."""
    return cast("bytes | None", txn.get(key, db=database))


def duplicates_after(cursor: lmdb.Cursor, key: bytes, after: bytes | None) -> Iterator[bytes]:
    """Yield the values of the key that sort after ``after``, in order."""
    if cursor.set_key(key) if after is None else cursor.set_range_dup(key, after):
        for value in cast(Iterator[bytes], cursor.iternext_dup()):
            if value != after:
                yield value


def entries_from(cursor: lmdb.Cursor, prefix: bytes, after: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
    """Yield the entries whose keys begin with the prefix, starting after the key ``after``."""
    if not cursor.set_range(after or prefix) or (cursor.key() == after and not cursor.next()):
        return
    for key, value in cast(Iterator[tuple[bytes, bytes]], cursor.iternext()):
        if not key.startswith(prefix):
            return
        yield key, value


def seek_behind(cursor: lmdb.Cursor, after: tuple[bytes, bytes] | None) -> bool:
    """Move to the first entry that sorts after ``after``, and return whether there is one. The entry ``after`` itself
    may be gone by now. The keys are hashes, each with sorted duplicates."""
    if after is None:
        return cursor.first()
    key, value = after
    if cursor.set_range_dup(key, value):
        return cursor.next() if cursor.value() == value else True
    behind = int.from_bytes(key, "big") + 1
    return behind < 1 << 8 * HASH_BYTES and cursor.set_range(behind.to_bytes(HASH_BYTES, "big"))
