"""The report of `bench dyconits`: the document's sentences with verdicts, its figures and tables, and this broker's
goals.

Owns: the words, tables and plots. Must never: compute a figure that the digest does not have, except means and the
comparison of two systems, which `found` computes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ingeborg.bench.dyconits import claims, published
from ingeborg.bench.dyconits.cases import E6, KAFKA, LAYERS, NAMES, PLAIN, TEN
from ingeborg.bench.dyconits.found import ERRORS, Found, amount
from ingeborg.bench.dyconits.job import WINDOW_S
from ingeborg.bench.dyconits.layer.settings import TOPICS
from ingeborg.bench.report import boxes
from ingeborg.bench.report.boxes import Box
from ingeborg.bench.report.plots import Plot, Series, linear, logarithmic, seconds_axis
from ingeborg.bench.text.blocks import (
    Block,
    Bullets,
    Cell,
    Claims,
    Drawing,
    Figure,
    Fold,
    Panel,
    Report,
    Section,
    Text,
    table,
)

Json = Mapping[str, Any]

LEAD: Final = (
    "This report evaluates bounded inconsistency: M. Karsai, “Dynamically Managed Inconsistency in Distributed "
    "Systems: A Dyconit Middleware for Publish-Subscribe Systems” (2024), which puts a layer in front of Kafka, and "
    "the bounds of this broker.",
    "In E1 to E3, three producers send messages to two readers. A reader processes one unit after the other, and a "
    "message of high priority costs it ten units. Under high load a reader cannot process all messages. ± is half the "
    "width of the 95 % confidence interval over the runs.",
)

COLOURS: Final = {name: number for number, name in enumerate(NAMES)}

FIGURES: Final = {
    "e1": ("5.1", "5.2", "5.7", "5.8"),
    "e2": ("5.3", "5.4", "5.9", "5.10"),
    "e3": ("5.5", "5.6", "5.11", "5.12"),
}
"""The document's figures of each experiment: numerical error, staleness, CPU usage and throughput."""

SETUPS: Final = {"e1": ("low", "high, medium, low"), "e2": ("high", "equal"), "e3": ("high", "high, medium, low")}

WEAK: Final = (
    "The bounds do not limit the errors. They allow 10 s and 1,000 messages, but the errors reach 50 s and 9,000 "
    "messages. Bounds only grow.",
    "CPU usage is that of the consumers alone. The document does not say how much work a consumer does in that time. "
    "Our tables have the CPU time per message.",
    "The load is log writing, samples are 5 s apart, and there are no crashes, weights or merged messages.",
    "The abstract and the figures disagree: MF5 says -30 % of CPU usage, and figure 5.11 shows -26 %.",
)


def report(pure: Json, measured: Json) -> Report:
    """Return the report for the figures of `job.digest`."""
    found = Found(measured)
    sections = [
        _claims(found),
        _goals(found, measured["fan_out"]),
        *(_experiment(found, measured, each) for each in found.experiments()),
        _overhead(found, pure["overhead"]),
        _readings(pure["virtual"]),
        _fan_out(measured["fan_out"]),
        Section("What the document does not show", [Bullets(WEAK)]),
    ]
    is_whole = any(cell["part"] == TEN for cell in measured["cells"])
    seeds = max((cell["seed"] for cell in measured["cells"] if cell["part"] != TEN), default=1)
    command = "bench dyconits --out DIR" + (" --whole" if is_whole else "") + (f" --seeds {seeds}" if seeds > 1 else "")
    return Report(
        "Bounded inconsistency",
        "Evaluation",
        [*LEAD, _machine(measured)],
        [section for section in sections if section.blocks],
        command,
        ["docs/dyconits.md explains each figure."],
    )


def _machine(measured: Json) -> str:
    machine = measured["machine"]
    servers = sorted({cell["server"] for cell in measured["cells"]})
    return f"{', '.join([*servers, machine['cores'] + ' cores', machine['memory']])}, Python {machine['python']}."


def _claims(found: Found) -> Section:
    judged = claims.judged(found)
    note = (
        f"A printed change holds if ours is at most {claims.FACTOR:g} times greater or smaller, and in part if only "
        "its direction is the same. Changes are relative to plain Kafka in the same run of the plan."
    )
    return Section(
        "The claims of the document, and our results",
        [Claims("The document's sentences", judged, note)] if judged else [],
        "claims",
    )


