"""The report of a digest: one HTML page that needs nothing else, no network, no script.

Owns the page's order and words. It takes every figure from the digest as it is, draws with `plots`, writes numbers with
`figures`, and lets no text of a log reach the page unescaped. Every plot has its figures as a table too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from importlib import resources
from typing import Any

from bench import charts, figures, summary
from bench.digest import Json

ROWS_MAX = 120
"""Rows of a table of seconds on the page; a longer run shows every n-th, and the page says so (all are in the CSV)."""


def page(document: Json, tables: Mapping[str, Sequence[Json]]) -> str:
    """The whole page."""
    runs = document["runs"]
    title = f"{runs[0]['facts']['workload']} on {runs[0]['facts']['system']}" if len(runs) == 1 else f"{len(runs)} runs"
    style = resources.files("bench").joinpath("report.css").read_text(encoding="utf-8")
    body = [
        '<header class="page"><p class="over">Benchmark report</p>',
        f"<h1>{escape(title)}</h1>",
        _lead(runs[0]) if len(runs) == 1 else "<p class=lead>Each run has its own section below.</p>",
        "</header><main>",
        _comparison(runs) if len(runs) > 1 else "",
        *(_run(index, run, tables, headed=len(runs) > 1) for index, run in enumerate(runs)),
        f"</main>{_footer()}",
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        # Nothing is ever loaded or run: the browser is told so, in case a text slips through.
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{escape(title)} · benchmark report</title><style>\n{style}</style></head>\n<body>\n"
        + "\n".join(part for part in body if part)
        + "\n</body></html>\n"
    )


def _lead(run: Json) -> str:
    facts = run["facts"]
    parts = [f"Run {run['run']}", f"seed {facts.get('seed', figures.NONE)}", summary.machine_text(facts)]
    return f'<p class="lead">{escape(" · ".join(parts))}</p>'


def _comparison(runs: Sequence[Json]) -> str:
    rows = [
        [f'<a href="#run-{index}">{escape(run["run"])}</a>', *_summary_cells(run)] for index, run in enumerate(runs)
    ]
    header = ["Run", "System", "Workload", "p50", "p99", "In", "Out", "Lost", "Goals"]
    return f'<section class="panel"><h3>All runs</h3>{_table(header, rows, "All runs")}</section>'


def _summary_cells(run: Json) -> list[str]:
    facts, measured = run["facts"], run["measured"]
    texts = [
        facts["system"],
        facts["workload"],
        figures.duration(measured["latency_ns"]["p50"]),
        figures.duration(measured["latency_ns"]["p99"]),
        figures.rate(measured["reports_per_s"]),
        figures.rate(measured["delivered_per_s"]),
        figures.count(measured["lost"]) if measured["news"] else figures.NONE,
        summary.goals_text(run["goals"]),
    ]
    return [escape(text) for text in texts]


def _run(index: int, run: Json, tables: Mapping[str, Sequence[Json]], headed: bool) -> str:
    own = {name: [row for row in rows if row["run"] == run["run"]] for name, rows in tables.items()}
    identity = f"run-{index}"
    parts = [
        f'<section id="{identity}" aria-label="{escape(run["run"])}">',
        f"<h2>{escape(run['run'])}</h2>{_lead(run)}" if headed else "",
        _notes(run["notes"]),
        _cards(run),
        _goals(run["goals"]),
        _latency(run, own["seconds"], identity),
        _rates(run, own["seconds"], identity),
        _machine(run, own["machine"], identity),
        _phases(run),
        _errors(run),
        _counters(run),
        _facts(run),
        "</section>",
    ]
    return "\n".join(part for part in parts if part)


def _notes(notes: Sequence[str]) -> str:
    if not notes:
        return ""
    items = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return f'<aside class="panel notes"><h3>Read this first</h3><ul>{items}</ul></aside>'


def _cards(run: Json) -> str:
    measured, goals = run["measured"], {goal["goal"]: goal for goal in run["goals"]}
    latency = measured["latency_ns"]
    dropped = measured["duplicates_dropped"]
    offered = f"of {figures.count(measured['duplicates_offered'])} offered"
    if dropped is None:
        offered += "; the system does not say how many it dropped"
    out = f"{figures.count(measured['delivered'])} deliveries of {figures.count(measured['news'])} news"
    lost_text = (
        f"of {figures.count(measured['expected'])} expected; {figures.count(measured['duplicated'])} delivered twice"
    )
    lost = figures.count(measured["lost"]) if measured["news"] else figures.NONE
    cards = [
        ("p50 latency", figures.duration(latency["p50"]), _against(goals.get("p50_ms"))),
        ("p99 latency", figures.duration(latency["p99"]), _against(goals.get("p99_ms"))),
        ("In", figures.rate(measured["reports_per_s"]), escape(f"{figures.count(measured['reports'])} reports sent")),
        ("Out", figures.rate(measured["delivered_per_s"]), escape(out)),
        ("Duplicates dropped", figures.count(dropped), escape(offered)),
        ("Lost", lost, _against(goals.get("lost"), lost_text)),
    ]
    items = "".join(
        f'<li><span class="label">{escape(label)}</span><span class="value">{escape(value)}</span>'
        f'<span class="more">{more}</span></li>'
        for label, value, more in cards
    )
    return f'<ul class="cards">{items}</ul>'


def _against(goal: Mapping[str, Any] | None, text: str = "") -> str:
    """A card's small print, already HTML: the goal and whether it is met, or the text."""
    if goal is None:
        return escape(text or "no goal set")
    text = text or f"goal ≤ {figures.goal(goal['goal'], goal['limit'])}"
    return f"{escape(text)} {_badge(goal)}"


