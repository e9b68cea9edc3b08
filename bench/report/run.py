"""The section of one run: its workload, figures, goals, plots, phases, errors, counters and facts.

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
from ingeborg.bench.text import figures, found, statements, verdicts
from ingeborg.bench.text.blocks import (
    Block,
    Bullets,
    Card,
    Cards,
    Cell,
    Facts,
    Figure,
    Fold,
    Notice,
    Panel,
    Section,
    Stack,
    Table,
    Text,
    table,
)

ROWS_MAX = 120
"""Maximum number of rows in a table of seconds. For a longer run, the table has every n-th second, and its title says
so. The digest has every second."""

COUNTERS_MAX = 200
"""Maximum number of counters that the page lists. A broker has only a few dozen. The digest has all counters."""

Tables = Mapping[str, Sequence[Json]]
"""The digest's tables by name, reduced to the rows of one run."""


def lead(run: Json) -> list[str]:
    """Return the sentences that describe the run."""
    facts = run["facts"]
    parts = [f"Run {run['run']}", str(facts.get("variant") or ""), f"seed {facts.get('seed', figures.NONE)}"]
    parts.append(statements.machine_text(facts))
    said = [" · ".join(part for part in parts if part), found.workload(facts)]
    return [text for text in said if text]


def section(run: Json, tables: Tables, identity: str, alone: bool, comparisons: Sequence[Block] = ()) -> Section:
    """Return the whole section. `alone` says that the page has no other run. Plots may then have more points, and the
    section also has the `comparisons`."""
    detail = [
        *_latency(run, identity),
        *_over_time(run, tables, identity, alone),
        *_machine(tables["machine"]),
        _phases(run),
        *_errors(run),
        *_counters(run),
        _facts(run),
    ]
    first = [*([] if alone else map(Text, lead(run))), *notice(statements.notes(run)), *_cards(run), _goals(run)]
    if comparisons:
        return Section("", [*first, *comparisons, Section("The run in detail", detail)], identity)
    return Section("", [*first, *detail], identity)


def notice(texts: Sequence[str]) -> list[Block]:
    """Return the panel with the facts that a reader must know first, if there are any."""
    return [Notice("Read this first", [Bullets(texts)])] if texts else []


def _cards(run: Json) -> list[Block]:
    """Return the main figures of the run as cards."""
    measured, goals = run["measured"], {goal["goal"]: goal for goal in run["goals"]}
    shown = headline(run)
    latency = shown["latency_ns"]
    dropped = measured["duplicates_dropped"]
    offered = f"of {figures.count(measured['duplicates_offered'])} offered"
    if dropped is None:
        offered += "; the system does not report how many it dropped"
    out = f"{figures.counted(shown['delivered'], 'delivery', 'deliveries')} of "
    out += figures.counted(shown["news"], "news item")
    lost_text = (
        f"expected {figures.count(measured['expected'])}; {figures.count(measured['duplicated'])} delivered twice"
    )
    if measured.get("conflated"):  # digests of older versions lack this count
        lost_text += f"; {figures.count(measured['conflated'])} conflated"
    lost = figures.count(measured["lost"]) if measured["news"] else figures.NONE
    cards = [
        Card("p50 latency", figures.duration(latency["p50"]), _against(goals.get("p50_ms"))),
        Card("p99 latency", figures.duration(latency["p99"]), _against(goals.get("p99_ms"))),
        Card("In", figures.rate(shown["reports_per_s"]), Cell(f"{figures.counted(shown['reports'], 'report')} sent")),
        Card("Out", figures.rate(shown["delivered_per_s"]), Cell(out)),
        Card("Duplicates dropped", figures.count(dropped), Cell(offered)),
        Card("Lost", lost, _against(goals.get("lost"), lost_text)),
    ]
    if run["facts"]["workload"] == "traffic":
        return [Text(f"{_first_upper(statements.traffic_phase_text(run))}."), Cards(cards)]
    return [Cards(cards)]


def _first_upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def _against(goal: Mapping[str, Any] | None, text: str = "") -> Cell:
    """Return a card's small print: whether the goal is met, and `text`, or the goal if there is no text."""
    if goal is None:
        return Cell(text or "no goal set")
    return _judged(goal)._replace(more=text or f"goal ≤ {figures.goal(goal['goal'], goal['limit'])}")


def _judged(goal: Mapping[str, Any]) -> Cell:
    mark, text = {True: ("good", "✓ met"), False: ("bad", "✗ missed"), None: ("plain", "not judged")}[goal["met"]]
    return Cell(text, mark=mark)


