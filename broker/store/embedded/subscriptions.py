"""Subscriptions in the embedded store: an endpoint's reads, and its calls to the writers.

Owns: the choice of the environment (lane) for each subscription, and the endpoint's reads of both lanes' databases of
subscriptions. A writer's changes within a transaction are in ``subscription_operations.py``, and the ends of
subscriptions in ``expiry.py``. Must never: hold a transaction across an ``await``, read for longer than ``SLICE_S``
without an ``await``, or interpret a filter.

A subscription that ends at a disconnect is in the soft lane, unless its client already has a subscription to the topic
in the durable lane. All other subscriptions are in the durable lane. So a subscription can move from the soft lane to
the durable one, but never back. The steps of a ``subscribe`` are:

1. It takes the subscriptions that end at a disconnect, and checks whether the client has a subscription to the same
   topic in the durable lane. If not, it writes the new one to the soft lane, and checks again.
2. It writes all other subscriptions to the durable lane, and also those for which one of the checks has found a durable
   subscription.
3. It removes from the soft lane the subscriptions that the durable ones replace. By default, it removes only the
   same subscription, if its stamp is unchanged. With ``replace``, it removes all of the client's subscriptions to the
   topic.

Between the last two steps, a subscription can be in both lanes. If a process dies between them, the
subscription stays in both until the next write or expiry finds it. If both lanes have a subscription, the durable one
counts, because it is the later one or has no term. Reads start with the soft lane. If a subscription has already left
the soft lane, it is in the durable lane when the read gets there.

If two processes write one subscription to the two lanes at the same time, at least one process sees the other's write,
because each process checks after it has written. After such a race, a client can have up to ``FILTERS_MAX`` filters at
a topic in each lane. Otherwise the limit applies to the sum of both lanes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice, repeat
from time import perf_counter
from typing import Any, Final, cast

import lmdb

from ingeborg.broker.store.base import (
    FILTERS_MAX,
    PAGE_SUBSCRIPTIONS,
    FilterPage,
    Subscribe,
    Subscribers,
    Subscription,
    TopicPage,
)
from ingeborg.broker.store.embedded import now
from ingeborg.broker.store.embedded.layout import LARGE_ROWS, Lane, frames_of, frames_of_subscriptions
from ingeborg.broker.store.embedded.now import FILTERED
from ingeborg.broker.store.embedded.slices import (
    LOOKS,
    SLICE_S,
    Slices,
    duplicates_after,
    entries_from,
    from_cursor,
    seek_behind,
)
from ingeborg.broker.store.embedded.subscription_operations import too_many_filters
from ingeborg.broker.store.embedded.writer_link import WriterProcess
from ingeborg.protocol.hashes import HASH_BYTES, digest

MEMBERS_PER_LOOK: Final = 512
"""How many entries of one subscriber set are read between two checks of the clock. This takes 0.1 ms."""

PAIRS_AT_ONCE: Final = 512
"""The largest number of filters of one topic that one read returns. Reading this many takes 1 ms."""

TOPICS_AT_ONCE: Final = 1_024
"""How many topics of one client a read looks up in one lane before a write to the other lane, without a check of the
clock. This takes 1 ms."""

NO_FILTERS: Final[FilterPage] = ([], None)


class Subscriptions:
    """The subscriptions of one open store."""

    def __init__(
        self, slices: Slices, database: Callable[[Lane, str], Any], writers: Mapping[Lane, WriterProcess]
    ) -> None:
        """Keep references to the parts of the store. ``database`` returns the handle of an open database."""
        self._slices, self._database, self._writers = slices, database, writers

    # --- writing

    async def subscribe(self, batch: Sequence[Subscribe]) -> int:
        """Subscribe. Return a stamp that is greater than all earlier stamps of the store, and not greater than the
        stamps of this batch."""
        soft, durable = await self._by_lane(batch)
        stamps: list[int] = []
        if soft:
            stamps += await self._subscribe(Lane.SOFT, soft)
            for row, there in zip(soft, await self._there(Lane.DURABLE, soft), strict=True):
                if there:
                    durable.append(row._replace(topics=there))
        if durable:
            if any(row.filter is not None for row in durable):
                await self._require_room(durable)
            stamps += await self._subscribe(Lane.DURABLE, durable)
            # The soft lane is often empty. Then further reads would only cost time.
            if self._slices.holds(Lane.SOFT, "topics_of"):
                await self._leave_soft(durable)
        return min(stamps, default=0)

    async def _by_lane(self, batch: Sequence[Subscribe]) -> tuple[list[Subscribe], list[Subscribe]]:
        """Split the batch into the rows for the soft lane and those for the durable one. All rows of one client at one
        topic go to the same lane, in their order."""
        passing = [row for row in batch if _is_passing(row)]
        if not passing:
            return [], list(batch)
        clients = {row.client for row in passing}
        others = [row for row in batch if row.client in clients and not _is_passing(row)]
        lasting = {(row.client, topic) for row in others for topic in row.topics}
        found = iter(await self._there(Lane.DURABLE, passing))
        soft: list[Subscribe] = []
        durable: list[Subscribe] = []
        for row in batch:
            if not _is_passing(row):
                durable.append(row)
                continue
            there = {*next(found), *(topic for topic in row.topics if lasting and (row.client, topic) in lasting)}
            if there:
                durable.append(row._replace(topics=[topic for topic in row.topics if topic in there]))
                row = row._replace(topics=[topic for topic in row.topics if topic not in there])
            if row.topics:
                soft.append(row)
        return soft, durable

    async def _there(self, lane: Lane, rows: Sequence[Any]) -> list[list[str]]:
        """Return, for each row (client, topics, …), the topics to which the client has a subscription in the lane."""
        there: list[list[str]] = [[] for _ in rows]
        if not self._slices.holds(lane, "topics_of"):
            return there

        def look(_: lmdb.Transaction, cursor: lmdb.Cursor, part: tuple[int, int]) -> None:
            number, start = part
            client, topics = rows[number][0], rows[number][1][start : start + TOPICS_AT_ONCE]
            known = now.subscribed(cursor, client, topics, 0, float("inf"))
            there[number] += [topic for topic, is_there in zip(topics, known, strict=True) if is_there]

        parts = [(number, start) for number, row in enumerate(rows) for start in range(0, len(row[1]), TOPICS_AT_ONCE)]
        await self._slices.each(lane, "topics_of", parts, look)
        return there

    async def _require_room(self, rows: Sequence[Subscribe]) -> None:
        """Raise ``TooManyFilters`` if a client would have too many filters together with those in the soft lane, which
        the durable writer does not see."""
        if not self._slices.holds(Lane.SOFT, "filters"):
            return
        asked: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        for row, there in zip(rows, await self._there(Lane.SOFT, rows), strict=True):
            if row.filter is not None and not row.replace:
                for topic in there:
                    asked[row.client, topic].add(row.filter)
        for pair, held in zip(asked, await self.of(list(asked)), strict=True):
            if len(asked[pair].union(one.filter for one in held if one.filter is not None)) > FILTERS_MAX:
                raise too_many_filters(*pair)

    async def _leave_soft(self, rows: Sequence[Subscribe]) -> None:
        """Remove the subscriptions from the soft lane that these rows have replaced in the durable lane."""
        pairs = [
            (row, topic) for row, there in zip(rows, await self._there(Lane.SOFT, rows), strict=True) for topic in there
        ]

        def look(_: lmdb.Transaction, terms: lmdb.Cursor, pair: tuple[Subscribe, str]) -> list[Subscription]:
            row, topic = pair
            prefix = now.prefix_of(topic, digest(topic.encode())) + digest(row.client.encode())
            own = prefix + now.key_of(row.filter)
            found = entries_from(terms, prefix)
            return [now.subscription_in(record) for key, record in found if row.replace or key == own]

        found = await self._slices.each(Lane.SOFT, "terms", pairs, look)
        if going := [(None, one) for mine in found for one in mine]:
            await self._writers[Lane.SOFT].call("take_out", frames_of_subscriptions(going))

    async def _subscribe(self, lane: Lane, batch: Sequence[Subscribe]) -> list[int]:
        """Send the rows to the lane's writer. Returns the writer's results, frame by frame."""
        call, stamps = self._writers[lane].call, list[int]()
        above = self._slices.stamp(Lane.SOFT if lane is Lane.DURABLE else Lane.DURABLE)
        if len(batch) == 1 and batch[0].filter is None and len(batch[0].topics) < LARGE_ROWS:
            row = batch[0]  # most calls concern one client
            return await call("subscribe", [(False, above, [(_wanted(row), [(row.client, row.topics)])])])
        # A row with a filter can exceed the client's limit. The writer then refuses the frame, and must not refuse a
        # whole run. So rows with filters go into small frames. All other rows of the same client go with them, because
        # the order of its rows at a topic matters.
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
                stamps += await call("subscribe", zip(repeat(is_large), repeat(above), frames))
        return stamps

    async def unsubscribe(self, batch: Sequence[tuple[str, Sequence[str], str | None]]) -> None:
        """Remove the given filter of each client, or all of its subscriptions to the topics."""
        # A writer that waits for its disk may still write rows that no read finds yet. So send that writer all topics,
        # because it executes this removal after it has written those rows.
        is_held = self._writers[Lane.SOFT].is_held
        found = [topics for _, topics, _ in batch] if is_held else await self._there(Lane.SOFT, batch)
        soft = [(client, there, text) for (client, _, text), there in zip(batch, found, strict=True) if there]
        if soft:  # first, so that a subscription in both lanes does not survive in the soft one
            await self._unsubscribe(Lane.SOFT, soft)
        # The durable writer itself checks which subscriptions exist, after all its pending writes. If there is nothing
        # to remove, it flushes nothing.
        await self._unsubscribe(Lane.DURABLE, batch)

    async def _unsubscribe(self, lane: Lane, batch: Sequence[tuple[str, Sequence[str], str | None]]) -> None:
        rows = ((text, client, topics, text is not None) for client, topics, text in batch)
        is_large = sum(len(topics) for _, topics, _ in batch) >= LARGE_ROWS
        await self._writers[lane].call("unsubscribe", zip(repeat(is_large), repeat(0), frames_of(rows)))

    # --- by topic

    async def subscribers(self, topics: Sequence[str]) -> tuple[list[Subscribers], dict[str, FilterPage]]:
        """Return the subscribers without a filter, and the first page of those with filters, for each topic."""
        soft = await self._subscribers(Lane.SOFT, topics) if self._slices.holds(Lane.SOFT, "subscribers") else None
        durable = await self._subscribers(Lane.DURABLE, topics)
        return durable if soft is None else now.joined(soft, durable, PAIRS_AT_ONCE)

    async def _subscribers(self, lane: Lane, topics: Sequence[str]) -> tuple[list[Subscribers], dict[str, FilterPage]]:
        sets: list[Subscribers] = []
        pages: dict[str, FilterPage] = {}
        members: set[str] = set()
        after: bytes | None = None  # the last member that was read, if a slice ended within a set
        filtering: list[str] = []  # the clients with filters at the end of that slice

        def read_slice() -> bool:
            nonlocal members, after, filtering
            with self._slices.reading(lane, "subscribers") as (txn, cursor):
                until = perf_counter() + SLICE_S
                texts = self._database(lane, "filters")
                while len(sets) < len(topics):
                    topic_hash = digest(topics[len(sets)].encode())
                    last, has_filters = _read_members(cursor, topic_hash, after, members, until)
                    page: FilterPage = NO_FILTERS
                    if has_filters or last is not None:
                        page = now.filter_page(cursor, txn, texts, topic_hash, FILTERED, PAIRS_AT_ONCE)
                    # If a client gives up its filter between two slices, its new entry can be before the position that
                    # the read has reached. So look for such entries of all clients that had filters at the end of the
                    # last slice.
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
        """Return the page of the topic's clients and filters that begins after the cursor, with at most
        ``PAIRS_AT_ONCE`` pairs."""
        after = from_cursor(cursor, lambda entry: entry[:1] == entry[-HASH_BYTES - 1 : -HASH_BYTES] == FILTERED)
        topic_hash, limit = digest(topic.encode()), min(limit, PAIRS_AT_ONCE)
        soft = NO_FILTERS
        if self._slices.holds(Lane.SOFT, "filters"):
            soft = self._filter_page(Lane.SOFT, topic_hash, after, limit)
        return now.joined_page(soft, self._filter_page(Lane.DURABLE, topic_hash, after, limit), limit)

    def _filter_page(self, lane: Lane, topic_hash: bytes, after: bytes, limit: int) -> FilterPage:
        with self._slices.reading(lane, "subscribers") as (txn, entries):
            return now.filter_page(entries, txn, self._database(lane, "filters"), topic_hash, after, limit)

    # --- by client

    def of_now(self, pairs: Sequence[tuple[str, str]]) -> list[list[Subscription]]:
        """Return the subscriptions of each ``(client, topic)`` pair, for as many pairs as one slice has time for."""
        until = perf_counter() + SLICE_S
        if not self._slices.holds(Lane.SOFT, "subscribers"):
            return self._of(Lane.DURABLE, pairs, until)
        soft = self._of(Lane.SOFT, pairs, until)
        return now.joined_records(soft, self._of(Lane.DURABLE, pairs[: len(soft)], until))

    def _of(self, lane: Lane, pairs: Sequence[tuple[str, str]], until: float) -> list[list[Subscription]]:
        with self._slices.reading(lane, "subscribers") as (txn, entries):
            terms, texts = self._database(lane, "terms"), self._database(lane, "filters")
            return now.subscriptions_of(entries, txn.cursor(terms), txn, texts, pairs, until)

    async def of(self, pairs: Sequence[tuple[str, str]]) -> list[list[Subscription]]:
        """Return the subscriptions of every pair."""
        found: list[list[Subscription]] = []

        def read_slice() -> bool:
            found.extend(self.of_now(pairs[len(found) :]))
            return len(found) == len(pairs)

        await self._slices.through(read_slice)
        return found

    def subscribed_now(self, client: str, topics: Sequence[str], start: int = 0) -> list[bool]:
        """Return for each topic, from index ``start`` on, whether the client has a subscription, for as many topics as
        one slice has time for."""
        until = perf_counter() + SLICE_S
        soft: list[bool] | None = None
        if self._slices.holds(Lane.SOFT, "topics_of"):
            with self._slices.reading(Lane.SOFT, "topics_of") as (_, cursor):
                soft = now.subscribed(cursor, client, topics, start, until)
        with self._slices.reading(Lane.DURABLE, "topics_of") as (_, cursor):
            durable = now.subscribed(cursor, client, topics, start, until)
        # One of the two reads may have had time for fewer topics.
        return durable if soft is None else [one or other for one, other in zip(soft, durable, strict=False)]

    async def subscribed(self, client: str, topics: Sequence[str]) -> list[bool]:
        """Return for every topic whether the client has a subscription."""
        found: list[bool] = []

        def read_slice() -> bool:
            found.extend(self.subscribed_now(client, topics, len(found)))
            return len(found) == len(topics)

        await self._slices.through(read_slice)
        return found

    async def topics(self, client: str, after: bytes | None, limit: int) -> tuple[list[str], str | None]:
        """Return a page of the client's topics, sorted by hash. The page begins after the hash ``after``."""
        client_hash = digest(client.encode())
        soft: dict[bytes, str] = {}
        if self._slices.holds(Lane.SOFT, "topics_of"):
            soft = await self._topics(Lane.SOFT, client_hash, after, limit)
        found = await self._topics(Lane.DURABLE, client_hash, after, limit)
        if soft:
            found = dict(sorted((soft | found).items()))
        page = list(islice(found, limit))
        return [found[topic_hash] for topic_hash in page], page[-1].hex() if len(found) > limit else None

    async def _topics(self, lane: Lane, client_hash: bytes, after: bytes | None, limit: int) -> dict[bytes, str]:
        """Return a map from hashes to topics, in the order of the hashes. If the lane has more than ``limit`` topics,
        the map has one more than ``limit``."""
        found: dict[bytes, str] = {}

        def read_slice() -> bool:
            nonlocal after
            with self._slices.reading(lane, "topics_of") as (txn, cursor):
                until = perf_counter() + SLICE_S
                texts = self._database(lane, "texts")
                for topic_hash in duplicates_after(cursor, client_hash, after):
                    found[topic_hash] = _text(txn, topic_hash, texts)
                    if len(found) > limit:
                        return True
                    after = topic_hash
                    if perf_counter() >= until:
                        return False
            return True

        await self._slices.through(read_slice)
        return found

    # --- everything

    def page(self, after: tuple[bytes, bytes] | None) -> tuple[list[TopicPage], int, tuple[bytes, bytes] | None]:
        """Return the subscriptions of one slice, which begins after the entry ``after``. Also return their number, and
        the entry of the last one, or ``None`` if no more follow."""
        has_soft = self._slices.holds(Lane.SOFT, "subscribers")
        parts = [self._some(lane, after) for lane in ([Lane.SOFT, Lane.DURABLE] if has_soft else [Lane.DURABLE])]
        found, _ = parts[-1]
        places = list(found)
        # Return entries only up to the place that both reads have reached.
        end = min((next(reversed(part)) for part, is_last in parts if not is_last), default=None)
        if has_soft:
            found = parts[0][0] | found
            places = sorted(place for place in found if end is None or place <= end)[:PAGE_SUBSCRIPTIONS]
        page: list[TopicPage] = []
        topic_hash = b""
        for place in places:
            topic, one = found[place]
            if place[0] != topic_hash:
                topic_hash = place[0]
                page.append((topic, [], []))
            if isinstance(one, str):
                page[-1][1].append(one)
            else:
                page[-1][2].append(one)
        return page, len(places), None if end is None and len(places) == len(found) else places[-1]

    def _some(
        self, lane: Lane, after: tuple[bytes, bytes] | None
    ) -> tuple[dict[tuple[bytes, bytes], tuple[str, Subscription | str]], bool]:
        """Return entries of the lane, each with its topic and content, and whether these are the lane's last
        entries."""
        found: dict[tuple[bytes, bytes], tuple[str, Subscription | str]] = {}
        with self._slices.reading(lane, "subscribers") as (txn, cursor):
            if not seek_behind(cursor, after):
                return found, True
            reader, until = _All(txn, partial(self._database, lane)), perf_counter() + SLICE_S
            entries = cast(Iterator[tuple[bytes, bytes]], cursor.iternext())
            while part := list(islice(entries, min(LOOKS, PAGE_SUBSCRIPTIONS - len(found)))):
                found.update((place, reader.one(*place)) for place in part)
                if len(found) == PAGE_SUBSCRIPTIONS or perf_counter() >= until:
                    return found, False
        return found, True


