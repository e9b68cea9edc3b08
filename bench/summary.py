"""The summary of a digest as text: a table for the terminal, and summary.md.

Owns which figures make the summary (p50, p99, in, out, duplicates dropped, lost, goals). Pure; computes nothing but
shares.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from bench import figures
from bench.digest import Json

COLUMNS = ("run", "p50", "p99", "in", "out", "duplicates dropped", "lost", "goals")


def terminal(document: Json) -> str:
    """One line per run, then each run's goals and notes."""
    rows = [COLUMNS, *(_cells(run) for run in document["runs"])]
    widths = [max(len(_plain(row[index])) for row in rows) for index in range(len(COLUMNS))]
    lines = [
        "  ".join(_plain(cell).ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    lines.insert(1, "  ".join("─" * width for width in widths))
    for run in document["runs"]:
        lines += ["", f"{_plain(run['run'])}: goals " + ", ".join(goal_text(goal) for goal in run["goals"])]
        lines += [f"  note: {_plain(note)}" for note in run["notes"]]
    return "\n".join(lines)


def markdown(document: Json) -> str:
    """The same as Markdown, with the percentiles of every measured run."""
    parts = ["# Summary", "", *_table(COLUMNS, [_cells(run) for run in document["runs"]])]
    for run in document["runs"]:
        facts, measured = run["facts"], run["measured"]
        parts += [
            "",
            f"## {_cell(run['run'])}",
            "",
            _cell(
                f"{facts['workload']} on {facts['system']}, seed {facts.get('seed', figures.NONE)}; "
                f"{machine_text(facts)}."
            ),
            "",
            *_table(
                tuple(measured["latency_ns"]),
                [tuple(figures.duration(value) for value in measured["latency_ns"].values())],
            ),
            "",
            *_table(
                ("goal", "limit", "measured", "result"),
                [
                    (
                        figures.goal_name(goal["goal"]),
                        f"≤ {figures.goal(goal['goal'], goal['limit'])}",
                        figures.goal(goal["goal"], goal["measured"]),
                        verdict(goal),
                    )
                    for goal in run["goals"]
                ],
            ),
        ]
        if run["notes"]:
            parts += ["", *(f"- {_cell(note)}" for note in run["notes"])]
    return "\n".join(parts) + "\n"


def _cells(run: Json) -> tuple[str, ...]:
    measured = run["measured"]
    latency = measured["latency_ns"]
    dropped = measured["duplicates_dropped"]
    return (
        run["run"],
        figures.duration(latency["p50"]),
        figures.duration(latency["p99"]),
        f"{figures.count(measured['reports'])} ({figures.rate(measured['reports_per_s'])})",
        f"{figures.count(measured['delivered'])} ({figures.rate(measured['delivered_per_s'])})",
        figures.NONE
        if dropped is None
        else f"{figures.count(dropped)} ({figures.share(dropped, measured['reports'])})",
        figures.count(measured["lost"]) if measured["news"] else figures.NONE,
        goals_text(run["goals"]),
    )


def goals_text(goals: Sequence[Mapping[str, Any]]) -> str:
    """`4 of 4 met`."""
    return f"{sum(goal['met'] is True for goal in goals)} of {len(goals)} met"


def goal_text(goal: Mapping[str, Any]) -> str:
    """`p99 97.3 ms ≤ 2.00 s met`."""
    value, limit = (figures.goal(goal["goal"], goal[name]) for name in ("measured", "limit"))
    relation = "against" if goal["met"] is None or goal["measured"] is None else "≤" if goal["met"] else ">"
    return f"{_plain(figures.goal_name(goal['goal']))} {value} {relation} {limit} {verdict(goal)}"


def verdict(goal: Mapping[str, Any]) -> str:
    """Met, missed, or not judged (a goal of a name that the digest does not know)."""
    return {True: "met", False: "MISSED", None: "not judged"}[goal["met"]]


def machine_text(facts: Mapping[str, Any]) -> str:
    """`2 cores, 16.0 GB memory, Linux 6.1, A processor`, as far as run.json says."""
    machine = facts.get("machine")
    if not isinstance(machine, dict):
        return "machine unknown"
    memory = machine.get("memory_bytes")
    texts = [
        f"{machine['cores']} cores" if machine.get("cores") else "",
        f"{figures.size(memory)} memory" if isinstance(memory, int | float) else "",
        str(machine.get("cpu") or ""),
        str(machine.get("kernel") or ""),
    ]
    return ", ".join(text for text in texts if text) or "machine unknown"


def _plain(text: str) -> str:
    """Text of a log for a terminal: without control characters, which could move the cursor or change its colours."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f]", "?", str(text))


def _cell(text: str) -> str:
    """Text of a log for Markdown: no markup of its own."""
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", _plain(text))


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [tuple(header), ("---",) * len(header), *rows]
    return ["| " + " | ".join(_cell(cell) if cell != "---" else cell for cell in line) + " |" for line in lines]
