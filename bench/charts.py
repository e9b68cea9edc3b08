"""Which plots the report has, and what is on them: from a digest's rows to `plots.Plot`.

Owns the choice of lines, scales and bands, and the thinning of long runs. It computes no figure but the means and
maxima of thinned points, and says so (`Drawn.bin_s`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench import figures
from bench.digest import Json
from bench.plots import (
    NARROW,
    WIDE,
    Plot,
    Point,
    Scale,
    Series,
    linear,
    logarithmic,
    nines,
    percentile_axis,
    seconds_axis,
    svg,
)

POINTS_MAX = 600
"""Points of a line: more than that many do not fit the page's pixels. Longer runs are drawn in bins of seconds."""

SOURCES_MAX = 8
"""Lines in a plot of processes: as many as there are colours a person can tell apart."""

LIMIT_ABOVE_MAX = 30.0
"""A goal is drawn if it is at most so many times the largest latency: farther off, it would flatten the lines."""

HOST = "host"


@dataclass(frozen=True)
class Drawn:
    """A plot, and how many seconds each of its points stands for."""

    plot: Plot
    bin_s: int = 1
    bin_text: str = ""


def both(drawn: Drawn, identity: str) -> str:
    """The plot twice, for a wide and for a narrow page (the style sheet shows one): scaled down, its text would be too
    small on a phone."""
    return svg(drawn.plot, WIDE, f"{identity}-w", "wide") + svg(drawn.plot, NARROW, f"{identity}-n", "narrow")


def percentile_curve(run: Json) -> Drawn | None:
    """Latency by percentile, a line per measured phase (per phase, if none is measured)."""
    delivered = [phase for phase in run["phases"] if phase["delivered"]]
    chosen = ([phase for phase in delivered if phase["measured"]] or delivered)[:SOURCES_MAX]
    if not chosen:
        return None
    series = []
    for index, phase in enumerate(chosen):
        # Beyond 1 - 1/n there is only the maximum: the line ends where n values can tell.
        end = nines(1 - 1 / max(10, phase["delivered"]))
        points: list[Point] = [(nines(ppm / 1_000_000), float(value)) for ppm, value in phase["curve"]]
        inside = [point for point in points if point[0] <= end]
        series.append(Series(phase["phase"], [*inside, (end, float(phase["latency_ns"]["max"]))], index))
    values = [y for line in series for _, y in line.points if y is not None]
    limits = _limits(run, max(values), {"p50_ms", "p99_ms"})
    latency = run["measured"]["latency_ns"] if run["measured"]["delivered"] else chosen[0]["latency_ns"]
    return Drawn(
        Plot(
            title="Latency by percentile",
            description=f"p50 {figures.duration(latency['p50'])}, p99 {figures.duration(latency['p99'])}, "
            f"maximum {figures.duration(latency['max'])}.",
            series=series,
            x=percentile_axis(max(phase["delivered"] for phase in chosen)),
            y=logarithmic([*values, *(value for value, _ in limits)], _duration_tick),
            limits=limits,
        )
    )


def latency_over_time(run: Json, seconds: Sequence[Json]) -> Drawn | None:
    """p50 and p99 of each second."""
    bin_s = _bin_s(seconds)
    lines = [
        Series(name, _points(seconds, key, bin_s, _largest), colour)
        for colour, (name, key) in enumerate((("p50", "p50_ns"), ("p99", "p99_ns")))
    ]
    values = [y for line in lines for _, y in line.points if y is not None]
    if not values:
        return None
    limits = _limits(run, max(values), {"p99_ms"})
    worst = max((y, x) for x, y in lines[1].points if y is not None)
    return Drawn(
        Plot(
            title="Latency over time",
            description=f"p50 and p99 of each second; the largest p99 is {figures.duration(worst[0])}, "
            f"in second {worst[1]:.0f}.",
            series=lines,
            x=_time_axis(run, seconds),
            y=logarithmic([*values, *(value for value, _ in limits)], _duration_tick),
            bands=_bands(run),
            limits=limits,
        ),
        bin_s,
        "the largest of its values",
    )


def rates_over_time(run: Json, seconds: Sequence[Json]) -> Drawn | None:
    """Reports in, messages out, and errors if there are any, a second."""
    if not seconds:
        return None
    bin_s = _bin_s(seconds)
    wanted = [("in (reports sent)", "reports", 0), ("out (messages received)", "delivered", 1)]
    if any(row["errors"] for row in seconds):
        wanted.append(("errors", "errors", 4))
    lines = [Series(name, _points(seconds, key, bin_s, _mean), colour) for name, key, colour in wanted]
    peaks = [max((y for _, y in line.points if y is not None), default=0.0) for line in lines]
    return Drawn(
        Plot(
            title="Rates over time",
            description=f"At most {figures.rate(peaks[0])} in and {figures.rate(peaks[1])} out.",
            series=lines,
            x=_time_axis(run, seconds),
            y=linear(max(peaks), _rate_tick),
            bands=_bands(run),
        ),
        bin_s,
        "their mean",
    )


