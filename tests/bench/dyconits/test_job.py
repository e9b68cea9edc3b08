"""The Spark digest of real runs says what `errors` says about the same rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ingeborg.bench.dyconits import errors, job, model, rows
from ingeborg.bench.dyconits.cases import KAFKA, LATEST
from ingeborg.bench.dyconits.found import ERRORS
from ingeborg.bench.dyconits.layer.settings import HIGH, TOPICS
from ingeborg.bench.experiments.experiment import Results
from tests.bench.dyconits import small

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

Json = dict[str, Any]
Digested = tuple[Json, dict[str, model.Found]]


@pytest.fixture(scope="module")
def digested(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Digested:
    results = Results(tmp_path_factory.mktemp("dyconits"))
    systems = (KAFKA, "layer-programs", LATEST)
    found = {system: small.keep(results, "e3", system) for system in systems}
    return job.figures(spark, results.out, list(results.rows(rows.FACTS))), found


def cell(digested: Digested, system: str, reader: str = "c1") -> Json:
    (found,) = (one for one in digested[0]["cells"] if (one["system"], one["reader"]) == (system, reader))
    return dict(found)


@pytest.mark.parametrize("system", [KAFKA, "layer-programs"])
def test_errors_and_usage_are_those_of_the_definitions(digested: Digested, system: str) -> None:
    run = digested[1][system]
    for reader in ("c1", "c2"):
        row = cell(digested, system, reader)
        for topic in TOPICS:
            own = [one for one in run.samples if (one.reader, one.topic) == (reader, topic)]
            wanted = errors.errors([round(time_ms, 1) for time_ms in run.produced[topic]], own)._asdict()
            assert {name: row["topics"][topic][name] for name in wanted} == pytest.approx(wanted, abs=1e-3)
        usage = errors.usage([one for one in run.used if one.reader == reader])
        assert (row["cpu"], row["cpu_peak"]) == pytest.approx(usage, abs=1e-2), "rows have whole milliseconds"


def test_taken_skipped_and_lost_are_counted_apart(digested: Digested) -> None:
    row = cell(digested, LATEST)
    topics = row["topics"]
    assert row["lost"] == 0
    assert all(state["taken"] + state["skipped"] == state["last"] for state in topics.values())
    taken = {topic: state["taken"] for topic, state in topics.items()}
    assert row["taken_per_s"] == pytest.approx(sum(taken.values()) / small.LENGTH_S, abs=1e-3)
    units = sum(small.LOAD.experiments["e3"].units[topic] * count for topic, count in taken.items())
    assert row["units_per_s"] == pytest.approx(units / small.LENGTH_S, abs=1e-3)


def test_the_greatest_bounds_of_the_layer_are_known(digested: Digested) -> None:
    run = digested[1]["layer-programs"]
    wanted = max(one.staleness_ms for one in run.controls if one.topic == HIGH)
    assert cell(digested, "layer-programs")["bounds"][HIGH]["staleness_bound_ms"] == wanted
    assert cell(digested, KAFKA)["bounds"] is None


def test_errors_over_time_are_means_of_windows(digested: Digested) -> None:
    (row,) = (one for one in digested[0]["over_time"] if (one["system"], one["topic"]) == (KAFKA, HIGH))
    assert len(row["staleness_s"]) == small.LENGTH_S / job.WINDOW_S + 1, "the last sample is at the end"
    assert row["staleness_s"] == sorted(row["staleness_s"])


def test_figures_of_virtual_runs_are_means_over_their_seeds() -> None:
    def row(seed: int, reader: str, cpu: float) -> Json:
        topic = dict.fromkeys(ERRORS, cpu)
        return {
            "experiment": "e1",
            "label": "text",
            "seed": seed,
            "reader": reader,
            **dict.fromkeys(("cpu", "cpu_peak", "taken_per_s"), cpu),
            **dict.fromkeys(TOPICS, topic),
        }

    (found,) = job._virtual([row(1, "c1", 1), row(1, "c2", 3), row(2, "c1", 4), row(2, "c2", 4)])
    assert found["seeds"] == 2
    assert (found["cpu"][0], *found["cpu"][2:]) == (3, 2, 4)
    assert found[HIGH]["staleness_s"] == found["cpu"]
