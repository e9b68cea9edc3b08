"""The section of one run: its figures, goals, plots, phases, errors, counters and facts.

Owns the content of a run's section and the order of its parts. The figures of every plot are also in a table, either in
this section or in the digest.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ingeborg.bench.comparison import headline
from ingeborg.bench.digest.document import Json
from ingeborg.bench.report import charts
from ingeborg.bench.report.markup import Html, badge, bullets, explain, folded, html, lines, panel, plot, stack, table
from ingeborg.bench.text import figures, statements, verdicts

ROWS_MAX = 120
"""Maximum number of rows in a table of seconds. For a longer run, the table has every n-th second, as its title says.
The digest has every second."""

COUNTERS_MAX = 200
"""Maximum number of counters that the page lists. A broker has only a few dozen. The digest has all counters."""

Tables = Mapping[str, Sequence[Json]]
"""The digest's tables by name, reduced to the rows of one run."""


def lead(run: Json) -> Html:
    """Return a line that describes the run."""
    facts = run["facts"]
    parts = [f"Run {run['run']}", str(facts.get("variant") or ""), f"seed {facts.get('seed', figures.NONE)}"]
    parts.append(statements.machine_text(facts))
    return Html(f'<p class="lead">{html(" · ".join(part for part in parts if part))}</p>')


def section(run: Json, tables: Tables, identity: str, alone: bool) -> Html:
    """Return the whole section. `alone` says that the page has no other run, so plots may have more points."""
    parts = [
        Html("") if alone else lead(run),
        _notes(run),
        _cards(run),
        _goals(run["goals"]),
        _latency(run, identity),
        _over_time(run, tables, identity, alone),
        _machine(tables["machine"]),
        _phases(run),
        _errors(run),
        _counters(run),
        _facts(run),
    ]
    return Html(f'<section id="{identity}" aria-label="{html(run["run"])}">\n{lines(parts)}\n</section>')


def _notes(run: Json) -> Html:
    notes = statements.notes(run)
    if not notes:
        return Html("")
    return Html(f'<aside class="panel notes"><h3>Read this first</h3>{bullets(notes)}</aside>')


def _cards(run: Json) -> Html:
    """Return the main figures of the run as cards."""
    measured, goals = run["measured"], {goal["goal"]: goal for goal in run["goals"]}
    shown = headline(run)
    latency = shown["latency_ns"]
    dropped = measured["duplicates_dropped"]
    offered = f"of {figures.count(measured['duplicates_offered'])} offered"
    if dropped is None:
        offered += "; the system does not report how many it dropped"
    out = f"{figures.count(shown['delivered'])} deliveries of {figures.count(shown['news'])} news items"
    lost_text = (
        f"expected {figures.count(measured['expected'])}; {figures.count(measured['duplicated'])} delivered twice"
    )
    if measured.get("conflated"):  # digests of older versions lack this count
        lost_text += f"; {figures.count(measured['conflated'])} conflated"
    lost = figures.count(measured["lost"]) if measured["news"] else figures.NONE
    cards = [
        ("p50 latency", figures.duration(latency["p50"]), _against(goals.get("p50_ms"))),
        ("p99 latency", figures.duration(latency["p99"]), _against(goals.get("p99_ms"))),
        ("In", figures.rate(shown["reports_per_s"]), html(f"{figures.count(shown['reports'])} reports sent")),
        ("Out", figures.rate(shown["delivered_per_s"]), html(out)),
        ("Duplicates dropped", figures.count(dropped), html(offered)),
        ("Lost", lost, _against(goals.get("lost"), lost_text)),
    ]
    items = "".join(
        f'<li><span class="label">{html(label)}</span><span class="value">{html(value)}</span>'
        f'<span class="more">{more}</span></li>'
        for label, value, more in cards
    )
    text = ""
    if run["facts"]["workload"] == "traffic":
        text = f'<p class="explain">{html(_first_upper(statements.traffic_phase_text(run)))}.</p>'
    return Html(f'{text}<ul class="cards">{items}</ul>')


def _first_upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def _against(goal: Mapping[str, Any] | None, text: str = "") -> Html:
    """Return a card's small print: `text` (the goal if there is no text), and whether the goal is met."""
    if goal is None:
        return html(text or "no goal set")
    text = text or f"goal ≤ {figures.goal(goal['goal'], goal['limit'])}"
    return Html(f"{html(text)} {_judged(goal)}")


def _judged(goal: Mapping[str, Any]) -> Html:
    mark, text = {True: ("good", "✓ met"), False: ("bad", "✗ missed"), None: ("", "not judged")}[goal["met"]]
    return badge(text, mark)


