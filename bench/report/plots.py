"""Draws line plots as static SVG, with pure functions from series to text.

Owns: paths, marks and labels. `scales` makes the axes. Colours, fonts and line widths belong to the page (classes `s0`
… `s7`, `PATTERNS`, `grid`, `tick`, `band`, `limit`, `cross`, `label`, `below`), so that the same plot fits a light and
a dark page. A plot is drawn for a wide and for a narrow page, and both drawings share their lines if their axes agree.
Must never: draw without an equivalent text (`title`, `description`), drop a visible point, or draw 0 on a log axis. A
missing value is a gap in the line. A line leaves out only points through which it passes anyway (`SEEN`). A value of 0
or below has no place on a log axis. It becomes a gap in the line and a mark at the x axis.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from html import escape

from ingeborg.bench.report.scales import (
    Axis,
    Scale,
    doubling_axis,
    linear,
    logarithmic,
    nines,
    percentile_axis,
    seconds_axis,
)

__all__ = [
    "COLOURS",
    "NARROW",
    "WIDE",
    "Axis",
    "Cross",
    "Frame",
    "Plot",
    "Point",
    "Scale",
    "Series",
    "doubling_axis",
    "legend",
    "linear",
    "logarithmic",
    "nines",
    "percentile_axis",
    "seconds_axis",
    "stack",
    "stacked",
    "svg",
]

Point = tuple[float, float | None]
Place = tuple[float, float]
"""A place in a drawing, in user units."""
Box = tuple[float, float, float, float]
"""Left, top, right and bottom of a label, in user units."""


COLOURS = 8
"""Number of colours. People can tell this number of colours apart. Additional lines reuse the colours with a different
pattern."""

CHARACTER = 7.7
SLIM, BROAD = dict.fromkeys(" .,:;'/|!()ijlIftr", 5.0), dict.fromkeys("%@mwMWG", 11.8)
"""Widths that are reserved for a usual, a slim and a broad character of a label, in user units. They are enough for the
usual fonts at 12 px."""

LINE_HEIGHT = 14
"""Height that is reserved for a label, in user units."""

DIGITS = 1
"""Digits after the decimal point of a coordinate in user units. A difference of one or two tenths of a pixel is too
small to see."""

SEEN = 0.5
"""A point is left out if the line passes it at this distance or less, in user units. This is a quarter of the line's
width."""

COVERED = 1.0
"""A line hides another line if their distance is nowhere more than this, in user units. This is half of a line's
width."""

PATTERNS = ("", "dashed", "dotted", "dotdash")


@dataclass(frozen=True)
class Series:
    """One line. Its points ascend in x, and y is None where there is no value.

    - `dashed`: the line is dashed in any colour.
    - `dots`: each point is drawn as well. The points whose x is in `hollow` become rings.
    - `steps`: each value holds until the next point's x, so the line has steps. To end the last step, add a point
      without a value.
    - `joined`: False draws dots without a line, and their x may have any order.
    - `labels`: a text for each point, or an empty text. A label is left out where it would touch another label or a
      labelled point.
    """

    name: str
    points: Sequence[Point]
    colour: int
    dashed: bool = False
    dots: bool = False
    hollow: frozenset[float] = frozenset()
    steps: bool = False
    joined: bool = True
    labels: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.labels and len(self.labels) != len(self.points):
            raise ValueError(
                f"{self.name} has {len(self.labels)} labels for {len(self.points)} points: give each point a text, "
                "which may be empty"
            )

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

    def fitting(self, y: Scale) -> Frame:
        """Return the frame with enough room on the left for the labels of the y axis."""
        return replace(self, left=max([self.left, *(math.ceil(width_of(text)) + 10 for _, text in y.ticks)]))


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
    name), and are drawn behind the lines. `limits` are (y, name), and are drawn as lines across the plot. `crosses` are
    marks on the x axis."""

    title: str
    description: str
    series: Sequence[Series]
    x: Axis
    y: Axis
    bands: Sequence[tuple[float, float, str]] = field(default_factory=tuple)
    limits: Sequence[tuple[float, str]] = field(default_factory=tuple)
    crosses: Sequence[Cross] = field(default_factory=tuple)


