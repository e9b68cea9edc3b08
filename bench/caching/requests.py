"""Plain streams of requests for items, as in the usual comparison of caches.

Owns: the drawing of such a stream, from a seed alone. Must never: depend on a policy.
"""

from __future__ import annotations

import random
from typing import Final

#: Sizes of the synthetic streams.
ITEMS: Final = 10_000
COUNT: Final = 100_000


def zipf(exponent: float, seed: int, items: int = ITEMS, count: int = COUNT) -> list[int]:
    """Draw requests that do not depend on each other (the independent reference model). The item's number is its rank
    in Zipf's law, which gives its share of the requests."""
    numbers = random.Random(f"requests {exponent:g} {seed}")
    return numbers.choices(range(items), [rank**-exponent for rank in range(1, items + 1)], k=count)


def following(requests: list[int]) -> list[int]:
    """Return, for each request, the index of the next request for the same item. An index beyond the end means that
    there is no next request."""
    found = [len(requests)] * len(requests)
    next_at: dict[int, int] = {}
    for at in range(len(requests) - 1, -1, -1):
        found[at] = next_at.get(requests[at], len(requests))
        next_at[requests[at]] = at
    return found
