"""Line plots as static SVG: pure functions from series to text.

Owns scales, ticks and paths. Colours, fonts and line widths are the page's (classes `s0` … `s7`, `PATTERNS`, `grid`,
`tick`, `band`, `limit`, `cross`), so that one plot serves light and dark. It never draws without a text that says the
same (`title`, `description`), and it never drops a point silently: a missing value is a gap in the line.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from html import escape

Point = tuple[float, float | None]
Ticks = list[tuple[float, str]]


COLOURS = 8
"""As many as a person can tell apart; further lines take them again, in another pattern."""

CHARACTER = 7.3
"""Room for a character of a label, in user units: wide enough for digits and `%` of the usual fonts at 12 px."""

PATTERNS = ("", "dashed", "dotted", "dotdash")


@dataclass(frozen=True)
class Series:
    """One line: x ascending; y None where there is no value. `dashed`: whatever its colour. `dots`: each point is
    drawn, too; those at the x in `hollow` as rings."""

    name: str
    points: Sequence[Point]
    colour: int
    dashed: bool = False
    dots: bool = False
    hollow: frozenset[float] = frozenset()

    @property
    def css(self) -> str:
        """The classes of its colour and pattern."""
        pattern = "dashed" if self.dashed else PATTERNS[self.colour // COLOURS % len(PATTERNS)]
        return f"s{self.colour % COLOURS} {pattern}".rstrip()


@dataclass(frozen=True)
class Cross:
    """A place on the x axis where a line ended for a reason: `text` says which."""

    x: float
    colour: int
    text: str


@dataclass(frozen=True)
class Scale:
    """An axis: its range and ticks, and how a value becomes a share of its length (0 … 1)."""

    low: float
    high: float
    ticks: Ticks
    log: bool = False

    def share(self, value: float) -> float:
        """0 at `low`, 1 at `high`; values outside stay at the edge."""
        if self.log:
            value, low, high = (math.log10(max(item, self.low)) for item in (value, self.low, self.high))
        else:
            low, high = self.low, self.high
        return min(1.0, max(0.0, (value - low) / (high - low)))


@dataclass(frozen=True)
class Frame:
    """The size of a drawing in user units, the room for its labels, and how many ticks have room. `x_labels` and
    `band_names`: in a stack, the last and the first have them for all."""

    width: int
    height: int
    left: int
    bottom: int = 30
    top: int = 22
    right: int = 14
    x_ticks: int = 10
    y_ticks: int = 5
    x_labels: bool = True
    band_names: bool = True


WIDE = Frame(width=1000, height=290, left=66)
NARROW = Frame(width=380, height=250, left=64, x_ticks=5, y_ticks=5)


def stacked(frame: Frame, first: bool, last: bool) -> Frame:
    """The frame of a small plot in a stack that shares its x axis and bands."""
    top, bottom = frame.top if first else 8, frame.bottom if last else 8
    height = 112 + top + bottom
    return replace(frame, height=height, top=top, bottom=bottom, y_ticks=3, x_labels=last, band_names=first)


@dataclass(frozen=True)
class Plot:
    """Everything a plot shows. `bands`: (from x, to x, name) behind it; `limits`: (y, name) lines across it; `crosses`
    on its floor."""

    title: str
    description: str
    series: Sequence[Series]
    x: Callable[[int], Scale]
    y: Callable[[int], Scale]
    bands: Sequence[tuple[float, float, str]] = field(default_factory=tuple)
    limits: Sequence[tuple[float, str]] = field(default_factory=tuple)
    crosses: Sequence[Cross] = field(default_factory=tuple)


def linear(high: float, text: Callable[[float], str], low: float = 0.0) -> Callable[[int], Scale]:
    """A scale from `low` to a round number at or above `high`."""

    def scale(wanted: int) -> Scale:
        step = _round_step((high - low or 1.0) / wanted)
        top = low + step * max(1, math.ceil((high - low) / step - 1e-9))
        steps = round((top - low) / step)
        return Scale(low, top, [(low + step * index, text(low + step * index)) for index in range(steps + 1)])

    return scale


def _round_step(step: float) -> float:
    power = 10.0 ** math.floor(math.log10(step))
    return next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= step * 0.999999)


def logarithmic(values: Iterable[float], text: Callable[[float], str]) -> Callable[[int], Scale]:
    """A log scale around the positive `values`, ticks at 1, 2, 5 or at the decades, whichever have room. What is not
    positive is drawn at its lower edge."""
    positive = [value for value in values if value > 0] or [1.0, 10.0]
    steps = [factor * 10.0**power for power in range(-9, 16) for factor in (1, 2, 5)]
    low = max((step for step in steps if step <= min(positive)), default=steps[0])
    high = min((step for step in steps if step >= max(positive)), default=steps[-1])
    if low == high:
        low, high = steps[max(0, steps.index(low) - 1)], steps[min(len(steps) - 1, steps.index(high) + 1)]

    def scale(wanted: int) -> Scale:
        inside = [step for step in steps if low <= step <= high]
        decades = [step for step in inside if math.log10(step).is_integer()]
        ticks = inside if len(inside) <= wanted + 2 or len(decades) < 2 else decades
        return Scale(low, high, [(tick, text(tick)) for tick in ticks], log=True)

    return scale


def seconds_axis(low: float, high: float) -> Callable[[int], Scale]:
    """A time axis in seconds since the run's start, ticks at whole seconds or minutes."""

    def scale(wanted: int) -> Scale:
        span = max(1.0, high - low)
        steps = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 43200, 86400)
        step = next((step for step in steps if span / step <= wanted), steps[-1])
        first = math.ceil(low / step) * step
        ticks = [float(tick) for tick in range(first, math.floor(low + span) + 1, step)]
        return Scale(low, low + span, [(tick, _clock(tick, step)) for tick in ticks])

    return scale


