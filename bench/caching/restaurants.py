"""The document's world: restaurants publish offers, and subscribers want those of one restaurant, food and discount.

Owns: the 24 kinds of offers (the document's bitmaps), and how subscribers and publications are drawn, from a seed
alone. Must never: know a policy.

The document does not say how subscribers are spread. Here each wants one kind, by Zipf's law. A record is of any kind,
and all kinds are published as often, but for chance.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import product
from typing import Final

import orjson

from ingeborg.bench.caching.reads import Publication, Stream, drawn

RESTAURANTS: Final = ("Dominos", "PizzaHut", "McDonald's", "Taco Bell")
FOODS: Final = ("Burger", "Pizza")
DISCOUNTS: Final = (70, 30, 50)

#: In the order of their bitmaps.
KINDS: Final = tuple(product(RESTAURANTS, FOODS, DISCOUNTS))

SUBSCRIBERS: Final = 1_000

#: Of Zipf's law over the kinds; 0: all have as many subscribers, but for chance.
EXPONENT: Final = 1.0

#: A subscriber comes back so often in a run, on average. One that polls twice a second does so in ten seconds.
RETURNS: Final = 20.0

#: Bytes of a record of each kind, in JSON.
SIZES: Final = tuple(
    len(orjson.dumps({"restaurant": restaurant, "food": food, "discount": discount}))
    for restaurant, food, discount in KINDS
)


@dataclass(frozen=True)
class World:
    """``chosen``: each subscriber's kind; ``published``: each record's."""

    chosen: list[int]
    published: list[int]

    @property
    def utilities(self) -> list[int]:
        """How many subscribers each record has."""
        of_kind = [0] * len(KINDS)
        for kind in self.chosen:
            of_kind[kind] += 1
        return [of_kind[kind] for kind in self.published]


def world(records: int, seed: int, exponent: float = EXPONENT) -> World:
    """So many records. A longer run of the same seed begins with a shorter one."""
    numbers = random.Random(seed)
    weights = [rank**-exponent for rank in range(1, len(KINDS) + 1)]
    chosen = numbers.choices(range(len(KINDS)), weights, k=SUBSCRIBERS)
    return World(chosen, [numbers.randrange(len(KINDS)) for _ in range(records)])


def stream(found: World, seed: int, returns: float = RETURNS) -> Stream:
    """Its records at a constant rate, and who reads them when, until everybody has had everything."""
    subscribers: list[list[int]] = [[] for _ in KINDS]
    for client, kind in enumerate(found.chosen):
        subscribers[kind].append(client)
    away_s = len(found.published) / returns
    publications = [Publication(float(at), kind, SIZES[kind]) for at, kind in enumerate(found.published)]
    numbers = random.Random(f"returns {seed}")
    return drawn(publications, subscribers, [away_s] * len(found.chosen), numbers, to_end=True)
