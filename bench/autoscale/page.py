"""The page of `bench autoscale`: compares the document's claims about its autoscaler with our results.

Owns: the words, tables and plots. Must never: compute a figure that the digest does not have, except a ratio of two
figures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from textwrap import wrap
from typing import Any, Final

from ingeborg.bench.autoscale import scale
from ingeborg.bench.autoscale.cases import ASSIGNORS, KEDA, PACKED
from ingeborg.bench.report.charts import Drawn
from ingeborg.bench.report.markup import Html, badge, bullets, explain, framed, html, panel, plot, table
from ingeborg.bench.report.plots import Plot, Point, Series, linear, logarithmic

Json = Mapping[str, Any]

P50, P90, P99, P999 = range(4)

#: The statement of the document's section VI-F about each step. The keys are events of the controller's journal.
DOCUMENT: Final = {
    "decided": "below 1 s (1,345 observations)",
    "scaled": "part of the row above",
    "joined": "10 to 50 s in 88 %, else up to 500 s (273)",
    "given": "two cycles of a consumer, 5 s",
    "settled": "about 5 s (1,331)",
}
STEPS: Final = {
    "decided": "Δt2: time to decide and to create all orders",
    "scaled": "Δt2: duration of the call to the scaler",
    "joined": "Δt3: time until a new member has joined",
    "given": "Δt4: hand-over of a queue, until its next owner reads it",
    "settled": "Δt4: time until a change is complete",
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


def page(document: Json) -> str:
    """Return the whole page for the digest of `job.digest`."""
    times = document["time_scale"]
    lead = Html(
        "<p class=lead><code>ingeborg autoscale</code> implements the autoscaler of Landau et al. (arXiv 2402.06085), "
        "which packs a consumer group by load. This page measures it on a real Kafka with real processes, and compares "
        "its late data and member-seconds with those of Kafka's own groups and of KEDA's rule. ± is half a 95 % "
        "confidence interval over the streams.</p>"
    )
    parts: list[Html] = []
    if document["systems"]:
        parts += [
            _heading("Late data and members"),
            _curve(document["systems"]),
            _table(document["systems"], document["runs"], times),
            _beside(document["systems"]),
            _over_time(document["over_time"]),
        ]
    parts += [
        _heading("The document's claims, and our results"),
        _claims(document),
        _capacity(document["throughput"]),
        _density(document["throughput"]),
        _monitor(document["steps"]),
        _steps(document["changes"]),
        *_durations(document["changes"]),
        _heading("Facts"),
        _facts(document),
    ]
    footer = Html("<footer><p>bench autoscale; docs/autoscaling.md says how each figure is made.</p></footer>")
    return framed("Scaling consumer groups", "Evaluation", lead, [part for part in parts if part], footer)


def summary(document: Json) -> str:
    """Return Markdown tables for the terminal and the documentation."""
    lines = ["# Scaling consumer groups"]
    if document["systems"]:
        lines += [
            "",
            f"In the next table, a measured second stands for {document['time_scale']:g} s in the document.",
            "",
        ]
        rows = [["group", "streams", "members", "p50, s", "p90, s", "p99, s", "p99.9, s", "later than 1 s"]]
        for row in document["systems"]:
            seconds = [_number(value) for value in row["latency_s"]]
            rows.append([_name(row), str(row["seeds"]), _number(row["members"], 1), *seconds, _share(row["late"])])
        lines += _aligned(rows)
    if document["throughput"]:
        lines += ["", *_aligned([list(_CAPACITY), *_capacities(document["throughput"])])]
        lines += ["", *wrap(_CAPACITY_IS, 120)]
    if document["changes"]:
        lines += ["", *_aligned([list(_CHANGE), *_changes(document["changes"])])]
    if document["steps"]:
        known = _known(document["steps"])
        lines += ["", f"Time until a monitor with a window of 30 s measured each new rate: {known} s."]
    return "\n".join(lines) + "\n"


def _aligned(rows: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rows.insert(1, ["-" * width for width in widths])
    return ["| " + " | ".join(map(str.ljust, row, widths)) + " |" for row in rows]


def _heading(text: str) -> Html:
    return Html(f"<h2>{html(text)}</h2>")


def _number(values: Sequence[float], digits: int = 2) -> str:
    return f"{values[0]:.{digits}f}" + (f" ± {values[1]:.{digits}f}" if values[1] else "")


def _share(values: Sequence[float]) -> str:
    return f"{values[0]:.1%}" + (f" ± {100 * values[1]:.1f}" if values[1] else "")


def _name(row: Json) -> str:
    """Return a group's name for readers."""
    name = NAMES[row["system"]]
    if row["system"] == KEDA:
        return f"{name}, lag {row['number']}"
    return f"{name}, {row['number']}" if row["number"] else name


