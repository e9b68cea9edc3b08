"""The sections that compare runs. They cover traffic, topics, and the runs outside a comparison.

Owns the order of the parts of each section. The tables come from `ingeborg.bench.text.tables`, as in the summaries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ingeborg.bench.comparison import TopicsSeries, TopicsTable, TrafficTable, headline
from ingeborg.bench.digest.document import Json
from ingeborg.bench.report import comparison_charts
from ingeborg.bench.report.markup import (
    Html,
    bullets,
    compared,
    explain,
    folded,
    html,
    join,
    lines,
    panel,
    plot,
    table,
    titled,
)
from ingeborg.bench.text import figures, found, statements, tables, verdicts

NOTES_MAX = 20
"""How many notes of a topics series the page lists. To see all notes, digest the runs of the series separately."""


def traffic(table: TrafficTable, identity: str, colours: Mapping[str, int]) -> Html:
    """Return the section of one load. Its tables have rates and latency, cost, noise, and a comparison with earlier
    runs."""
    rates, *others = tables.traffic(table)
    several = len(table.rows) > 1  # the section of a single run has its workload and its curve
    limit = statements.latency_limit(table.baseline.runs[0])
    load = {name: value for name, value in table.load.items() if name != "p99_ms"}
    curves = comparison_charts.percentile_curves(table, colours)
    caption = (
        "On the axis, each further nine of the percentile (90 %, 99 % …) has the same width. Latency has a log scale."
    )
    return lines(
        [
            Html(f'<section id="{identity}" aria-label="Traffic"><h2>Traffic</h2>'),
            explain(found.workload(table.baseline.runs[0]["facts"])) if several else Html(""),
            explain(f"All systems have the same latency limit: {limit}. Load: {statements.load_text(load)}."),
            titled(rates),
            Html("")
            if not several
            else plot(curves, f"{identity}-curves", caption + comparison_charts.left_out(len(table.rows))),
            *map(titled, others),
            titled(statements.noise(table)),
            titled(statements.then_and_now_traffic(table)),
            Html("</section>"),
        ]
    )


def topics(table: TopicsTable, identity: str, colours: Mapping[str, int]) -> Html:
    """Return the section of one load. It has the plots of thesis figure 6.4, the number of topics that each system
    reached, and all figures by the number of topics."""
    ended, *by_number = tables.topics(table)
    plots = [
        plot(drawn, f"{identity}-{index}", caption + comparison_charts.left_out(len(table.series)))
        for index, (drawn, caption) in enumerate(comparison_charts.topics(table, colours))
    ]
    order = f"{statements.topics_order(table)} {statements.topics_noise(table)}"
    return lines(
        [
            Html(f'<section id="{identity}" aria-label="Topics"><h2>Topics</h2>'),
            explain(f"{order} Load: {statements.load_text(table.load)}."),
            titled(ended),
            *plots,
            panel("As tables", *(folded(one.title, compared(one)) for one in by_number)),
            panel("System by system", *map(_series, table.series)),
            titled(statements.then_and_now_topics(table)),
            Html("</section>"),
        ]
    )


def _series(one: TopicsSeries) -> Html:
    ended = f"finished {figures.count(one.finished)}" if one.failure is None else tables.ending(one).text
    notes = [
        f"{figures.counted(point.topics, 'topic')}: {note}"
        for point in one.points
        for run in point.runs
        for note in run["notes"]
    ]
    more = [f"and {len(notes) - NOTES_MAX:,} more"] if len(notes) > NOTES_MAX else []
    parts = [bullets(notes[:NOTES_MAX] + more)] if notes else []
    return folded(f"{one.name}: {ended}", compared(tables.series(one)), *parts)


def runs(listed: Sequence[tuple[Json, str]]) -> Html:
    """Return a table of the runs that have a section, with their main figures. `listed` has each run and the identity
    of its section."""
    header = ["Run", "Workload", "p50", "p99", "In", "Out", "Lost", "Goals"]
    rows = []
    for run, identity in listed:
        facts, measured, shown = run["facts"], run["measured"], headline(run)
        name = " · ".join(str(part) for part in (facts["system"], facts.get("variant")) if part)
        rows.append(
            [
                Html(f'<a href="#{identity}">{html(name)}</a><span class="small">{html(run["run"])}</span>'),
                facts["workload"],
                figures.duration(shown["latency_ns"]["p50"]),
                figures.duration(shown["latency_ns"]["p99"]),
                figures.rate(shown["reports_per_s"]),
                figures.rate(shown["delivered_per_s"]),
                tables.lost(measured),
                verdicts.goals_text(run),
            ]
        )
    return panel("All runs", table(header, rows, "All runs", "compared"))


def goals(all_runs: Sequence[Json]) -> Html:
    """Return the panel that says which goals are met. It folds the systems that met all of them."""
    judged = verdicts.verdicts(all_runs)
    of_mark = {mark: [row for row in judged.rows if row[1].mark == mark] for mark in ("bad", "warn", "good")}
    missed, early, met = (len(rows) for rows in of_mark.values())
    total = len(judged.rows)
    said = [f"{number} of {total} {how}" for number, how in ((missed, "missed"), (early, "ended early")) if number]
    parts = []
    if said:
        parts.append(compared(replace(judged, rows=(*of_mark["bad"], *of_mark["warn"])), "words"))
    if met:
        summary = f"All goals met: {met} of {total}"
        parts.append(folded(summary, compared(replace(judged, rows=tuple(of_mark["good"])), "words")))
    return panel(f"Goals: {', '.join(said) or 'all met'}", *parts)


def findings(document: Json) -> Html:
    """Return the panel that says what the comparisons found."""
    said = found.compared(document)
    return panel("What was found", bullets(said)) if said else Html("")


def method(all_runs: Sequence[Json]) -> Html:
    """Return the panel that says how the runs were measured. The section of a single run already has its facts."""
    told = statements.method(all_runs) if len(all_runs) > 1 else statements.rules(all_runs)
    said = join(Html(f'<tr><th scope="row">{html(heading)}</th><td>{html(text)}</td></tr>') for heading, text in told)
    return panel(
        "How it was measured",
        Html(f'<table class="facts method"><caption hidden>How it was measured</caption><tbody>{said}</tbody></table>'),
    )
