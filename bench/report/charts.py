"""Makes the plots of one run (`plots.Plot`) from the rows of a digest.

Owns the choice of lines, scales and bands, and the thinning of long runs. Must never: compute a figure, except the mean
or maximum of the seconds that a point of a thinned plot combines (`Drawn.bin_s`).
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ingeborg.bench.digest.document import Json
from ingeborg.bench.report.plots import (
    COLOURS,
    Plot,
    Point,
    Scale,
    Series,
    linear,
    logarithmic,
    nines,
    percentile_axis,
    seconds_axis,
)
from ingeborg.bench.text import figures

POINTS_MAX = 600
"""Maximum number of points of a line. The page does not have enough pixels for more points. In a longer run, a point
combines several seconds."""

POINTS_OF_MANY_MAX = 200
"""The same limit for a page of many runs, which a phone has to load."""

GAP_S = 5
GAP_TIMES = 3
"""A line breaks where it has no value for more than `GAP_S` seconds, and for more than `GAP_TIMES` times its usual
interval. So neither a sample that is a little late nor a second without a delivery leaves a gap."""

SOURCES_MAX = COLOURS
"""Maximum number of lines in a plot of processes. People can tell this number of colours apart."""

LIMIT_ABOVE_MAX = 30.0
"""A goal is drawn only if it is at most this multiple of the largest latency. A greater goal would flatten the
lines."""

HOST = "host"


@dataclass(frozen=True)
class Drawn:
    """A plot, and the number of seconds that each of its points combines."""

    plot: Plot
    bin_s: int = 1
    bin_text: str = ""


def percentile_curve(run: Json) -> Drawn | None:
    """Return the plot of latency by percentile. It has a line for each measured phase, or for each phase if no phase is
    measured."""
    chosen = phases_shown(run)
    if not chosen:
        return None
    series = [Series(phase["phase"], curve(phase), index) for index, phase in enumerate(chosen)]
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
            y=logarithmic([*values, *(value for value, _ in limits)], duration_tick),
            limits=limits,
        )
    )


def phases_shown(run: Json) -> list[Json]:
    """Return the phases whose latency the page shows: the measured phases, or without measured phases, the last phases
    in which something was delivered."""
    delivered = [phase for phase in run["phases"] if phase["delivered"]]
    return ([phase for phase in delivered if phase["measured"]] or delivered)[-SOURCES_MAX:]


def curve(phase: Json) -> list[Point]:
    """Return a phase's percentile curve. It ends at 1 - 1/n, because every higher percentile of n values is the
    maximum."""
    end = nines(1 - 1 / max(10, phase["delivered"]))
    points: list[Point] = [(nines(ppm / 1_000_000), float(value)) for ppm, value in phase["curve"]]
    return [*(point for point in points if point[0] <= end), (end, float(phase["latency_ns"]["max"]))]


def over_time(run: Json, seconds: Sequence[Json], machine: Sequence[Json], points_max: int = POINTS_MAX) -> list[Drawn]:
    """Return the plots of rates, latency, processor, memory and network, as far as the log has the figures (thesis
    figures 6.2 and 6.3). All plots share one time axis, so that a page can stack them."""
    time = _Time(run, [*seconds, *machine], points_max)
    drawn = (
        _rates(run, seconds, time),
        _latency(run, seconds, time),
        *_machine(machine, time),
        _network(machine, time),
    )
    return [plot for plot in drawn if plot is not None]


@dataclass(frozen=True)
class _Time:
    """The time axis of a run's plots, and the thinning of its seconds."""

    run: Json
    rows: Sequence[Json]
    points_max: int

    @property
    def axis(self) -> Callable[[int], Scale]:
        starts = [phase["start_s"] for phase in self.run["phases"]] + [row["second"] for row in self.rows]
        ends = [phase["end_s"] for phase in self.run["phases"]] + [row["second"] + 1 for row in self.rows]
        return seconds_axis(min(0.0, *starts), max(ends))

    @property
    def bands(self) -> list[tuple[float, float, str]]:
        """Return the measured phases, which are shaded."""
        return [(phase["start_s"], phase["end_s"], phase["phase"]) for phase in self.run["phases"] if phase["measured"]]

    def bin_s(self, rows: Sequence[Json]) -> int:
        """Return the number of seconds that a point of these rows combines."""
        return -(-int(rows[-1]["second"] - rows[0]["second"] + 1) // self.points_max) if rows else 1

    def line(self, rows: Sequence[Json], key: str, join: Callable[[list[float]], float]) -> list[Point]:
        """Return the values as points, each at the middle of its second (or bin of seconds). The line breaks where
        values are missing (`GAP_S`)."""
        if not rows:
            return []
        first, bin_s = int(rows[0]["second"]), self.bin_s(rows)

        def bin_of(second: int) -> int:
            return (second - first) // bin_s

        known = [(int(row["second"]), row[key]) for row in rows if row[key] is not None]
        seconds = sorted({second for second, _ in known})
        steps = list(itertools.pairwise(seconds))
        usual_s = statistics.median(later - second for second, later in steps) if steps else 0
        longest_s = max(GAP_S, GAP_TIMES * usual_s)
        breaks = [one for one, later in steps if later - one > longest_s and bin_of(later) - bin_of(one) > 1]
        bins: dict[int, list[float]] = {}
        for second, value in known:
            bins.setdefault(bin_of(second), []).append(value)
        points: list[Point] = [(first + (at + 0.5) * bin_s, join(values)) for at, values in bins.items()]
        points += [(first + (bin_of(second) + 1) * bin_s, None) for second in breaks]
        return sorted(points, key=lambda point: point[0])


def _rates(run: Json, seconds: Sequence[Json], time: _Time) -> Drawn | None:
    """Return the plot of rates per second: reports in, messages out, errors if there are any, and the offered rate if
    there is a schedule."""
    if not seconds:
        return None
    wanted = [("in (reports sent)", "reports", 0), ("out (messages received)", "delivered", 1)]
    if any(row["errors"] for row in seconds):
        wanted.append(("errors", "errors", 4))
    lines = [Series(name, time.line(seconds, key, _mean), colour) for name, key, colour in wanted]
    peaks = [max((y for _, y in line.points if y is not None), default=0.0) for line in lines]
    offered = _offered(run)
    if any(y is not None for _, y in offered):
        lines.append(Series("offered", offered, 7, dashed=True, steps=True))
        peaks.append(max(y for _, y in offered if y is not None))
    return Drawn(
        Plot(
            title="Rates over time",
            description=f"At most {figures.rate(peaks[0])} in and {figures.rate(peaks[1])} out.",
            series=lines,
            x=time.axis,
            y=linear(max(peaks), rate_tick),
            bands=time.bands,
        ),
        time.bin_s(seconds),
        "their mean",
    )


def _offered(run: Json) -> list[Point]:
    """Return the rate of publishes that the schedule demands, from each phase's start to its end."""
    points: list[Point] = []
    for phase in run["phases"]:
        rate_per_s = phase["offered_per_s"]
        if rate_per_s is not None:
            points += [(phase["start_s"], rate_per_s), (phase["end_s"], None)]
    return points


def _latency(run: Json, seconds: Sequence[Json], time: _Time) -> Drawn | None:
    """Return the plot of p50 and p99 in each second."""
    lines = [
        Series(name, time.line(seconds, key, _largest), colour)
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
            x=time.axis,
            y=logarithmic([*values, *(value for value, _ in limits)], duration_tick),
            bands=time.bands,
            limits=limits,
        ),
        time.bin_s(seconds),
        "the largest of its values",
    )


