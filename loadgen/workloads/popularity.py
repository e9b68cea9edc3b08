"""Unequal shares: Zipf, cut off at a limit. Pure.

Owns: shares and counts by rank. Must never: draw anything.
"""

from __future__ import annotations

from itertools import accumulate


def counts(ranks: int, mean: float, most: int, exponent: float) -> list[int]:
    """Return how many each rank gets, from the most popular down: in proportion to ``rank ** -exponent``, at most
    ``most``.

    They add up to ``ranks * mean`` except for the last one's rounding; ``mean`` is at most ``most``, ``exponent`` 2.
    """
    if ranks == 0:
        return []
    weights = [(rank + 1) ** -exponent for rank in range(ranks)]
    low, high = 0.0, most / weights[-1]
    for _ in range(60):  # halves the interval each time: to less than 1 at a million ranks and a million most
        scale = (low + high) / 2
        if sum(min(most, scale * weight) for weight in weights) < mean * ranks:
            low = scale
        else:
            high = scale
    made = []
    total, given = 0.0, 0
    for weight in weights:  # rounded in running totals, so that the sum is kept
        total += min(most, high * weight)
        made.append(round(total) - given)
        given = round(total)
    return made


def cumulative(ranks: int, exponent: float) -> list[float]:
    """Return cumulative shares by rank, the last one 1: for lookup by a uniform number."""
    sums = list(accumulate((rank + 1) ** -exponent for rank in range(ranks)))
    return [value / sums[-1] for value in sums[:-1]] + [1.0]