def width_of(text: str) -> float:
    """Return the width that is reserved for a label, in user units."""
    return sum(SLIM.get(character) or BROAD.get(character, CHARACTER) for character in text)


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

    @property
    def right(self) -> int:
        return self.frame.left + self.width

    def at_x(self, value: float) -> float:
        return round(self.frame.left + self.x.share(value) * self.width, DIGITS)

    def at_y(self, value: float) -> float:
        return round(self.floor - self.y.share(value) * self.height, DIGITS)

    def at(self, point: Point) -> Place | None:
        """Return the place of a point, or None if the point has no value or its value has no place on the axis."""
        x, y = point
        return None if y is None or self.under(y) else (self.at_x(x), self.at_y(y))

    def under(self, value: float) -> bool:
        """Return whether a log axis has no place for the value."""
        return self.y.log and value <= 0

    def of(self, series: Series) -> list[Place | None]:
        return [self.at(point) for point in series.points]


def svg(plot: Plot, wide: Frame, narrow: Frame, identity: str) -> str:
    """Return the plot as two SVG elements of the classes `wide` and `narrow`. The page shows only one.

    The elements share the texts. If their x axes have the same range, they also share the lines, which are most of a
    drawing's bytes: the narrow element shows the lines of the wide one, compressed. The style sheet prevents the
    strokes, and therefore the dots, from being distorted (`vector-effect`). `identity` must be unique on the page. All
    text is escaped.
    """
    y = plot.y(wide.y_ticks)
    here, there = (_Places(frame.fitting(y), plot.x(frame.x_ticks), y) for frame in (wide, narrow))
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


def stack(plots: Sequence[Plot], identity: str) -> list[str]:
    """Return a small drawing of each plot, as `svg` does. All plots share their x axis, and only the last drawing has
    its labels. All plots have the same room for the labels of their y axes."""
    ends = [(index == 0, index == len(plots) - 1) for index in range(len(plots))]
    frames = [[stacked(frame, *end) for end in ends] for frame in (WIDE, NARROW)]
    wide, narrow = (
        [replace(frame, left=max(_left(*each) for each in zip(plots, of_width, strict=True))) for frame in of_width]
        for of_width in frames
    )
    drawn = zip(plots, wide, narrow, strict=True)
    return [svg(*each, f"{identity}-{index}") for index, each in enumerate(drawn)]


def _left(plot: Plot, frame: Frame) -> int:
    return frame.fitting(plot.y(frame.y_ticks)).left


def legend(plot: Plot, frame: Frame = WIDE) -> list[tuple[str, str]]:
    """Return the name and the CSS classes of each line that a reader can see in the frame. A line without a point has
    no entry. If a later line hides a line everywhere, the two lines share one entry. Marks of values that have no place
    on a log axis have an entry, too."""
    at = _Places(frame, plot.x(frame.x_ticks), plot.y(frame.y_ticks))
    drawn = [series for series in plot.series if any(y is not None for _, y in series.points)]
    places = [[place for place in at.of(series) if place] for series in drawn]
    seen = {index: [index] for index in range(len(drawn))}
    for index, series in enumerate(drawn):
        for later in range(len(drawn) - 1, index, -1):
            if _hides(drawn[later], series) and _covers(places[later], places[index]):
                seen[later] += seen.pop(index)
                break
    entries = [
        (_one_line([drawn[each].name for each in sorted(of)]), drawn[index].css + " points" * (not drawn[index].joined))
        for index, of in seen.items()
    ]
    if any(y is not None and at.under(y) for series in drawn for _, y in series.points):
        entries.append(("0 or less, for which the log axis has no place", "mark"))
    return entries


def _hides(upper: Series, lower: Series) -> bool:
    """Return whether the upper of two lines at the same place hides the lower line."""
    gaps = upper.css.partition(" ")[2]
    return not gaps and upper.joined == lower.joined and upper.dots >= lower.dots and not lower.labels


def _covers(upper: Sequence[Place], lower: Sequence[Place]) -> bool:
    heights: dict[float, list[float]] = {}
    for x, y in upper:
        heights.setdefault(x, []).append(y)
    return bool(lower) and all(any(abs(y - other) <= COVERED for other in heights.get(x, ())) for x, y in lower)


def _one_line(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]} (one line)" if len(names) > 1 else names[0]


def _pressed(here: _Places, there: _Places) -> str:
    """Return the transform from places in the drawing `here` to places in the drawing `there`."""
    by_x, by_y = there.width / here.width, there.height / here.height
    moved = (there.frame.left - here.frame.left * by_x, there.floor - here.floor * by_y)
    # The factors apply to up to a thousand units, so their fifth digit moves a line by a hundredth of a unit.
    return f"matrix({number(by_x, 5)} 0 0 {number(by_y, 5)} {number(moved[0], 2)} {number(moved[1], 2)})"


