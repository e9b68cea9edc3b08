"""A histogram of times with fixed bounds, as Prometheus wants it: counts by bucket, and the sum.

Owns: the bounds. Must never: read a clock.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from itertools import accumulate
from typing import Final

#: Upper bounds of the buckets in seconds, from a turn of the loop to the longest time-out: two or three to a decade,
#: with the goals of this broker (5, 10, 50, 100 ms, one second) among them.
BOUNDS_S: Final[tuple[float, ...]] = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025),
    *(0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)


class Histogram:
    """Observed times in seconds."""

    __slots__ = ("_counts", "sum_s")

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS_S) + 1)
        self.sum_s = 0.0

    def observe(self, seconds: float, times: int = 1) -> None:
        """It took so long, so many times."""
        self._counts[bisect_left(BOUNDS_S, seconds)] += times
        self.sum_s += seconds * times

    def observe_since(self, now: float, begun: Iterable[tuple[float, int]]) -> None:
        """What began then ends now, so many times each. For what every message adds to: one call for a whole turn."""
        counts = self._counts
        sum_s = 0.0
        for since, times in begun:
            seconds = now - since
            counts[bisect_left(BOUNDS_S, seconds)] += times
            sum_s += seconds * times
        self.sum_s += sum_s

    def buckets(self) -> list[tuple[float | None, int]]:
        """Upper bound (``None``: infinity) and how many took no longer; the last one is the count of all."""
        return list(zip((*BOUNDS_S, None), accumulate(self._counts), strict=True))
