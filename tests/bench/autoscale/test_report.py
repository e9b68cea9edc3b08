"""The report from handmade figures: histograms have steps, and a group with a backlog is not compared."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ingeborg.bench.autoscale import report
from ingeborg.bench.text.blocks import Block, Cell, Figure, Fold, Panel, Report, Section, Stack, Table

Json = dict[str, Any]

PLAN: Json = {"time_scale": 10.0, "iterations": 60, "delta": 5.0}
MACHINE: Json = {"kafka": ["4.3.1"], "machine": {"cores": "2", "memory": "24 GiB", "python": "3.11"}}


def blocks(made: Report) -> Iterator[Block]:
    """Yield all blocks of a report, also those in others."""
    waiting: list[Block] = list(made.sections)
    while waiting:
        block = waiting.pop(0)
        yield block
        if isinstance(block, Section | Panel | Fold):
            waiting += block.blocks


def figure(made: Report, identity: str) -> Figure:
    [found] = [block for block in blocks(made) if isinstance(block, Figure) and block.identity == identity]
    return found


def group(system: str, number: int, p99_s: float, **more: Any) -> Json:
    latencies = [[p99_s, 0.0]] * 4
    counts = dict.fromkeys(("waiting", "decisions", "starts", "hand_overs"), 0)
    row = {"label": f"{system} {number}".removesuffix(" 0"), "system": system, "number": number, "seeds": 2, **counts}
    return {**row, "members": [20.0, 0.0], "late": [0.0, 0.0], "latency_s": latencies, "records": 9, **more}


def compared(*systems: Json) -> Json:
    runs = [
        {"unit": f"{row['label']} s{seed}", "seconds": 6.0, "delta": 5.0, "busy_percent": 40.0, "seed": seed}
        | {name: row[name] for name in ("label", "system", "number")}
        for row in systems
        for seed in (1, 2)
    ]
    over_time = [{"unit": run["unit"], "p99_s": [0.1, 0.2]} for run in runs]
    return {**MACHINE, "systems": list(systems), "runs": runs, "over_time": over_time}


def test_figure_13_has_steps_from_the_first_bar_to_the_last_one() -> None:
    row = {"test": 1, "samples": 4, "histogram": [[2, 1], [4, 3]], **dict.fromkeys(("median", "mean", "least"), 1e7)}
    [line] = figure(report.report(PLAN, {**MACHINE, "throughput": [{**row, "most": 5e7}]}), "f13").plot.series
    assert line.steps
    assert line.points == [(20.0, 0.0), (20.0, 0.25), (30.0, 0.0), (40.0, 0.75), (50.0, 0.0)]


def test_figures_15_to_17_have_steps_between_real_times() -> None:
    row = {"event": "settled", "of": "delta 5", "count": 4, "seconds": [0.3] * 4, "most": 1.2, "histogram": [[-5, 4]]}
    [line] = figure(report.report(PLAN, {**MACHINE, "changes": [row]}), "f17").plot.series
    assert line.steps
    assert [(round(x, 3), y) for x, y in line.points] == [(0.1, 0.0), (0.1, 1.0), (0.158, 0.0)]


def test_every_run_has_its_latencies_over_time_and_the_first_stream_of_some_groups_has_a_figure() -> None:
    made = report.report(PLAN, compared(group("mend", 0, 0.2), group("range", 18, 9.0)))
    assert [line.name for line in figure(made, "over-time").plot.series] == ["mend"]
    [stack] = [block for block in blocks(made) if isinstance(block, Stack)]
    assert {plot.title: [line.name for line in plot.series] for plot in stack.plots} == {
        "range, 18": ["stream 1", "stream 2"],
        "mend": ["stream 1", "stream 2"],
    }
    assert [line.points for line in stack.plots[0].series] == [[(0.0, 0.1), (3.0, 0.2), (6.0, None)]] * 2


def test_a_group_of_kedas_rule_with_a_backlog_has_no_verdict() -> None:
    def p99(**more: Any) -> tuple[Cell, str]:
        made = report.report(PLAN, compared(group("mend", 0, 0.2), group("keda", 50, 9.0, **more)))
        [table] = [block for block in blocks(made) if isinstance(block, Table) and block.title.startswith("Compared")]
        [row] = [row for row in table.rows if row[0].text == "KEDA's rule, lag 50"]
        return row[2], row[3].text

    assert p99(not_caught_up=0) == (Cell("45.0 ×", mark="good"), "none")
    assert p99(not_caught_up=1, behind_s=3.5) == (Cell("45.0 ×"), "1 of 2 runs, up to 3.5 s")
    assert p99() == (Cell("45.0 ×"), "unknown")