def _goals(run: Json) -> Panel:
    rows: list[list[str | Cell]] = [
        [
            figures.goal_name(goal["goal"]),
            f"≤ {figures.goal(goal['goal'], goal['limit'])}",
            figures.goal(goal["goal"], goal["measured"]),
            _judged(goal),
        ]
        for goal in run["goals"]
    ]
    limits = verdicts.limits_text(run)
    said: list[Block] = [Text(limits)] if limits else []
    made = table("", ["Goal", "Limit", "Measured", "Result"], rows)
    return Panel(f"Goals: {verdicts.goals_text(run)}", [*said, made])


def _latency(run: Json, identity: str) -> list[Block]:
    shown = charts.phases_shown(run)
    if not shown:
        return [Panel("Latency", [Text("Nothing was delivered, so there is no latency.")])]
    columns = [(phase["phase"], phase) for phase in shown]
    if len(shown) > 1 and run["measured"]["delivered"]:
        columns.append(("all measured", run["measured"]))
    # Percentiles are rows and phases are columns, so that the usual one or two phases fit on a phone.
    rows = [
        [name, *(figures.duration(phase["latency_ns"][name]) for _, phase in columns)]
        for name in run["measured"]["latency_ns"]
    ]
    rows.append(["deliveries", *(figures.count(phase["delivered"]) for _, phase in columns)])
    header = ["Percentile", *(name for name, _ in columns)]
    text = _SKETCHED if run.get("percentile_error") else _EXACT
    if not shown[0]["measured"]:
        text += f" No phase was measured, so these are the last {figures.counted(len(shown), 'phase')} with a delivery."
    caption = (
        "On the axis, each further nine of the percentile (90 %, 99 % …) has the same width. Latency has a log scale."
    )
    panel = Panel("Latency", [Text(_FROM_TO + text), table("", header, rows)])
    drawn = charts.percentile_curve(run)
    return [panel, *([Figure(drawn.plot, f"{identity}-curve", caption)] if drawn else [])]


_FROM_TO = (
    "Latency runs from the moment at which the schedule meant a message to be sent to the moment at which the "
    "receiver had it, on one clock. No delivery is discarded. A percentile for which there are too few deliveries is "
    "the maximum. "
)
_EXACT = "Percentiles are exact (nearest rank) and cover every delivery."
_SKETCHED = "The run is too large for exact percentiles. A sketch estimates them; the run's notes state its error."


def _over_time(run: Json, tables: Tables, identity: str, alone: bool) -> list[Block]:
    points = charts.POINTS_MAX if alone else charts.POINTS_OF_MANY_MAX
    drawn = charts.over_time(run, tables["seconds"], tables["machine"], points)
    caption = (
        "A message counts in the rates of the second in which it was sent or received, and in the latency of the "
        "second in which it was meant to be sent. Latency has a log scale. 100 % of processor is one core. Memory is "
        "resident memory. The network figures are those of the whole machine, including loopback. A line breaks where "
        f"values are missing for more than {charts.GAP_S} s and more than {charts.GAP_TIMES} times its usual interval."
    )
    more = len(charts.sources(tables["machine"])) - charts.SOURCES_MAX
    if more > 0:
        caption += f" The plots show the {charts.SOURCES_MAX} busiest processes, and the table has {more} more."
    thinned = {one.bin_text: one.bin_s for one in drawn if one.bin_s > 1}
    caption += "".join(f" Each point covers {bin_s} seconds: {text}." for text, bin_s in thinned.items())
    after = [_seconds_table(tables["seconds"])] if alone and tables["seconds"] else []
    return [Stack("Over time", [one.plot for one in drawn], f"{identity}-time", caption, after)] if drawn else []


