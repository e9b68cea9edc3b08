"""The summary in the terminal and as Markdown."""

from __future__ import annotations

import re

from bench import summary
from tests.bench import made


def test_the_table_has_the_figures_that_matter():
    shown = summary.terminal(made.document(made.plain()))
    header, _, row, *rest = shown.splitlines()
    assert re.split(r"  +", header) == ["run", "p50", "p99", "in", "out", "duplicates dropped", "lost", "goals"]
    assert re.split(r"  +", row) == [
        "demo",
        "46.0 ms",
        "90.1 ms",
        "25,000 (1,250/s)",
        "5,000 (250/s)",
        "24,000 (96.0 %)",
        "0",
        "4 of 4 met",
    ]
    assert "p50 46.0 ms ≤ 500 ms met" in rest[1]


def test_missed_goals_and_notes_are_said():
    run = made.plain(goals={"p50_ms": 1, "odd": 2}, complete=False)
    run["figures"]["outcomes"] = made.figures("demo", lost=4)["outcomes"]
    shown = summary.terminal(made.document(run))
    assert "p50 46.0 ms > 1.00 ms MISSED" in shown
    assert "lost 4 > 0 MISSED" in shown
    assert "odd – against 2 not judged" in shown
    assert "note: The run was cut short" in shown


def test_no_text_of_a_log_reaches_the_terminal_or_markdown_as_markup():
    document = made.document(made.hostile())
    shown = summary.terminal(document)
    assert "\x1b" not in shown
    text = summary.markdown(document)
    assert "\x1b" not in text
    assert "<script>" not in text
    assert re.search(r"(?<!\\)`", text) is None
    tables = [line for line in text.splitlines() if line.startswith("|")]
    widths = [len(re.findall(r"(?<!\\)\|", line)) for line in tables]
    assert widths[:3] == [9, 9, 9], "a bar in a name makes no column"


def test_markdown_has_percentiles_and_goals():
    text = summary.markdown(made.document(made.plain()))
    assert "| p50 | p90 | p95 | p99 | p99.9 | p99.99 | max | mean |" in text
    assert "| lost | ≤ 0 | 0 | met |" in text
