"""What is published and who has subscribed: the document's world as payloads and filters.

Owns: how a kind is written as a filter, and a record as a payload. Must never: draw anything itself (``restaurants``
does), or know a policy.

The world is that of the pure experiments with the same seed, record by record. Of its 1,000 subscribers the first ones
are here, as many as two cores have time for: who is drawn first is up to chance, so that they are spread over the kinds
as all are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import orjson

from ingeborg.bench.caching.restaurants import KINDS, World, world

DIGITS: Final = 6
"""Of a record's number in its payload: always as many, so that all records of a kind have the same size."""


@dataclass(frozen=True)
class Drawn:
    """``world``: with those subscribers that there are here."""

    world: World

    @cached_property
    def payloads(self) -> Sequence[bytes]:
        """Of each record."""
        return [payload(number, kind) for number, kind in enumerate(self.world.published)]

    @property
    def wishes(self) -> list[dict[str, Any]]:
        """Of each subscriber, its filter."""
        return [wish(kind) for kind in self.world.chosen]

    @property
    def bytes(self) -> int:
        """Of all records."""
        return sum(map(len, self.payloads))

    def owed(self) -> list[list[int]]:
        """Of each subscriber, the records that it has to get, in their order."""
        of_kind: list[list[int]] = [[] for _ in KINDS]
        for number, kind in enumerate(self.world.published):
            of_kind[kind].append(number)
        return [of_kind[kind] for kind in self.world.chosen]


def drawn(records: int, subscribers: int, seed: int) -> Drawn:
    """So many of both."""
    whole = world(records, seed)
    return Drawn(World(whole.chosen[:subscribers], whole.published))


def wish(kind: int) -> dict[str, list[Any]]:
    """A filter: of each attribute this one value."""
    restaurant, food, discount = KINDS[kind]
    return {"restaurant": [restaurant], "food": [food], "discount": [discount]}


def payload(number: int, kind: int) -> bytes:
    """Canonical JSON."""
    restaurant, food, discount = KINDS[kind]
    record = {"restaurant": restaurant, "food": food, "discount": discount, "number": f"{number:0{DIGITS}d}"}
    return orjson.dumps(record, option=orjson.OPT_SORT_KEYS)
