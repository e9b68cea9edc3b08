"""Draws line plots as static SVG, with pure functions from series to text.

Owns scales, ticks and paths. Colours, fonts and line widths belong to the page (classes `s0` … `s7`, `PATTERNS`,
`grid`, `tick`, `band`, `limit`, `cross`), so that the same plot fits a light and a dark page. A plot is drawn for a
wide and for a narrow page, and both drawings share their lines if their axes agree. Must never: draw without an
equivalent text (`title`, `description`), or drop a visible point. A missing value is a gap in the line, and a line
leaves out only points through which it passes anyway (`SEEN`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from html import escape

Point = tuple[float, float | None]
Ticks = list[tuple[float, str]]


COLOURS = 8
"""Number of colours, no more than a person can tell apart. Additional lines reuse the colours with a different
pattern."""

CHARACTER = 7.3
"""Width that is reserved for a character of a label, in user units. It is enough for digits and `%` of the usual fonts
at 12 px."""

DIGITS = 1
"""Digits after the decimal point of a coordinate, in user units. One or two tenths of a pixel are too small to see."""

SEEN = 0.5
"""A point is left out if it is at most this far from the line that passes it, in user units: a quarter of the line's
width."""

PATTERNS = ("", "dashed", "dotted", "dotdash")


@dataclass(frozen=True)
class Series:
    """One line. Its points ascend in x, and y is None where there is no value. `dashed` makes the line dashed in any
    colour. `dots` says to draw each point as well; the points whose x is in `hollow` become rings."""

    name: str
    points: Sequence[Point]
    colour: int
    dashed: bool = False
    dots: bool = False
    hollow: frozenset[float] = frozenset()

    @property
    def css(self) -> str:
        """The CSS classes of the line's colour and pattern."""
        pattern = "dashed" if self.dashed else PATTERNS[self.colour // COLOURS % len(PATTERNS)]
        return f"s{self.colour % COLOURS} {pattern}".rstrip()


@dataclass(frozen=True)
class Cross:
    """A place on the x axis where a line ended for the reason in `text`."""

    x: float
    colour: int
    text: str


@dataclass(frozen=True)
class Scale:
    """An axis, which has a range and ticks, and maps a value to a share of the axis's length (0 … 1)."""

    low: float
    high: float
    ticks: Ticks
    log: bool = False

    def share(self, value: float) -> float:
        """Return the value's place on the axis: 0 at `low` or below, 1 at `high` or above."""
        if self.log:
            value, low, high = (math.log10(max(item, self.low)) for item in (value, self.low, self.high))
        else:
            low, high = self.low, self.high
        return min(1.0, max(0.0, (value - low) / (high - low)))


@dataclass(frozen=True)
class Frame:
    """The size of a drawing in user units, the room for its labels, and the number of ticks that fit. In a stack, only
    the last plot has `x_labels`, and only the first has `band_names`."""

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
    """Return the frame of a small plot in a stack, whose plots share an x axis and bands."""
    top, bottom = frame.top if first else 8, frame.bottom if last else 8
    height = 112 + top + bottom
    return replace(frame, height=height, top=top, bottom=bottom, y_ticks=3, x_labels=last, band_names=first)


@dataclass(frozen=True)
class Plot:
    """Everything a plot shows. `x` and `y` are functions from a number of ticks to an axis. `bands` are (from x, to x,
    name), and are drawn behind the curves. `limits` are (y, name), and are drawn as lines across the plot. `crosses`
    are marks on the x axis."""

    title: str
    description: str
    series: Sequence[Series]
    x: Callable[[int], Scale]
    y: Callable[[int], Scale]
    bands: Sequence[tuple[float, float, str]] = field(default_factory=tuple)
    limits: Sequence[tuple[float, str]] = field(default_factory=tuple)
    crosses: Sequence[Cross] = field(default_factory=tuple)


def linear(high: float, text: Callable[[float], str], low: float = 0.0) -> Callable[[int], Scale]:
    """Return a linear scale from `low` to a round number at or above `high`."""

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
    """Return a log scale that includes all positive `values`. It has ticks at 1, 2 and 5 of each decade, or only at the
    decades if there is no room for more. Values of 0 and below are drawn at the lower edge."""
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
    """Return a time axis in seconds since the run's start, with ticks at whole seconds or minutes."""

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
    """Return a log axis over powers of two. Each power has a tick, and as many ticks as fit have a label, always
    including the last."""
    first, last = math.floor(math.log2(max(low, 1))), math.ceil(math.log2(max(high, 1)))
    last = max(last, first + 1)

    def scale(wanted: int) -> Scale:
        step = math.ceil((last - first + 1) / wanted)
        powers = range(first, last + 1)
        ticks = [(2.0**power, f"{2**power:,}" if (last - power) % step == 0 else "") for power in powers]
        return Scale(2.0**first, 2.0**last, ticks, log=True)

    return scale


def percentile_axis(points: float) -> Callable[[int], Scale]:
    """Return an axis on which a share p of the values is at -log10(1 - p), so every further nine (90 %, 99 %, 99.9 % …)
    has the same width. It ends at 99.999 %, or earlier if there are too few values (`points`)."""
    high = min(5.0, max(1.0, math.log10(max(points, 10))))

    def scale(_: int) -> Scale:
        named = ((0.0, "0 %"), (0.5, "50 %"), (0.9, "90 %"), (0.99, "99 %"), (0.999, "99.9 %"), (0.9999, "99.99 %"))
        ticks = [(nines(p), text) for p, text in named]
        ticks.append((5.0, "99.999 %"))
        return Scale(0.0, high, [tick for tick in ticks if tick[0] <= high + 1e-6])

    return scale


def nines(p: float) -> float:
    """Return the place of the share p of values on the percentile axis."""
    return -math.log10(max(1e-9, 1 - p))


@dataclass(frozen=True)
class _Places:
    """Maps the values of two axes to places in a frame."""

    frame: Frame
    x: Scale
    y: Scale

    @property
    def width(self) -> int:
        """The width of the area inside the axes."""
        return self.frame.width - self.frame.left - self.frame.right

    @property
    def height(self) -> int:
        return self.frame.height - self.frame.top - self.frame.bottom

    @property
    def floor(self) -> int:
        return self.frame.top + self.height

    def at_x(self, value: float) -> float:
        return round(self.frame.left + self.x.share(value) * self.width, DIGITS)

    def at_y(self, value: float) -> float:
        return round(self.floor - self.y.share(value) * self.height, DIGITS)


def svg(plot: Plot, wide: Frame, narrow: Frame, identity: str) -> str:
    """Return the plot as two SVG elements of the classes `wide` and `narrow`. The page shows only one.

    The elements share the texts. If their x axes have the same range, they also share the lines, which are most of a
    drawing's bytes: the narrow element shows the lines of the wide one, compressed. The style sheet prevents the
    strokes, and therefore the dots, from being distorted (`vector-effect`). `identity` must be unique on the page; all
    text is escaped.
    """
    y = plot.y(wide.y_ticks)
    here, there = (_Places(frame, plot.x(frame.x_ticks), y) for frame in (wide, narrow))
    said = (
        f'<title id="{identity}-t">{escape(plot.title)}</title>'
        f'<desc id="{identity}-d">{escape(plot.description)}</desc>'
    )
    lines = f'<g id="{identity}-l">{_lines(plot, here)}</g>'
    again = f'<use href="#{identity}-l" transform="{_pressed(here, there)}"/>'
    if (here.x.low, here.x.high) != (there.x.low, there.x.high):  # fewer ticks may cover a larger range
        again = _lines(plot, there)
    return _drawing(plot, here, identity, "wide", said, lines) + _drawing(plot, there, identity, "narrow", "", again)


def _lines(plot: Plot, places: _Places) -> str:
    return "".join(part for series in plot.series for part in _line(series, places))


def _pressed(here: _Places, there: _Places) -> str:
    """Return the transform from places in the drawing `here` to places in the drawing `there`."""
    by_x, by_y = there.width / here.width, there.height / here.height
    moved = (there.frame.left - here.frame.left * by_x, there.floor - here.floor * by_y)
    # The factors apply to up to a thousand units, so their fifth digit moves a line by a hundredth of a unit.
    return f"matrix({number(by_x, 5)} 0 0 {number(by_y, 5)} {number(moved[0], 2)} {number(moved[1], 2)})"


def _drawing(plot: Plot, places: _Places, identity: str, css_class: str, said: str, lines: str) -> str:
    """Return one SVG element with the texts `said`, the background, and the `lines`."""
    frame, at_x, at_y, floor = places.frame, places.at_x, places.at_y, places.floor
    parts = [
        f'<svg class="{css_class}" viewBox="0 0 {frame.width} {frame.height}" role="img" '
        f'aria-labelledby="{identity}-t {identity}-d">{said}'
    ]
    bands, edges, names = [], [], []
    for start, end, name in plot.bands:
        left, right = at_x(start), at_x(end)
        if right - left < 1:
            continue
        edges.append(f"M{number(left)} {frame.top}v{places.height}")
        bands.append(f"{edges[-1]}h{number(right - left)}v-{places.height}z")
        # A name that is wider than its band would run into the name of the next band.
        if frame.band_names and len(name) * CHARACTER < right - left:
            names.append(f'<text x="{number(left + 5)}" y="{frame.top - 7}">{escape(name)}</text>')
    parts += [_path("band", bands), _path("bandedge", edges), *names]
    heights = [(at_y(value), text) for value, text in places.y.ticks]
    across = f"H{frame.width - frame.right}"
    parts.append(_path("grid", [f"M{frame.left} {number(height)}{across}" for height, _ in heights]))
    labels = [f'<text x="{frame.left - 8}" y="{number(height + 4)}">{escape(text)}</text>' for height, text in heights]
    parts.append(f'<g class="end">{"".join(labels)}</g>')
    parts += _x_ticks(places)
    for value, name in plot.limits:
        height = at_y(value)
        parts.append(f'<path class="limit" d="M{frame.left} {number(height)}{across}"/>')
        parts.append(
            f'<text class="limitname end" x="{frame.width - frame.right - 4}" y="{number(height - 5)}">'
            f"{escape(name)}</text>"
        )
    return "".join([*parts, lines, *_crosses(plot.crosses, at_x, floor), "</svg>"])


def number(value: float, digits: int = DIGITS) -> str:
    """Return a number, rounded to `digits` digits after the point, in as few characters as possible."""
    text = f"{value:.{digits}f}".rstrip("0").rstrip(".")
    sign, text = ("-", text[1:]) if text.startswith("-") else ("", text)
    return "0" if text in ("", "0") else sign + (text[1:] if text.startswith("0.") else text)


def way(points: Sequence[tuple[float, float]]) -> str:
    """Return the data of a path through the points (x ascending). Points within `SEEN` of the line are left out.

    After the first point, the path uses relative coordinates, which take fewer characters than absolute ones. They are
    differences between rounded points, so rounding errors do not add up.
    """
    places = turns([(round(x, DIGITS), round(y, DIGITS)) for x, y in points], SEEN)
    steps = [(x - before_x, y - before_y) for (before_x, before_y), (x, y) in itertools.pairwise(places)]
    return f"M{_listed(places[:1])}l{_listed(steps)}"


def turns(points: Sequence[tuple[float, float]], within: float) -> list[tuple[float, float]]:
    """Return the points that a line needs so that no other point is farther than `within` from it (Douglas and Peucker,
    1973).

    Between two kept points, the algorithm also keeps the point that is farthest from the straight line between them,
    until no point is too far away. So the first point, the last point and every peak stay.
    """
    kept = {0, len(points) - 1}
    between = [(0, len(points) - 1)]
    while between:
        first, last = between.pop()
        off, at = max(
            ((_off(points[at], points[first], points[last]), at) for at in range(first + 1, last)), default=(0.0, 0)
        )
        if off > within:
            kept.add(at)
            between += [(first, at), (at, last)]
    return [points[at] for at in sorted(kept)]


def _off(point: tuple[float, float], first: tuple[float, float], last: tuple[float, float]) -> float:
    """Return the distance of a point from the line segment between two other points."""
    along, up = last[0] - first[0], last[1] - first[1]
    right, above = point[0] - first[0], point[1] - first[1]
    length = along * along + up * up
    share = min(1.0, max(0.0, (right * along + above * up) / length)) if length else 0.0
    return math.hypot(right - share * along, above - share * up)


def _listed(pairs: Sequence[tuple[float, float]]) -> str:
    """Return the coordinates one after another. A minus sign separates two numbers, so no space precedes it."""
    return " ".join(map(number, itertools.chain(*pairs))).replace(" -", "-")


def _path(css: str, pieces: Sequence[str]) -> str:
    """Return one element for all pieces that look the same."""
    return f'<path class="{css}" d="{"".join(pieces)}"/>' if pieces else ""


def _x_ticks(places: _Places) -> list[str]:
    frame, floor = places.frame, places.floor
    marks, labels = [f"M{frame.left} {floor}H{frame.width - frame.right}"], []
    free_from = -math.inf
    for value, text in places.x.ticks:
        place, width = places.at_x(value), len(text) * CHARACTER
        # The first and the last label stay within the drawing. A label that would touch its neighbour is left out.
        start = min(max(place - width / 2, 0), frame.width - width)
        marks.append(f"M{number(place)} {floor}v5")
        if text and frame.x_labels and start > free_from:
            labels.append(f'<text x="{number(start + width / 2)}" y="{floor + 20}">{escape(text)}</text>')
            free_from = start + width + 6
    return [_path("axis", marks), f'<g class="middle">{"".join(labels)}</g>' if labels else ""]


def _line(series: Series, places: _Places) -> list[str]:
    """Return a path for each run of values without a gap. A single value between two gaps becomes a dot.

    A dot is a step of length 0, which a stroke with round ends shows as a dot. So all dots of a line are one path,
    which the narrow drawing can compress. A ring is a dot with a smaller dot of the background's colour in it.
    """
    runs: list[list[tuple[float, float]]] = [[]]
    hollow = []
    for x, y in series.points:
        if y is None:
            runs.append([])
            continue
        runs[-1].append((places.at_x(x), places.at_y(y)))
        if series.dots and x in series.hollow:
            hollow.append(runs[-1][-1])
    dots = [place for run in runs if series.dots or len(run) == 1 for place in run]
    return [
        _path(f"line {series.css}", [way(run) for run in runs if len(run) > 1]),
        _path(f"dot s{series.colour % COLOURS}", _dots(dots)),
        _path("hole", _dots(hollow)),
    ]


def _dots(places: Sequence[tuple[float, float]]) -> list[str]:
    """Return steps of length 0 at the places. Each place is relative to the previous place."""
    froms = [(0.0, 0.0), *places]
    return [
        f"m{_listed([(x - from_x, y - from_y)])}h0" for (from_x, from_y), (x, y) in zip(froms, places, strict=False)
    ]


def _crosses(crosses: Sequence[Cross], at_x: Callable[[float], float], floor: float) -> list[str]:
    """Return the crosses, stacked if several lines ended at one place."""
    parts = []
    taken: dict[float, int] = {}
    for cross in crosses:
        x = at_x(cross.x)
        y = floor - 8 - 13 * taken.get(x, 0)
        taken[x] = taken.get(x, 0) + 1
        parts.append(
            f'<path class="cross s{cross.colour % COLOURS}" d="M{number(x - 4.5)} {number(y - 4.5)}l9 9m0-9l-9 9">'
            f"<title>{escape(cross.text)}</title></path>"
        )
    return parts
