"""Draws horizontal box plots as static SVG, with pure functions from values to text.

Owns: paths and labels. `scales` makes the axis. Colours and fonts belong to the page, as in `plots`. Must never: draw
without an equivalent text.

A box goes from the first to the third quartile, with a line at the median. Its whiskers go to the least and the
greatest value. A value outside the axis is drawn at the end of the axis.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from statistics import quantiles

from ingeborg.bench.report.plots import COLOURS, number, width_of
from ingeborg.bench.report.scales import Axis, Scale

WIDE, NARROW = 1000, 380
"""Width of the drawing for wide pages and of the drawing for narrow pages, in user units."""

LANE, HALF, FAINT = 24, 4, 0.55
"""Height of a row and half the height of a box, both in user units. The third value is the opacity of a row's first
box."""


@dataclass(frozen=True)
class Box:
    """A row. ``colour``: a number below ``COLOURS``. ``values`` has one or two lists of values. If there are two, the
    first is drawn fainter. A row without values is a heading for the rows below it."""

    label: str
    colour: int = 0
    values: Sequence[Sequence[float]] = ()


def svg(title: str, description: str, boxes: Sequence[Box], axis: Axis) -> str:
    """Return the drawing for a wide and for a narrow page."""
    return "".join(
        _drawing(title, description, boxes, axis(ticks), width, css)
        for width, ticks, css in ((WIDE, 10, "wide"), (NARROW, 4, "narrow"))
    )


def five(values: Sequence[float]) -> tuple[float, float, float, float, float]:
    """Return minimum, first quartile, median, third quartile and maximum. There must be at least one value."""
    if len(values) == 1:
        return (values[0],) * 5
    low, middle, high = quantiles(values, n=4, method="inclusive")
    return min(values), low, middle, high, max(values)


def _drawing(title: str, description: str, boxes: Sequence[Box], scale: Scale, width: int, css: str) -> str:
    left = max(width_of(box.label) for box in boxes) + 12
    right = width - 14
    floor = LANE * len(boxes) + 6

    def at(value: float) -> float:
        return left + scale.share(value) * (right - left)

    grid, labels, free_from = [], [], 0.0
    for value, text in scale.ticks:
        x, wide = at(value), width_of(text)
        start = min(max(x - wide / 2, 0.0), width - wide)
        grid.append(f"M{number(x)} 6V{number(floor)}")
        if start > free_from:
            labels.append(f'<text x="{number(start + wide / 2)}" y="{number(floor + 18)}">{escape(text)}</text>')
            free_from = start + wide + 6
    return "".join(
        [
            f'<svg class="{css}" viewBox="0 0 {width} {number(floor + 26)}" role="img">',
            f"<title>{escape(title)}</title><desc>{escape(description)}</desc>",
            f'<path class="grid" d="{"".join(grid)}"/>',
            *(part for place, box in enumerate(boxes) for part in _row(box, place, left, at)),
            f'<path class="axis" d="M{number(left)} {number(floor)}H{number(right)}"/>',
            f'<g class="middle">{"".join(labels)}</g></svg>',
        ]
    )


def _row(box: Box, place: int, left: float, at: Callable[[float], float]) -> list[str]:
    middle = 6 + LANE * place + LANE / 2
    if not box.values:
        return [f'<text x="0" y="{number(middle + 5)}" class="label">{escape(box.label)}</text>']
    parts = [f'<g class="end"><text x="{number(left - 8)}" y="{number(middle + 4)}">{escape(box.label)}</text></g>']
    for index, values in enumerate(box.values):
        if not values:
            continue
        least, low, median, high, most = (round(at(value), 1) for value in five(values))
        top = middle - HALF + (index - (len(box.values) - 1) / 2) * (2 * HALF + 1)
        drawn = (
            f"M{number(least)} {number(top + HALF)}H{number(low)}M{number(high)} {number(top + HALF)}H{number(most)}"
            f"M{number(low)} {number(top)}H{number(high)}v{2 * HALF}H{number(low)}zM{number(median)} {number(top)}"
            f"v{2 * HALF}"
        )
        faint = f' opacity="{FAINT}"' if index < len(box.values) - 1 else ""
        parts.append(f'<path class="line s{box.colour % COLOURS}" d="{drawn}"{faint}/>')
    return parts
