"""The whole job against a plain computation, and the digest of runs with known answers."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ingeborg.bench.digest import files as digestdir
from ingeborg.bench.digest.document import Json
from ingeborg.bench.errors import ExtraMissing
from tests import wants
from tests.bench import naive, synthetic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Digested = tuple[dict[str, Json], dict[str, list[Json]], list[str]]
"""Run id -> its digest, the tables, and the output."""

pytestmark = pytest.mark.spark

COUNTS = (
    "news",
    "reports",
    "duplicates_offered",
    "expected",
    "delivered",
    "lost",
    "conflated",
    "duplicated",
    "reordered",
    "overtaken",
    "excess",
    "unannounced",
    "errors",
)
RATES = ("produce_per_s", "consume_per_s", "end_to_end_per_s")


def digest(spark: SparkSession, paths: Sequence[Path], out: Path, **options: Any) -> Digested:
    """Return run id -> its digest, the tables, and the output."""
    from ingeborg.bench.spark import job

    said: list[str] = []
    document = job.digest(spark, [str(path) for path in paths], out, say=said.append, **options)
    assert document == digestdir.read_document(out), "what is written is what was computed"
    return {run["run"]: run for run in document["runs"]}, digestdir.read(out)[1], said


def goals_run() -> synthetic.Run:
    """Return a run with bad latency in an unmeasured phase; deliveries of the measured phase arrive in the drain."""
    s = synthetic
    warm = [s.news("warm", 1, 1, 0, 1), s.received("warm", 1, 1, 1, 0, 9 * s.S)]
    run = [s.news("run", 1, 2, 2 * s.S, 2)]
    late = [s.received("drain", c, 1, 2, 2 * s.S, 2 * s.S + c * 300 * s.MS) for c in (1, 2)]
    phases = [
        s.phase("warm", "search", 0, s.S, detail="held"),
        s.phase("run", "run", 2 * s.S, 4 * s.S, 1, offered_per_s=0.5),
        s.phase("drain", "drain", 4 * s.S, 5 * s.S),
        s.phase("unsubscribe", "unsubscribe", 5 * s.S, 7 * s.S, amount=500),
    ]
    return s.Run(s.facts("goals", goals={"p50_ms": 300, "p99_ms": 500}), [warm + run + late], phases)


def machine_run() -> synthetic.Run:
    """Return a run with a restarted process, a counter with labels and commas in its name, one that goes back, and a
    level."""
    s = synthetic
    run = s.radio_run("machine", seconds=2, rate=20)
    run.machine = [
        s.sample(0, "a", "server", 10.0, 100, 80),
        s.sample(s.S, "a", "server", 10.5, 300, 280),
        s.sample(s.S + s.S // 50, "a", "server", 10.53, 300, 280),
        s.sample(3 * s.S, "a", "server", 0.1, 200, 180),
    ]
    at = s.START_NS + 2 * s.S
    dropped = '"x_duplicates_dropped_total{endpoint=""a,b""}"'
    run.counters = [
        (at, "run", "a", dropped, 5),
        (at + s.S, "run", "a", dropped, 25),
        (at, "drain", "a", dropped, 25),
        (at + s.S, "drain", "a", dropped, 100),
        (at, "run", "b", "y_total", 50),
        (at + s.S, "run", "b", "y_total", 7),
        (at, "run", "b", "level", 1),
        (at + s.S, "run", "b", "level", 9),
    ]
    return run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write two runs with known answers and two that failed, below one directory; none has a goal of causal order."""
    directory = tmp_path_factory.mktemp("runs")
    for run in (goals_run(), machine_run()):
        run.write(directory / "some" / run.facts["run"])
    failed = synthetic.Run(synthetic.facts("failed", complete=False, failed="the server did not start"), [], [])
    failed.write(directory / "others" / "deep" / "failed")
    torn = synthetic.Run(synthetic.facts("torn", complete=False, failed="a process died"), [goals_run().parts[0]], [])
    with (torn.write(directory / "others" / "torn") / "events-000-0000.csv").open("a") as file:
        file.write("received,run,1,1,3,50000")
    synthetic.name_files(directory / "others" / "torn")
    return directory


