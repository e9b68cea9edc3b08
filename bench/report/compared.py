"""The sections that compare runs. They cover traffic, topics, and the runs outside a comparison.

Owns the order of the parts of each section. The tables come from `ingeborg.bench.text.tables`, as in the summaries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ingeborg.bench.comparison import TopicsSeries, TopicsTable, TrafficTable, headline
from ingeborg.bench.digest.document import Json
from ingeborg.bench.report import comparison_charts
from ingeborg.bench.text import figures, found, statements, tables, verdicts
from ingeborg.bench.text.blocks import (
    Block,
    Bullets,
    Cell,
    Facts,
    Figure,
    Fold,
    Panel,
    Section,
    Table,
    Text,
    table,
)

NOTES_MAX = 20
"""Maximum number of notes of a topics series that the page lists. To see all notes, digest the runs of the series
separately."""


def traffic(compared: TrafficTable, identity: str, colours: Mapping[str, int]) -> Section:
    """Return the section of one load. Its tables have rates and latency, cost, noise, and a comparison with earlier
    runs."""
    rates, *others = tables.traffic(compared)
    several = len(compared.rows) > 1  # with a single run, its section shows workload and curve
    limit = statements.latency_limit(compared.baseline.runs[0])
    load = {name: value for name, value in compared.load.items() if name != "p99_ms"}
    same = Text(f"All systems have the same latency limit: {limit}. Load: {statements.load_text(load)}.")
    first: list[Block] = [same, titled(rates)]
    curves = comparison_charts.percentile_curves(compared, colours)
    if several:
        first.insert(0, Text(found.workload(compared.baseline.runs[0]["facts"])))
        caption = (
            "On the axis, each further nine of the percentile (90 %, 99 % …) has the same width. Latency has a log "
            f"scale.{comparison_charts.left_out(len(compared.rows))}"
        )
        first += [Figure(curves.plot, f"{identity}-curves", caption)] if curves else []
    more = [*others, statements.noise(compared), statements.then_and_now_traffic(compared)]
    return Section("Traffic", [*first, *map(titled, more)], identity)


def titled(one: Table) -> Panel:
    """Return a table in a panel with the table's title."""
    return Panel(one.title, [replace(one, title="")])


def _folded(one: Table) -> Fold:
    return Fold(one.title, [replace(one, title="")])


def topics(compared: TopicsTable, identity: str, colours: Mapping[str, int]) -> Section:
    """Return the section of one load. It has the plots of thesis figure 6.4, the number of topics that each system
    reached, and all figures by the number of topics."""
    ended, *by_number = tables.topics(compared)
    plots = [
        Figure(drawn.plot, f"{identity}-{index}", caption + comparison_charts.left_out(len(compared.series)))
        for index, (drawn, caption) in enumerate(comparison_charts.topics(compared, colours))
    ]
    order = f"{statements.topics_order(compared)} {statements.topics_noise(compared)}"
    return Section(
        "Topics",
        [
            Text(f"{order} Load: {statements.load_text(compared.load)}."),
            titled(ended),
            *plots,
            Panel("As tables", [_folded(one) for one in by_number]),
            Panel("System by system", [_series(one) for one in compared.series]),
            titled(statements.then_and_now_topics(compared)),
        ],
        identity,
    )


def _series(one: TopicsSeries) -> Fold:
    ended = f"finished {figures.count(one.finished)}" if one.failure is None else tables.ending(one).text
    notes = [
        f"{figures.counted(point.topics, 'topic')}: {note}"
        for point in one.points
        for run in point.runs
        for note in run["notes"]
    ]
    more = [f"and {len(notes) - NOTES_MAX:,} more"] if len(notes) > NOTES_MAX else []
    parts = [Bullets(notes[:NOTES_MAX] + more)] if notes else []
    return Fold(f"{one.name}: {ended}", [replace(tables.series(one), title=""), *parts])


def runs(listed: Sequence[tuple[Json, str]]) -> Panel:
    """Return a table of the runs that have a section, with their main figures. `listed` has each run and the identity
    of its section."""
    header = ["Run", "Workload", "p50", "p99", "In", "Out", "Lost", "Goals"]
    rows: list[list[str | Cell]] = []
    for run, identity in listed:
        facts, measured, shown = run["facts"], run["measured"], headline(run)
        name = " · ".join(str(part) for part in (facts["system"], facts.get("variant")) if part)
        rows.append(
            [
                Cell(name, run["run"], to=identity),
                facts["workload"],
                figures.duration(shown["latency_ns"]["p50"]),
                figures.duration(shown["latency_ns"]["p99"]),
                figures.rate(shown["reports_per_s"]),
                figures.rate(shown["delivered_per_s"]),
                tables.lost(measured),
                verdicts.goals_text(run),
            ]
        )
    return Panel("All runs", [table("", header, rows)])


def goals(all_runs: Sequence[Json]) -> Panel:
    """Return the panel that says which goals are met. It folds the systems that met all goals."""
    judged = replace(verdicts.verdicts(all_runs), title="", form="words")
    of_mark = {mark: [row for row in judged.rows if row[1].mark == mark] for mark in ("bad", "warn", "good")}
    missed, early, met = (len(rows) for rows in of_mark.values())
    total = len(judged.rows)
    said = [f"{number} of {total} {how}" for number, how in ((missed, "missed"), (early, "ended early")) if number]
    parts: list[Block] = []
    if said:
        parts.append(replace(judged, rows=(*of_mark["bad"], *of_mark["warn"])))
    if met:
        summary = f"All goals met: {met} of {total}"
        parts.append(Fold(summary, [replace(judged, rows=tuple(of_mark["good"]))]))
    return Panel(f"Goals: {', '.join(said) or 'all met'}", parts)


def findings(document: Json) -> list[Block]:
    """Return the panel that says what the comparisons found."""
    said = found.compared(document)
    return [Panel("What was found", [Bullets(said)])] if said else []


def method(all_runs: Sequence[Json]) -> Panel:
    """Return the panel that says how the runs were measured. The section of a single run already has its facts."""
    told = statements.method(all_runs) if len(all_runs) > 1 else statements.rules(all_runs)
    return Panel("How it was measured", [Facts("How it was measured", list(told))])
