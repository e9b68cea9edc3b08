"""The summary in the terminal and as Markdown."""

from __future__ import annotations

import re

import pytest

from ingeborg.bench.text import statements, summary
from tests.bench import digests


def test_the_table_has_the_figures_that_matter() -> None:
    shown = summary.terminal(digests.document(digests.demo()))
    header, _, row, *rest = shown.splitlines()
    assert re.split(r"  +", header) == ["Run", "p50", "p99", "In", "Out", "Duplicates dropped", "Lost", "Goals"]
    assert re.split(r"  +", row) == [
        "demo",
        "1.55 ms",
        "3.07 ms",
        "25,000 (1,250/s)",
        "5,000 (250/s)",
        "24,000 (96.0 %)",
        "0",
        "4 of 4 met",
    ]
    assert "p50 1.55 ms ≤ 500 ms met" in rest[1]


def test_missed_goals_and_notes_are_said() -> None:
    run = digests.demo(goals={"p50_ms": 1, "odd": 2, "lost": 0})
    run["notes"] = ["The run was cut short"]
    run["goals"][2] |= {"measured": 4, "met": False}
    shown = summary.terminal(digests.document(run))
    assert "p50 1.55 ms > 1.00 ms MISSED" in shown
    assert "lost 4 > 0 MISSED" in shown
    assert "odd – against 2 not judged" in shown
    assert "note: The run was cut short" in shown


def test_a_run_that_failed_says_so_first() -> None:
    run = digests.demo()
    run |= {"notes": ["The run was cut short"], "failed": "run: nothing was delivered for 10.1 s"}
    document = digests.document(run)
    for shown in (summary.terminal(document), summary.markdown(document)):
        assert shown.index("The run failed: run: nothing was delivered for 10.1 s") < shown.index(
            "The run was cut short"
        )


def test_many_runs_are_the_tables_of_the_comparison() -> None:
    document = digests.compared()
    for shown in (summary.terminal(document), summary.markdown(document)):
        for said in (
            "Goals by system",
            "Greatest sustained rate, with its latency, and latency at half that rate",
            "The cost of a delivered message",
            "How far each system came, and ratios",
            "Produce rate over N topics",
            "Then and now",
            "× 142",
            "failed at 4,096 (subscribe: timeout: no answer within 300 s)",
            "for every system the subscriber comes first",
        ):
            assert said in shown, said
    assert "the busiest layer process used 97% of a core" in summary.markdown(document)


def test_no_text_of_a_log_reaches_the_terminal_or_markdown_as_markup() -> None:
    document = digests.document(digests.hostile(), *digests.hostile_compared())
    shown = summary.terminal(document)
    assert "\x1b" not in shown
    text = summary.markdown(document)
    assert "\x1b" not in text
    assert re.search(r"(?<!\\)<script>", text) is None
    assert re.search(r"(?<!\\)`", text) is None
    tables = [line for line in text.splitlines() if line.startswith("|")]
    widths = [len(re.findall(r"(?<!\\)\|", line)) for line in tables]
    assert widths[:3] == [4, 4, 4], "a bar in a name makes no column"


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ({"generator": "interpreted", "endpoints": {"a": "compiled"}}, "generator interpreted, endpoints compiled"),
        (
            {"generator": "compiled", "endpoints": {"a": "compiled", "b": "interpreted", "c": "compiled"}},
            "generator compiled, a, c compiled, b interpreted",
        ),
        ({"generator": "compiled"}, "generator compiled, endpoints unknown"),
        (None, "unknown"),
        ({}, "unknown"),
        ({"generator": 1, "endpoints": ["x"]}, "unknown"),
    ],
)
def test_the_form_of_the_code_is_said(form: object, said: str) -> None:
    assert statements.form_text(digests.facts(form=form)) == said
    one = digests.document(digests.demo(form=form))
    assert f"\n  form of the code: {said}" in summary.terminal(one)
    assert f"; form of the code: {said}; 2 cores" in summary.markdown(one)
    two = digests.document(digests.traffic("x", form=form), digests.traffic("y", form=form))
    assert f"\nForm of the code: {said}." in summary.terminal(two)
    assert f"- Form of the code: {said}\n" in summary.markdown(two)


def test_of_a_system_that_is_not_ours_the_generators_form_is_said_alone() -> None:
    assert statements.form_text(digests.facts(system="redis", form={"generator": "compiled"})) == "generator compiled"
    assert statements.form_text(digests.facts(system="redis", form=None)) == "unknown"
    ours, rival = digests.demo(), digests.demo(system="redis")
    assert statements.forms_text([rival, ours, rival]) == "generator interpreted, endpoints compiled"
    assert statements.forms_text([rival]) == "generator interpreted"


def test_markdown_has_percentiles_and_goals() -> None:
    text = summary.markdown(digests.document(digests.demo()))
    assert "| p50 | p90 | p95 | p99 | p99.9 | p99.99 | max | mean |" in text
    assert "| lost | ≤ 0 | 0 | met |" in text


def test_what_was_conflated_stands_next_to_what_was_lost() -> None:
    run = digests.demo()
    run["measured"] |= {"lost": 2, "conflated": 1234}
    assert "2 (1,234 conflated)" in summary.terminal(digests.document(run))
    plain, bounded, old = (digests.traffic(name) for name in ("plain", "bounded", "old"))
    bounded["facts"]["variant"] = "home, bounds"
    bounded["measured"]["conflated"] = 1234
    old["facts"]["variant"] = "lookup"
    del old["measured"]["conflated"]
    with_bounds = summary.markdown(digests.document(plain, bounded, old))
    assert "| Lost | Conflated | Twice |" in with_bounds
    assert "| 0 | 1,234 | 0 |" in with_bounds
    assert "Conflated" not in summary.markdown(digests.document(plain, old))
