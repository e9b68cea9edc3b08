"""A histogram of times with fixed bounds, in the form that Prometheus expects: counts by bucket, and the sum.

Owns: the bounds. Must never: read a clock.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from itertools import accumulate
from typing import Final

#: Upper bounds of the buckets in seconds, from one turn of the loop to the longest time-out. Each decade has two or
#: three bounds. The broker's goals for latency (5, 10, 50, 100 ms, one second) are among the bounds.
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
        """Count ``times`` observations of ``seconds``."""
        self._counts[bisect_left(BOUNDS_S, seconds)] += times
        self.sum_s += seconds * times

    def observe_since(self, now: float, begun: Iterable[tuple[float, int]]) -> None:
        """Count events that end now. ``begun`` has pairs of (time of the beginning, number of events). One call covers
        all messages of a turn."""
        counts = self._counts
        sum_s = 0.0
        for since, times in begun:
            seconds = now - since
            counts[bisect_left(BOUNDS_S, seconds)] += times
            sum_s += seconds * times
        self.sum_s += sum_s

    def buckets(self) -> list[tuple[float | None, int]]:
        """Return pairs of (upper bound, number of observations up to it). The last bound is ``None`` for infinity, and
        its count is the total."""
        return list(zip((*BOUNDS_S, None), accumulate(self._counts), strict=True))
