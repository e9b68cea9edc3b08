"""The document's world: restaurants publish offers, and subscribers select one restaurant, food and discount.

Owns: the 24 kinds of offers (the document's bitmaps), and the drawing of subscribers and publications, from a seed
alone. Must never: depend on a policy.

The document does not say how subscribers are distributed over the kinds. Here each subscriber wants one kind, which is
drawn by Zipf's law. All kinds have the same number of publications, apart from chance.
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

#: All kinds, in the order of their bitmaps.
KINDS: Final = tuple(product(RESTAURANTS, FOODS, DISCOUNTS))

SUBSCRIBERS: Final = 1_000

#: Exponent of Zipf's law over the kinds. With 0, all kinds have the same number of subscribers, apart from chance.
EXPONENT: Final = 1.0

#: Mean number of returns of a subscriber in a run. A subscriber that polls twice a second returns this often in ten
#: seconds.
RETURNS: Final = 20.0

#: Bytes of a record of each kind, in JSON.
SIZES: Final = tuple(
    len(orjson.dumps({"restaurant": restaurant, "food": food, "discount": discount}))
    for restaurant, food, discount in KINDS
)


@dataclass(frozen=True)
class World:
    """A drawn world. ``chosen`` has each subscriber's kind, and ``published`` each record's kind."""

    chosen: list[int]
    published: list[int]

    @property
    def utilities(self) -> list[int]:
        """Return the number of subscribers of each record."""
        of_kind = [0] * len(KINDS)
        for kind in self.chosen:
            of_kind[kind] += 1
        return [of_kind[kind] for kind in self.published]


def world(records: int, seed: int, exponent: float = EXPONENT) -> World:
    """Draw this number of records. With the same seed, a longer run begins with the records of a shorter run."""
    numbers = random.Random(seed)
    weights = [rank**-exponent for rank in range(1, len(KINDS) + 1)]
    chosen = numbers.choices(range(len(KINDS)), weights, k=SUBSCRIBERS)
    return World(chosen, [numbers.randrange(len(KINDS)) for _ in range(records)])


def stream(found: World, seed: int, returns: float = RETURNS) -> Stream:
    """Return the world's records at a constant rate, with their reads, until all subscribers have received
    everything."""
    subscribers: list[list[int]] = [[] for _ in KINDS]
    for client, kind in enumerate(found.chosen):
        subscribers[kind].append(client)
    away_s = len(found.published) / returns
    publications = [Publication(float(at), kind, SIZES[kind]) for at, kind in enumerate(found.published)]
    numbers = random.Random(f"returns {seed}")
    return drawn(publications, subscribers, [away_s] * len(found.chosen), numbers, to_end=True)