def _goals(goals: Sequence[Mapping[str, Any]]) -> Html:
    rows = [
        [
            figures.goal_name(goal["goal"]),
            f"≤ {figures.goal(goal['goal'], goal['limit'])}",
            figures.goal(goal["goal"], goal["measured"]),
            _judged(goal),
        ]
        for goal in goals
    ]
    made = table(["Goal", "Limit", "Measured", "Result"], rows, "Goals")
    return panel(f"Goals: {verdicts.goals_text(goals)}", made)


def _latency(run: Json, identity: str) -> Html:
    shown = [phase for phase in run["phases"] if phase["delivered"]]
    if not shown:
        return panel("Latency", Html("<p>Nothing was delivered, so there is no latency.</p>"))
    measured = [phase for phase in shown if phase["measured"]]
    columns = [(phase["phase"], phase) for phase in measured or shown]
    if len(measured) > 1 and run["measured"]["delivered"]:
        columns.append(("all measured", run["measured"]))
    # Percentiles are rows and phases are columns, so that the usual one or two phases fit on a phone.
    rows = [
        [name, *(figures.duration(phase["latency_ns"][name]) for _, phase in columns)]
        for name in run["measured"]["latency_ns"]
    ]
    rows.append(["deliveries", *(figures.count(phase["delivered"]) for _, phase in columns)])
    header = ["Percentile", *(name for name, _ in columns)]
    text = _SKETCHED if run.get("percentile_error") else _EXACT
    caption = (
        "On the axis, each further nine of the percentile (90 %, 99 % …) has the same width. Latency has a log scale."
    )
    return lines(
        [
            panel("Latency", explain(_FROM_TO + text), table(header, rows, "Latency percentiles by phase")),
            plot(charts.percentile_curve(run), f"{identity}-curve", caption),
        ]
    )


_FROM_TO = (
    "Latency runs from the moment at which the schedule meant a message to be sent to the moment at which the "
    "receiver had it, on one clock. No delivery is discarded. A percentile for which there are too few deliveries is "
    "the maximum. "
)
_EXACT = "Percentiles are exact (nearest rank) and cover every delivery."
_SKETCHED = "The run is too large for exact percentiles. A sketch estimates them; the run's notes state its error."


def _over_time(run: Json, tables: Tables, identity: str, alone: bool) -> Html:
    points = charts.POINTS_MAX if alone else charts.POINTS_OF_MANY_MAX
    drawn = charts.over_time(run, tables["seconds"], tables["machine"], points)
    caption = (
        "A message counts in the rates of the second in which it was sent or received, and in the latency of the "
        "second in which it was meant to be sent. Latency has a log scale. 100 % of processor is one core. Memory is "
        "resident memory. The network figures are those of the whole machine, including loopback."
    )
    more = len(charts.sources(tables["machine"])) - charts.SOURCES_MAX
    if more > 0:
        caption += f" The plots show the {charts.SOURCES_MAX} busiest processes; {more} more are in the table."
    thinned = {one.bin_text: one.bin_s for one in drawn if one.bin_s > 1}
    caption += "".join(f" Each point stands for {bin_s} seconds: {text}." for text, bin_s in thinned.items())
    after = [_seconds_table(tables["seconds"])] if alone and tables["seconds"] else []
    return stack(drawn, f"{identity}-time", caption, *after)


