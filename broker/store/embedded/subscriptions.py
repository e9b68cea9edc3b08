"""Subscriptions in the embedded store: what an endpoint reads of them, and how it has them written.

Owns: the durable environment's databases of subscriptions as an endpoint sees them. What a writer does to them in a
transaction is in ``subscription_operations.py``, their ends are in ``endings.py``. Must never: hold a transaction
across an ``await``, read for longer than ``SLICE_S`` without one, or know what a filter says.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import islice, repeat
from time import perf_counter
from typing import Any, Final, cast

import lmdb

from ingeborg.broker.store.base import (
    PAGE_SUBSCRIPTIONS,
    FilterPage,
    Subscribe,
    Subscribers,
    Subscription,
    TopicPage,
)
from ingeborg.broker.store.embedded import now
from ingeborg.broker.store.embedded.layout import LARGE_ROWS, Lane, frames_of
from ingeborg.broker.store.embedded.now import FILTERED
from ingeborg.broker.store.embedded.slices import (
    LOOKS,
    SLICE_S,
    Call,
    Slices,
    duplicates_after,
    entries_from,
    from_cursor,
    seek_behind,
    value_of,
)
from ingeborg.protocol.hashes import HASH_BYTES, digest

MEMBERS_PER_LOOK: Final = 512
"""Entries of one subscriber set read between two looks at the clock: 0.1 ms."""

PAIRS_AT_ONCE: Final = 512
"""Most filters of one topic that are read without waiting for a turn: 1 ms."""

NO_FILTERS: Final[FilterPage] = ([], None)


class Subscriptions:
    """Those of one open store."""

    def __init__(self, slices: Slices, database: Callable[[Lane, str], Any], call: Call) -> None:
        """``database``: gives the handle of one that is open."""
        self._slices, self._database, self._call = slices, database, call

    # --- writing

    async def subscribe(self, batch: Sequence[Subscribe]) -> int:
        """Returns a stamp that is greater than all that the store had before, and not greater than those of this
        batch."""
        stamps: list[int] = []
        if len(batch) == 1 and batch[0].filter is None and len(batch[0].topics) < LARGE_ROWS:
            row = batch[0]  # most calls are of one client
            stamps = await self._call("subscribe", [(False, [(_wanted(row), [(row.client, row.topics)])])])
            return min(stamps)
        # A filter may be one too many, which refuses its frame and must not refuse a run: these go into small frames.
        # Of a client all do, since at a topic the order of its rows counts.
        filtering = {row.client for row in batch if row.filter is not None}
        parts = [(batch, True)]
        if filtering:
            parts = [
                ([row for row in batch if row.client not in filtering], True),
                ([row for row in batch if row.client in filtering], False),
            ]
        for rows, may_run in parts:
            if rows:
                is_large = may_run and sum(len(row.topics) for row in rows) >= LARGE_ROWS
                frames = frames_of((_wanted(row), row.client, row.topics, row.filter is not None) for row in rows)
                stamps += await self._call("subscribe", zip(repeat(is_large), frames))
        return min(stamps, default=0)

    async def unsubscribe(self, batch: Sequence[tuple[str, Sequence[str], str | None]]) -> None:
        """Take out the filter of each, or all that it has."""
        rows = ((text, client, topics, text is not None) for client, topics, text in batch)
        is_large = sum(len(topics) for _, topics, _ in batch) >= LARGE_ROWS
        await self._call("unsubscribe", zip(repeat(is_large), frames_of(rows)))

    # --- of a topic

    async def subscribers(self, topics: Sequence[str]) -> tuple[list[Subscribers], dict[str, FilterPage]]:
        """The sets of those without a filter, and first pages of the others."""
        sets: list[Subscribers] = []
        pages: dict[str, FilterPage] = {}
        members: set[str] = set()
        after: bytes | None = None  # the last member read, where a slice ended within a set
        filtering: list[str] = []  # clients that had filters by then

        def read_slice() -> bool:
            nonlocal members, after, filtering
            with self._slices.reading(Lane.DURABLE, "subscribers") as (txn, cursor):
                until = perf_counter() + SLICE_S
                texts = self._database(Lane.DURABLE, "filters")
                while len(sets) < len(topics):
                    topic_hash = digest(topics[len(sets)].encode())
                    last, has_filters = _read_members(cursor, topic_hash, after, members, until)
                    page: FilterPage = NO_FILTERS
                    if has_filters or last is not None:
                        page = now.filter_page(cursor, txn, texts, topic_hash, FILTERED, PAIRS_AT_ONCE)
                    # Who goes from a filter to none while slices are read may come behind them.
                    for each in filtering:
                        if cursor.set_key_dup(topic_hash, each.encode()):
                            members.add(each)
                    if last is not None:
                        after, filtering = last, [client for client, _ in page[0]]
                        return False
                    if page[0]:
                        pages[topics[len(sets)]] = page
                    sets.append(members)
                    members, after, filtering = set(), None, []
                    if perf_counter() >= until:
                        return len(sets) == len(topics)
            return True

        await self._slices.through(read_slice)
        return sets, pages

    def filter_page(self, topic: str, cursor: str, limit: int) -> FilterPage:
        """The topic's clients and filters behind those of the page before: ``PAIRS_AT_ONCE`` at most."""
        after = from_cursor(cursor, lambda entry: entry[:1] == entry[-HASH_BYTES - 1 : -HASH_BYTES] == FILTERED)
        with self._slices.reading(Lane.DURABLE, "subscribers") as (txn, entries):
            texts = self._database(Lane.DURABLE, "filters")
            return now.filter_page(entries, txn, texts, digest(topic.encode()), after, min(limit, PAIRS_AT_ONCE))

    # --- of a client

    def of_now(self, pairs: Sequence[tuple[str, str]]) -> list[list[Subscription]]:
        """All that each ``(client, topic)`` has, of those that a slice has time for."""
        with self._slices.reading(Lane.DURABLE, "subscribers") as (txn, entries):
            terms, texts = self._database(Lane.DURABLE, "terms"), self._database(Lane.DURABLE, "filters")
            return now.subscriptions_of(entries, txn.cursor(terms), txn, texts, pairs, perf_counter() + SLICE_S)

    async def of(self, pairs: Sequence[tuple[str, str]]) -> list[list[Subscription]]:
        """The same of all of them."""
        found: list[list[Subscription]] = []

        def read_slice() -> bool:
            found.extend(self.of_now(pairs[len(found) :]))
            return len(found) == len(pairs)

        await self._slices.through(read_slice)
        return found

    def subscribed_now(self, client: str, topics: Sequence[str], start: int = 0) -> list[bool]:
        """Whether the client has a subscription to each topic, from the one at ``start`` on, of those that a slice has
        time for."""
        with self._slices.reading(Lane.DURABLE, "topics_of") as (_, cursor):
            return now.subscribed(cursor, client, topics, start, perf_counter() + SLICE_S)

    async def subscribed(self, client: str, topics: Sequence[str]) -> list[bool]:
        """The same of all of them."""
        found: list[bool] = []

        def read_slice() -> bool:
            found.extend(self.subscribed_now(client, topics, len(found)))
            return len(found) == len(topics)

        await self._slices.through(read_slice)
        return found

    async def topics(self, client: str, after: bytes | None, limit: int) -> tuple[list[str], str | None]:
        """A page of the client's topics, by their hashes; ``after``: behind that one."""
        client_hash = digest(client.encode())
        page: list[str] = []
        rest: str | None = None

        def read_slice() -> bool:
            nonlocal after, rest
            with self._slices.reading(Lane.DURABLE, "topics_of") as (txn, cursor):
                until = perf_counter() + SLICE_S
                texts = self._database(Lane.DURABLE, "texts")
                for topic_hash in duplicates_after(cursor, client_hash, after):
                    if len(page) == limit:
                        assert after is not None
                        rest = after.hex()
                        return True
                    page.append(_text(txn, topic_hash, texts))
                    after = topic_hash
                    if perf_counter() >= until:
                        return False
            return True

        await self._slices.through(read_slice)
        return page, rest

    # --- of all

    def page(self, after: tuple[bytes, bytes] | None) -> tuple[list[TopicPage], int, tuple[bytes, bytes] | None]:
        """The subscriptions behind the entry ``after``, a slice of them; how many; and the last one's entry; ``None``:
        there are no more."""
        page: list[TopicPage] = []
        count = 0
        with self._slices.reading(Lane.DURABLE, "subscribers") as (txn, cursor):
            if not seek_behind(cursor, after):
                return page, count, None
            until = perf_counter() + SLICE_S
            terms = txn.cursor(self._database(Lane.DURABLE, "terms"))
            has_terms = terms.first()
            entries = cast(Iterator[tuple[bytes, bytes]], cursor.iternext())
            topic_hash, prefix = b"", b""
            while part := list(islice(entries, min(LOOKS, PAGE_SUBSCRIPTIONS - count))):
                for key, entry in part:
                    if key != topic_hash:
                        topic_hash = key
                        topic = _text(txn, key, self._database(Lane.DURABLE, "texts"))
                        page.append((topic, [], []))
                        prefix = now.prefix_of(topic, key) if has_terms else b""
                        if prefix and next(entries_from(terms, prefix), None) is None:
                            prefix = b""  # nothing at this topic has a term
                    _, plain, others = page[-1]
                    if entry < FILTERED and not prefix:
                        plain.append(entry.decode())
                        continue
                    one = self._subscription(txn, topic, entry, prefix)
                    if one.filter is None and one.term is None:
                        plain.append(one.client)
                    else:
                        others.append(one)
                after, count = part[-1], count + len(part)
                if count == PAGE_SUBSCRIPTIONS or perf_counter() >= until:
                    return page, count, after
        return page, count, None

    def _subscription(self, txn: lmdb.Transaction, topic: str, entry: bytes, prefix: bytes) -> Subscription:
        client_id, key = (entry[1 : -HASH_BYTES - 1], entry[-HASH_BYTES:]) if entry >= FILTERED else (entry, b"")
        if prefix:
            record = value_of(txn, prefix + digest(client_id) + key, self._database(Lane.DURABLE, "terms"))
            if record is not None:
                return now.subscription_in(record)
        text = now.text_in(txn, self._database(Lane.DURABLE, "filters"), key) if key else None
        return Subscription(topic, client_id.decode(), text)