def _badge(goal: Mapping[str, Any]) -> str:
    css, mark = {True: ("met", "✓ met"), False: ("missed", "✗ missed"), None: ("", "not judged")}[goal["met"]]
    return f'<span class="badge {css}">{mark}</span>'


def _goals(goals: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        [
            escape(figures.goal_name(goal["goal"])),
            f"≤ {escape(figures.goal(goal['goal'], goal['limit']))}",
            escape(figures.goal(goal["goal"], goal["measured"])),
            _badge(goal),
        ]
        for goal in goals
    ]
    table = _table(["Goal", "Limit", "Measured", "Result"], rows, "Goals")
    return f'<section class="panel"><h3>Goals: {escape(summary.goals_text(goals))}</h3>{table}</section>'


def _latency(run: Json, seconds: Sequence[Json], identity: str) -> str:
    shown = [phase for phase in run["phases"] if phase["delivered"]]
    if not shown:
        return '<section class="panel"><h3>Latency</h3><p>Nothing was delivered, so there is no latency.</p></section>'
    columns = [(phase["phase"], phase) for phase in shown]
    if len(run["measured"]["phases"]) > 1 and run["measured"]["delivered"]:
        columns.append(("measured, in all", run["measured"]))
    # Percentiles down, phases across: on a phone the usual one or two phases fit.
    rows = [
        [name, *(escape(figures.duration(phase["latency_ns"][name])) for _, phase in columns)]
        for name in run["measured"]["latency_ns"]
    ]
    rows.append(["deliveries", *(figures.count(phase["delivered"]) for _, phase in columns)])
    header = ["Percentile", *(name for name, _ in columns)]
    table = _table(header, rows, "Latency percentiles by phase")
    curve = charts.percentile_curve(run)
    over_time = charts.latency_over_time(run, seconds)
    return (
        f'<section class="panel"><h3>Latency</h3><p class="explain">{_LATENCY_TEXT}</p>{table}</section>'
        + _panel(
            curve,
            identity + "-curve",
            "Each further nine of the deliveries takes the same width; latency on a log scale.",
        )
        + _panel(
            over_time,
            identity + "-latency",
            "By the second in which the messages were meant to be sent; log scale." + _binned(over_time),
            _seconds_table(seconds),
        )
    )