def _clock(value_s: float, step: int) -> str:
    whole = int(value_s)
    if step < 60:
        return f"{whole} s"
    return f"{whole // 60} min" if whole < 3600 or whole % 3600 else f"{whole // 3600} h"


def doubling_axis(low: float, high: float) -> Callable[[int], Scale]:
    """A log axis over powers of two, with a tick at each and a label at as many as are wanted, the last included."""
    first, last = math.floor(math.log2(max(low, 1))), math.ceil(math.log2(max(high, 1)))
    last = max(last, first + 1)

    def scale(wanted: int) -> Scale:
        step = math.ceil((last - first + 1) / wanted)
        powers = range(first, last + 1)
        ticks = [(2.0**power, f"{2**power:,}" if (last - power) % step == 0 else "") for power in powers]
        return Scale(2.0**first, 2.0**last, ticks, log=True)

    return scale


def percentile_axis(points: float) -> Callable[[int], Scale]:
    """-log10(1 - p): every further nine has the same width, up to 99.999 %, or to what `points` values can tell."""
    high = min(5.0, max(1.0, math.log10(max(points, 10))))

    def scale(_: int) -> Scale:
        named = ((0.0, "0 %"), (0.5, "50 %"), (0.9, "90 %"), (0.99, "99 %"), (0.999, "99.9 %"), (0.9999, "99.99 %"))
        ticks = [(nines(p), text) for p, text in named]
        ticks.append((5.0, "99.999 %"))
        return Scale(0.0, high, [tick for tick in ticks if tick[0] <= high + 1e-6])

    return scale


def nines(p: float) -> float:
    """The share p of values -> its place on the percentile axis."""
    return -math.log10(max(1e-9, 1 - p))


