"""The summary of a digest as text, for the terminal and for summary.md.

Owns: the layout of both texts. It also ensures that text from a log cannot become markup or move a cursor. The tables
are the same as on the page (`ingeborg.bench.text.tables`). For a single run, the table has p50, p99, in, out,
duplicates dropped, lost and goals.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ingeborg.bench import comparison
from ingeborg.bench.digest.document import Json
from ingeborg.bench.text import figures, statements, tables, verdicts
from ingeborg.bench.text.blocks import Cell, Table

COLUMNS = ("Run", "p50", "p99", "In", "Out", "Duplicates dropped", "Lost", "Goals")

RUNS_MAX = 40
"""Maximum number of runs whose goals and percentiles are listed separately. The tables have every run."""


def terminal(document: Json) -> str:
    """Return the summary for a terminal: the tables, and then the goals and notes of each run outside a comparison."""
    runs = document["runs"]
    lines: list[str] = []
    for table in _tables(document):
        lines += ["", *([plain(table.title), ""] if len(runs) > 1 else []), *_aligned(table)]
        lines += [plain(table.note)] if table.note else []
    for text in _said(document):
        lines += ["", plain(text)]
    own = _of_their_own(document)
    for run in own:
        lines += [
            "",
            f"{plain(run['run'])}: goals " + ", ".join(plain(verdicts.goal_text(goal)) for goal in run["goals"]),
        ]
        lines += [f"  form of the code: {plain(statements.form_text(run['facts']))}"]
        lines += [f"  note: {plain(note)}" for note in statements.notes(run)]
    if len(own) < len(runs):
        lines += ["", f"Form of the code: {plain(statements.forms_text(runs))}."]
    return "\n".join(lines[1:])


def markdown(document: Json) -> str:
    """Return the summary as Markdown, which also has the percentiles of each run outside a comparison."""
    parts = ["# Summary"]
    for table in _tables(document):
        parts += ["", f"## {_cell(table.title)}", "", *table_lines(table.header, table.rows)]
        parts += ["", _cell(table.note)] if table.note else []
    for text in _said(document):
        parts += ["", _cell(text)]
    for run in _of_their_own(document):
        parts += _one(run)
    if len(document["runs"]) > 1:
        parts += ["", "## How it was measured", ""]
        parts += [f"- {heading}: {_cell(text)}" for heading, text in statements.method(document["runs"])]
    return "\n".join(parts) + "\n"


def _one(run: Json) -> list[str]:
    facts, measured = run["facts"], run["measured"]
    about = f"{facts['workload']} on {facts['system']}, seed {facts.get('seed', figures.NONE)}; "
    about += f"form of the code: {statements.form_text(facts)}; "
    goals = [
        tuple(
            map(
                Cell,
                (
                    figures.goal_name(goal["goal"]),
                    f"≤ {figures.goal(goal['goal'], goal['limit'])}",
                    figures.goal(goal["goal"], goal["measured"]),
                    verdicts.verdict(goal),
                ),
            )
        )
        for goal in run["goals"]
    ]
    percentiles = tuple(Cell(figures.duration(value)) for value in measured["latency_ns"].values())
    parts = ["", f"## {_cell(run['run'])}", "", _cell(f"{about}{statements.machine_text(facts)}."), ""]
    parts += [*table_lines(tuple(measured["latency_ns"]), [percentiles]), ""]
    parts += table_lines(("Goal", "Limit", "Measured", "Result"), goals)
    notes = statements.notes(run)
    return parts + (["", *(f"- {_cell(note)}" for note in notes)] if notes else [])


def _tables(document: Json) -> list[Table]:
    """Return the tables in their order. The verdicts come first if there are several runs, then the comparisons, then
    the runs outside a comparison."""
    runs = document["runs"]
    made = [verdicts.verdicts(runs)] if len(runs) > 1 else []
    for traffic in comparison.traffic(document):
        made += [*tables.traffic(traffic), statements.noise(traffic), statements.then_and_now_traffic(traffic)]
    for topics in comparison.topics(document):
        made += [*tables.topics(topics), statements.then_and_now_topics(topics)]
    others = comparison.others(document)
    if others:
        made.append(Table("Runs", COLUMNS, tuple(_cells(run) for run in others)))
    return made


def _said(document: Json) -> list[str]:
    """Return the sentences that are not in a table."""
    said = statements.warnings(document["runs"])
    for traffic in comparison.traffic(document):
        limit = statements.latency_limit(traffic.baseline.runs[0])
        said.append(f"Traffic: one latency limit for all systems: {limit}. Load: {statements.load_text(traffic.load)}.")
    for topics in comparison.topics(document):
        said.append(f"Topics: {statements.topics_order(topics)} {statements.topics_noise(topics)}")
    return said


def _of_their_own(document: Json) -> list[Json]:
    """Return the only run, or the runs outside a comparison."""
    runs = document["runs"]
    return (runs if len(runs) == 1 else comparison.others(document))[:RUNS_MAX]


def _cells(run: Json) -> tuple[Cell, ...]:
    measured = run["measured"]
    latency = measured["latency_ns"]
    dropped = measured["duplicates_dropped"]
    texts = (
        run["run"],
        figures.duration(latency["p50"]),
        figures.duration(latency["p99"]),
        f"{figures.count(measured['reports'])} ({figures.rate(measured['reports_per_s'])})",
        f"{figures.count(measured['delivered'])} ({figures.rate(measured['delivered_per_s'])})",
        figures.NONE
        if dropped is None
        else f"{figures.count(dropped)} ({figures.share(dropped, measured['reports'])})",
        tables.lost(measured),
        verdicts.goals_text(run),
    )
    return tuple(map(Cell, texts))


def _aligned(table: Table) -> Iterable[str]:
    """Return the lines of a table whose columns are as wide as their widest cells. The reasons of limits are left out,
    because a terminal has no room for them."""
    rows = [table.header, *([_terse(cell) for cell in row] for row in table.rows)]
    rows = [[plain(text) for text in row] for row in rows]
    widths = [max(len(row[index]) for row in rows) for index in range(len(table.header))]
    lines = ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return [lines[0], "  ".join("─" * width for width in widths), *lines[1:]]


def _terse(cell: Cell) -> str:
    """Return the short text of a cell. The text of a failure includes its reason."""
    return cell.plain if cell.mark == "bad" else cell.signed


def plain(text: str) -> str:
    """Replace control characters in a log's text, because they could move the cursor or change colours."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f]", "?", str(text))


def _cell(text: str) -> str:
    """Escape a log's text, so that Markdown does not interpret it as markup."""
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", plain(text))


def table_lines(header: Sequence[str], rows: Sequence[Sequence[Cell]]) -> list[str]:
    """Return a table as Markdown, line by line."""
    lines = [[_cell(text) for text in header], ["---"] * len(header)]
    lines += [[_cell(cell.plain) for cell in row] for row in rows]
    return ["| " + " | ".join(line) + " |" for line in lines]
