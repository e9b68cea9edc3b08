"""Publications and subscriptions: the document's world as payloads and filters.

Owns: the form of a kind as a filter, and of a record as a payload. Must never: draw random values (``restaurants``
does), or depend on a policy.

The world is the same, record by record, as the world of the replayed experiments with the same seed. Only the first 200
of its 1,000 subscribers take part, because two cores cannot serve all 1,000. Subscribers are in random order, so each
kind has about the same share among the first subscribers as among all subscribers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import orjson

from ingeborg.bench.caching.restaurants import KINDS, World, world

DIGITS: Final = 6
"""Number of digits of a record's number in its payload. It is constant, so that all records of a kind have the same
size."""


@dataclass(frozen=True)
class Drawn:
    """The drawn world of a run. ``world`` has only the subscribers of this run."""

    world: World

    @cached_property
    def payloads(self) -> Sequence[bytes]:
        """Return each record's payload."""
        return [payload(number, kind) for number, kind in enumerate(self.world.published)]

    @property
    def wishes(self) -> list[dict[str, Any]]:
        """Return each subscriber's filter."""
        return [wish(kind) for kind in self.world.chosen]

    @property
    def bytes(self) -> int:
        """Return the bytes of all records."""
        return sum(map(len, self.payloads))

    def owed(self) -> list[list[int]]:
        """Return for each subscriber the records due to it, in order."""
        of_kind: list[list[int]] = [[] for _ in KINDS]
        for number, kind in enumerate(self.world.published):
            of_kind[kind].append(number)
        return [of_kind[kind] for kind in self.world.chosen]


def drawn(records: int, subscribers: int, seed: int) -> Drawn:
    """Draw this number of records and subscribers."""
    whole = world(records, seed)
    return Drawn(World(whole.chosen[:subscribers], whole.published))


def wish(kind: int) -> dict[str, list[Any]]:
    """Return a filter with this one value of each attribute."""
    restaurant, food, discount = KINDS[kind]
    return {"restaurant": [restaurant], "food": [food], "discount": [discount]}


def payload(number: int, kind: int) -> bytes:
    """Return the record as canonical JSON."""
    restaurant, food, discount = KINDS[kind]
    record = {"restaurant": restaurant, "food": food, "discount": discount, "number": f"{number:0{DIGITS}d}"}
    return orjson.dumps(record, option=orjson.OPT_SORT_KEYS)