def _goals(found: Found, fan_out: Sequence[Json]) -> Section:
    goals = claims.goals(found, fan_out)
    rows = [[Cell(goal.goal, goal.experiment), met(goal.is_met), Cell(goal.found)] for goal in goals]
    note = "Changes are relative to this broker without bounds in the same run of the plan."
    panel = Panel("", [table("", ("goal", "", "found"), rows, note, "words")])
    return Section("Goals of this broker's bounds", [panel] if rows else [], "goals")


def met(is_met: bool) -> Cell:
    """Return whether a goal is met, as a cell."""
    return Cell("met", mark="good") if is_met else Cell("not met", mark="bad")


# E1 to E3


def _experiment(found: Found, measured: Json, experiment: str) -> Section:
    load_of, priorities = SETUPS[experiment]
    cells = [cell for system in found.systems(experiment) for cell in found.cells(experiment, system)]
    seeds, length_s = len({cell["seed"] for cell in cells}), cells[0]["length_s"]
    rate = published.RATES[experiment]
    words = (
        f"Table 5.1: {load_of} load ({rate:g} messages per second of each producer), priorities: {priorities}. "
        f"{seeds} run{'s' * (seeds > 1)} of {length_s:g} s of each system; the document has ten runs of 120 s."
    )
    numerical, staleness, cpu, throughput = FIGURES[experiment]
    drawings: list[Block] = [
        _errors(found, experiment, "numerical", f"Figure {numerical}: numerical error in {experiment.upper()}"),
        _errors(found, experiment, "staleness_s", f"Figure {staleness}: staleness in {experiment.upper()}"),
        _usage(found, experiment, f"Figure {cpu}: CPU usage in {experiment.upper()}"),
        _throughput(found, experiment, f"Figure {throughput}: throughput in {experiment.upper()}"),
    ]
    return Section(
        f"{experiment.upper()}: {load_of} load, priorities {priorities}",
        [
            Text(words),
            Panel("Each system", [_table(found, experiment)]),
            *drawings,
            *_over_time(measured, experiment),
            Fold("At the endpoint", [_at_endpoint(found, experiment)]),
        ],
        experiment,
    )


def _table(found: Found, experiment: str) -> Block:
    header = (
        "system",
        *(f"{topic}: mean, maximum" for topic in TOPICS),
        "CPU: mean, peak",
        "taken",
        "skipped",
        "lost",
        "CPU per message",
        "server's CPU",
    )
    rows = []
    for system in found.systems(experiment):
        cells = [Cell(NAMES[system])]
        for topic in TOPICS:
            means = [found.mean(experiment, system, figure, topic) for figure in ERRORS]
            numerical, maximum, stale, stalest = (
                amount(figure, mean) for figure, mean in zip(ERRORS, means, strict=True)
            )
            cells.append(Cell(f"{stale}, {stalest}", f"{numerical}, {maximum} messages"))
        cpu, peak = (amount(figure, found.mean(experiment, system, figure)) for figure in ("cpu", "cpu_peak"))
        cells.append(Cell(f"{cpu}, {peak}"))
        cells += [
            Cell(amount(figure, found.mean(experiment, system, figure))) for figure in ("taken_per_s", "skipped_per_s")
        ]
        cells.append(Cell(f"{sum(cell['lost'] for cell in found.cells(experiment, system)):,}"))
        cells += [
            Cell(amount(figure, found.mean(experiment, system, figure)))
            for figure in ("cpu_us_per_taken", "server_cpu")
        ]
        rows.append(cells)
    level = max(cell["level"] for system in found.systems(experiment) for cell in found.cells(experiment, system))
    steered = (
        f"The endpoint's level rose to {level:.0f}, so steering contributed."
        if level
        else "The endpoint's level stayed 0: intervals and windows made the difference, and not steering."
    )
    note = (
        "Staleness, and below it the numerical error, of each topic. Skipped messages were replaced by newer ones. A "
        f"message that still waits at the end of a run is neither taken nor lost. {steered}"
    )
    return table("", header, rows, note)


