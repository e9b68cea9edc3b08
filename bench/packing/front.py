"""The front of few bins and few moves (figure 12 of the document).

Owns: which algorithms are on the front, and its line. Must never: compute a score.
"""

from __future__ import annotations

from collections.abc import Mapping


def front(points: Mapping[str, tuple[float, float]]) -> list[str]:
    """Return the names of the points on the front. A point is on the front if no other point is better in one value and
    at least as good in the other."""
    return [
        name
        for name, (x, y) in points.items()
        if not any(a <= x and b <= y and (a, b) != (x, y) for a, b in points.values())
    ]


def staircase(points: Mapping[str, tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the corners of the line that separates values that some point reaches from values that no point reaches.
    The line begins at the point with the lowest x, and goes to the right and down to the next point on the front, and
    so on."""
    on_front = sorted({points[name] for name in front(points)})
    found: list[tuple[float, float]] = []
    for x, y in on_front:
        if found:
            found.append((x, found[-1][1]))
        found.append((x, y))
    return found
