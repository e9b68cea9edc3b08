"""Ends subscriptions whose term has expired.

Owns: the order of the steps of an ``end``. Must never: remove a subscription before its end is recorded in the list
that its client will read, or remove a row of the index before the subscription is removed from the record.

**An end and a listen at the same time.** A ``listen`` writes the location (L), then reads the client's list of ended
subscriptions (A). An ``end`` reads the location (R1), adds its subscriptions to the client's list (E), and reads the
location again (R2). It removes the subscriptions (T) only if the location is still the given one. So the ``listen`` and
the ``end`` each write before they read the other's write:

- If L completes before R2 begins, R2 finds L. Then the ``end`` does not remove the subscription, and undoes E.
- If L completes after R2 began, then A, which comes after L, begins after E completed. So A returns the ended
  subscription. If R2 nevertheless finds L, the first case applies.

L and E write the same object. If neither sees the other's write, a merge of the two versions has the location of L and
the list of E. So no subscription ends without its client learning it, even if a process dies at any point. And messages
never miss a subscription that stays, because the ``end`` removes a subscription only after it has decided that the
subscription ends. There is one disadvantage: if a client listens between E and the undoing of E, it learns of an end
that did not happen. It then subscribes again, and has the same subscription as before. If a process crashes after E,
the list stays wrong for longer; if the client still does not listen, the next home ends the subscription again. (E must
not come after R2, because L and A could both run in between. T must not come before R2, because a message could then
miss a subscription that the ``end`` has to restore, and a crash could prevent this.)

**An end and a new subscription at the same time.** The stamp decides, because T removes only the term that was given. A
new subscription first writes its record, then removes its name from the list of ended ones and adds its topic to the
client's list of topics. The ``end`` may have undone these two steps. So if T finds that the record still has the
subscription, the ``end`` repeats both steps.

**The index** is updated last. An ``end`` removes a row if the record has a greater stamp, or no term. If the record is
gone, the ``end`` removes the row only if this call removed the record or the row is old. For a young row, the write of
the record may still be on its way.
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
"""A row of the index that is younger than this may belong to a write that is still on its way. The clocks of endpoints
are expected to differ by less than this."""

_CURSOR: Final = re.compile("[0-9a-f]{32}", re.ASCII)  # the place (``place_of``) of a page's last row, in hex

End = tuple[Sequence[Subscription], Location | None, bool]


def after_cursor(cursor: str | None) -> bytes:
    """Return the place after which the next page begins. Raise ``ValueError`` for an invalid cursor."""
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
        """Implement ``Store.end``. The module's docstring explains the order of the steps."""
        asked = [row for rows, _, _ in batch for row in rows]
        found: dict[Pair, Entries] = {}
        going: list[int] = []

        async def find() -> None:
            found.update(await self._records.find({_pair(row) for row in asked}))

        async def find_places() -> None:
            going.extend(await self._in_place(batch, range(len(batch))))

        await together(find, find_places)

        def of(numbers: Iterable[int]) -> dict[Pair, dict[str, Stamped]]:
            """Return the terms that the records still have, for the subscriptions of these entries of the batch."""
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
        """Return the numbers of those entries of the batch whose clients still have the required location."""
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
    """Return a function that removes these terms from the part of a record in one object. It also removes older terms
    of the same subscriptions, because another object can have an older part of the record."""

    def left(held: Entries) -> Entries:
        over = [text for text, entry in held.items() if text in terms and entry and entry.rank <= terms[text].rank]
        return {text: entry for text, entry in held.items() if text not in over}

    return left


def _is_over(row: Subscription, entries: Entries, young_ms: int) -> bool:
    """Return whether this row of the index is obsolete: no record has its term, and none will."""
    entry = entries.get(_text(row), _term(row)._replace(stamp=0))
    return entry is None or entry.rank > _term(row).rank or (entry != _term(row) and row.stamp < young_ms)


def _names_of(texts_of: Mapping[Pair, Collection[str]]) -> dict[str, list[Name]]:
    """Group the names (topic and filter) by client."""
    names: dict[str, list[Name]] = {}
    for (client, topic), texts in texts_of.items():
        names.setdefault(client, []).extend((topic, text) for text in texts)
    return names
