"""The report of `bench autoscale`: the document's sentences with verdicts, its figures, and the comparison of groups.

Owns: the words, tables and plots. Must never: compute a figure that the digest does not have, except ratios of two
figures.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ingeborg.bench.autoscale import claims, scale
from ingeborg.bench.autoscale.cases import ASSIGNORS, CONDITIONS, KEDA, PACKED
from ingeborg.bench.autoscale.claims import P99
from ingeborg.bench.experiments.figures import percent, with_interval
from ingeborg.bench.report.plots import Axis, Plot, Point, Series, linear, logarithmic
from ingeborg.bench.text.blocks import (
    Block,
    Bullets,
    Cell,
    Figure,
    Fold,
    Panel,
    Report,
    Section,
    Stack,
    judged,
    panel,
    table,
)

Json = Mapping[str, Any]

#: The steps of a change, by their events in the controller's journal, and the document's statement about each step
#: (section VI-F).
STEPS: Final = {
    "decided": ("Δt2: time to decide and to create all orders", "below 1 s (1,345 observations)"),
    "scaled": ("Δt2: duration of the call to the scaler", "part of the row above"),
    "joined": ("Δt3: time until a new member has joined", "10 to 50 s in 88 %, else up to 500 s (273)"),
    "given": ("Δt4: hand-over of a queue, until its next owner reads it", "two cycles of a consumer, 5 s"),
    "settled": ("Δt4: time until a change is complete", "about 5 s (1,331)"),
}
FIGURES: Final = (("decided", 15), ("joined", 16), ("settled", 17))
NAMES: Final = {
    "range": "range",
    "cooperative-sticky": "cooperative-sticky",
    "kip-848": "KIP-848",
    KEDA: "KEDA's rule",
    "mwf": "MWF",
    "mend": "mend",
    "mend-roomy": "mend, fill 0.65",
}
#: The groups in the figure with latencies over time. All other groups are in a folded figure.
OVER_TIME: Final = ("mend", "mwf", "kip-848 18", "kip-848 27", *(f"{KEDA} {lag}" for lag in scale.LAGS))

LEAD: Final = (
    "This report evaluates `ingeborg autoscale`, which implements the autoscaler of Diogo Landau et al., "
    "“Multi-Objective Optimization of Consumer Group Autoscaling in Message Broker Systems” (arXiv 2402.06085, 2024).",
    "In the comparison, a group of real processes reads 32 partitions of a real Kafka, and the load of each partition "
    "changes as in the document's streams (equation 15). ± is half the width of the 95 % confidence interval over the "
    "streams.",
)
RUNS: Final = ("", "members", "p99", "backlog", "decisions", "starts", "hand-overs", "busiest")


def report(pure: Json, measured: Json) -> Report:
    """Return the report for the plan in ``pure`` and the digest of `job.digest`."""
    known = claims.judged(measured)
    unjudged = [f"“{claim.text}” ({claim.where}) {' '.join(claim.found)}" for claim in known if not claim.verdicts]
    sections = [
        Section(
            "The claims of the document, and our results",
            [
                *judged("The document's sentences", [claim for claim in known if claim.verdicts]),
                *([Panel("Not judged", [Bullets(unjudged)])] if unjudged else []),
            ],
        ),
        Section(
            "Tables V and VI, and figures 13 to 17",
            [
                *_machines(measured),
                *_capacity(measured.get("throughput")),
                *_monitor(measured.get("steps")),
                *_steps("Figures 15 to 17: steps of a change", measured.get("changes")),
                *_durations(measured.get("changes")),
            ],
        ),
        Section("Beyond the document: groups on a real Kafka", _compared(pure, measured)),
        *(
            Section(f"Beyond the document: streams with {count} decisions", _compared(pure, found, f"-{count}"))
            for found in measured.get("long") or ()
            for count in (found["iterations"],)
        ),
        Section("500 decisions of the controller", _steps("Steps of a change", measured.get("changes_long"))),
    ]
    return Report(
        "Scaling consumer groups",
        "Evaluation",
        LEAD,
        [section for section in sections if section.blocks],
        _command(pure),
        ["docs/autoscaling.md explains each figure."],
    )


def _command(pure: Json) -> str:
    command = "bench autoscale --out DIR"
    if pure["iterations"] != scale.ITERATIONS:
        command += f" --iterations {pure['iterations']}"
    return command + (f" --delta {pure['delta']:g}" if pure["delta"] != scale.DELTA else "")


def _seconds(value: float) -> str:
    return f"{value * 1e3:.3g} ms" if value < 1 else f"{value:.3g} s"


# The document's tables and figures


def _machines(measured: Json) -> list[Block]:
    machine = measured["machine"]
    rows = [
        ["Kafka", "3 nodes, AWS r5.xlarge", f"1 node of Kafka {', '.join(measured['kafka'])}, on the same machine"],
        ["consumers", "Deployments of Kubernetes (GKE autopilot)", "processes on the same machine"],
        ["controller, monitor", "one Deployment each (GKE)", "one process on the same machine"],
        ["machine", "", f"{machine['cores']} cores, {machine['memory']}, Python {machine['python']}"],
    ]
    return panel("Table V: infrastructure", ("", "the document", "here"), rows)


def _capacity(rows: Sequence[Json] | None) -> list[Block]:
    if not rows:
        return []
    named = {one.number: one for one in CONDITIONS}
    body = []
    for row in rows:
        one = named[row["test"]]
        body.append(
            [
                f"test {one.number}",
                *(f"{one.total_bytes / 1e6:.0f} MB", str(one.partitions), str(one.tables)),
                *(f"{row[name] / 1e6:.0f}" for name in ("median", "mean", "least", "most")),
                str(row["samples"]),
            ]
        )
    header = (
        *("", "all bytes", "partitions", "tables"),
        *("median, MB/s", "mean, MB/s", "least, MB/s", "most, MB/s", "samples"),
    )
    note = (
        "The columns median, least and most summarise samples of a quarter of a second each. The mean is all bytes "
        "divided by the whole time. That time includes the last second, in which the last batch waits because it does "
        "not become full."
    )
    return [*panel("Table VI: one member at its fastest", header, body, note), _density(rows)]


def _density(rows: Sequence[Json]) -> Figure:
    width = scale.SAMPLE_BYTES / 1e6
    series = [
        _histogram(
            f"test {row['test']}, {row['samples']} samples", row["histogram"], lambda place: width * place, index
        )
        for index, row in enumerate(rows)
    ]
    x = linear(max(x for line in series for x, _ in line.points), lambda value: f"{value:g} MB/s")
    caption = (
        f"Share of the samples in each step of {width:g} MB/s. Each sample is a quarter of a second. The document's "
        "mode is 2.3 MB/s."
    )
    return _shares(13, "one member's rate", series, x, caption)


def _histogram(name: str, histogram: Sequence[tuple[int, int]], edge: Callable[[int], float], colour: int) -> Series:
    """Return the shares of a histogram as a line with steps. ``edge`` returns where a step begins."""
    counts = dict(histogram)
    low, high, total = min(counts), max(counts), sum(counts.values())
    points: list[Point] = [(edge(place), counts.get(place, 0) / total) for place in range(low, high + 1)]
    return Series(name, [(edge(low), 0.0), *points, (edge(high + 1), 0.0)], colour, steps=True)


def _shares(number: int, title: str, series: Sequence[Series], x: Axis, caption: str) -> Figure:
    most = max(y or 0.0 for line in series for _, y in line.points)
    y = linear(most, lambda value: f"{100 * value:g} %")
    return Figure(Plot(f"Figure {number}: {title}", caption, series, x, y), f"f{number}", caption)


def _monitor(found: Json | None) -> list[Block]:
    if not found:
        return []
    overhead = 1 + scale.OVERHEAD_BYTES / scale.RECORD_BYTES
    written: list[Point] = [(place * scale.STEP_S, rate * overhead) for place, rate in enumerate(scale.STEP_RATES)]
    end_s = len(scale.STEP_RATES) * scale.STEP_S
    measured: list[Point] = [(x, y) for x, y in found["series"]]
    series = [Series("written", [*written, (end_s, None)], 1, steps=True), Series("measured", measured, 0)]
    plot = Plot(
        title="Figure 14, Δt1: the monitor's values",
        description="Bytes per second over time, while the load changes between two rates every 40 s.",
        series=series,
        x=linear(max(end_s, *(x for x, _ in measured)), lambda value: f"{value:g} s"),
        y=linear(max(y for line in series for _, y in line.points if y), lambda value: f"{value / 1e3:g} kB/s"),
    )
    known = ", ".join("never" if value is None else f"{value:.1f}" for value in found["known_after_s"])
    caption = (
        "The rate of one partition, with the bytes that Kafka adds to each record. The monitor's window is 30 s. "
        f"Seconds until the measured rate is within 5 % of a new rate: {known}."
    )
    return [Figure(plot, "f14", caption)]


def _steps(title: str, rows: Sequence[Json] | None) -> list[Block]:
    found = []
    for event, (words, theirs) in STEPS.items():
        for row in rows or ():
            if row["event"] == event:
                seconds = (f"{value:.3g}" for value in (*row["seconds"][: P99 + 1], row["most"]))
                found.append([words, theirs, row["of"], f"{row['count']:,}", *seconds])
    header = ("", "the document", "of", "count", "p50, s", "p90, s", "p99, s", "longest, s")
    note = (
        "The times are from the controller's journal. delta is the greatest change of a load, in per cent of C. The "
        "document's members are pods in a Kubernetes cluster, which has to find room for them. Here a member is a "
        "process on the same machine. It learns of a change even in the middle of a batch. The document's member has "
        "to finish two batches first."
    )
    return panel(title, header, found, note)


def _durations(rows: Sequence[Json] | None) -> list[Block]:
    found: list[Block] = []
    for event, number in FIGURES:
        chosen = [row for row in rows or () if row["event"] == event]
        if not chosen:
            continue
        words, theirs = STEPS[event]
        series = [
            _histogram(f"{row['of']}, {row['count']:,} observations", row["histogram"], _edge_s, index)
            for index, row in enumerate(chosen)
        ]
        x = logarithmic([x for line in series for x, _ in line.points], _seconds)
        caption = f"Share of the observations in each step. Five steps cover a factor of ten. The document: {theirs}."
        found.append(_shares(number, words, series, x, caption))
    return found


def _edge_s(place: int) -> float:
    return float(10.0 ** (place / scale.STEPS_TO_TEN))


# The comparison of groups


def _compared(pure: Json, found: Json, suffix: str = "") -> list[Block]:
    """Return the blocks of a comparison. ``suffix`` makes the figures' names unique."""
    if not found.get("systems"):
        return []
    groups = Groups(found["systems"], found["runs"], found["over_time"], suffix)
    steps = _steps("Steps of a change, by group", found.get("handovers"))
    more = [Fold("Steps of the changes in these runs", steps)] if steps else []
    return [groups.curve(), groups.panel(pure["time_scale"]), *groups.over_time(), *more]