_LATENCY_TEXT = (
    "From the moment the schedule meant a message to be sent to the moment the receiver had it, on one clock. "
    "Percentiles are exact, by nearest rank, over every delivery: none is discarded. Where deliveries are too few for "
    "a percentile, it is the maximum."
)


def _rates(run: Json, seconds: Sequence[Json], identity: str) -> str:
    plot = charts.rates_over_time(run, seconds)
    if plot is None:
        return ""
    return _panel(plot, identity + "-rates", "Messages in each second, by when they happened." + _binned(plot))


def _machine(run: Json, rows: Sequence[Json], identity: str) -> str:
    cpu, memory = charts.processor(run, rows), charts.memory(run, rows)
    if cpu is None and memory is None:
        return ""
    header = ["Process", "Processor, mean", "Processor, peak", "Memory, mean", "Memory, peak"]
    table = _table(header, [_machine_row(source, rows) for source in charts.sources(rows)], "Processor and memory")
    panels = "".join(
        _panel(plot, f"{identity}-{name}", text)
        for plot, name, text in (
            (cpu, "cpu", "100 % is one core." + _left_out(rows)),
            (memory, "memory", "Resident memory of each process; the host is in the table only."),
        )
        if plot
    )
    return f'<div class="pair">{panels}</div><section class="panel"><h3>Processor and memory</h3>{table}</section>'


def _machine_row(source: str, rows: Sequence[Json]) -> list[str]:
    def values(name: str) -> list[float]:
        return [row[name] for row in rows if row["source"] == source and row[name] is not None]

    cpu, rss = values("cpu_cores"), values("rss_bytes")
    texts = [source]
    for numbers, text in ((cpu, figures.percent_of_core), (rss, figures.size)):
        texts += [text(sum(numbers) / len(numbers) if numbers else None), text(max(numbers, default=None))]
    return [escape(text) for text in texts]


def _left_out(rows: Sequence[Json]) -> str:
    more = len(charts.sources(rows)) - charts.SOURCES_MAX
    return f" The {charts.SOURCES_MAX} busiest processes; {more} more are in the table." if more > 0 else ""


def _phases(run: Json) -> str:
    header = [
        "Phase",
        "From",
        "Lasted",
        "News",
        "In",
        "Duplicates",
        "Expected",
        "Out",
        "Lost",
        "Twice",
        "Reordered",
        "Errors",
    ]
    keys = (
        "news",
        "reports",
        "duplicates_offered",
        "expected",
        "delivered",
        "lost",
        "duplicated",
        "reordered",
        "errors",
    )
    rows = []
    for phase in run["phases"]:
        label = escape(phase["phase"]) + (' <span class="badge">measured</span>' if phase["measured"] else "")
        rows.append(
            [label, figures.seconds(phase["start_s"]), figures.seconds(phase["duration_s"])]
            + [figures.count(phase[key]) for key in keys]
        )
    rates = "".join(
        f"<p>{name.capitalize()}: {figures.count(rate['subscriptions'])} subscriptions in "
        f"{figures.seconds(rate['duration_s'])}, {figures.rate(rate['per_s'])}.</p>"
        for name, rate in run["rates"].items()
    )
    return f'<section class="panel"><h3>Phases</h3>{rates}{_table(header, rows, "Counts by phase")}</section>'


def _errors(run: Json) -> str:
    rows = [
        [escape(code), escape(phase["phase"]), figures.count(errors)]
        for phase in run["phases"]
        for code, errors in phase["error_codes"].items()
    ]
    body = _table(["Code", "Phase", "Errors"], rows, "Errors by code") if rows else "<p>None.</p>"
    return f'<section class="panel"><h3>Errors</h3>{body}</section>'


def _counters(run: Json) -> str:
    if not run["counters"]:
        return ""
    rows = []
    for row in run["counters"]:
        by_source = ", ".join(f"{source} {figures.count(delta)}" for source, delta in row["sources"].items())
        rows.append([escape(row["name"]), figures.count(row["delta"]), escape(by_source)])
    table = _table(["Counter", "In all", "By endpoint"], rows, "Endpoint counters over the measured phases")
    return (
        '<section class="panel"><h3>What the endpoints counted</h3>'
        '<p class="explain">Growth over the measured phases.</p>'
        f"<details><summary>{len(rows)} counters</summary>{table}</details></section>"
    )