def _drawing(plot: Plot, places: _Places, identity: str, css_class: str, said: str, lines: str) -> str:
    """Return one SVG element with the texts `said`, the background, and the `lines`."""
    frame, floor = places.frame, places.floor
    heights = [(places.at_y(value), text) for value, text in places.y.ticks]
    labels = [f'<text x="{frame.left - 8}" y="{number(height + 4)}">{escape(text)}</text>' for height, text in heights]
    taken: list[Box] = []
    return "".join(
        [
            f'<svg class="{css_class}" viewBox="0 0 {frame.width} {frame.height}" role="img" '
            f'aria-labelledby="{identity}-t {identity}-d">{said}',
            *_bands(plot.bands, places),
            _path("grid", [f"M{frame.left} {number(height)}H{places.right}" for height, _ in heights]),
            f'<g class="end">{"".join(labels)}</g>',
            *_x_ticks(places),
            *(
                f'<path class="limit" d="M{frame.left} {number(places.at_y(y))}H{places.right}"/>'
                for y, _ in plot.limits
            ),
            lines,
            *_below(plot.series, places),
            *_crosses(plot.crosses, places.at_x, floor),
            *_limit_names(plot, places, taken),
            *_point_labels(plot.series, places, taken),
            "</svg>",
        ]
    )


def _bands(bands: Sequence[tuple[float, float, str]], places: _Places) -> list[str]:
    frame = places.frame
    areas, edges, names = [], [], []
    for start, end, name in bands:
        left, right = places.at_x(start), places.at_x(end)
        if right - left < 1:
            continue
        edges.append(f"M{number(left)} {frame.top}v{places.height}")
        areas.append(f"{edges[-1]}h{number(right - left)}v-{places.height}z")
        # A name that is wider than its band would run into the name of the next band.
        if frame.band_names and width_of(name) < right - left:
            names.append(f'<text x="{number(left + 5)}" y="{frame.top - 7}">{escape(name)}</text>')
    return [_path("band", areas), _path("bandedge", edges), *names]


def _limit_names(plot: Plot, places: _Places, taken: list[Box]) -> list[str]:
    """Return the names of the limits, each above or below its line, where it covers the fewest points."""
    points = [place for series in plot.series for place in places.of(series) if place]
    parts = []
    for value, name in plot.limits:
        height, width = places.at_y(value), width_of(name)
        lefts = (places.right - 4 - width, places.frame.left + 4, (places.frame.left + places.right - width) / 2)
        spots = [(left, top) for left in lefts for top in (height - LINE_HEIGHT - 1, height + 2)]
        spots.sort(key=lambda spot: sum(_touch(_box(spot, width), (x, y, x, y)) for x, y in points))
        spot = _free(spots, width, places, taken) or spots[0]
        parts.append(_text("limitname", spot, name))
    return parts


def _point_labels(lines: Sequence[Series], places: _Places, taken: list[Box]) -> list[str]:
    """Return the labels of points, each at the first side of its point where it touches no other label or point."""
    named = [
        (place, text)
        for series in lines
        for place, text in zip(places.of(series), series.labels, strict=bool(series.labels))
        if place is not None and text
    ]
    taken += [(x - 4, y - 4, x + 4, y + 4) for (x, y), _ in named]
    # Labels take room from each other, so the order determines how many labels fit.
    return max((_labelled(order, places, [*taken]) for order in (named, named[::-1])), key=len)


def _labelled(named: Sequence[tuple[Place, str]], places: _Places, taken: list[Box]) -> list[str]:
    parts = []
    for (x, y), text in named:
        width = width_of(text)
        right, left, centre = x + 6, x - 6 - width, min(x - width / 2, places.frame.width - width)
        level, above, below = y - LINE_HEIGHT / 2, y - LINE_HEIGHT - 5, y + 5
        spots = [(right, level), (left, level), (centre, above), (centre, below)]
        spots += [(side, top) for top in (above, below) for side in (right, left)]
        spot = _free(spots, width, places, taken)
        if spot is not None:
            parts.append(_text("label", spot, text))
    return parts