def _seconds_table(seconds: Sequence[Json]) -> Fold:
    step = -(-len(seconds) // ROWS_MAX)
    rows = [
        [f"{row['second']:.0f}"]
        + [figures.count(row[key]) for key in ("reports", "delivered", "errors")]
        + [figures.duration(row[key]) for key in ("p50_ns", "p99_ns", "max_ns")]
        for row in seconds[::step]
    ]
    every = "every second" if step == 1 else f"every {step} seconds; the digest has every second"
    made = table("", ["Second", "In", "Out", "Errors", "p50", "p99", "max"], rows, form="tall")
    return Fold(f"As a table ({every})", [made])


def _machine(rows: Sequence[Json]) -> list[Block]:
    if not rows:
        return []
    header = ["Process", "Role", "Processor, mean", "Processor, peak", "Memory, mean", "Memory, peak"]
    made = table("", header, [_process(source, rows) for source in charts.sources(rows)])
    return [Panel("Processor and memory", [made])]


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


def _phases(run: Json) -> Panel:
    """Return the table of phases. The steps of a search are folded, because there may be dozens. To save columns,
    counts that are 0 in every phase are named in a line below the table."""
    phases = run["phases"]
    # Digests of older versions lack some of these counts.
    known = [(name, key) for name, key in _PHASE_COUNTS if all(key in phase for phase in phases)]
    counted = [(name, key) for name, key in known if any(phase[key] for phase in phases)]
    nothing = ", ".join(name for name, key in known if (name, key) not in counted)
    steps = [phase for phase in phases if phase["kind"] == "search"]
    others = [phase for phase in phases if phase["kind"] != "search"]
    made: list[Block] = [
        Text(
            f"{_first_upper(phase['phase'])}: {figures.count(phase['amount'])} in "
            f"{figures.seconds(phase['duration_s'])}, {figures.rate(phase['amount_per_s'])}."
        )
        for phase in phases
        if phase["amount"] is not None
    ]
    if others:
        made.append(_phase_table(others, counted))
    if steps:
        made.append(Fold(f"The search: {figures.counted(len(steps), 'step')}", [_phase_table(steps, counted)]))
    if nothing:
        made.append(Text(f"0 in every phase: {nothing}."))
    return Panel("Phases", made)


def _phase_table(phases: Sequence[Json], counted: Sequence[tuple[str, str]]) -> Table:
    # The phases of a search have rates and verdicts. The phases of most other runs have neither.
    offered = ["Offered"] if any(phase["offered_per_s"] is not None for phase in phases) else []
    said_why = ["Said"] if any(phase["detail"] for phase in phases) else []
    header = ["Phase", "From", "Lasted", *offered, *(name for name, _ in counted), "At its limit", *said_why]
    rows = [
        [
            Cell(phase["phase"], "measured" if phase["measured"] else ""),
            figures.seconds(phase["start_s"]),
            figures.seconds(phase["duration_s"]),
            *(figures.rate(phase["offered_per_s"]) for _ in offered),
            *(figures.count(phase[key]) for _, key in counted),
            ", ".join(one["part"] for one in phase["saturated"]) or figures.NONE,
            *(phase["detail"] or "" for _ in said_why),
        ]
        for phase in phases
    ]
    return table("", header, rows, form="words" if said_why else "")


def _errors(run: Json) -> list[Block]:
    rows = [
        [code, phase["phase"], figures.count(errors)]
        for phase in run["phases"]
        for code, errors in phase["error_codes"].items()
    ]
    return [Panel("Errors", [table("", ["Code", "Phase", "Errors"], rows)])] if rows else []


def _counters(run: Json) -> list[Block]:
    rows = []
    for row in run["counters"][:COUNTERS_MAX]:
        by_source = ", ".join(f"{source} {figures.count(delta)}" for source, delta in row["sources"].items())
        rows.append([row["name"], figures.count(row["delta"]), by_source])
    if not rows:
        return []
    made = table("", ["Counter", "In all", "By server"], rows)
    more = len(run["counters"]) - len(rows)
    summary = figures.counted(len(rows), "counter") + (
        f"; {more} more are in the digest's table of counters" if more else ""
    )
    text = Text("Their growth over the measured phases.")
    return [Panel("The servers' counters", [text, Fold(summary, [made])])]


def _facts(run: Json) -> Panel:
    """Return the panel of facts. It folds the configuration, because the command line says what differs from the
    defaults."""
    facts, log = run["facts"], run["log"]
    rows = [
        ("Repeat it with", f"`{facts['command']}`" if facts.get("command") else None),
        ("Workload", facts["workload"]),
        ("System", facts["system"]),
        ("Variant", facts.get("variant") or None),
        ("Seed", facts.get("seed")),
        ("Commit", facts.get("commit")),
        ("Form of the code", statements.form_text(facts)),
        ("Complete", "yes" if facts["complete"] else "no, the run was cut short"),
        (
            "Log",
            f"{figures.counted(log['lines'], 'line')} in {figures.counted(log['files'], 'file')}, "
            f"{figures.size(log['size_bytes'])}",
        ),
    ]
    machine, software, config = (_mapping(facts, name) for name in ("machine", "software", "config"))
    groups = [("", [row for row in rows if row[1] is not None]), ("Machine", machine), ("Software", software)]
    made: list[Block] = [_facts_table(groups)]
    if config:
        made.append(Fold(f"Configuration: {figures.counted(len(config), 'setting')}", [_facts_table([("", config)])]))
    return Panel("The run", made)


def _mapping(facts: Json, name: str) -> list[tuple[str, Any]]:
    value = facts.get(name)
    return list(value.items()) if isinstance(value, dict) else []


def _facts_table(groups: Sequence[tuple[str, Sequence[tuple[str, Any]]]]) -> Facts:
    rows: list[tuple[str, str | None]] = []
    for title, of_group in groups:
        if title and of_group:
            rows.append((title, None))
        rows += [(_fact_name(name), _fact(name, value)) for name, value in of_group]
    return Facts("Facts of the run", rows)


def _fact_name(name: str) -> str:
    return name.removesuffix("_bytes").replace("_", " ")


def _fact(name: str, value: Any) -> str:
    if value is None or value == "":
        return figures.NONE
    if name.endswith("_bytes") and isinstance(value, int):
        return figures.size(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
