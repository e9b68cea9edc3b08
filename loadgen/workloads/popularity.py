"""Unequal shares by rank: Zipf distributions in which no share exceeds a limit.

Owns: shares and counts by rank. Must never: draw random numbers.
"""

from __future__ import annotations

from itertools import accumulate


def counts(ranks: int, mean: float, most: int, exponent: float) -> list[int]:
    """Return a count for each rank, with the most popular rank first. Each count is proportional to
    ``rank ** -exponent``, but is at most ``most``.

    The counts add up to ``ranks * mean``, apart from rounding. ``mean`` must be at most ``most``, and ``exponent`` at
    most 2.
    """
    if ranks == 0:
        return []
    weights = [(rank + 1) ** -exponent for rank in range(ranks)]
    low, high = 0.0, most / weights[-1]
    # Each step halves the interval. At the end, the interval is below 1, even for a million ranks and a ``most`` of a
    # million.
    for _ in range(60):
        scale = (low + high) / 2
        if sum(min(most, scale * weight) for weight in weights) < mean * ranks:
            low = scale
        else:
            high = scale
    made = []
    total, given = 0.0, 0
    for weight in weights:  # rounding the running total keeps the sum exact
        total += min(most, high * weight)
        made.append(round(total) - given)
        given = round(total)
    return made


def cumulative(ranks: int, exponent: float) -> list[float]:
    """Return cumulative shares by rank, ending with 1. They map a uniform random number to a rank."""
    sums = list(accumulate((rank + 1) ** -exponent for rank in range(ranks)))
    return [value / sums[-1] for value in sums[:-1]] + [1.0]