def _machine(rows: Sequence[Json], time: _Time) -> list[Drawn | None]:
    """Return the plots of each process's processor use, in cores, and of its resident memory. The second plot leaves
    out the memory of the whole host, because the other lines would look flat next to it."""
    shown = sources(rows)
    processes = [source for source in shown if source != HOST]
    return [
        _by_source(rows, time, "Processor over time", "cpu_cores", shown, core_tick),
        _by_source(rows, time, "Memory over time", "rss_bytes", processes, size_tick),
    ]


def _by_source(
    rows: Sequence[Json], time: _Time, title: str, key: str, chosen: Sequence[str], text: Callable[[float], str]
) -> Drawn | None:
    colours = {source: index for index, source in enumerate(sources(rows))}
    lines = []
    bin_s = 1
    for source in chosen[:SOURCES_MAX]:
        own = [row for row in rows if row["source"] == source]
        bin_s = max(bin_s, time.bin_s(own))
        lines.append(Series(_with_role(own[0]), time.line(own, key, _mean), colours[source]))
    return _lines(lines, time, title, text, bin_s)


def _network(rows: Sequence[Json], time: _Time) -> Drawn | None:
    """Return the plot of bytes per second that the whole machine sent and received, including loopback. There is no
    such figure for a process."""
    own = [row for row in rows if row["source"] == HOST]
    keys = (("received", "net_rx_bytes_s", 0), ("sent", "net_tx_bytes_s", 1))
    lines = [Series(name, time.line(own, key, _mean), colour) for name, key, colour in keys]
    return _lines(lines, time, "Network over time", size_rate_tick, time.bin_s(own))


