"""Makes the whole page, from its frame and its sections.

Owns the order of the sections and the limits of the page. On a page of several runs, comparisons come first, then each
run, then how the runs were measured. The sections of the runs are folded, so that a page of a hundred runs (a few
megabytes) stays readable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ingeborg.bench import comparison
from ingeborg.bench.digest.document import Json
from ingeborg.bench.report import compared, comparison_charts, html, run
from ingeborg.bench.text import figures, statements, verdicts
from ingeborg.bench.text.blocks import Block, Fold, Report, Section, Text

DETAILED_MAX = 40
"""Maximum number of runs with their own section, about 60 kB each. Further runs are only in the tables, and the page
says so."""


def page(document: Json, tables: Mapping[str, Sequence[Json]]) -> str:
    """Return the whole page for a digest."""
    runs = document["runs"]
    alone = len(runs) == 1
    facts = runs[0]["facts"]
    title = f"{facts['workload']} on {facts['system']}" if alone else _title(runs)
    lead = run.lead(runs[0]) if alone else _lead(runs)
    blocks = _one(runs[0], tables) if alone else _many(document, tables)
    return html.page(Report(title, "Benchmark report", lead, blocks, closing=[_CLOSING]))


def _title(runs: Sequence[Json]) -> str:
    systems = list(dict.fromkeys(str(each["facts"]["system"]) for each in runs))
    if len(systems) == 1:
        return f"{systems[0]}: {len(runs)} runs"
    return f"{', '.join(systems[:-1])} and {systems[-1]}"


def _lead(runs: Sequence[Json]) -> list[str]:
    machines = list(dict.fromkeys(statements.machine_text(each["facts"]) for each in runs))
    parts = [f"{len(runs)} runs", machines[0] if len(machines) == 1 else f"{len(machines)} machines"]
    return [" · ".join(parts)]


def _one(only: Json, tables: Mapping[str, Sequence[Json]]) -> list[Block]:
    """Return the parts of a page of one run: its section, and the tables of comparisons, which may have only this
    run."""
    document = {"runs": [only]}
    return [
        run.section(
            only, _by_run(tables, [only])[only["run"]], "run-0", alone=True, comparisons=_comparisons(document)
        ),
        compared.method([only]),
    ]


def _many(document: Json, tables: Mapping[str, Sequence[Json]]) -> list[Block]:
    """Return the parts of a page of several runs. Runs of a topics benchmark appear in the tables of their series, and
    every other run has its own section."""
    runs = document["runs"]
    own = [each for each in runs if each["facts"]["workload"] != "topics"]
    detailed = [(each, f"run-{index}") for index, each in enumerate(own[:DETAILED_MAX])]
    parts = [*run.notice(statements.warnings(runs)), *compared.findings(document), compared.goals(runs)]
    parts += _comparisons(document)
    if detailed:
        more = len(own) - len(detailed)
        rows = _by_run(tables, [each for each, _ in detailed])
        said = f"There is no section for {figures.counted(more, 'more run')}: the page would be too large."
        left_out = [Text(said)] if more else []
        folded = [_folded(each, identity, rows[each["run"]]) for each, identity in detailed]
        parts.append(Section("The runs", [compared.runs(detailed), *left_out, *folded]))
    return [*parts, compared.method(runs)]


def _comparisons(document: Json) -> list[Block]:
    traffic, topics = comparison.traffic(document), comparison.topics(document)
    colours = comparison_charts.colours([*traffic, *topics])
    return [
        *(compared.traffic(table, f"traffic-{index}", colours) for index, table in enumerate(traffic)),
        *(compared.topics(table, f"topics-{index}", colours) for index, table in enumerate(topics)),
    ]


def _folded(each: Json, identity: str, tables: run.Tables) -> Fold:
    facts, shown = each["facts"], comparison.headline(each)
    name = " · ".join(str(part) for part in (facts["workload"], facts["system"], facts.get("variant")) if part)
    more = f"{each['run']}: p99 {figures.duration(shown['latency_ns']['p99'])}, {verdicts.goals_text(each)}"
    # Links use the identity of the section inside, because a browser unfolds the parent of a link's target.
    return Fold(name, [run.section(each, tables, identity, alone=False)], more)


def _by_run(tables: Mapping[str, Sequence[Json]], runs: Sequence[Json]) -> dict[str, dict[str, list[Json]]]:
    """Return for each run the rows that its section shows."""
    rows: dict[str, dict[str, list[Json]]] = {each["run"]: {"seconds": [], "machine": []} for each in runs}
    for name in ("seconds", "machine"):
        for row in tables[name]:
            if row["run"] in rows:
                rows[row["run"]][name].append(row)
    return rows


_CLOSING = (
    "In: reports that publishers sent, including duplicates. Out: messages received. News: messages, each "
    "counted once even if several publishers report it. Lost: deliveries of news that a connection should have "
    "received but did not. Conflated, if "
    "any subscriber had bounds: deliveries that a later message replaced. Twice: deliveries of news that the same "
    "connection had already received. Reordered: messages that a connection received after a later message of the "
    "same topic. Overtaken, if counted separately: reordered messages of which another connection had also published "
    "one of the two. A delivery counts in the phase in which its news was published."
)
