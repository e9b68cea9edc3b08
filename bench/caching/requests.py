"""Plain streams of requests, the usual comparison of caches: one requested item after the other.

Owns: the drawing of such a stream, from a seed alone. Must never: know a policy.
"""

from __future__ import annotations

import random
from typing import Final

#: The synthetic streams.
ITEMS: Final = 10_000
COUNT: Final = 100_000


def zipf(exponent: float, seed: int, items: int = ITEMS, count: int = COUNT) -> list[int]:
    """Draw requests that do not depend on each other (the independent reference model): an item's share follows Zipf's
    law by its number."""
    numbers = random.Random(f"requests {exponent:g} {seed}")
    return numbers.choices(range(items), [rank**-exponent for rank in range(1, items + 1)], k=count)


def following(requests: list[int]) -> list[int]:
    """Return for each request the place of the next request for the same item; beyond the end: no further one."""
    found = [len(requests)] * len(requests)
    next_at: dict[int, int] = {}
    for at in range(len(requests) - 1, -1, -1):
        found[at] = next_at.get(requests[at], len(requests))
        next_at[requests[at]] = at
    return found
