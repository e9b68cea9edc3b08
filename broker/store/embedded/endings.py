"""How subscriptions end in the embedded store, and what the store remembers of their ends.

Owns: the database ``terms`` as a sweep reads it, ``ended`` as an endpoint sees it, and the steps of ``end``. What the
writers do in a transaction is in ``subscription_operations.py`` and ``operations.py``. Must never: hold a transaction
across an ``await``, read for longer than ``SLICE_S`` without one, or look at a subscription without a term.

Subscriptions are in the durable environment; locations, and what has ended, in the soft one. No transaction has both,
so ``end`` takes three, in this order:

1. The soft writer compares the location, where it counts, and names the subscriptions in ``ended``.
2. The durable writer takes out those that still have the given stamp.
3. The soft writer names those no longer that turned out to have another stamp, or no term.

A ``listen`` that was committed before the first step is seen by it. One that comes later finds ``ended`` written. A
process that dies after the first step leaves a subscription that ``ended`` names: its client subscribes once more, and
the next sweep ends it otherwise. A subscription that is gone before the first step is not named.

``ended`` has the stamp of each subscription, so that nobody takes out a name that a later subscription has: the third
step compares it, and ``subscribe``, which takes names out after it has written, goes up to the stamps that its own
transaction gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, repeat
from time import perf_counter
from typing import Any, Final, NamedTuple

import lmdb
import ormsgpack

from ingeborg.broker.store.base import ENDED_BYTES_MAX, ENDED_MAX, Ended, Location, Subscribe, Subscription
from ingeborg.broker.store.embedded.layout import FRAME_ITEMS, Group, Lane, frames_of
from ingeborg.broker.store.embedded.now import SLOT_BYTES, entry_of, key_of, prefix_of, subscription_in
from ingeborg.broker.store.embedded.slices import SLICE_S, Call, Slices, entries_from, from_cursor, value_of
from ingeborg.broker.store.embedded.subscription_operations import GONE, STAYS, TAKEN_OUT
from ingeborg.protocol.hashes import HASH_BYTES, digest

ENDED_AT_BYTES: Final = 8
"""In front of the value of ``ended``: who clears up reads these, and not a thousand topics."""

TOPICS_AT_ONCE: Final = 4_096
"""That are compared with what has ended of a client without a look at the clock: 0.2 ms."""

_Row = tuple[Any, Subscription]
"""A subscription that is to end, and where its client has to be for that, or nothing."""

EndedItem = tuple[str, str | None, int]
"""A subscription that has ended: topic, filter, stamp."""


class EndedRecord(NamedTuple):
    """A value of ``ended``. ``at_ms``: when the last one ended, Unix time."""

    at_ms: int
    total: int
    named: list[EndedItem]


def pack_ended(record: EndedRecord) -> bytes:
    """The value, with as many of the last names as there may be."""
    named = record.named[-ENDED_MAX:]
    packed = ormsgpack.packb([record.total, named])
    if len(packed) > ENDED_BYTES_MAX:
        sizes = [len(topic.encode()) + len((text or "").encode()) for topic, text, _ in named]
        size, first = sum(sizes), 0
        while size > ENDED_BYTES_MAX:
            size -= sizes[first]
            first += 1
        packed = ormsgpack.packb([record.total, named[first:]])
    return record.at_ms.to_bytes(ENDED_AT_BYTES, "big") + packed


def unpack_ended(value: bytes) -> EndedRecord:
    """What the value says."""
    total, named = ormsgpack.unpackb(value[ENDED_AT_BYTES:])
    return EndedRecord(int.from_bytes(value[:ENDED_AT_BYTES], "big"), total, named)


class Endings:
    """Those of one open store."""

    def __init__(
        self,
        slices: Slices,
        database: Callable[[Lane, str], Any],
        durable: Call,
        soft: Call,
        *,
        wall_clock: Callable[[], float],
    ) -> None:
        """``database``: gives the handle of one that is open. ``durable``, ``soft``: the writers."""
        self._slices, self._database = slices, database
        self._durable, self._soft, self._wall_clock = durable, soft, wall_clock

    def slots(self) -> list[int]:
        """Those that have subscriptions with a term, in order: a look for each, 4 ms at most."""
        found: list[int] = []
        with self._slices.reading(Lane.DURABLE, "terms") as (_, terms):
            there = terms.first()
            while there:
                found.append(int.from_bytes(terms.key()[:SLOT_BYTES], "big"))
                there = terms.set_range((found[-1] + 1).to_bytes(SLOT_BYTES, "big"))
        return found

    async def page(self, slot: int, cursor: str | None, limit: int) -> tuple[list[Subscription], str | None]:
        """Some of those of the slot, in the order of their keys."""
        prefix = slot.to_bytes(SLOT_BYTES, "big")
        last = b"" if cursor is None else from_cursor(cursor, lambda key: len(key) in (2 * HASH_BYTES, 3 * HASH_BYTES))
        page: list[Subscription] = []
        rest: str | None = None

        def read_slice() -> bool:
            nonlocal last, rest
            with self._slices.reading(Lane.DURABLE, "terms") as (_, terms):
                until = perf_counter() + SLICE_S
                for key, record in entries_from(terms, prefix, prefix + last if last else b""):
                    if len(page) >= limit:
                        rest = last.hex()
                        return True
                    page.append(subscription_in(record))
                    last = key[SLOT_BYTES:]
                    if perf_counter() >= until:
                        return False
            return True

        await self._slices.through(read_slice)
        return page, rest

    async def end(
        self, batch: Sequence[tuple[Sequence[Subscription], Location | None, bool]]
    ) -> list[list[Subscription]]:
        """Take them out; those that are, or were gone."""
        rows = [
            ((None if location is None else tuple(location), only), one)
            for subscriptions, location, only in batch
            for one in subscriptions
        ]
        found = await self._slices.each(Lane.DURABLE, "subscribers", rows, self._state)
        there = [number for number, state in enumerate(found) if state == TAKEN_OUT]
        # Each part goes through all steps before the next: a `listen` waits for one of them, not for all.
        for start in range(0, len(there), FRAME_ITEMS):
            part = there[start : start + FRAME_ITEMS]
            for number, state in zip(part, await self._end([rows[number] for number in part]), strict=True):
                found[number] = state
        states = iter(found)
        return [[one for one in subscriptions if next(states) != STAYS] for subscriptions, _, _ in batch]

    def _state(self, txn: lmdb.Transaction, entries: lmdb.Cursor, row: _Row) -> int:
        """Return what the durable writer would say of the subscription."""
        _, one = row
        client_id, topic_hash, key = one.client.encode(), digest(one.topic.encode()), key_of(one.filter)
        place = prefix_of(one.topic, topic_hash) + digest(client_id) + key
        record = value_of(txn, place, self._database(Lane.DURABLE, "terms"))
        if record is not None:
            return TAKEN_OUT if subscription_in(record).stamp == one.stamp else STAYS
        return STAYS if entries.set_key_dup(topic_hash, entry_of(client_id, key)) else GONE

    async def _end(self, rows: Sequence[_Row]) -> list[int]:
        """What has become of each."""
        named = await self._soft("has_ended", zip(repeat(self._now_ms()), _frames(rows)))
        going = [(None, one) for (_, one), is_named in zip(rows, named, strict=True) if is_named]
        states = await self._durable("end", _frames(going))
        if stays := [row for row, state in zip(going, states, strict=True) if state == STAYS]:
            await self._soft("has_not_ended", _frames(stays))
        found = iter(states)
        return [next(found) if is_named else STAYS for is_named in named]

    async def ended(self, clients: Sequence[str]) -> list[Ended | None]:
        """What has ended of each."""
        if not self._slices.holds(Lane.SOFT, "ended"):
            return [None] * len(clients)

        def look(txn: lmdb.Transaction, _: lmdb.Cursor, client: str) -> Ended | None:
            value = value_of(txn, client.encode(), self._database(Lane.SOFT, "ended"))
            if value is None:
                return None
            record = unpack_ended(value)
            return Ended([(topic, text) for topic, text, _ in record.named], record.total)

        return await self._slices.each(Lane.SOFT, "ended", clients, look)

    async def subscribed(self, batch: Sequence[Subscribe], before: int) -> None:
        """These have not ended any more, as far as their stamps are less than ``before``. The writer is asked only
        about what is named."""
        if not self._slices.holds(Lane.SOFT, "ended"):
            return

        def look(txn: lmdb.Transaction, _: lmdb.Cursor, part: tuple[Subscribe, int]) -> list[str]:
            row, start = part
            value = value_of(txn, row.client.encode(), self._database(Lane.SOFT, "ended"))
            if value is None:
                return []
            named = {topic for topic, text, _ in unpack_ended(value).named if row.replace or text == row.filter}
            return [topic for topic in row.topics[start : start + TOPICS_AT_ONCE] if topic in named]

        parts = [(row, start) for row in batch for start in range(0, len(row.topics), TOPICS_AT_ONCE)]
        found = await self._slices.each(Lane.SOFT, "ended", parts, look)
        rows = [
            ((row.filter, row.replace), row.client, topics, row.filter is not None)
            for (row, _), topics in zip(parts, found, strict=True)
            if topics
        ]
        if rows:
            await self._soft("subscribed", zip(repeat(before), frames_of(rows)))

    async def tidy(self, kept_s: float) -> int:
        """A step of it; how many records went."""
        return sum(await self._soft("tidy", [(self._now_ms(), int(kept_s * 1000))]))

    def _now_ms(self) -> int:
        return int(self._wall_clock() * 1000)


def _frames(rows: Sequence[_Row]) -> Iterator[list[Group]]:
    """Neighbours of one client together, since each client has one record of what has ended."""
    entries = (
        (what, client, [one for _, one in same])
        for (what, client), same in groupby(rows, key=lambda row: (row[0], row[1].client))
    )
    return frames_of(
        (
            what,
            client,
            [(one.topic, one.filter, one.stamp) for one in mine],
            any(one.filter is not None for one in mine),
        )
        for what, client, mine in entries
    )