def _errors(found: Found, experiment: str, figure: str, title: str) -> Drawing:
    maximum = figure.removesuffix("_s") + "_max" + ("_s" if figure.endswith("_s") else "")
    rows, everything = [], []
    for topic in TOPICS:
        rows.append(Box(f"{topic} priority"))
        for system in found.systems(experiment):
            values = [found.values(experiment, system, each, topic) for each in (figure, maximum)]
            everything += [value for some in values for value in some]
            rows.append(Box(NAMES[system], COLOURS[system], values))
    unit = " s" if figure.endswith("_s") else ""
    least = 0.001 if unit else 0.1
    axis = logarithmic([max(value, least) for value in everything], lambda value: f"{value:g}{unit}")
    caption = (
        "Faint: the mean of each run and reader. Below it: the maximum. Smaller values are at the left end of the axis."
    )
    return _drawn(title, caption, rows, axis)


def _usage(found: Found, experiment: str, title: str) -> Drawing:
    rows, most = [], 1.0
    for system in found.systems(experiment):
        values = [found.values(experiment, system, each) for each in ("cpu", "cpu_peak")]
        most = max([most, *(value for some in values for value in some)])
        rows.append(Box(NAMES[system], COLOURS[system], values))
    caption = "Faint: the mean of each run and reader, in per cent of a core. Below it: the peak of five seconds."
    return _drawn(title, caption, rows, linear(most, lambda value: f"{value:g} %"))


def _throughput(found: Found, experiment: str, title: str) -> Drawing:
    values = {system: found.values(experiment, system, "taken_per_s") for system in found.systems(experiment)}
    rows = [Box(NAMES[system], COLOURS[system], [each]) for system, each in values.items()]
    most = max(max(each) for each in values.values())
    return _drawn(
        title, "Messages that a reader takes per second.", rows, linear(most, lambda value: f"{value:,.0f}/s")
    )


def _drawn(title: str, caption: str, rows: Sequence[Box], axis: Any) -> Drawing:
    medians = "; ".join(
        f"{row.label}: {', '.join(f'{boxes.five(values)[2]:,.4g}' for values in row.values if values)}"
        for row in rows
        if row.values
    )
    return Drawing(title, boxes.svg(title, f"Medians. {medians}", rows, axis), caption)


def _over_time(measured: Json, experiment: str) -> list[Block]:
    rows = [row for row in measured["over_time"] if row["experiment"] == experiment]
    if any(row["part"] == TEN for row in rows):
        rows = [row for row in rows if row["part"] == TEN]
    blocks: list[Block] = []
    for topic in TOPICS if experiment == "e3" else TOPICS[:1] if experiment == "e2" else ():
        series = [
            Series(
                NAMES[row["system"]],
                [((place + 0.5) * WINDOW_S, value) for place, value in enumerate(row["staleness_s"])],
                COLOURS[row["system"]],
            )
            for row in sorted(rows, key=lambda row: COLOURS[row["system"]])
            if row["topic"] == topic
        ]
        if not series:
            continue
        length_s = max(x for one in series for x, _ in one.points)
        most = max((y for one in series for _, y in one.points if y is not None), default=1.0)
        title = f"Staleness over time in {experiment.upper()}, {topic} priority"
        ends = "; ".join(f"{one.name} {one.points[-1][1]:.1f} s" for one in series)
        plot = Plot(
            title,
            f"At the end: {ends}.",
            series,
            seconds_axis(0, length_s),
            linear(max(most, 0.001), lambda value: f"{value:g} s"),
        )
        caption = f"Means over all runs and readers, in windows of {WINDOW_S} s."
        blocks.append(Figure(plot, f"{experiment}-{topic}", caption))
    return blocks


def _at_endpoint(found: Found, experiment: str) -> Block:
    rows = []
    for system in found.systems(experiment):
        if system in (KAFKA, *LAYERS):
            continue
        cells = [Cell(NAMES[system])]
        for topic in TOPICS:
            figures = ("endpoint_staleness_s", "endpoint_staleness_max_s", "endpoint_numerical")
            stale, stalest, numerical = (
                amount(figure, found.mean(experiment, system, figure, topic)) for figure in figures
            )
            cells.append(Cell(f"{stale}, {stalest}", f"{numerical} messages"))
        rows.append(cells)
    note = (
        "Errors where messages reach the reader's process. Without bounds all messages wait there. With bounds and a "
        "window they wait at the endpoint, where newer ones can replace them."
    )
    return table("", ("system", *(f"{topic}: mean, maximum" for topic in TOPICS)), rows, note)


# Table 5.2