def _seconds_table(seconds: Sequence[Json]) -> Html:
    step = -(-len(seconds) // ROWS_MAX)
    rows = [
        [f"{row['second']:.0f}"]
        + [figures.count(row[key]) for key in ("reports", "delivered", "errors")]
        + [figures.duration(row[key]) for key in ("p50_ns", "p99_ns", "max_ns")]
        for row in seconds[::step]
    ]
    every = "every second" if step == 1 else f"every {step} seconds; the digest has every second"
    made = table(["Second", "In", "Out", "Errors", "p50", "p99", "max"], rows, "Rates and latency by second")
    return folded(f"As a table ({every})", Html(f'<div class="tall">{made}</div>'))


def _machine(rows: Sequence[Json]) -> Html:
    if not rows:
        return Html("")
    header = ["Process", "Role", "Processor, mean", "Processor, peak", "Memory, mean", "Memory, peak"]
    made = table(header, [_process(source, rows) for source in charts.sources(rows)], "Processor and memory")
    return panel("Processor and memory", made)


def _process(source: str, rows: Sequence[Json]) -> list[str]:
    own = [row for row in rows if row["source"] == source]
    texts = [source, str(own[0].get("role") or figures.NONE)]
    for name, text in (("cpu_cores", figures.percent_of_core), ("rss_bytes", figures.size)):
        numbers = [row[name] for row in own if row[name] is not None]
        texts += [text(sum(numbers) / len(numbers) if numbers else None), text(max(numbers, default=None))]
    return texts


_PHASE_COUNTS = (
    ("News", "news"),
    ("In", "reports"),
    ("Duplicates", "duplicates_offered"),
    ("Expected", "expected"),
    ("Out", "delivered"),
    ("Lost", "lost"),
    ("Conflated", "conflated"),
    ("Twice", "duplicated"),
    ("Reordered", "reordered"),
    ("Overtaken", "overtaken"),
    ("Errors", "errors"),
)


def _phases(run: Json) -> Html:
    """Return the table of phases. To save columns, a line below the table names the counts that are 0 in every
    phase."""
    phases = run["phases"]
    # Digests of older versions lack some of these counts.
    known = [(name, key) for name, key in _PHASE_COUNTS if all(key in phase for phase in phases)]
    counted = [(name, key) for name, key in known if any(phase[key] for phase in phases)]
    nothing = ", ".join(name for name, key in known if (name, key) not in counted)
    # The phases of a search have rates and verdicts. The phases of most other runs have neither.
    offered = ["Offered"] if any(phase["offered_per_s"] is not None for phase in phases) else []
    said_why = ["Said"] if any(phase["detail"] for phase in phases) else []
    header = ["Phase", "From", "Lasted", *offered, *(name for name, _ in counted), "At its limit", *said_why]
    rows = []
    for phase in phases:
        label = Html(f"{html(phase['phase'])} {badge('measured')}") if phase["measured"] else html(phase["phase"])
        rows.append(
            [
                label,
                figures.seconds(phase["start_s"]),
                figures.seconds(phase["duration_s"]),
                *(figures.rate(phase["offered_per_s"]) for _ in offered),
                *(figures.count(phase[key]) for _, key in counted),
                ", ".join(one["part"] for one in phase["saturated"]) or figures.NONE,
                *(_said(phase["detail"]) for _ in said_why),
            ]
        )
    said = [
        explain(
            f"{_first_upper(phase['phase'])}: {figures.count(phase['amount'])} in "
            f"{figures.seconds(phase['duration_s'])}, {figures.rate(phase['amount_per_s'])}."
        )
        for phase in phases
        if phase["amount"] is not None
    ]
    after = explain(f"0 in every phase: {nothing}.") if nothing else Html("")
    return panel("Phases", *said, table(header, rows, "Counts by phase"), after)


def _said(text: str | None) -> Html:
    """Return the generator's remark on a phase, if any."""
    return Html(f'<span class="said">{html(text)}</span>') if text else Html("")


def _errors(run: Json) -> Html:
    rows = [
        [code, phase["phase"], figures.count(errors)]
        for phase in run["phases"]
        for code, errors in phase["error_codes"].items()
    ]
    body = table(["Code", "Phase", "Errors"], rows, "Errors by code") if rows else Html("<p>None.</p>")
    return panel("Errors", body)


def _counters(run: Json) -> Html:
    rows = []
    for row in run["counters"][:COUNTERS_MAX]:
        by_source = ", ".join(f"{source} {figures.count(delta)}" for source, delta in row["sources"].items())
        rows.append([row["name"], figures.count(row["delta"]), by_source])
    if not rows:
        return Html("")
    made = table(["Counter", "In all", "By server"], rows, "Server counters over the measured phases")
    more = len(run["counters"]) - len(rows)
    summary = f"{len(rows)} counters" + (f"; {more} more are in the digest's table of counters" if more else "")
    return panel("The servers' counters", explain("Their growth over the measured phases."), folded(summary, made))


def _facts(run: Json) -> Html:
    facts, log = run["facts"], run["log"]
    rows = [
        ("Workload", facts["workload"]),
        ("System", facts["system"]),
        ("Variant", facts.get("variant") or None),
        ("Seed", facts.get("seed")),
        ("Commit", facts.get("commit")),
        ("Form of the code", statements.form_text(facts)),
        ("Complete", "yes" if facts["complete"] else "no, the run was cut short"),
        ("Log", f"{figures.count(log['lines'])} lines in {log['files']} files, {figures.size(log['size_bytes'])}"),
    ]
    groups: list[tuple[str, list[tuple[str, Any]]]] = [("", [row for row in rows if row[1] is not None])]
    for title, name in (("Machine", "machine"), ("Software", "software"), ("Configuration", "config")):
        value = facts.get(name)
        if isinstance(value, dict) and value:
            groups.append((title, list(value.items())))
    body = []
    for title, of_group in groups:
        if title:
            body.append(f'<tr class="group"><th scope="rowgroup" colspan="2">{html(title)}</th></tr>')
        for name, value in of_group:
            body.append(f'<tr><th scope="row">{html(_fact_name(name))}</th><td>{html(_fact(name, value))}</td></tr>')
    return panel(
        "The run",
        Html(f'<table class="facts"><caption hidden>Facts of the run</caption><tbody>{"".join(body)}</tbody></table>'),
    )


def _fact_name(name: str) -> str:
    return name.removesuffix("_bytes").replace("_", " ")


def _fact(name: str, value: Any) -> str:
    if name.endswith("_bytes") and isinstance(value, int):
        return figures.size(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