def processor(run: Json, rows: Sequence[Json]) -> Drawn | None:
    """Processor use of each process, in cores."""
    return _machine(run, rows, "Processor over time", "cpu_cores", sources(rows), figures.percent_of_core)


def memory(run: Json, rows: Sequence[Json]) -> Drawn | None:
    """Resident memory of each process; without the host, whose memory dwarfs them."""
    chosen = [source for source in sources(rows) if source != HOST]
    return _machine(run, rows, "Memory over time", "rss_bytes", chosen, _size_tick)


def _machine(
    run: Json, rows: Sequence[Json], title: str, key: str, chosen: Sequence[str], text: Callable[[float], str]
) -> Drawn | None:
    colours = {source: index for index, source in enumerate(sources(rows))}
    lines = []
    bin_s = 1
    for source in chosen[:SOURCES_MAX]:
        own = [row for row in rows if row["source"] == source]
        bin_s = max(bin_s, _bin_s(own))
        lines.append(Series(source, _points(own, key, bin_s, _mean), colours[source]))
    lines = [line for line in lines if any(y is not None for _, y in line.points)]
    if not lines:
        return None
    peaks = {line.name: max(y for _, y in line.points if y is not None) for line in lines}
    return Drawn(
        Plot(
            title=title,
            description="At most: " + ", ".join(f"{name} {text(value)}" for name, value in peaks.items()) + ".",
            series=lines,
            x=_time_axis(run, rows),
            y=linear(max(peaks.values()), text),
            bands=_bands(run),
        ),
        bin_s,
        "their mean",
    )


def sources(rows: Sequence[Json]) -> list[str]:
    """The processes: busiest first, so that the first few are the ones worth a line."""
    busy: dict[str, float] = {}
    for row in rows:
        busy[row["source"]] = busy.get(row["source"], 0.0) + (row["cpu_cores"] or 0.0)
    return sorted(busy, key=lambda source: (-busy[source], source))


def _duration_tick(value_ns: float) -> str:
    return figures.tick(figures.duration(value_ns))


def _size_tick(value_bytes: float) -> str:
    return figures.tick(figures.size(value_bytes)) if value_bytes else "0"


def _rate_tick(value_per_s: float) -> str:
    return f"{value_per_s:,.10g}/s" if value_per_s else "0"


def _limits(run: Json, largest: float, names: set[str]) -> list[tuple[float, str]]:
    """Latency goals as lines: (ns, text)."""
    lines = []
    for goal in run["goals"]:
        limit_ns = goal["limit"] * 1_000_000
        if goal["goal"] in names and 0 < limit_ns <= largest * LIMIT_ABOVE_MAX:
            lines.append((limit_ns, f"goal: {figures.goal_name(goal['goal'])} ≤ {figures.duration(limit_ns)}"))
    return lines


def _bands(run: Json) -> list[tuple[float, float, str]]:
    """The measured phases, shaded."""
    return [(phase["start_s"], phase["end_s"], phase["phase"]) for phase in run["phases"] if phase["measured"]]


def _time_axis(run: Json, rows: Sequence[Json]) -> Callable[[int], Scale]:
    """All plots of a run share one time axis, so that they can be read above each other."""
    starts = [phase["start_s"] for phase in run["phases"]] + [row["second"] for row in rows]
    ends = [phase["end_s"] for phase in run["phases"]] + [row["second"] + 1 for row in rows]
    return seconds_axis(min(0.0, *starts), max(ends))


def _bin_s(rows: Sequence[Json]) -> int:
    if not rows:
        return 1
    return -(-int(rows[-1]["second"] - rows[0]["second"] + 1) // POINTS_MAX)


def _points(rows: Sequence[Json], key: str, bin_s: int, join: Callable[[list[float]], float]) -> list[Point]:
    """Values by the middle of their second (or bin); a second without a row or value is a gap."""
    if not rows:
        return []
    first = int(rows[0]["second"])
    bins: dict[int, list[float]] = {}
    for row in rows:
        if row[key] is not None:
            bins.setdefault((int(row["second"]) - first) // bin_s, []).append(row[key])
    last = (int(rows[-1]["second"]) - first) // bin_s
    return [(first + (index + 0.5) * bin_s, join(bins[index]) if index in bins else None) for index in range(last + 1)]


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _largest(values: list[float]) -> float:
    return max(values)
