"""The index of terms. It lists the subscriptions of a slot that have a term, so expiry need not read any others.

Owns: the rows of the index, which are one set for each slot. Must never: read a record.

A row holds all data of one term. It never changes, because each new term gets a new row. A row is written before its
term is written into the record, and removed after the term is removed from the record. So the index always has the
terms of all records. A row without a record is harmless: either a crash left it, or the write of the record is still on
its way. Removing one row cannot affect a new term that arrives at the same time, because the new term has another row.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import orjson

from ingeborg.protocol.hashes import slot_of

from ..base import Subscription, Term
from .access import Access
from .flow import each
from .layout import SetObject
from .sets import LargeSets


class Terms:
    """The index of a store."""

    def __init__(self, access: Access) -> None:
        self._sets = LargeSets(access, access.buckets.terms, SetObject)
        self._access = access
        self._stamp = 0

    def stamp(self, above: int) -> int:
        """Return a stamp for terms that are about to be written. It is the greatest of three numbers: the Unix
        time in milliseconds, ``above`` plus one, and this process's previous stamp plus one."""
        self._stamp = max(self._access.now_ms, self._stamp + 1, above + 1)
        return self._stamp

    async def add(self, rows: Iterable[Subscription]) -> None:
        """Add rows. Call this before writing the records."""
        await self._update(rows, adding=True)

    async def discard(self, rows: Iterable[Subscription]) -> None:
        """Remove rows. Call this after writing the records."""
        await self._update(rows, adding=False)

    async def page(self, slot: int, after: bytes, limit: int) -> list[tuple[Subscription, str]]:
        """Return up to ``limit`` rows of the slot, starting with the first one whose place is above ``after``. Each row
        comes with its encoded form, which is the row's member in the set."""
        members = await self._sets.page(_name_of(slot), after, limit)
        return [(_subscription(member), member) for member in members]

    async def _update(self, rows: Iterable[Subscription], *, adding: bool) -> None:
        slots: defaultdict[int, set[str]] = defaultdict(set)
        for row in rows:
            slots[slot_of(row.topic)].add(_member(row))

        async def change(slot: int) -> None:
            await self._sets.update(_name_of(slot), slots[slot] if adding else (), () if adding else slots[slot])

        await each(list(slots), change, self._access.at_once)


def _name_of(slot: int) -> str:
    return f"{slot:03x}"


def _member(row: Subscription) -> str:
    assert row.term is not None, "the index has only subscriptions with a term"
    return orjson.dumps([row.topic, row.client, row.filter, *row.term, row.stamp]).decode()


def _subscription(member: str) -> Subscription:
    topic, client, text, disconnect, ends_at, stamp = orjson.loads(member)
    return Subscription(topic, client, text, Term(disconnect, ends_at), stamp)