def _seconds(value: float) -> str:
    return f"{value * 1e3:.3g} ms" if value < 1 else f"{value:.3g} s"


# Late data and members


def _curve(systems: Sequence[Json]) -> Html:
    series = []
    for index, system in enumerate((*ASSIGNORS, KEDA, *PACKED)):
        rows = sorted((row for row in systems if row["system"] == system), key=lambda row: float(row["members"][0]))
        points: list[Point] = [(row["members"][0], max(row["latency_s"][P99][0], 0.01)) for row in rows]
        if points:
            series.append(Series(NAMES[system], points, index, dots=True))
    values = [y for line in series for _, y in line.points if y is not None]
    drawn = Drawn(
        Plot(
            title="p99 of latency over members",
            description="; ".join(f"{_name(row)}: {row['latency_s'][P99][0]:.2f} s" for row in systems) + ".",
            series=series,
            x=linear(33, lambda value: f"{value:g}", 15),
            y=logarithmic(values, lambda value: f"{value:g} s"),
        )
    )
    caption = (
        "Seconds from a record's due time until it was handed on, over the average number of running members. "
        "Points further left and further down are better. The values are means over the streams."
    )
    return plot(drawn, "curve", caption)


def _table(systems: Sequence[Json], runs: Sequence[Json], times: float) -> Html:
    rows = []
    for row in systems:
        of = [run for run in runs if run["label"] == row["label"]]
        busiest = max(run["busy_percent"] for run in of)
        rows.append(
            [
                _name(row),
                _number(row["members"], 1),
                *(_number(value) for value in row["latency_s"]),
                _share(row["late"]),
                f"{row['waiting'] / row['records']:.1%}" if row["waiting"] else "none",
                f"{row['decisions']}, {row['starts']}, {row['hand_overs']}" if row["system"] in PACKED else "",
                f"{busiest:.0f} %",
            ]
        )
    seeds = max(row["seeds"] for row in systems)
    header = (
        *("", "members", "p50, s", "p90, s", "p99, s", "p99.9, s", "later than 1 s"),
        *("not read", "steps", "busiest"),
    )
    lasting = max(run["seconds"] for run in runs)
    return panel(
        "Groups",
        table(header, rows, "Latencies of groups"),
        bullets(
            [
                f"All groups read the same {seeds} streams of {lasting:.0f} s each. The load of each of the 32 "
                f"partitions changes every 3 s by up to {runs[0]['delta']:g} % of C (equation 15). No partition has "
                "more than 5/6 of the highest rate of a member.",
                f"Times are scaled 1:{times:g}, so a second here stands for {times:g} s in the document. Programs "
                "start at their real speed: a new member needs a second or two, which stand for 10 to 20 s.",
                "A run begins when its group has settled. Each member counts from its start until it has ended.",
                "Not read: the share of records that no member had read when the run ended. These records count with "
                "the time until then, so the percentiles are too small.",
                "Steps: the numbers of decisions, new members and hand-overs in all runs of a packed group.",
                "Busiest: the mean load of all processors in the busiest run. Far below 100 %, they were no "
                "bottleneck.",
            ]
        ),
    )


def _beside(systems: Sequence[Json]) -> Html:
    """Compare the p99 and the number of members of the groups that are not packed with those of `mend`."""
    ours = next((row for row in systems if row["system"] == "mend"), None)
    if ours is None:
        return Html("")
    mine = ours["latency_s"][P99][0]
    rows = []
    for row in systems:
        if row["system"] in PACKED:
            continue
        times = row["latency_s"][P99][0] / mine
        more = row["members"][0] / ours["members"][0] - 1.0
        mark = "good" if times >= 10 else "warn" if times >= 1 else "bad"
        rows.append([_name(row), f"{more:+.0%}", badge(f"{times:.1f} ×", mark)])
    return panel(
        "Compared with mend",
        table(("", "members", "p99"), rows, "Ratios"),
        explain(
            f"mend has {ours['members'][0]:.1f} members and a p99 of {mine:.2f} s. Green marks groups that are at "
            "least ten times as late. For 15 members, the document reports 217 s and 4.52 s, a factor of 48. It has "
            "these figures from a model with one stream, and they cover only late data."
        ),
    )