@contextmanager
def without_arrow() -> Iterator[None]:
    """Simulate that pyarrow is not installed, and that no module has imported it."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("pyarrow", "pyarrow.parquet"):
            patch.setitem(sys.modules, name, None)
        for module in ("causal", "happened", "shipped"):
            patch.delitem(sys.modules, f"ingeborg.bench.spark.{module}", raising=False)
        yield


@pytest.fixture(scope="module")
def digested(spark: SparkSession, folder: Path) -> Digested:
    """Return the digest of these runs, in the same directory, by one job that has no Arrow and needs none."""
    with without_arrow():
        return digest(spark, [folder], folder)


def close(value: float | None) -> Any:
    return None if value is None else pytest.approx(value)


# Each example is a job over all its runs. A failing one names its run's seed: shrinking it, job by job, is not needed.
@settings(
    max_examples=1,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(seeds=st.lists(st.integers(0, 2**64 - 1), min_size=50, max_size=50, unique=True))
def test_random_runs_agree_with_a_plain_computation(several: SparkSession, seeds: list[int]) -> None:
    runs = {f"r{seed}": synthetic.random_run(f"r{seed}", random.Random(seed)) for seed in seeds}
    with tempfile.TemporaryDirectory() as directory:
        for name, run in runs.items():
            run.write(Path(directory) / name)
        documents, tables, _ = digest(several, [Path(directory)], Path(directory))
    seen = dict.fromkeys(COUNTS, 0)
    saturated = set()
    assert set(documents) == set(runs)
    for name, run in runs.items():
        expected = naive.digest(run)
        for phase in documents[name]["phases"]:
            compare_phase(phase, expected["phases"][phase["phase"]], f"{name}, {phase['phase']}")
            saturated |= {found["part"] for found in phase["saturated"]}
            for count in COUNTS:
                seen[count] += phase[count]
        compare_memory(documents[name], expected["phases"], name)
        compare_measured(documents[name]["measured"], run, expected["phases"], name)
        compare_seconds([row for row in tables["seconds"] if row["run"] == name], expected["seconds"], name)
        in_buckets = sum(row["deliveries"] for row in tables["histogram"] if row["run"] == name)
        assert in_buckets == sum(phase["delivered"] for phase in documents[name]["phases"])
    assert all(seen[count] for count in COUNTS if count != "excess"), f"the runs do not try everything: {seen}"
    assert saturated == {"generator", "layer", "machine"}


def compare_phase(phase: Json, plain: Json, where: object) -> None:
    assert {count: phase[count] for count in COUNTS} == {count: plain[count] for count in COUNTS}, where
    latency = dict(phase["latency_ns"])
    assert latency.pop("mean") == close(plain["mean_ns"]), where
    assert latency == plain["latency_ns"], where
    assert phase["lag_ns"] == plain["lag_ns"], where
    assert phase["error_codes"] == plain["codes"], where
    for rate in RATES:
        assert phase[rate] == close(plain[rate]), (where, rate)
    assert set(phase["processes"]) == set(plain["processes"]), where
    for role, used in plain["processes"].items():
        assert phase["processes"][role] == {name: close(value) for name, value in used.items()}, (where, role)
    for role, cost in phase["cpu_us_per_delivered"].items():
        known = role in plain["processes"] and plain["delivered"]
        assert cost == (close(plain["processes"][role]["cpu_s"] / plain["delivered"] * 1e6) if known else None), where
    assert [found["part"] for found in phase["saturated"]] == plain["saturated"], where
    noise = plain["noise"]
    if noise is None:
        assert phase["noise"] is None, where
        return
    assert phase["noise"]["seconds"] == noise["seconds"], where
    assert phase["noise"]["delivered_per_s"] == {"mean": close(noise["mean"]), "cv": close(noise["cv"])}, where
    p99 = noise["p99"]
    median = (p99[(len(p99) - 1) // 2] + p99[len(p99) // 2]) / 2 if len(p99) >= 3 else None
    assert phase["noise"]["p99_ns"]["median"] == close(median), where


def compare_memory(document: Json, phases: Json, where: object) -> None:
    for kind, name in (("connect", "connection"), ("subscribe", "subscription")):
        assert document["memory"][f"server_bytes_per_{name}"] == close(phases[kind]["memory"]), (where, name)


def compare_measured(total: Json, run: synthetic.Run, phases: Json, where: object) -> None:
    measured = [row[0] for row in run.phases if row[4]]
    for count in COUNTS:
        assert total[count] == sum(phases[phase][count] for phase in measured), (where, count)
    values = [value for phase in measured for value in phases[phase]["values"]]
    for point, p in naive.POINTS.items():
        assert total["latency_ns"][point] == (naive.nearest_rank(values, p) if values else None), where


def compare_seconds(rows: list[Json], seconds: dict[int, Json], where: object) -> None:
    table = {int(row["second"]): row for row in rows}
    assert sorted(table) == list(range(min(table), max(table) + 1)), "no second is left out"
    assert set(seconds) <= set(table), where
    for second, row in table.items():
        plain = seconds.get(second, {})
        for key in ("news", "reports", "duplicates_offered", "delivered", "errors"):
            assert row[key] == plain.get(key, 0), (where, second, key)
        for key in ("p50_ns", "p99_ns", "max_ns"):
            assert row[key] == plain.get(key), (where, second, key)


def test_what_the_phases_say_of_themselves(digested: Digested) -> None:
    warm, run, _, undone = digested[0]["goals"]["phases"]
    assert (warm["kind"], warm["detail"], warm["offered_per_s"], warm["amount"]) == ("search", "held", None, None)
    assert (run["kind"], run["offered_per_s"], run["amount_per_s"]) == ("run", 0.5, None)
    assert (undone["amount"], undone["amount_per_s"]) == (500, 250)


def test_a_run_that_failed_before_its_first_event_is_listed_with_the_reason(digested: Digested) -> None:
    failed = digested[0]["failed"]
    assert failed["failed"] == "the server did not start"
    assert failed["phases"] == []
    assert failed["measured"]["latency_ns"]["p50"] is None
    assert [goal["met"] for goal in failed["goals"]] == [False] * 4
    assert not [row for rows in digested[1].values() for row in rows if row["run"] == "failed"]


def test_what_a_killed_process_left_torn_is_said(digested: Digested) -> None:
    torn = digested[0]["torn"]
    assert (torn["failed"], torn["log"]["torn"]) == ("a process died", ["events-000-0000.csv"])


def test_goals_are_judged_by_measured_phases_only(digested: Digested) -> None:
    run = digested[0]["goals"]
    assert run["measured"]["delivered"] == 2
    assert run["measured"]["delivered_per_s"] == 1.0
    assert {goal["goal"]: (goal["measured"], goal["met"]) for goal in run["goals"]} == {
        "p50_ms": (300.0, True),
        "p99_ms": (600.0, False),
        "lost": (0, True),
        "duplicated": (0, True),
    }


def test_processor_rates_are_differences_and_a_restart_or_20_ms_give_none(digested: Digested) -> None:
    rows = [row for row in digested[1]["machine"] if row["run"] == "machine"]
    assert [(row["second"], row["role"], row["cpu_cores"], row["rss_bytes"], row["anon_bytes"]) for row in rows] == [
        (0, "server", None, 100, 80),
        (1, "server", 0.5, 300, 280),
        (1, "server", None, 300, 280),
        (3, "server", None, 200, 180),
    ]
    memory = digested[0]["machine"]["memory"]
    assert memory["server_bytes_per_connection"] == 200 / 500, "anonymous bytes, from 80 to 280"


def test_counters_count_over_the_measured_phases(digested: Digested) -> None:
    run = digested[0]["machine"]
    name = 'x_duplicates_dropped_total{endpoint="a,b"}'
    assert {row["name"]: row["delta"] for row in run["counters"]} == {name: 20, "y_total": 7}
    assert run["measured"]["duplicates_dropped"] == 20
    assert any("y_total" in note and "restart" in note for note in run["notes"])


def test_without_arrow_a_digest_that_has_to_judge_causal_order_says_so(spark: SparkSession, tmp_path: Path) -> None:
    judged = goals_run()
    judged.facts["goals"] = {"causal_violations": 0}
    judged.write(tmp_path / "judged")
    with without_arrow(), pytest.raises(ExtraMissing, match="pyarrow is not installed"):
        digest(spark, [tmp_path], tmp_path)


def test_only_what_is_new_or_changed_is_computed(
    spark: SparkSession, folder: Path, digested: Digested, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ingeborg.bench.spark import logs

    read = logs.read
    computed: list[list[str]] = []

    def noted(spark: SparkSession, runs: list[Any]) -> Any:
        computed.append([run.run for run in runs])
        return read(spark, runs)

    monkeypatch.setattr(logs, "read", noted)
    assert (list(digested[0]), digested[2]) == (["failed", "goals", "machine", "torn"], [])
    runs = out = Path(shutil.copytree(folder, tmp_path / "runs"))

    synthetic.radio_run("r3", seconds=2, rate=10, seed=3).write(runs / "r3")
    changed = runs / "some" / "goals" / "phases.csv"
    changed.write_text(changed.read_text().replace(",held", ",hold"))  # the size stays
    documents, _, [said] = digest(spark, [runs], out)
    assert computed.pop() == ["goals", "r3"]
    assert said.startswith("3 of 5 runs")
    assert documents["goals"]["phases"][0]["detail"] == "hold"
    written = {file.name: file.read_bytes() for file in out.iterdir() if file.is_file()}

    documents, tables, [said] = digest(spark, [runs / "r3", runs / "some" / "machine"], out)
    assert (computed, said.partition(" runs")[0]) == ([], "2 of 2")
    assert list(documents) == ["machine", "r3"], "what was not asked for is not in it"
    assert {row["run"] for row in tables["seconds"]} == {"machine", "r3"}

    _, _, all_said = digest(spark, [runs], out, fresh=True)
    assert (computed, all_said) == ([["failed", "goals", "machine", "r3", "torn"]], [])
    now = {file.name: file.read_bytes() for file in out.iterdir() if file.is_file()}
    assert now == written, "put together or at once: the same"


def test_a_run_of_many_deliveries_has_percentiles_of_a_sketch_within_the_error_it_states(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ingeborg.bench.spark import job

    accuracy = 50
    monkeypatch.setattr(job, "EXACT_DELIVERIES_MAX", 2_000)
    monkeypatch.setattr(job, "SKETCH_ACCURACY", accuracy)
    large = synthetic.radio_run("large", seconds=6, rate=120)
    small = synthetic.radio_run("small", seconds=2, rate=10)
    for run in (large, small):
        run.write(tmp_path / run.facts["run"])
    documents, tables, _ = digest(spark, [tmp_path], tmp_path)
    assert documents["small"]["percentile_error"] is None
    assert documents["large"]["percentile_error"] == 1 / accuracy
    assert any("off by at most 2.0000% of" in note for note in documents["large"]["notes"])

    [phase] = [phase for phase in documents["large"]["phases"] if phase["delivered"]]
    latencies = sorted(row[7] for row in large.events if row[0] == "received")
    assert len(latencies) == phase["delivered"] > 2_000
    exact = naive.digest(large)
    assert phase["latency_ns"]["max"] == latencies[-1]
    assert [latency for _, latency in phase["curve"]] != [
        naive.nearest_rank(latencies, ppm / 1e6) for ppm, _ in phase["curve"]
    ], "a sketch this coarse is off somewhere"
    for ppm, latency in phase["curve"]:
        place = latencies.index(latency) + 1
        assert abs(place - ppm / 1e6 * len(latencies)) <= len(latencies) / accuracy + 1, ppm
    compare_seconds([row for row in tables["seconds"] if row["run"] == "large"], exact["seconds"], "exact by second")
    [phase] = [phase for phase in documents["small"]["phases"] if phase["delivered"]]
    assert phase["latency_ns"]["p99"] == naive.digest(small)["phases"]["run"]["latency_ns"]["p99"]


@pytest.mark.slow
def test_the_job_is_a_script_for_spark_submit(tmp_path: Path, spark: SparkSession) -> None:
    """It runs in its own process, without the package on Spark's path, with a session that is not ours. `job.digest`
    computes, as above; so a missing run is enough, and saves half a minute."""
    submit = shutil.which("spark-submit", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if submit is None:
        wants.skip("spark-submit", "pip install -e '.[bench]'")
    root = Path(__file__).parents[3]
    job = root / "bench" / "spark" / "job.py"
    done = subprocess.run(
        [submit, "--master", "local[1]", "--conf", "spark.ui.enabled=false", job, "/no/such/run", "--out", tmp_path],
        capture_output=True,
        text=True,
        timeout=500,
        env=os.environ | {"PYTHONPATH": str(root), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        check=False,
    )
    assert done.returncode == 1, done.stderr[-2000:]
    # Spark passes on both streams of the script as its output.
    assert done.stdout == "bench: cannot read the run: Path does not exist: file:/no/such/run.\n"
