"""Plain streams of requests, as caches are usually compared by: which item is asked for, one after the other.

Owns: how such a stream is drawn, from a seed alone. Must never: know a policy.
"""

from __future__ import annotations

import random
from typing import Final

#: Of the synthetic ones.
ITEMS: Final = 10_000
COUNT: Final = 100_000


def zipf(exponent: float, seed: int, items: int = ITEMS, count: int = COUNT) -> list[int]:
    """Requests that do not depend on each other (the independent reference model): an item's share is that of Zipf's
    law by its number."""
    numbers = random.Random(f"requests {exponent:g} {seed}")
    return numbers.choices(range(items), [rank**-exponent for rank in range(1, items + 1)], k=count)


def following(requests: list[int]) -> list[int]:
    """Of each request, at which place the same item is asked for next; beyond the end: not again."""
    found = [len(requests)] * len(requests)
    next_at: dict[int, int] = {}
    for at in range(len(requests) - 1, -1, -1):
        found[at] = next_at.get(requests[at], len(requests))
        next_at[requests[at]] = at
    return found