def _free(spots: Iterable[Place], width: float, places: _Places, taken: list[Box]) -> Place | None:
    """Return the first spot at which a label is inside the drawing and touches no other label, and take it."""
    frame = places.frame
    for spot in spots:
        box = _box(spot, width)
        inside = box[0] >= frame.left and box[2] <= frame.width and box[1] >= 0 and box[3] <= places.floor
        if inside and not any(_touch(box, other) for other in taken):
            taken.append(box)
            return spot
    return None


def _box(spot: Place, width: float) -> Box:
    return (*spot, spot[0] + width, spot[1] + LINE_HEIGHT)


def _touch(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _text(css: str, spot: Place, text: str) -> str:
    return f'<text class="{css}" x="{number(spot[0])}" y="{number(spot[1] + LINE_HEIGHT - 3)}">{escape(text)}</text>'


def _below(lines: Sequence[Series], places: _Places) -> list[str]:
    """Return a mark at the x axis for each value that has no place on a log axis."""
    parts = []
    for series in lines:
        marks = [
            f"M{number(places.at_x(x) - 4)} {number(places.floor - 8)}l4 5 4-5"
            for x, y in series.points
            if y is not None and places.under(y)
        ]
        parts.append(_path(f"below s{series.colour % COLOURS}", marks))
    return parts


def number(value: float, digits: int = DIGITS) -> str:
    """Return a number, rounded to `digits` digits after the point, in as few characters as possible."""
    text = f"{value:.{digits}f}".rstrip("0").rstrip(".")
    sign, text = ("-", text[1:]) if text.startswith("-") else ("", text)
    return "0" if text in ("", "0") else sign + (text[1:] if text.startswith("0.") else text)


def way(points: Sequence[Place]) -> str:
    """Return the data of a path through the points (x ascending). Points within `SEEN` of the line are left out.

    After the first point, the path uses relative coordinates, which take fewer characters than absolute ones. They are
    differences between rounded points, so rounding errors do not add up.
    """
    places = turns([(round(x, DIGITS), round(y, DIGITS)) for x, y in points], SEEN)
    steps = [(x - before_x, y - before_y) for (before_x, before_y), (x, y) in itertools.pairwise(places)]
    return f"M{_listed(places[:1])}l{_listed(steps)}"


def turns(points: Sequence[Place], within: float) -> list[Place]:
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


def _off(point: Place, first: Place, last: Place) -> float:
    """Return the distance of a point from the line segment between two other points."""
    along, up = last[0] - first[0], last[1] - first[1]
    right, above = point[0] - first[0], point[1] - first[1]
    length = along * along + up * up
    share = min(1.0, max(0.0, (right * along + above * up) / length)) if length else 0.0
    return math.hypot(right - share * along, above - share * up)


def _listed(pairs: Sequence[Place]) -> str:
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
        place, width = places.at_x(value), width_of(text)
        # The first and the last label stay within the drawing. A label that would touch its neighbour is left out.
        start = min(max(place - width / 2, 0), frame.width - width)
        marks.append(f"M{number(place)} {floor}v5")
        if text and frame.x_labels and start > free_from:
            labels.append(f'<text x="{number(start + width / 2)}" y="{floor + 20}">{escape(text)}</text>')
            free_from = start + width + 6
    return [_path("axis", marks), f'<g class="middle">{"".join(labels)}</g>' if labels else ""]


def _line(series: Series, places: _Places) -> list[str]:
    """Return a path for each run of values without a gap. A single value between two gaps becomes a dot.

    A dot is a step of length 0, which a stroke with round ends shows as a dot. So all dots of a line form one path,
    which the narrow drawing can compress. A ring is a dot with a smaller dot of the background's colour in it.
    """
    runs: list[list[Place]] = [[]]
    dots, hollow = [], []
    for (x, _), place in zip(series.points, places.of(series), strict=True):
        before = runs[-1][-1] if runs[-1] else None
        if series.steps and before:
            runs[-1].append((places.at_x(x), before[1]))
        if place is None:
            runs.append([])
            continue
        runs[-1].append(place)
        if series.dots or not series.joined:
            dots.append(place)
            hollow += [place] if x in series.hollow else []
    if not dots:
        dots = [place for run in runs if len(run) == 1 for place in run]
    return [
        _path(f"line {series.css}", [way(run) for run in runs if len(run) > 1] if series.joined else []),
        _path(f"dot s{series.colour % COLOURS}", _dots(dots)),
        _path("hole", _dots(hollow)),
    ]


def _dots(places: Sequence[Place]) -> list[str]:
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