class _All:
    """Reads a lane's subscriptions in the order of their topics, within one read transaction."""

    def __init__(self, txn: lmdb.Transaction, database: Callable[[str], Any]) -> None:
        """Keep the transaction. ``database`` returns the handle of the lane's database."""
        self._txn, self._texts, self._filters = txn, database("texts"), database("filters")
        self._terms = txn.cursor(database("terms"))
        self._has_terms = self._terms.first()
        self._at, self._topic = b"", ""  # hash and text of the last topic
        self._prefix = b""  # prefix of the last topic's keys in ``terms``; empty if it has no keys there

    def one(self, topic_hash: bytes, entry: bytes) -> tuple[str, Subscription | str]:
        """Return the topic and the content of the entry: the client id if there is neither a filter nor a term,
        otherwise the subscription."""
        if topic_hash != self._at:
            self._at, self._topic = topic_hash, _text(self._txn, topic_hash, self._texts)
            self._prefix = now.prefix_of(self._topic, topic_hash) if self._has_terms else b""
            if self._prefix and next(entries_from(self._terms, self._prefix), None) is None:
                self._prefix = b""
        topic = self._topic
        if entry < FILTERED and not self._prefix:
            return topic, entry.decode()
        client_id, key = (entry[1 : -HASH_BYTES - 1], entry[-HASH_BYTES:]) if entry >= FILTERED else (entry, b"")
        if self._prefix and self._terms.set_key(self._prefix + digest(client_id) + key):
            return topic, now.subscription_in(cast(bytes, self._terms.value()))
        if not key:
            return topic, client_id.decode()
        return topic, Subscription(topic, client_id.decode(), now.text_in(self._txn, self._filters, key))


def _is_passing(row: Subscribe) -> bool:
    return row.term is not None and row.term.disconnect


def _wanted(row: Subscribe) -> Any:
    """Return the value that a frame has for the row's topics. It is ``None`` for subscriptions with neither a filter
    nor a term."""
    if row.filter is None and row.term is None and not row.replace:
        return None
    return row.filter, None if row.term is None else tuple(row.term), row.replace


def _text(txn: lmdb.Transaction, topic_hash: bytes, texts: Any) -> str:
    return str(cast(bytes, txn.get(topic_hash, db=texts)), "utf-8")


def _read_members(
    cursor: lmdb.Cursor, topic_hash: bytes, after: bytes | None, members: set[str], until: float
) -> tuple[bytes | None, bool]:
    """Add the subscribers without a filter, starting after ``after``, to ``members``. Return the last entry that was
    read if the time was up, or ``None`` if all were read. Also return whether the topic has subscribers with a
    filter."""
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
