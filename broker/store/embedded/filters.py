"""Subscriptions with filters in the embedded store: their keys and values, and what an endpoint asks of them.

Owns: the databases ``filtered``, ``filtered_of``, ``filtered_topics`` and ``filters`` as an endpoint sees them. What a
writer does to them in a transaction is in ``filter_operations.py``. Must never: hold a transaction across an ``await``,
read for longer than ``SLICE_S`` without one, or know what a filter says.

All four are in the durable environment, where plain subscriptions are: a filter that takes the place of a plain one
does so in one transaction. That of an ending one it takes before the ending one is taken out, and whoever reads a
client's topics reads the ending ones first (``endings.py``), so that the client is never missed. For the same reason
whoever reads a topic's subscribers looks for its filters in the same transaction as for the plain ones, or in a later
one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from itertools import islice
from time import perf_counter
from typing import Any, Final, cast

import lmdb

from ingeborg.broker.store.base import PAGE_SUBSCRIPTIONS
from ingeborg.broker.store.embedded.layout import Lane, subscription_frames
from ingeborg.broker.store.embedded.now import CLIENT_END, COUNT_BYTES, pair_in
from ingeborg.broker.store.embedded.slices import LOOKS, SLICE_S, Slices, duplicates_after, seek_behind
from ingeborg.protocol.hashes import HASH_BYTES, digest

FRAME_FILTERS: Final = 128
"""Subscriptions per frame: 1-2 ms of writing, and 0.7 MB where topics and filters are as long as they may be. Where
each takes the place of as many filters as a client may have, 40 ms."""

Page = tuple[list[tuple[str, str]], str | None]
"""Pairs of client and filter, and where the next page begins."""

Call = Callable[[str, Iterable[Any]], Awaitable[list[Any]]]
"""Of the durable writer: operation and frames."""


# --- keys and values


def pair_of(client_id: bytes, filter_hash: bytes) -> bytes:
    """A value of ``filtered``, at most 145 bytes: LMDB takes 511 for a duplicate."""
    return client_id + CLIENT_END + filter_hash


def hashes_of(cursor: lmdb.Cursor, topic_hash: bytes, client_id: bytes) -> list[bytes]:
    """Of the client's filters at the topic. ``cursor``: on ``filtered``."""
    begin = client_id + CLIENT_END
    found: list[bytes] = []
    if cursor.set_range_dup(topic_hash, begin):
        for value in cast(Iterator[bytes], cursor.iternext_dup()):
            if not value.startswith(begin):
                break
            found.append(value[len(begin) :])
    return found


def pack_filter(count: int, text: bytes) -> bytes:
    """A value of ``filters``. ``count``: of the pairs that have it, so that it goes with the last one."""
    return count.to_bytes(COUNT_BYTES, "big") + text


def unpack_filter(value: bytes) -> tuple[int, bytes]:
    """Count and text."""
    return int.from_bytes(value[:COUNT_BYTES], "big"), value[COUNT_BYTES:]


def from_cursor(cursor: str | None) -> bytes | None:
    """The value of ``filtered`` that a page has ended with. ``ValueError``: it is no cursor of ``Filters.pages``."""
    if cursor is None:
        return None
    try:
        found = bytes.fromhex(cursor)
    except ValueError:
        found = b""
    if found.hex() != cursor or found[-HASH_BYTES - 1 : -HASH_BYTES] != CLIENT_END:
        raise ValueError(f"{cursor[:64]!r} is no cursor of this store")
    return found


# --- an endpoint's