def _lines(lines: Sequence[Series], time: _Time, title: str, text: Callable[[float], str], bin_s: int) -> Drawn | None:
    lines = [line for line in lines if any(y is not None for _, y in line.points)]
    if not lines:
        return None
    peaks = {line.name: max(y for _, y in line.points if y is not None) for line in lines}
    return Drawn(
        Plot(
            title=title,
            description="At most: " + ", ".join(f"{name} {text(value)}" for name, value in peaks.items()) + ".",
            series=lines,
            x=time.axis,
            y=linear(max(peaks.values()), text),
            bands=time.bands,
        ),
        bin_s,
        "their mean",
    )


def _with_role(row: Json) -> str:
    """Return the name of the process, and its role unless the name begins with the role."""
    source, role = str(row["source"]), str(row.get("role") or "")
    return source if not role or source.startswith(role) else f"{source} ({role})"


def sources(rows: Sequence[Json]) -> list[str]:
    """Return the processes, the busiest first, because plots have lines only for the first few."""
    busy: dict[str, float] = {}
    for row in rows:
        busy[row["source"]] = busy.get(row["source"], 0.0) + (row["cpu_cores"] or 0.0)
    return sorted(busy, key=lambda source: (-busy[source], source))


def duration_tick(value_ns: float) -> str:
    return figures.tick(figures.duration(value_ns))


def size_tick(value_bytes: float) -> str:
    return figures.tick(figures.size(value_bytes)) if value_bytes else "0"


def size_rate_tick(value_bytes_per_s: float) -> str:
    return f"{figures.tick(figures.size(value_bytes_per_s))}/s" if value_bytes_per_s else "0"


def core_tick(value_cores: float) -> str:
    return f"{100 * value_cores:,.4g} %"


def rate_tick(value_per_s: float) -> str:
    """Format a rate. From ten thousand on, the unit is thousands, because a narrow plot has little room."""
    for factor, unit in ((1_000_000, " M"), (1_000, " k")):
        if value_per_s >= max(factor, 10_000):
            return f"{value_per_s / factor:,.10g}{unit}/s"
    return f"{value_per_s:,.10g}/s" if value_per_s else "0"


def _limits(run: Json, largest: float, names: set[str]) -> list[tuple[float, str]]:
    """Return the latency goals to draw as lines, as pairs (ns, text)."""
    lines = []
    for goal in run["goals"]:
        limit_ns = goal["limit"] * 1_000_000
        if goal["goal"] in names and 0 < limit_ns <= largest * LIMIT_ABOVE_MAX:
            lines.append((limit_ns, f"goal: {figures.goal_name(goal['goal'])} ≤ {figures.duration(limit_ns)}"))
    return lines


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _largest(values: list[float]) -> float:
    return max(values)
