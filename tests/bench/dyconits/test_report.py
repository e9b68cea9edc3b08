"""The report: verdicts for each reading, this broker's goals, and parts that have not run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ingeborg.bench.dyconits import claims, job, report, rows, workload
from ingeborg.bench.dyconits.cases import KAFKA, LATEST, LAYERS, SYSTEMS, TEN
from ingeborg.bench.dyconits.found import ERRORS, Found, Mean, amount, percent
from ingeborg.bench.dyconits.layer.settings import TOPICS
from ingeborg.bench.experiments.experiment import Results
from ingeborg.bench.report import html, markdown
from ingeborg.bench.text.blocks import FAILS, HOLDS, NOISE, PARTLY, claims_of
from tests.bench.dyconits import small

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Json = dict[str, Any]

KILLED = {
    "experiment": "e6",
    "rounds": 1,
    "published": 10,
    "acknowledged": 10,
    "refused": 0,
    "deliveries": 8,
    "due": 10,
    "lost": 0,
    "surplus": 0,
    "last_missing": 0,
    "moved_connections": 12,
    "age_before_s": [0.001, 0.01, 0.02],
    "age_after_s": [0.001, 2.0, 3.0],
}
FAN_OUT: list[Json] = [
    {"experiment": "e4", "rounds": 2, "figure": "CPU saved", "goal": "at least 30%", "measured": "51%", "met": True},
    {"experiment": "e5", "rounds": 1, "figure": "p99", "goal": "at most 50 ms", "measured": "50 s", "met": False},
    {**KILLED, "kind": "plain", "cpu_s": 4.0},
    {**KILLED, "kind": "all", "cpu_s": 5.0},
    {**KILLED, "kind": "latest", "cpu_s": 2.0, "lost": 1},
]
EMPTY: Json = {
    "machine": {"cores": "2", "memory": "24 GiB", "python": "3.11"},
    "cells": [],
    "over_time": [],
    "fan_out": [],
}
PURE: Json = {"virtual": [], "overhead": {name: workload.overhead(small.LOAD, name) for name in workload.EXPERIMENTS}}


@pytest.fixture(scope="module")
def measured(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Json:
    results = Results(tmp_path_factory.mktemp("dyconits"))
    for experiment in workload.EXPERIMENTS:
        for system in SYSTEMS:
            small.keep(results, experiment, system)
    figures = job.figures(spark, results.out, list(results.rows(rows.FACTS)))
    return {**EMPTY, **figures, "fan_out": FAN_OUT}


@pytest.mark.parametrize(
    ("changes", "printed", "verdict"),
    [
        ([-0.5], (-0.51, -0.51), HOLDS),
        ([-0.34], (-0.51, -0.51), HOLDS),
        ([-0.33], (-0.51, -0.51), PARTLY),
        ([0.5], (-0.51, -0.51), FAILS),
        ([None], (-0.51, -0.51), FAILS),
        ([0.7, 1.0], (0.615, 1.014), HOLDS),
        ([0.7, 9.0], (0.615, 1.014), PARTLY),
        ([0.7, -0.1], (0.615, 1.014), FAILS),
        ([0.001], (-0.03, -0.03), NOISE),
        ([0.001], (-0.26, -0.26), FAILS),
    ],
)
def test_a_printed_change_is_compared_with_ours(
    changes: list[float | None], printed: tuple[float, float], verdict: str
) -> None:
    ours = [None if change is None else Mean(change, 0.0) for change in changes]
    assert claims.agreement(ours, *printed) == verdict


def found_of(experiment: str, base: Json, own: Json, **cell: Any) -> Found:
    """Return the figures of a run of Kafka and of the layer, each for all topics or by topic."""
    usage = dict.fromkeys(("cpu", "cpu_peak", "taken_per_s"), 10.0)
    cells = [
        {"part": experiment, "experiment": experiment, "seed": 1, "system": system, **usage, **cell}
        | {"topics": {topic: {**dict.fromkeys(ERRORS, 1.0), **figures.get(topic, figures)} for topic in TOPICS}}
        for system, figures in ((KAFKA, base), ("layer-text", own))
    ]
    return Found({"cells": cells})


@pytest.mark.parametrize(
    ("high", "low", "verdict"),
    [(0.5, 100.0, HOLDS), (0.5, 1_000.0, PARTLY), (0.5, 2.0, PARTLY), (0.8, 100.0, PARTLY), (1.1, 100.0, FAILS)],
)
def test_mf4_holds_only_if_both_of_its_numbers_do(high: float, low: float, verdict: str) -> None:
    own = {"high": dict.fromkeys(ERRORS, high), "low": dict.fromkeys(ERRORS, low)}
    (claim,) = (one for one in claims._main_findings(found_of("e3", {}, own, bounds=None)) if one.where == "MF4")
    assert [one.verdict for one in claim.verdicts] == [verdict]


@pytest.mark.parametrize(
    ("maxima", "verdict"),
    [((1, 1, 11), HOLDS), ((1, 65, 11), PARTLY), ((1, 1, 160), PARTLY), ((1, 1, 1), PARTLY)],
)
def test_under_low_load_all_maxima_count(maxima: Sequence[float], verdict: str) -> None:
    own = {topic: {"numerical_max": float(most)} for topic, most in zip(TOPICS, maxima, strict=True)}
    claim = claims._low_load(found_of("e1", {}, own))[0]
    assert [one.verdict for one in claim.verdicts] == [verdict]


@pytest.mark.parametrize(("updates", "verdict"), [(90, HOLDS), (42, PARTLY), (99, HOLDS), (200, FAILS)])
def test_an_overhead_is_compared_with_the_printed_one(updates: int, verdict: str) -> None:
    topics = {"high": {"produced": 4_000}, "medium": {"produced": 3_000}, "low": {"produced": 3_000}}
    claim = claims._overhead(found_of("e1", topics, topics, updates=updates))[0]
    assert [one.verdict for one in claim.verdicts] == [verdict]


def test_changes_compare_runs_of_the_same_seed() -> None:
    def cell(system: str, seed: int, cpu: float) -> Json:
        return {"part": "e1", "experiment": "e1", "system": system, "seed": seed, "reader": "c1", "cpu": cpu}

    cells = [cell(KAFKA, 1, 10), cell(KAFKA, 2, 20), cell("layer-text", 1, 5), cell("layer-text", 2, 15)]
    found = Found({"cells": [*cells, cell("layer-text", 3, 99)]})
    change = found.change("e1", "layer-text", "cpu")
    assert change is not None
    assert change.mean == pytest.approx(-0.375)
    assert change.half > 0
    assert found.change("e1", LATEST, "cpu") is None
    ten = Found({"cells": [*cells, cell(KAFKA, 1, 1) | {"part": TEN}]})
    assert ten.values("e1", KAFKA, "cpu") == [1], "only the document's own runs count if there are any"


def test_amounts_and_changes_have_their_units() -> None:
    assert percent(Mean(-0.512, 0.0)) == "-51 %"
    assert percent(Mean(0.051, 0.012)) == "+5.1 ± 1.2 %"
    assert percent(Mean(639.2, 3.0)) == "640 times"
    assert percent(None) == "no change from 0"
    assert amount("staleness_s", Mean(0.0123, 0.0)) == "12 ms"
    assert amount("staleness_s", Mean(12.34, 0.5)) == "12.3 ± 0.5 s"
    assert amount("numerical", None) == "–"


@pytest.mark.spark
def test_each_sentence_is_judged_for_each_reading(measured: Json) -> None:
    judged = claims.judged(Found(measured))
    assert len(judged) >= 35
    assert all([one.reading for one in claim.verdicts] == list(claims.READING.values()) for claim in judged)
    by_text = {claim.text: claim for claim in judged}
    assert by_text["The layer prioritises some topics over others."].verdict in (HOLDS, FAILS)
    assert {f"MF{number}" for number in range(1, 9)} <= {claim.where for claim in judged}


@pytest.mark.spark
def test_goals_are_met_or_not(measured: Json) -> None:
    goals = claims.goals(Found(measured), FAN_OUT)
    by_text = {goal.goal: goal for goal in goals}
    assert by_text["latest: every acknowledged message delivered or skipped"].is_met is False
    assert by_text["all: every acknowledged message delivered or skipped"].is_met is True
    assert by_text["latest: CPU time of two endpoints -45%"].is_met is True
    assert by_text["all: CPU time of two endpoints -30%"].found == "+25%"
    assert by_text["p99: at most 50 ms"].is_met is False
    assert by_text["bounds, latest: nothing is skipped"].is_met is False
    assert by_text["bounds, all: low priority within its 10 s"].is_met is True, "a run of 12 s in virtual time"


@pytest.mark.spark
def test_the_report_has_all_figures_of_the_document(measured: Json) -> None:
    made = report.report(PURE, measured)
    text = markdown.markdown(made)
    page = html.page(made)
    for number in range(1, 13):
        assert f"Figure 5.{number}: " in page
    for title in ("Table 5.1", "Table 5.2", "E4: ", "E5: ", "E6: ", "Goals of this broker"):
        assert title in text
    assert page.count("<svg") == 2 * (12 + 4), "each for a wide and a narrow page"


@pytest.mark.spark
@pytest.mark.parametrize("left_out", [*SYSTEMS, "e1", "e2", "e3"])
def test_what_has_not_run_is_left_out(measured: Json, left_out: str) -> None:
    kept = [cell for cell in measured["cells"] if left_out not in (cell["system"], cell["experiment"])]
    over = [row for row in measured["over_time"] if left_out not in (row["system"], row["experiment"])]
    made = report.report(PURE, {**measured, "cells": kept, "over_time": over, "fan_out": []})
    assert html.page(made)
    judged = claims_of(made)
    assert bool(judged) is (left_out != KAFKA)
    if left_out in LAYERS:
        assert all(len(claim.verdicts) == 1 for claim in judged)


def test_a_report_of_nothing_says_only_what_is_known(tmp_path: Path) -> None:
    made = report.report(PURE, EMPTY)
    assert [section.title for section in made.sections] == ["What the document does not show"]  # type: ignore[union-attr]
    killed = report.report(PURE, {**EMPTY, "fan_out": FAN_OUT[2:]})
    assert "which is killed" in markdown.markdown(killed)


def test_virtual_runs_have_a_table_for_each_experiment() -> None:
    topic = {name: [1.0, 0.1, 1.0, 2.0] for name in ERRORS}
    row = {
        "experiment": "e3",
        "label": "text",
        "seeds": 10,
        **dict.fromkeys(("cpu", "cpu_peak", "taken_per_s"), (5.0, 0.1, 4.0, 6.0)),
        **dict.fromkeys(TOPICS, topic),
    }
    text = markdown.markdown(report.report({**PURE, "virtual": [row, {**row, "label": KAFKA}]}, EMPTY))
    assert "E3 in virtual time" in text
    assert "E1 in virtual time" not in text
