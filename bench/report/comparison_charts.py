"""The plots of several runs. Each system has a line, over the number of topics or over percentiles.

Owns the choice of lines, scales and marks, as `charts` does for one run. A system keeps its colour in all plots of the
page. A cross marks the number of topics at which a system failed. A ring marks a point at which something other than
the system was at its limit. Must never: compute a figure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from ingeborg.bench.comparison import TopicsSeries, TopicsTable, TrafficTable, main_phase
from ingeborg.bench.report.charts import Drawn, curve, duration_tick, rate_tick, size_tick
from ingeborg.bench.report.plots import (
    COLOURS,
    Cross,
    Plot,
    Point,
    Scale,
    Series,
    doubling_axis,
    logarithmic,
    percentile_axis,
)
from ingeborg.bench.text import figures
from ingeborg.bench.text.tables import ending

LINES_MAX = 16
"""Maximum number of lines in a plot, because readers could not tell more lines apart. Further systems are only in the
tables, and the page says so."""

Axis = Callable[[float], str]

_TOPICS: tuple[tuple[str, str, Axis, str], ...] = (
    (
        "subscribe_s",
        "Time to subscribe to N topics",
        lambda value_s: duration_tick(value_s * 1e9),
        "Lower is better. Both axes are log scales.",
    ),
    ("produce_per_s", "Produce rate over N topics", rate_tick, "Higher is better. Both axes are log scales."),
    ("consume_per_s", "Consume rate over N topics", rate_tick, "Higher is better. Both axes are log scales."),
    (
        "server_bytes",
        "Server memory over N topics",
        size_tick,
        "The memory of all server processes (anonymous memory where known), measured once all topics are subscribed "
        "to.",
    ),
)
"""The plots of thesis figure 6.4, and a plot of memory. Each entry has the figure's key, the title, the format of a
tick's label, and the caption."""


Colours = Mapping[str, int]
"""The colour of each variant of a system, by the variant's name."""


def colours(tables: Iterable[TrafficTable | TopicsTable]) -> dict[str, int]:
    """Return a colour for each system, combined with a pattern for each variant. Both are the same in all plots of the
    page."""
    variants: dict[str, list[str]] = {}
    for table in tables:
        for row in table.rows if isinstance(table, TrafficTable) else table.series:
            names = variants.setdefault(row.system, [])
            if row.name not in names:
                names.append(row.name)
    return {
        name: system % COLOURS + COLOURS * pattern
        for system, names in enumerate(variants.values())
        for pattern, name in enumerate(names)
    }


def topics(table: TopicsTable, colours: Colours) -> list[tuple[Drawn, str]]:
    """Return each plot with its caption. A plot is left out if no run has its figure."""
    made = []
    for key, title, tick, caption in _TOPICS:
        drawn = _topics(table, key, title, tick, colours)
        if drawn is not None:
            rings = _RINGS if any(line.hollow for line in drawn.plot.series) else ""
            made.append((drawn, caption + rings + (_CROSSES if drawn.plot.crosses else "")))
    return made


_RINGS = " A ring: the generator, a layer or the machine was at its limit, so the system itself may be better."
_CROSSES = " A ✕ marks where a series ended."


def _topics(table: TopicsTable, key: str, title: str, tick: Axis, colours: Colours) -> Drawn | None:
    shown = table.series[:LINES_MAX]
    lines = [_line(series, key, colours[series.name]) for series in shown]
    values = [y for line in lines for _, y in line.points if y is not None]
    if not values:
        return None
    crosses = [
        Cross(
            failure.topics,
            colours[series.name],
            f"{series.name}, {ended.text}: {ended.more}",
        )
        for series, ended in ((series, ending(series)) for series in shown)
        if (failure := series.failure) is not None and failure.topics > 0
    ]
    numbers = [number for number in table.numbers if number > 0]
    return Drawn(
        Plot(
            title=title,
            description=_description(shown, key, tick),
            series=lines,
            x=doubling_axis(min(numbers), max(numbers)),
            y=_decades(values, tick),
            crosses=crosses,
        )
    )


def _line(series: TopicsSeries, key: str, colour: int) -> Series:
    points: list[Point] = []
    for point in series.points:
        figure = point.figures[key]
        # A number of topics at which the system failed has a cross instead of a point.
        if point.topics > 0 and point.failed is None:
            points.append((float(point.topics), figure.value if figure else None))
    hollow = frozenset(float(point.topics) for point in series.points if point.limits_of(key))
    return Series(series.name, points, colour, dots=True, hollow=hollow)


def _description(shown: Sequence[TopicsSeries], key: str, tick: Axis) -> str:
    parts = []
    for series in shown:
        last = series.at(series.finished) if series.finished is not None else None
        figure = last.figures[key] if last else None
        if last is not None and figure is not None:
            parts.append(f"{series.name} at {figures.count(last.topics)} topics: {tick(figure.value)}")
    return "; ".join(parts) + "."


def _decades(values: Sequence[float], tick: Axis) -> Callable[[int], Scale]:
    """Return a log scale of at least a decade, so that small changes of a line do not look large."""
    low, high = min(values), max(values)
    return logarithmic([*values, low * 0.5, high * 1.5] if high < 10 * low else values, tick)


def percentile_curves(table: TrafficTable, colours: Colours) -> Drawn | None:
    """Return the plot of latency by percentile, with every system at its sustained rate. If a system ran repeatedly,
    its line shows the run nearest to the median."""
    phases = [(row.name, phase) for row in table.rows if (phase := main_phase(row.chosen)) and phase["delivered"]]
    phases = phases[:LINES_MAX]
    if not phases:
        return None
    lines = [Series(name, curve(phase), colours[name]) for name, phase in phases]
    values = [y for line in lines for _, y in line.points if y is not None]
    limit_ms = table.load.get("p99_ms")
    limits = []
    if isinstance(limit_ms, int | float) and limit_ms > 0:
        limits = [(limit_ms * 1e6, f"limit: p99 ≤ {figures.duration(limit_ms * 1e6)}")]
    return Drawn(
        Plot(
            title="Latency by percentile, every system at its sustained rate",
            description="p99: "
            + "; ".join(f"{name} {figures.duration(phase['latency_ns']['p99'])}" for name, phase in phases)
            + ".",
            series=lines,
            x=percentile_axis(max(phase["delivered"] for _, phase in phases)),
            y=logarithmic([*values, *(value for value, _ in limits)], duration_tick),
            limits=limits,
        )
    )


def left_out(lines: int) -> str:
    """Return a caption's remark on lines that are not drawn."""
    more = lines - LINES_MAX
    return f" The tables have {figures.counted(more, 'more system')}." if more > 0 else ""
