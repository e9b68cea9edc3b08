"""Ends of subscriptions with a term.

Owns: the order of the steps of an ``end``. Must never: remove a subscription before its end is where its client will
look for it, or remove a row of the index before the record is without the subscription.

**An end and a listen at the same time.** A ``listen`` writes the location (L), then reads the client's ended
*subscriptions (A). An
``end`` reads the location (R1), adds its subscriptions to the client's ended ones (E), and reads the location again
(R2). Only if the location is still the given one does it remove the subscriptions (T). So each of the two writes before
it reads what the other has written:

- L completes before R2 begins: R2 finds L. The subscription was never gone, and the ``end`` undoes E.
- L does not complete before R2 begins: then A, which comes after L, begins after E completed, and names the end. If R2
finds L all the same, the first case applies.

L and E write the same object. If they miss each other, its two versions merge: the location of L, and the names of E.
So no subscription ends silently, even if a process dies at any point. And a message always finds a subscription that
stays: the ``end`` removes nothing that it would have to restore. The price is a client that listens between E and its
undoing: it learns of an end that did not happen, subscribes again, and has what it had. A crash after E prolongs that
state: if the client still does not listen, the next home ends the subscription again. (E after R2 would be wrong: L and
A fit in between. Removing before R2 would be wrong for messages, and for a crash.)

**Against a new subscription** the stamp decides: T removes only the term that was given. A new subscription writes its
record, then removes its name from the ended ones and adds its topic to the client's list. The ``end`` had undone these
two steps, so if T finds that something is left, the ``end`` repeats them.

**The index** comes last. An ``end`` removes a row whose record has a greater stamp or no term. It also removes a row
whose record is gone, if this call removed the record or the row is old: the write that follows a young row may still be
on its way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from ..base import Location, Subscription
from .access import Access
from .entries import ALL, Entries, Pair, Stamped, stamped
from .flow import together
from .layout import Name, place_of
from .locations import Locations
from .records import Records
from .terms import Terms

YOUNG_MS: Final = 3_600_000
"""A younger row of the index may belong to a write that is on its way. Clocks differ by less."""

_CURSOR: Final = re.compile("[0-9a-f]{32}", re.ASCII)  # the place of the last row of a page

End = tuple[Sequence[Subscription], Location | None, bool]


def after_cursor(cursor: str | None) -> bytes:
    """Return the place above which the next page begins. Raise ``ValueError`` for an invalid cursor."""
    if cursor is not None and not _CURSOR.fullmatch(cursor):
        raise ValueError(f"{cursor!r} is not a cursor of this store")
    return bytes.fromhex(cursor or "")


class Ends:
    """See the operations of the same names in ``base.Store``."""

    def __init__(self, access: Access, records: Records, terms: Terms, locations: Locations) -> None:
        self._access = access
        self._records = records
        self._terms = terms
        self._locations = locations

    async def page(self, slot: int, cursor: str | None, limit: int) -> tuple[list[Subscription], str | None]:
        """Implement ``Store.expiring``."""
        rows = await self._terms.page(slot, after_cursor(cursor), limit + 1)
        last = place_of(rows[limit - 1][1]).hex() if len(rows) > limit else None
        return [row for row, _ in rows[:limit]], last

    async def end(self, batch: Sequence[End]) -> list[list[Subscription]]:
        """Implement ``Store.end``; the module's docstring has the order of the steps."""
        asked = [row for rows, _, _ in batch for row in rows]
        found: dict[Pair, Entries] = {}
        going: list[int] = []

        async def find() -> None:
            found.update(await self._records.find({_pair(row) for row in asked}))

        async def find_places() -> None:
            going.extend(await self._in_place(batch, range(len(batch))))

        await together(find, find_places)

        def of(numbers: Iterable[int]) -> dict[Pair, dict[str, Stamped]]:
            """Return the parts of these entries that have the given term."""
            terms: dict[Pair, dict[str, Stamped]] = {}
            for row in [row for number in numbers for row in batch[number][0]]:
                if found[_pair(row)].get(_text(row)) == _term(row):
                    terms.setdefault(_pair(row), {})[_text(row)] = _term(row)
            return terms

        await self._locations.end(_names_of(of(going)))
        still = dict.fromkeys(await self._in_place(batch, going))
        moved = [number for number in going if number not in still]
        self._access.counters["ends_called_off"] += len(moved)
        await self._locations.back(_names_of(of(moved)))
        ends = of(still)
        unlisted = [pair for pair in ends if found[pair].keys() <= ends[pair].keys()]
        await self._records.unlist(unlisted)
        over, left = await self._records.take({pair: _without(ends[pair]) for pair in ends})
        stays = {pair: [text for text in ends[pair] if text in left[pair]] for pair in ends}
        await together(
            lambda: self._records.enlist([pair for pair in unlisted if left[pair]]),
            lambda: self._locations.back(_names_of({pair: texts for pair, texts in stays.items() if texts})),
        )
        records = {**found, **left}
        young_ms = self._access.now_ms - YOUNG_MS
        await self._terms.discard([*over, *(row for row in asked if _is_over(row, records[_pair(row)], young_ms))])
        return [[row for row in rows if _text(row) not in records[_pair(row)]] for rows, _, _ in batch]

    async def _in_place(self, batch: Sequence[End], numbers: Iterable[int]) -> list[int]:
        """Return the entries of the batch whose clients are still where the entry requires."""
        clients = {number: batch[number][0][0].client for number in numbers if batch[number][2] and batch[number][0]}
        asked = list(dict.fromkeys(clients.values()))
        found = dict(zip(asked, await self._locations.locations(asked), strict=True))
        return [number for number in numbers if number not in clients or found[clients[number]] == batch[number][1]]


def _pair(row: Subscription) -> Pair:
    return row.client, row.topic


def _text(row: Subscription) -> str:
    return row.filter or ALL


def _term(row: Subscription) -> Stamped:
    assert row.term is not None, "only a subscription with a term ends"
    return stamped(row.term, row.stamp)


def _without(terms: Mapping[str, Stamped]) -> Callable[[Entries], Entries]:
    """Return a function that removes these terms, and older terms of the same subscriptions, which another object can
    have."""

    def left(held: Entries) -> Entries:
        over = [text for text, entry in held.items() if text in terms and entry and entry.rank <= terms[text].rank]
        return {text: entry for text, entry in held.items() if text not in over}

    return left


def _is_over(row: Subscription, entries: Entries, young_ms: int) -> bool:
    """Return whether no record has this row of the index, and none will."""
    entry = entries.get(_text(row), _term(row)._replace(stamp=0))
    return entry is None or entry.rank > _term(row).rank or (entry != _term(row) and row.stamp < young_ms)


def _names_of(texts_of: Mapping[Pair, Collection[str]]) -> dict[str, list[Name]]:
    """Return the names of each client."""
    names: dict[str, list[Name]] = {}
    for (client, topic), texts in texts_of.items():
        names.setdefault(client, []).extend((topic, text) for text in texts)
    return names
