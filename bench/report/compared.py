"""The sections that compare runs. They cover traffic, topics, and the runs outside a comparison.

Owns the order of the parts of each section. The tables come from `ingeborg.bench.text.tables`, as in the summaries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
from ingeborg.bench.text import figures, statements, tables, verdicts

NOTES_MAX = 20
"""How many notes of a topics series the page lists. To see all notes, digest the runs of the series separately."""


def traffic(table: TrafficTable, identity: str, colours: Mapping[str, int]) -> Html:
    """Return the section of one load. Its tables have rates and latency, cost, noise, and a comparison with earlier
    runs."""
    rates, *others = tables.traffic(table)
    limit = statements.latency_limit(table.baseline.runs[0])
    load = {name: value for name, value in table.load.items() if name != "p99_ms"}
    curves = comparison_charts.percentile_curves(table, colours)
    caption = (
        "On the axis, each further nine of the percentile (90 %, 99 % …) has the same width. Latency has a log scale."
    )
    return lines(
        [
            Html(f'<section id="{identity}" aria-label="Traffic"><h2>Traffic</h2>'),
            explain(f"All systems have the same latency limit: {limit}. Load: {statements.load_text(load)}."),
            titled(rates),
            plot(curves, f"{identity}-curves", caption + comparison_charts.left_out(len(table.rows))),
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
        f"{figures.count(point.topics)} topics: {note}"
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
                verdicts.goals_text(run["goals"]),
            ]
        )
    return panel("All runs", table(header, rows, "All runs", "compared"))


def goals(all_runs: Sequence[Json]) -> Html:
    """Return the panel that says which goals are met."""
    judged = verdicts.verdicts(all_runs)
    missed = sum(row[1].mark == "bad" for row in judged.rows)
    title = f"Goals: {missed} of {len(judged.rows)} missed" if missed else "Goals: all met"
    return panel(title, compared(judged, "words"))


def method(all_runs: Sequence[Json]) -> Html:
    """Return the panel that says how the runs were measured."""
    said = join(
        Html(f'<tr><th scope="row">{html(heading)}</th><td>{html(text)}</td></tr>')
        for heading, text in statements.method(all_runs)
    )
    return panel(
        "How it was measured",
        Html(f'<table class="facts method"><caption hidden>How it was measured</caption><tbody>{said}</tbody></table>'),
    )