def _wanted(row: Subscribe) -> Any:
    """What a frame says of the row's topics: nothing of subscriptions without a filter that stay."""
    if row.filter is None and row.term is None and not row.replace:
        return None
    return row.filter, None if row.term is None else tuple(row.term), row.replace


def _text(txn: lmdb.Transaction, topic_hash: bytes, texts: Any) -> str:
    return str(cast(bytes, txn.get(topic_hash, db=texts)), "utf-8")


def _read_members(
    cursor: lmdb.Cursor, topic_hash: bytes, after: bytes | None, members: set[str], until: float
) -> tuple[bytes | None, bool]:
    """Add those without a filter from ``after`` on. The last one read if the time was up first; ``None`` at the end,
    and whether there are some with a filter."""
    if not (cursor.set_key(topic_hash) if after is None else cursor.set_range_dup(topic_hash, after)):
        return None, False
    entries = cast(Iterator[bytes], cursor.iternext_dup())
    while True:
        part = list(islice(entries, MEMBERS_PER_LOOK))
        plain = part[: bisect_left(part, FILTERED)] if part and part[-1] >= FILTERED else part
        members.update(map(bytes.decode, plain))
        if len(plain) < MEMBERS_PER_LOOK:
            return None, len(plain) < len(part)
        if perf_counter() >= until:
            return plain[-1], False