def _overhead(found: Found, bounds: Json) -> Section:
    rows = []
    for experiment in found.experiments():
        for system in LAYERS:
            if not found.cells(experiment, system):
                continue
            most, least = bounds[experiment]
            rows.append(
                [
                    f"{experiment.upper()}, {NAMES[system]}",
                    f"{100 * claims.overhead(found, experiment, system):.2f} %",
                    f"{100 * most:.2f} %",
                    f"{100 * least:.2f} %",
                    f"{100 * published.OVERHEAD[experiment]:.2f} %",
                    f"{100 * published.OVERHEAD_MOST[experiment]:.2f} %",
                    f"{100 * published.OVERHEAD_LEAST[experiment]:.2f} %",
                ]
            )
    if not rows:
        return Section("Overhead", [])
    header = ("", "counted", "equation 5.1", "equation 5.2", "document: counted", "equation 5.1", "equation 5.2")
    note = (
        "Updates that a reader processes, as a share of all messages of its topics. The count includes the updates "
        "before the first message, which weigh more in a short run."
    )
    return Section("Table 5.2: overhead", [Panel("", [table("", header, rows, note)])])


# Readings


def _readings(rows: Sequence[Json]) -> Section:
    if not rows:
        return Section("Readings", [])
    blocks: list[Block] = [
        Text(
            "The same layer in virtual time. Each row except the first two and the last changes the answer to one open "
            "question. Messages and reports arrive immediately. CPU time is the time of the units, plus a constant for "
            "each message."
        )
    ]
    for experiment in dict.fromkeys(row["experiment"] for row in rows):
        body = []
        for row in rows:
            if row["experiment"] == experiment:
                errors = [
                    Cell(
                        f"{row[topic]['staleness_s'][0]:.1f}, {row[topic]['staleness_max_s'][0]:.1f} s",
                        f"{row[topic]['numerical'][0]:,.0f}, {row[topic]['numerical_max'][0]:,.0f} messages",
                    )
                    for topic in TOPICS
                ]
                cpu = f"{row['cpu'][0]:.1f}, {row['cpu_peak'][0]:.1f} %"
                label = "Kafka" if row["label"] == KAFKA else row["label"]
                body.append([Cell(label), *errors, Cell(cpu), Cell(f"{row['taken_per_s'][0]:,.0f}/s")])
        header = ("reading", *(f"{topic}: mean, maximum" for topic in TOPICS), "CPU: mean, peak", "taken")
        seeds = max(row["seeds"] for row in rows)
        note = f"Means over {seeds} streams of messages."
        blocks.append(Panel(f"{experiment.upper()} in virtual time", [table("", header, body, note)]))
    return Section("The document's layer under each reading", blocks, "readings")


# E4 to E6


def _fan_out(rows: Sequence[Json]) -> Section:
    blocks: list[Block] = []
    for experiment, title in (("e4", "E4: an interval saves CPU time"), ("e5", "E5: an overloaded endpoint")):
        some = [row for row in rows if row["experiment"] == experiment]
        if some:
            body = [[row["figure"], row["goal"], row["measured"], met(row["met"])] for row in some]
            rounds = some[0]["rounds"]
            note = f"Medians of {rounds} round{'s' * (rounds > 1)}, and their range in parentheses."
            blocks.append(Panel(title, [table("", ("", "goal", "found", ""), body, note)]))
    killed = [row for row in rows if row["experiment"] == E6]
    if killed:
        body = []
        for row in killed:
            ages = [f"{p50 * 1e3:,.0f}, {p99 * 1e3:,.0f}, {most * 1e3:,.0f} ms" for p50, p99, most in _ages(row)]
            counts = (row["published"], row["acknowledged"], row["deliveries"], row["due"] - row["deliveries"])
            name = "without bounds" if row["kind"] == PLAIN else row["kind"]
            body.append([name, *(f"{count:,}" for count in counts), str(row["lost"]), *ages, f"{row['cpu_s']:.1f} s"])
        header = ("", "published", "acknowledged", "delivered", "skipped", "lost", "age before", "age after", "CPU")
        note = (
            "Subscribers of the two endpoints that stay alive. Ages: median, 99th percentile and maximum, before and "
            "after the third endpoint is killed. The other endpoints take over its topics when they have noticed its "
            "end."
        )
        blocks.append(Panel("E6: three endpoints, one of which is killed", [table("", header, body, note)]))
    return Section("E4 to E6: a fan-out of 20", blocks, "fan-out")


def _ages(row: Json) -> list[list[float]]:
    return [row["age_before_s"] or [0.0] * 3, row["age_after_s"] or [0.0] * 3]