def _over_time(rows: Sequence[Json]) -> Html:
    series = []
    shown = {"mend": "mend", "mwf": "MWF", "kip-848-18": "KIP-848, 18", "kip-848-27": "KIP-848, 27"}
    shown |= {f"{KEDA}-{lag}": f"KEDA's rule, lag {lag}" for lag in scale.LAGS}
    by_unit = {row["unit"].removesuffix("-s1"): row["p99_s"] for row in rows if row["unit"].endswith("-s1")}
    for index, (unit, name) in enumerate(shown.items()):
        if unit in by_unit:
            points: list[Point] = [(3.0 * place, max(value, 0.01)) for place, value in enumerate(by_unit[unit])]
            series.append(Series(name, points, index))
    if not series:
        return Html("")
    drawn = Drawn(
        Plot(
            title="p99 over a run",
            description="For the first stream, in windows of 3 s.",
            series=series,
            x=linear(max(x for line in series for x, _ in line.points), lambda value: f"{value:g} s"),
            y=logarithmic([y for line in series for _, y in line.points if y], lambda value: f"{value:g} s"),
        )
    )
    return plot(drawn, "over-time", "p99 of the records that are due in each window of 3 s, for the first stream.")


# The document's figures


def _claims(document: Json) -> Html:
    rows: list[list[str]] = []
    if document["throughput"]:
        found = ", ".join(f"{row['median'] / 1e6:.0f}" for row in document["throughput"])
        rows.append(["Figure 13: a consumer's highest rate", "2.3 MB/s in all three tests", f"{found} MB/s, medians"])
    if document["steps"]:
        rows.append(["Figure 14, Δt1: time until a new rate is measured", "30 s", f"{_known(document['steps'])} s"])
    for event, words in STEPS.items():
        each = [
            f"{row['of']}: {row['seconds'][P50]:.3g} s" for row in document["changes"] or [] if row["event"] == event
        ]
        if each:
            rows.append([words, DOCUMENT[event], "; ".join(each)])
    if not rows:
        return panel("Not run", explain("bench autoscale throughput and bench autoscale response measure them."))
    return panel(
        "Figures 13 to 17",
        table(("", "the document", "found, median"), rows, "Figures"),
        explain(
            "The document's consumer sends to a warehouse in a cloud, and its members are pods in a Kubernetes "
            "cluster, which has to find room for them. Here a member is a process, and sends to an endpoint on the "
            "same machine. It learns of a change even in the middle of a batch; the document's member has to finish "
            "two batches first."
        ),
    )


def _known(found: Json) -> str:
    return ", ".join("-" if value is None else f"{value:.1f}" for value in found["known_after_s"])


_CAPACITY: Final = ("table VI", "median, MB/s", "mean, MB/s", "least", "most", "samples")
_CAPACITY_IS: Final = (
    "The columns median, least and most summarise samples of a quarter of a second each. The mean is all bytes divided "
    "by the whole time, which includes the last second, in which a batch waits because it does not become full."
)
_CHANGE: Final = ("step", "of", "count", "p50, s", "p90, s", "p99, s", "longest, s")


def _capacities(rows: Sequence[Json]) -> list[list[str]]:
    conditions = {1: "648 MB, 32 partitions, 1 table", 2: "100 MB, 116, 5", 3: "678 MB, 144, 5"}
    return [
        [
            f"test {row['test']}: {conditions[row['test']]}",
            *(f"{row[name] / 1e6:.0f}" for name in ("median", "mean", "least", "most")),
            str(row["samples"]),
        ]
        for row in rows
    ]


def _changes(rows: Sequence[Json]) -> list[list[str]]:
    found = []
    for event, words in STEPS.items():
        for row in rows:
            if row["event"] == event:
                seconds = [f"{value:.3g}" for value in (*row["seconds"][: P99 + 1], row["most"])]
                found.append([words, row["of"], f"{row['count']:,}", *seconds])
    return found