def name_of(row: Json) -> str:
    """Return a group's name for readers."""
    name = NAMES[row["system"]]
    if row["system"] == KEDA:
        return f"{name}, lag {row['number']}"
    return f"{name}, {row['number']}" if row["number"] else name


def _backlog(row: Json) -> str:
    """Return how many runs began with a backlog. Results that were stored before runs had a warm-up do not contain this
    number."""
    count = row.get("not_caught_up")
    if count is None:
        return "unknown"
    return f"{count} of {row['seeds']} runs, up to {row['behind_s']:.1f} s" if count else "none"


@dataclass(frozen=True)
class Groups:
    """The figures of all groups with the same streams: a row for each group, a row for each run, and the latencies of
    each run over time."""

    systems: Sequence[Json]
    runs: Sequence[Json]
    times: Sequence[Json]
    suffix: str

    def curve(self) -> Figure:
        """Return the figure that compares all groups. A packed group is a point, because it chooses its members."""
        series = []
        for index, system in enumerate((*ASSIGNORS, KEDA)):
            rows = [row for row in self.systems if row["system"] == system]
            labels = [f"lag {row['number']}" if system == KEDA else "" for row in rows]
            series.append(Series(NAMES[system], _points(rows), index, dots=True, labels=labels))
        packed = [row for row in self.systems if row["system"] in PACKED]
        names = [NAMES[row["system"]] for row in packed]
        series.append(Series("packed", _points(packed), len(ASSIGNORS) + 1, dots=True, joined=False, labels=names))
        members = [row["members"][0] for row in self.systems]
        plot = Plot(
            title="p99 of latency, by members",
            description="; ".join(f"{name_of(row)}: {row['latency_s'][P99][0]:.2f} s" for row in self.systems) + ".",
            series=[line for line in series if line.points],
            x=linear(max(members), lambda value: f"{value:g}", 2.0 * math.floor((min(members) - 1) / 2), whole=True),
            y=logarithmic([row["latency_s"][P99][0] for row in self.systems], _seconds),
        )
        caption = (
            "Time from a record's due time until a member handed it on, over the mean number of running members. "
            "Points further left and further down are better. The values are means over the streams."
        )
        return Figure(plot, f"curve{self.suffix}", caption)

    def panel(self, time_scale: float) -> Panel:
        """Return all figures of each group."""
        header = ("", "streams", "members", "p50, s", "p90, s", "p99, s", "p99.9, s", "later than 1 s", "not read")
        rows = [
            [
                name_of(row),
                str(row["seeds"]),
                with_interval(row["members"], "{:.1f}".format),
                *(with_interval(value, "{:.2f}".format) for value in row["latency_s"]),
                percent(row["late"]),
                f"{row['waiting'] / row['records']:.1%}" if row["waiting"] else "none",
            ]
            for row in self.systems
        ]
        return Panel(
            "Groups",
            [
                table("Latency, and members", header, rows),
                table("Compared with mend, and the runs", RUNS, map(self._details, self.systems)),
                Bullets(self._words(time_scale)),
            ],
        )

    def _details(self, row: Json) -> list[str | Cell]:
        busiest = max(run["busy_percent"] for run in self.runs if run["label"] == row["label"])
        counts = [f"{row[name]:,}" if row["system"] in PACKED else "" for name in ("decisions", "starts", "hand_overs")]
        return [name_of(row), *self._ratios(row), _backlog(row), *counts, f"{busiest:.0f} %"]

    def _ratios(self, row: Json) -> list[str | Cell]:
        """Compare a group's members and p99 with those of `mend`."""
        ours = next((other for other in self.systems if other["system"] == "mend"), None)
        if ours is None or row["system"] in PACKED:
            return ["", ""]
        times = row["latency_s"][P99][0] / ours["latency_s"][P99][0]
        mark = "good" if times >= 10 else "warn" if times >= 1 else "bad"
        # KEDA's backlog is older than its run, so it says nothing about the run.
        is_fair = row["system"] != KEDA or row.get("not_caught_up") == 0
        more = f"{row['members'][0] / ours['members'][0] - 1.0:+.0%}"
        return [more, Cell(f"{times:.1f} ×", mark=mark if is_fair else "")]

    def _words(self, time_scale: float) -> list[str]:
        lasting = max(run["seconds"] for run in self.runs)
        return [
            f"All groups read the same streams, of {lasting:.0f} s each. The load of each partition changes every "
            f"{scale.ITERATION_S:g} s by up to {self.runs[0]['delta']:g} % of C. No partition has more than 5/6 of the "
            "highest rate of a member.",
            f"Times are scaled 1:{time_scale:g}, so a second here corresponds to {time_scale:g} s in the document. "
            "Programs start at their real speed: a new member needs a second or two, which correspond to 10 to 20 s "
            "in the document.",
            "A run begins when its group is warm. Each member counts from its start until it has ended.",
            "Not read: the share of records that no member had read when the run ended. These records count with the "
            "time until then, so the percentiles are too small.",
            "Members and p99 are compared with those of mend. Green marks groups that are at least ten times as late. "
            "KEDA's rule has no colour if a run began with a backlog. For 15 members, the document reports 217 s and "
            "4.52 s, a factor of 48. These figures are from a model with one stream, and cover only late data.",
            "Backlog: how many runs began although their group had not caught up, and the age of the oldest unread "
            "record then. It is unknown in results that are older than the common warm-up of all groups.",
            "Decisions, starts and hand-overs: the numbers of decisions, new members and moved queues in all runs of a "
            "packed group.",
            "Busiest: the mean load of all processors in the busiest run. If it is far below 100 %, the processors "
            "were no bottleneck.",
        ]

    def over_time(self) -> list[Block]:
        """Return the latencies over time: of some groups for the first stream, and of all runs in a folded block."""
        values = {row["unit"]: row["p99_s"] for row in self.times}
        known = [run for run in self.runs if run["unit"] in values]
        if not known:
            return []
        length_s = float(scale.WINDOW_S * max(map(len, values.values())))
        x = linear(length_s, lambda value: f"{value:g} s")
        y = logarithmic([value for each in values.values() for value in each], _seconds)
        first = [run for label in OVER_TIME for run in known if run["label"] == label and run["seed"] == 1]
        lines = [_over_time(name_of(run), values[run["unit"]], index) for index, run in enumerate(first)]
        caption = f"p99 of the records that are due in each window of {scale.WINDOW_S} s"
        found: list[Block] = []
        if lines:
            plot = Plot("p99 over a run", "The first stream.", lines, x, y)
            found.append(Figure(plot, f"over-time{self.suffix}", f"{caption}, for the first stream."))
        plots = [self._each(row, known, values, x, y) for row in self.systems]
        stack = Stack("p99 over time", plots, f"every-run{self.suffix}", f"{caption}. Each line is a stream.")
        count = "1 run" if len(known) == 1 else f"all {len(known)} runs"
        return [*found, Fold(f"p99 over time of {count} for which it is known", [stack])]

    def _each(self, row: Json, known: Sequence[Json], values: Mapping[str, Sequence[float]], x: Axis, y: Axis) -> Plot:
        runs = [run for run in known if run["label"] == row["label"]]
        lines = [_over_time(f"stream {run['seed']}", values[run["unit"]], run["seed"] - 1) for run in runs]
        return Plot(name_of(row), f"{len(runs)} streams.", lines, x, y)


def _points(rows: Sequence[Json]) -> list[Point]:
    return [(row["members"][0], row["latency_s"][P99][0]) for row in rows]


def _over_time(name: str, values: Sequence[float], colour: int) -> Series:
    """Return a line with a step for each window."""
    points: list[Point] = [(float(scale.WINDOW_S * place), value) for place, value in enumerate(values)]
    return Series(name, [*points, (float(scale.WINDOW_S * len(values)), None)], colour, steps=True)
