"""How subscriptions end in the embedded store, and how the store remembers their ends.

Owns: the reads of the databases ``terms`` and ``ended``, and the steps of ``end``. The writers' changes within a
transaction are in ``subscription_operations.py`` and ``operations.py``. Must never: hold a transaction across an
``await``, read for longer than ``SLICE_S`` without an ``await``, or read a subscription without a term.

The soft environment has the locations, ``ended``, and most subscriptions that end at a disconnect
(``subscriptions.py``). For such a subscription, one transaction compares the location, removes the subscription and
adds it to ``ended``. Then ``end`` checks whether the durable environment has the subscription by now. If so, the
subscription has not ended, and ``end`` removes it from ``ended`` again.

A subscription of the durable environment ends in three transactions, in this order:

1. If the caller requires a location, the soft writer compares it. The soft writer then adds the subscriptions to
   ``ended``.
2. The durable writer removes the subscriptions that still have the given stamp.
3. The soft writer removes those subscriptions from ``ended`` that turned out to have another stamp, or no term.

If a ``listen`` was committed before the first step, this step sees the new location. A later ``listen`` reads ``ended``
after this step has updated it. If a process dies after the first step, ``ended`` has a subscription that still exists.
Either its client subscribes again, or the next expiry walk ends the subscription. A subscription that is already gone
is not added to ``ended``.

If both environments have a subscription, the durable one counts. ``end`` first removes the soft one, without adding it
to ``ended``. Both have the subscription if a process died before it could remove the soft one.

``ended`` has the stamp of each subscription, so that no process removes a later subscription from it by mistake. The
third step compares stamps. A ``subscribe`` removes its subscriptions from ``ended`` after it has written them, but only
if their stamps in ``ended`` are below the stamps that its own transaction assigns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat
from time import perf_counter
from typing import Any, Final, NamedTuple, cast

import lmdb
import ormsgpack

from ingeborg.broker.store.base import ENDED_BYTES_MAX, ENDED_MAX, Ended, Location, Subscribe, Subscription
from ingeborg.broker.store.embedded.layout import FRAME_ITEMS, Lane, frames_of, frames_of_subscriptions
from ingeborg.broker.store.embedded.now import SLOT_BYTES, entry_of, key_of, prefix_of, subscription_in
from ingeborg.broker.store.embedded.slices import SLICE_S, Call, Slices, entries_from, from_cursor, value_of
from ingeborg.broker.store.embedded.subscription_operations import GONE, STAYS, TAKEN_OUT
from ingeborg.protocol.hashes import HASH_BYTES, digest

ENDED_AT_BYTES: Final = 8
"""Length of the time at the beginning of a value of ``ended``. Because the time comes first, cleanup can read it
without decoding a thousand topics."""

TOPICS_AT_ONCE: Final = 4_096
"""How many topics are compared with a client's record in ``ended`` between two checks of the clock. This takes
0.2 ms."""

_Row = tuple[Any, Subscription]
"""The first item has the client's location, and whether the client must still have it (``None`` if a step does not
compare locations). The second item is the subscription to end."""

EndedItem = tuple[str, str | None, int]
"""A subscription that has ended: topic, filter, stamp."""


class EndedRecord(NamedTuple):
    """A value of ``ended``. ``at_ms`` is the Unix time at which the last subscription ended, in milliseconds."""

    at_ms: int
    total: int
    named: list[EndedItem]


def pack_ended(record: EndedRecord) -> bytes:
    """Return the value. It has the latest subscriptions, up to the limits."""
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
    """Return the record in the value."""
    total, named = ormsgpack.unpackb(value[ENDED_AT_BYTES:])
    return EndedRecord(int.from_bytes(value[:ENDED_AT_BYTES], "big"), total, named)


class Expiry:
    """Expires the subscriptions of one open store."""

    def __init__(
        self,
        slices: Slices,
        database: Callable[[Lane, str], Any],
        durable: Call,
        soft: Call,
        *,
        wall_clock: Callable[[], float],
    ) -> None:
        """Keep references to the parts of the store. ``database`` returns the handle of an open database; ``durable``
        and ``soft`` call the writers."""
        self._slices, self._database = slices, database
        self._durable, self._soft, self._wall_clock = durable, soft, wall_clock

    def slots(self) -> list[int]:
        """Return the slots that have subscriptions with a term, in order. This takes one seek for each such slot and
        lane, at most 8 ms."""
        found: set[int] = set()
        for lane in self._lanes():
            with self._slices.reading(lane, "terms") as (_, terms):
                there = terms.first()
                while there:
                    slot = int.from_bytes(terms.key()[:SLOT_BYTES], "big")
                    found.add(slot)
                    there = terms.set_range((slot + 1).to_bytes(SLOT_BYTES, "big"))
        return sorted(found)

    def _lanes(self) -> list[Lane]:
        """Return the lanes that have subscriptions with a term, in the order to read them (``subscriptions.py``)."""
        return [Lane.SOFT, Lane.DURABLE] if self._slices.holds(Lane.SOFT, "terms") else [Lane.DURABLE]

    async def page(self, slot: int, cursor: str | None, limit: int) -> tuple[list[Subscription], str | None]:
        """Return some of the slot's subscriptions with a term, in the order of their keys."""
        prefix = slot.to_bytes(SLOT_BYTES, "big")
        last = b"" if cursor is None else from_cursor(cursor, lambda key: len(key) in (2 * HASH_BYTES, 3 * HASH_BYTES))
        found: dict[bytes, bytes] = {}
        lanes = self._lanes()
        for lane in lanes:
            found |= await self._page(lane, prefix, prefix + last if last else b"", limit)
        page = (sorted(found) if len(lanes) > 1 else list(found))[:limit]
        rest = page[-1][SLOT_BYTES:].hex() if len(found) > limit else None
        return [subscription_in(found[key]) for key in page], rest

    async def _page(self, lane: Lane, prefix: bytes, after: bytes, limit: int) -> dict[bytes, bytes]:
        """Return keys and records of the lane. If the lane has more than ``limit``, return one more than ``limit``."""
        found: dict[bytes, bytes] = {}

        def read_slice() -> bool:
            nonlocal after
            with self._slices.reading(lane, "terms") as (_, terms):
                until = perf_counter() + SLICE_S
                for key, record in entries_from(terms, prefix, after):
                    found[key], after = record, key
                    if len(found) > limit:
                        return True
                    if perf_counter() >= until:
                        return False
            return True

        await self._slices.through(read_slice)
        return found

    async def end(
        self, batch: Sequence[tuple[Sequence[Subscription], Location | None, bool]]
    ) -> list[list[Subscription]]:
        """Implement ``Store.end``."""
        rows = [
            ((None if location is None else tuple(location), only), one)
            for subscriptions, location, only in batch
            for one in subscriptions
        ]
        soft: list[int] = [0] * len(rows)
        if self._slices.holds(Lane.SOFT, "terms"):
            soft = await self._slices.each(Lane.SOFT, "terms", rows, _stamp)
        found = await self._slices.each(Lane.DURABLE, "subscribers", rows, self._state)
        left: list[_Row] = []
        expiring: dict[Lane, list[int]] = {Lane.SOFT: [], Lane.DURABLE: []}
        for number, ((_, one), stamp, state) in enumerate(zip(rows, soft, found, strict=True)):
            if stamp and state == GONE:
                found[number] = STAYS
                if stamp == one.stamp:
                    expiring[Lane.SOFT].append(number)
                continue
            if stamp:
                left.append((None, one._replace(stamp=stamp)))
            if state == TAKEN_OUT:
                expiring[Lane.DURABLE].append(number)
        if left:
            await self._soft("take_out", frames_of_subscriptions(left))
        # Each part goes through all steps before the next part starts, so a `listen` waits for at most one part.
        for numbers, end in ((expiring[Lane.SOFT], self._end_soft), (expiring[Lane.DURABLE], self._end_durable)):
            for start in range(0, len(numbers), FRAME_ITEMS):
                part = numbers[start : start + FRAME_ITEMS]
                for number, state in zip(part, await end([rows[number] for number in part]), strict=True):
                    found[number] = state
        states = iter(found)
        return [[one for one in subscriptions if next(states) != STAYS] for subscriptions, _, _ in batch]

    def _state(self, txn: lmdb.Transaction, entries: lmdb.Cursor, row: _Row) -> int:
        """Return the state that the durable writer would report for the subscription."""
        _, one = row
        record = value_of(txn, _place(one), self._database(Lane.DURABLE, "terms"))
        if record is not None:
            return TAKEN_OUT if subscription_in(record).stamp == one.stamp else STAYS
        entry = entry_of(one.client.encode(), key_of(one.filter))
        return STAYS if entries.set_key_dup(digest(one.topic.encode()), entry) else GONE

    async def _end_soft(self, rows: Sequence[_Row]) -> list[int]:
        """End subscriptions of the soft lane. Return the outcome for each."""
        states = await self._soft("end", zip(repeat(self._now_ms()), frames_of_subscriptions(rows)))
        durable = await self._slices.each(Lane.DURABLE, "subscribers", rows, self._state)
        if back := [(None, one) for (_, one), state in zip(rows, durable, strict=True) if state != GONE]:
            await self._soft("has_not_ended", frames_of_subscriptions(back))
        return [state if other == GONE else STAYS for state, other in zip(states, durable, strict=True)]

    async def _end_durable(self, rows: Sequence[_Row]) -> list[int]:
        """End subscriptions of the durable lane. Return the outcome for each."""
        named = await self._soft("has_ended", zip(repeat(self._now_ms()), frames_of_subscriptions(rows)))
        going = [(None, one) for (_, one), is_named in zip(rows, named, strict=True) if is_named]
        states = await self._durable("take_out", frames_of_subscriptions(going))
        if stays := [row for row, state in zip(going, states, strict=True) if state == STAYS]:
            await self._soft("has_not_ended", frames_of_subscriptions(stays))
        found = iter(states)
        return [next(found) if is_named else STAYS for is_named in named]

    async def ended(self, clients: Sequence[str]) -> list[Ended | None]:
        """Return the ended subscriptions of each client."""
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
        """Remove these subscriptions from ``ended`` if their stamps are below ``before``. Send only subscriptions that
        are in ``ended`` to the writer."""
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
        """Do one step of cleanup. Return the number of removed records."""
        return sum(await self._soft("tidy", [(self._now_ms(), int(kept_s * 1000))]))

    def _now_ms(self) -> int:
        return int(self._wall_clock() * 1000)


def _place(one: Subscription) -> bytes:
    """Return the subscription's key in ``terms``."""
    prefix = prefix_of(one.topic, digest(one.topic.encode()))
    return prefix + digest(one.client.encode()) + key_of(one.filter)


def _stamp(_: lmdb.Transaction, terms: lmdb.Cursor, row: _Row) -> int:
    """Return the stamp that the subscription has in the lane, or 0 if the lane does not have the subscription."""
    return subscription_in(cast(bytes, terms.value())).stamp if terms.set_key(_place(row[1])) else 0
