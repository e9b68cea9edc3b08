"""The cost of a consumer group over a stream, in bins and in moved load (sections VI-D and VI-E of the document)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, stdev

#: Student's t for a two-sided interval of 95 %, by degrees of freedom. For more degrees use 1.96.
T95 = {
    1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262, 10: 2.228,
    11: 2.201, 12: 2.179, 13: 2.160, 14: 2.145, 15: 2.131, 16: 2.120, 17: 2.110, 18: 2.101, 19: 2.093, 20: 2.086,
    21: 2.080, 22: 2.074, 23: 2.069, 24: 2.064, 25: 2.060, 26: 2.056, 27: 2.052, 28: 2.048, 29: 2.045, 30: 2.042,
}  # fmt: skip


def cardinal_bin_score(bins: Sequence[int], fewest: Sequence[int]) -> float:
    """Return the mean excess of ``bins`` over ``fewest``, the fewest bins that any algorithm used (equation 28). A
    result of 0.1 means 10 % more bins."""
    return fmean((used - least) / least if least else 0.0 for used, least in zip(bins, fewest, strict=True))


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean, and half the width of its 95 % interval. For a single value the width is unknown, and 0 is
    returned."""
    if len(values) < 2:
        return fmean(values), 0.0
    return fmean(values), T95.get(len(values) - 1, 1.96) * stdev(values) / len(values) ** 0.5


def front(points: Mapping[str, tuple[float, float]]) -> list[str]:
    """Return the names of the points on the front (figure 12). A point is on the front if no other point is better in
    one value and at least as good in the other."""
    return [
        name
        for name, (x, y) in points.items()
        if not any(a <= x and b <= y and (a, b) != (x, y) for a, b in points.values())
    ]


def staircase(points: Mapping[str, tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the corners of the line that separates what some point reaches from what none reaches: from the point with
    the lowest x, to the right and down to the next point on the front, and so on."""
    on_front = sorted({points[name] for name in front(points)})
    found: list[tuple[float, float]] = []
    for x, y in on_front:
        if found:
            found.append((x, found[-1][1]))
        found.append((x, y))
    return found


def spread(values: Sequence[float]) -> tuple[float, float, float, float]:
    """Return the mean, half the width of its 95 % interval, the least value and the greatest."""
    return (*interval(values), min(values), max(values))