def svg(plot: Plot, frame: Frame, identity: str, css_class: str) -> str:
    """The plot as one SVG element. `identity` must be unique on the page; all text is escaped."""
    x, y = plot.x(frame.x_ticks), plot.y(frame.y_ticks)
    inner_width = frame.width - frame.left - frame.right
    inner_height = frame.height - frame.top - frame.bottom
    floor = frame.top + inner_height

    def at_x(value: float) -> float:
        return round(frame.left + x.share(value) * inner_width, 1)

    def at_y(value: float) -> float:
        return round(floor - y.share(value) * inner_height, 1)

    parts = [
        f'<svg class="{css_class}" viewBox="0 0 {frame.width} {frame.height}" role="img" '
        f'aria-labelledby="{identity}-t {identity}-d">',
        f'<title id="{identity}-t">{escape(plot.title)}</title>',
        f'<desc id="{identity}-d">{escape(plot.description)}</desc>',
    ]
    for start, end, name in plot.bands:
        left, right = at_x(start), at_x(end)
        if right - left < 1:
            continue
        parts.append(
            f'<rect class="band" x="{left}" y="{frame.top}" width="{right - left:.1f}" height="{inner_height}"/>'
        )
        parts.append(f'<path class="bandedge" d="M{left} {frame.top}v{inner_height}"/>')
        # A name wider than its band would run into the next one's.
        if frame.band_names and len(name) * CHARACTER < right - left:
            parts.append(f'<text class="bandname" x="{left + 5:.1f}" y="{frame.top - 7}">{escape(name)}</text>')
    for value, text in y.ticks:
        height = at_y(value)
        parts.append(f'<path class="grid" d="M{frame.left} {height}H{frame.width - frame.right}"/>')
        parts.append(
            f'<text class="tick" x="{frame.left - 8}" y="{height + 4}" text-anchor="end">{escape(text)}</text>'
        )
    parts += _x_ticks(x, at_x, frame, floor)
    for value, name in plot.limits:
        height = at_y(value)
        parts.append(f'<path class="limit" d="M{frame.left} {height}H{frame.width - frame.right}"/>')
        parts.append(
            f'<text class="limitname" x="{frame.width - frame.right - 4}" y="{height - 5}" text-anchor="end">'
            f"{escape(name)}</text>"
        )
    for series in plot.series:
        parts += _line(series, at_x, at_y)
    parts += _crosses(plot.crosses, at_x, floor)
    parts.append("</svg>")
    return "".join(parts)


def _x_ticks(x: Scale, at_x: Callable[[float], float], frame: Frame, floor: float) -> list[str]:
    parts = [f'<path class="axis" d="M{frame.left} {floor}H{frame.width - frame.right}"/>']
    free_from = -math.inf
    for value, text in x.ticks:
        place, width = at_x(value), len(text) * CHARACTER
        # The first and last label stay within the drawing; one that would touch its neighbour is left out.
        start = min(max(place - width / 2, 0), frame.width - width)
        parts.append(f'<path class="axis" d="M{place} {floor}v5"/>')
        if text and frame.x_labels and start > free_from:
            middle = f'x="{start + width / 2:.1f}" y="{floor + 20}" text-anchor="middle"'
            parts.append(f'<text class="tick" {middle}>{escape(text)}</text>')
            free_from = start + width + 6
    return parts


def _line(series: Series, at_x: Callable[[float], float], at_y: Callable[[float], float]) -> list[str]:
    """The line's runs of values as paths; a value alone between gaps as a dot."""
    runs: list[list[tuple[float, float]]] = [[]]
    for x, y in series.points:
        if y is None:
            runs.append([])
        else:
            runs[-1].append((at_x(x), at_y(y)))
    css = series.css
    path = " ".join("M" + "L".join(f"{x} {y}" for x, y in run) for run in runs if len(run) > 1)
    drawn = [f'<path class="line {css}" d="{path}"/>'] if path else []
    if not series.dots:
        lone = [run[0] for run in runs if len(run) == 1]
        return drawn + [f'<circle class="dot {css}" cx="{x}" cy="{y}" r="2.5"/>' for x, y in lone]
    for x, y in series.points:
        if y is not None:
            ring = "ring" if x in series.hollow else "dot"
            drawn.append(f'<circle class="{ring} {css}" cx="{at_x(x)}" cy="{at_y(y)}" r="3"/>')
    return drawn


def _crosses(crosses: Sequence[Cross], at_x: Callable[[float], float], floor: float) -> list[str]:
    """Above each other where several lines ended at one place."""
    parts = []
    taken: dict[float, int] = {}
    for cross in crosses:
        x = at_x(cross.x)
        y = floor - 8 - 13 * taken.get(x, 0)
        taken[x] = taken.get(x, 0) + 1
        parts.append(
            f'<path class="cross s{cross.colour % COLOURS}" d="M{x - 4.5:.1f} {y - 4.5:.1f}l9 9m0 -9l-9 9">'
            f"<title>{escape(cross.text)}</title></path>"
        )
    return parts