def _facts(run: Json) -> str:
    facts, log = run["facts"], run["log"]
    rows = [
        ("Workload", facts["workload"]),
        ("System", facts["system"]),
        ("Seed", facts.get("seed")),
        ("Commit", facts.get("commit")),
        ("Complete", "yes" if facts["complete"] else "no: cut short"),
        ("Log", f"{figures.count(log['lines'])} lines in {log['files']} files, {figures.size(log['size_bytes'])}"),
    ]
    groups = [("", [row for row in rows if row[1] is not None])]
    for title, name in (("Machine", "machine"), ("Software", "software"), ("Configuration", "config")):
        value = facts.get(name)
        if isinstance(value, dict) and value:
            groups.append((title, list(value.items())))
    body = []
    for title, facts_of_group in groups:
        if title:
            body.append(f'<tr class="group"><th scope="rowgroup" colspan="2">{title}</th></tr>')
        for name, value in facts_of_group:
            body.append(
                f'<tr><th scope="row">{escape(_fact_name(name))}</th><td>{escape(_fact(name, value))}</td></tr>'
            )
    return (
        '<section class="panel"><h3>The run</h3><table class="facts"><caption hidden>Facts of the run</caption>'
        f"<tbody>{''.join(body)}</tbody></table></section>"
    )


def _fact_name(name: str) -> str:
    return name.removesuffix("_bytes").replace("_", " ")


def _fact(name: str, value: Any) -> str:
    if name.endswith("_bytes") and isinstance(value, int):
        return figures.size(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _binned(plot: charts.Drawn | None) -> str:
    return f" Each point stands for {plot.bin_s} seconds: {plot.bin_text}." if plot and plot.bin_s > 1 else ""


def _panel(drawn: charts.Drawn | None, identity: str, caption: str, table: str = "") -> str:
    if drawn is None:
        return ""
    legend = "".join(
        f'<li class="s{series.colour % 8}"><i></i>{escape(series.name)}</li>' for series in drawn.plot.series
    )
    return (
        f'<section class="panel"><figure><h3>{escape(drawn.plot.title)}</h3>'
        f'<ul class="legend" aria-label="Lines of the plot">{legend}</ul>{charts.both(drawn, identity)}'
        f"<figcaption>{escape(caption)}</figcaption></figure>{table}</section>"
    )


def _seconds_table(seconds: Sequence[Json]) -> str:
    step = -(-len(seconds) // ROWS_MAX)
    rows = [
        [f"{row['second']:.0f}"]
        + [figures.count(row[key]) for key in ("reports", "delivered", "errors")]
        + [escape(figures.duration(row[key])) for key in ("p50_ns", "p99_ns", "max_ns")]
        for row in seconds[::step]
    ]
    every = "every second" if step == 1 else f"every {step} seconds; all of them are in seconds.csv"
    table = _table(["Second", "In", "Out", "Errors", "p50", "p99", "max"], rows, "Rates and latency by second")
    return f'<details><summary>As a table ({escape(every)})</summary><div class="tall">{table}</div></details>'


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], caption: str) -> str:
    """A table of cells that are HTML already; the first of a row is its heading."""
    head = "".join(f'<th scope="col">{escape(text)}</th>' for text in header)
    body = []
    for row in rows:
        cells = "".join(f"<td>{cell}</td>" for cell in row[1:])
        body.append(f'<tr><th scope="row">{row[0]}</th>{cells}</tr>')
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}"><table>'
        f"<caption hidden>{escape(caption)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def _footer() -> str:
    return (
        "<footer><p>In: reports sent by publishers, duplicates included. Out: messages received. Lost: for each news, "
        "the connections that had to get it and did not. Twice: the same news again on one connection. Reordered: a "
        "message after a later one of its topic, on one connection. Deliveries count to the phase of their news.</p>"
        "</footer>"
    )