def _capacity(rows: Sequence[Json] | None) -> Html:
    if not rows:
        return Html("")
    return panel(
        "Table VI: one member at its fastest",
        table(_CAPACITY, _capacities(rows), "A member's rate"),
        explain(_CAPACITY_IS),
    )


def _steps(rows: Sequence[Json] | None) -> Html:
    if not rows:
        return Html("")
    return panel(
        "Steps of a change",
        table(_CHANGE, _changes(rows), "Duration of each step"),
        explain(
            "The times are from the controller's journal. delta is the greatest change of a load, in per cent of C."
        ),
    )


def _density(rows: Sequence[Json] | None) -> Html:
    if not rows:
        return Html("")
    series = []
    for index, row in enumerate(rows):
        points: list[Point] = []
        for place, count in row["histogram"]:
            share = count / row["samples"]
            points += [(10.0 * place, share), (10.0 * (place + 1), share)]
        series.append(Series(f"test {row['test']}", points, index))
    drawn = Drawn(
        Plot(
            title="Figure 13: one member's rate",
            description="Shares of the samples, in steps of 10 MB/s.",
            series=series,
            x=linear(max(x for line in series for x, _ in line.points), lambda value: f"{value:g} MB/s"),
            y=linear(max(y for line in series for _, y in line.points if y), lambda value: f"{value:.0%}"),
        )
    )
    return plot(drawn, "f13", "Each sample is a quarter of a second; the document's mode is 2.3 MB/s.")


def _monitor(found: Json | None) -> Html:
    if not found:
        return Html("")
    drawn = Drawn(
        Plot(
            title="Figure 14, Δt1: the monitor's values",
            description="Bytes per second over time in seconds, while the load changes between two rates every 40 s.",
            series=[Series("measured", [(x, y) for x, y in found["series"]], 0)],
            x=linear(max(x for x, _ in found["series"]), lambda value: f"{value:g} s"),
            y=linear(max(y for _, y in found["series"]), lambda value: f"{value / 1e3:g} kB/s"),
        )
    )
    return plot(drawn, "f14", "The load changes between 50 and 100 kB/s every 40 s. The monitor's window is 30 s.")


def _durations(rows: Sequence[Json] | None) -> list[Html]:
    found = []
    for event, figure in FIGURES:
        chosen = [row for row in rows or [] if row["event"] == event]
        if not chosen:
            continue
        series = []
        for index, row in enumerate(chosen):
            points: list[Point] = []
            counts = dict(row["histogram"])
            for place in range(min(counts), max(counts) + 1):
                share = counts.get(place, 0) / row["count"]
                points += [(place / 5, share), ((place + 1) / 5, share)]
            series.append(Series(f"{row['of']} ({row['count']:,})", points, index))
        low = min(x for line in series for x, _ in line.points)
        drawn = Drawn(
            Plot(
                title=f"Figure {figure}: {STEPS[event]}",
                description=f"Shares of the observations. The document says: {DOCUMENT[event]}.",
                series=series,
                x=linear(max(x for line in series for x, _ in line.points), _tens, low),
                y=linear(max(y for line in series for _, y in line.points if y), lambda value: f"{value:.0%}"),
            )
        )
        found.append(
            plot(drawn, f"f{figure}", f"Five steps cover a factor of ten. The document says: {DOCUMENT[event]}.")
        )
    return found


def _tens(value: float) -> str:
    return _seconds(float(f"{10**value:.2g}"))


def _facts(document: Json) -> Html:
    machine: Callable[[str], str] = lambda name: str(document["machine"].get(name, ""))  # noqa: E731
    rows = [
        ["Kafka", "3 nodes, AWS r5.xlarge", f"1 node, {', '.join(document['kafka'])}, on the same machine"],
        ["consumers", "Deployments of Kubernetes (GKE autopilot)", "processes on the same machine"],
        ["controller, monitor", "one Deployment each (GKE)", "one process on the same machine"],
        ["machine", "", f"{machine('cores')} cores, {machine('memory')}, Python {machine('python')}"],
    ]
    return panel("Table V", table(("", "the document", "here"), rows, "Infrastructure"))