class Filters:
    """Those of one open store."""

    def __init__(self, slices: Slices, database: Callable[[Lane, str], Any], call: Call) -> None:
        """``database``: gives the handle of one that is open."""
        self._slices, self._database, self._call = slices, database, call

    async def subscribe(self, batch: Sequence[tuple[str, Sequence[str], str, bool]]) -> None:
        """Beside what there is, or instead of it: of other filters and of a plain subscription."""
        await self._call("subscribe_filtered", subscription_frames(batch, FRAME_FILTERS))

    async def unsubscribe(self, batch: Sequence[tuple[str, Sequence[str], str]]) -> None:
        """That filter of each."""
        await self._call("unsubscribe_filtered", subscription_frames(batch, FRAME_FILTERS))

    async def take_out(self, batch: Sequence[tuple[str, Sequence[str]]]) -> None:
        """All filters of each. The writer is asked only where there are some."""
        if not self._slices.holds(Lane.DURABLE, "filtered_of"):
            return
        there = await self._slices.chosen(Lane.DURABLE, "filtered_of", batch, _has_filters, _has_filter)
        if there:
            entries = ((client, topics, None) for client, topics in there)
            await self._call("unsubscribe_filtered", subscription_frames(entries, FRAME_FILTERS))

    async def pages(self, asked: Sequence[tuple[str, str | None]], limit: int) -> list[Page]:
        """One of each topic, in the order of clients' ids."""
        afters = [from_cursor(cursor) for _, cursor in asked]
        if not self._slices.holds(Lane.DURABLE, "filtered"):
            return [([], None)] * len(asked)
        pages: list[Page] = []
        pairs: list[tuple[str, str]] = []  # of the page that is being read

        def read_slice() -> bool:
            nonlocal pairs
            with self._slices.reading(Lane.DURABLE, "filtered") as (txn, cursor):
                texts = self._database(Lane.DURABLE, "filters")
                until = perf_counter() + SLICE_S
                while len(pages) < len(asked):
                    at = len(pages)
                    rest: str | None = None
                    for value in duplicates_after(cursor, digest(asked[at][0].encode()), afters[at]):
                        if len(pairs) == limit:
                            rest = cast(bytes, afters[at]).hex()
                            break
                        pairs.append(pair_in(txn, texts, value))
                        afters[at] = value
                        if perf_counter() >= until:
                            return False
                    pages.append((pairs, rest))
                    pairs = []
                    if perf_counter() >= until:
                        return len(pages) == len(asked)
            return True

        if asked:
            await self._slices.through(read_slice)
        return pages

    async def named(self, topics: Sequence[str]) -> list[str]:
        """Those of the topics that have any."""
        if not self._slices.holds(Lane.DURABLE, "filtered"):
            return []
        there = await self._slices.each(
            Lane.DURABLE, "filtered", topics, lambda _, cursor, topic: cursor.set_key(digest(topic.encode()))
        )
        return [topic for topic, has_filters in zip(topics, there, strict=True) if has_filters]

    async def of(self, pairs: Sequence[tuple[str, str]]) -> list[list[str]]:
        """Of each ``(client, topic)``, sorted."""

        def look(txn: lmdb.Transaction, cursor: lmdb.Cursor, pair: tuple[str, str]) -> list[str]:
            client, topic = pair
            texts = self._database(Lane.DURABLE, "filters")
            hashes = hashes_of(cursor, digest(topic.encode()), client.encode())
            found = (cast(bytes, txn.get(filter_hash, db=texts)) for filter_hash in hashes)
            return sorted(unpack_filter(value)[1].decode() for value in found)

        return await self._slices.each(Lane.DURABLE, "filtered", pairs, look)

    def page_of_all(
        self, after: tuple[bytes, bytes] | None
    ) -> tuple[list[tuple[str, list[tuple[str, str]]]], tuple[bytes, bytes] | None]:
        """Those behind the entry ``after`` of ``filtered``, a slice of them, and the last one's entry; ``None``: there
        are no more."""
        page: list[tuple[str, list[tuple[str, str]]]] = []
        with self._slices.reading(Lane.DURABLE, "filtered") as (txn, cursor):
            if not seek_behind(cursor, after):
                return page, None
            topics, texts = self._database(Lane.DURABLE, "filtered_topics"), self._database(Lane.DURABLE, "filters")
            entries = cast(Iterator[tuple[bytes, bytes]], cursor.iternext())
            until = perf_counter() + SLICE_S
            key, count = b"", 0
            while part := list(islice(entries, min(LOOKS, PAGE_SUBSCRIPTIONS - count))):
                for topic_hash, value in part:
                    if topic_hash != key:
                        key = topic_hash
                        pairs: list[tuple[str, str]] = []
                        page.append((str(cast(bytes, txn.get(topic_hash, db=topics)), "utf-8"), pairs))
                    pairs.append(pair_in(txn, texts, value))
                after, count = part[-1], count + len(part)
                if count == PAGE_SUBSCRIPTIONS or perf_counter() >= until:
                    return page, after
        return page, None


def _has_filters(_: lmdb.Transaction, cursor: lmdb.Cursor, client: str, client_hash: bytes) -> bool | None:
    return None if cursor.set_key(client_hash) else False


def _has_filter(_: lmdb.Transaction, cursor: lmdb.Cursor, client_hash: bytes, topic: str) -> bool:
    return cursor.set_key_dup(client_hash, digest(topic.encode()))
