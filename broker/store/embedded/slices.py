"""Reads of the embedded store that take long: in slices, between which all else of the event loop has its turn.

Owns: how long a slice is, whose turn is next, and where a read of one key goes on. Must never: hold a transaction
across an ``await``, know what is read, or import asyncio before it is needed: writers import this module, and start
sooner without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, cast

import lmdb

from ingeborg.broker.store.embedded.layout import Lane
from ingeborg.protocol.hashes import HASH_BYTES, digest

if TYPE_CHECKING:
    import asyncio

SLICE_S: Final = 0.002
"""How long a read keeps the event loop; 2 ms are about 500 small subscriber sets."""

LOOKS: Final = 32
"""Topics, or members, read between two looks at the clock: 0.05 ms."""

Reading = Callable[[Lane, str], AbstractContextManager[tuple[lmdb.Transaction, lmdb.Cursor]]]
"""A read transaction of a lane, and a cursor on one of its databases."""

Subscribed = tuple[Any, ...]
"""Client, topics, and what else belongs to both."""

Look = Callable[[lmdb.Transaction, lmdb.Cursor, bytes, str], bool]
"""(transaction, cursor, hash of the client, topic) -> whether the topic is one of those that are looked for."""


class Slices:
    """Those of one open store."""

    def __init__(self, reading: Reading, holds: Callable[[Lane, str], bool], turns: asyncio.Lock) -> None:
        """``holds``: whether there is anything in a database. ``turns``: each read of several slices has one in a pass
        of the loop, and the loop waits for all of them."""
        self.reading, self.holds, self._turns = reading, holds, turns

    async def through(self, read_slice: Callable[[], bool]) -> None:
        """Again until it says that it is through."""
        if read_slice():
            return
        from asyncio import sleep  # here, for a writer has no use for it

        async with self._turns:
            while True:
                await sleep(0)
                if read_slice():
                    return

    async def each(
        self, lane: Lane, database: str, items: Sequence[Any], look: Callable[[lmdb.Transaction, lmdb.Cursor, Any], Any]
    ) -> list[Any]:
        """What ``look`` says of each item."""
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

    async def chosen(
        self,
        lane: Lane,
        database: str,
        batch: Sequence[Subscribed],
        quick: Callable[[lmdb.Transaction, lmdb.Cursor, str, bytes], bool | None],
        look: Look,
    ) -> list[Subscribed]:
        """The batch with only those topics that ``look`` chooses. ``quick`` may know it for all topics of a client;
        ``None``: it does not."""
        chosen: list[Subscribed] = []
        entry = at = 0
        client_hash, mine = b"", list[str]()

        def read_slice() -> bool:
            nonlocal entry, at, client_hash, mine
            with self.reading(lane, database) as (txn, cursor):
                until = perf_counter() + SLICE_S
                while entry < len(batch):
                    client, topics, *others = batch[entry]
                    if not at:
                        client_hash, mine = digest(client.encode()), []
                        known = quick(txn, cursor, client, client_hash)
                        if known:
                            chosen.append((client, topics, *others))
                        if known is not None:
                            at = len(topics)
                    mine += [topic for topic in topics[at : at + LOOKS] if look(txn, cursor, client_hash, topic)]
                    at += LOOKS
                    if at >= len(topics):
                        entry, at = entry + 1, 0
                        if mine:
                            chosen.append((client, mine, *others))
                    if perf_counter() >= until:
                        return entry == len(batch)
            return True

        await self.through(read_slice)
        return chosen


def duplicates_after(cursor: lmdb.Cursor, key: bytes, after: bytes | None) -> Iterator[bytes]:
    """The key's values in order, those up to ``after`` left out."""
    if cursor.set_key(key) if after is None else cursor.set_range_dup(key, after):
        for value in cast(Iterator[bytes], cursor.iternext_dup()):
            if value != after:
                yield value


def seek_behind(cursor: lmdb.Cursor, after: tuple[bytes, bytes] | None) -> bool:
    """Stand on the first entry of the database behind ``after``, which may be gone by now; whether there is one. Its
    keys are hashes, each with sorted duplicates."""
    if after is None:
        return cursor.first()
    key, value = after
    if cursor.set_range_dup(key, value):
        return cursor.next() if cursor.value() == value else True
    behind = int.from_bytes(key, "big") + 1
    return behind < 1 << 8 * HASH_BYTES and cursor.set_range(behind.to_bytes(HASH_BYTES, "big"))
