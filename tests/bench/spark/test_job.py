"""The whole job against a plain computation, and what a digest says of a run with known answers."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bench import digestdir
from tests.bench import naive, synthetic

pytestmark = pytest.mark.spark

COUNTS = (
    "news",
    "reports",
    "duplicates_offered",
    "expected",
    "delivered",
    "lost",
    "duplicated",
    "reordered",
    "excess",
    "unannounced",
    "errors",
)


SEED = 20260301


def goals_run() -> synthetic.Run:
    """Bad latency in a phase that is not measured; deliveries of the measured phase that arrive in the drain."""
    s = synthetic
    warm = [s.news("warm", 1, 1, 0, 1), s.received("warm", 1, 1, 1, 0, 9 * s.S)]
    run = [s.news("run", 1, 2, 2 * s.S, 2)]
    late = [s.received("drain", c, 1, 2, 2 * s.S, 2 * s.S + c * 300 * s.MS) for c in (1, 2)]
    phases = [
        ("warm", s.START_NS, s.START_NS + s.S, 0),
        ("run", s.START_NS + 2 * s.S, s.START_NS + 4 * s.S, 1),
        ("drain", s.START_NS + 4 * s.S, s.START_NS + 5 * s.S, 0),
    ]
    return s.Run(s.facts("goals", goals={"p50_ms": 300, "p99_ms": 500}), [warm + run + late], phases)


def machine_run() -> synthetic.Run:
    """A process that is restarted, a counter with labels and commas in its name, one that goes back, and a level."""
    s = synthetic
    run = s.radio_run("machine", seconds=2, rate=20)
    run.machine = [
        (s.START_NS, "a", 10.0, 100, None, None, None, None),
        (s.START_NS + s.S, "a", 10.5, 300, None, None, None, None),
        (s.START_NS + 3 * s.S, "a", 0.1, 200, None, None, None, None),
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


RANDOM = {f"r{index:02d}": synthetic.random_run(f"r{index:02d}", random.Random(SEED + index)) for index in range(30)}


@pytest.fixture(scope="module")
def digested(spark, tmp_path_factory):
    """All these runs in one job, so that they also must not mix: (run id -> its digest, tables)."""
    from bench.spark import job

    directory = tmp_path_factory.mktemp("runs")
    runs = [*RANDOM.values(), goals_run(), machine_run()]
    paths = [str(run.write(directory / run.facts["run"])) for run in runs]
    document = job.digest(spark, paths, directory)
    assert document == digestdir.read_document(directory), "what is written is what was computed"
    return {run["run"]: run for run in document["runs"]}, digestdir.read(directory)[1]


def test_thirty_random_runs_agree_with_a_plain_computation(digested):
    documents, tables = digested
    seen = dict.fromkeys(COUNTS, 0)
    for name, run in RANDOM.items():
        expected = naive.digest(run)
        for phase in documents[name]["phases"]:
            plain = expected["phases"][phase["phase"]]
            where = f"seed {SEED}, {name}, {phase['phase']}"
            assert {count: phase[count] for count in COUNTS} == {count: plain[count] for count in COUNTS}, where
            latency = dict(phase["latency_ns"])
            mean = latency.pop("mean")
            assert latency == plain["latency_ns"], where
            assert mean == (None if plain["mean_ns"] is None else pytest.approx(plain["mean_ns"])), where
            assert phase["error_codes"] == plain["codes"], where
            for count in COUNTS:
                seen[count] += phase[count]

        rows = {int(row["second"]): row for row in tables["seconds"] if row["run"] == name}
        assert sorted(rows) == list(range(min(rows), max(rows) + 1)), "no second is left out"
        assert set(expected["seconds"]) <= set(rows)
        for second, row in rows.items():
            plain = expected["seconds"].get(second, {})
            for key in ("news", "reports", "duplicates_offered", "delivered", "errors"):
                assert row[key] == plain.get(key, 0), (SEED, name, second, key)
            for key in ("p50_ns", "p99_ns", "max_ns"):
                assert row[key] == plain.get(key), (SEED, name, second, key)
        in_buckets = sum(row["deliveries"] for row in tables["histogram"] if row["run"] == name)
        assert in_buckets == sum(phase["delivered"] for phase in documents[name]["phases"])
    assert all(seen[count] for count in COUNTS if count != "excess"), f"the runs do not try everything: {seen}"


def test_totals_over_measured_phases(digested):
    documents, _ = digested
    for name, run in RANDOM.items():
        expected = naive.digest(run)["phases"]
        measured = [phase for phase, _, _, is_measured in run.phases if is_measured]
        total = documents[name]["measured"]
        for count in COUNTS:
            assert total[count] == sum(expected[phase][count] for phase in measured), (SEED, name, count)
        values = [value for phase in measured for value in expected[phase]["values"]]
        for point, p in naive.POINTS.items():
            assert total["latency_ns"][point] == (naive.nearest_rank(values, p) if values else None)


def test_goals_are_judged_by_measured_phases_only(digested):
    run = digested[0]["goals"]
    assert run["measured"]["delivered"] == 2
    assert run["measured"]["delivered_per_s"] == 1.0
    assert {goal["goal"]: (goal["measured"], goal["met"]) for goal in run["goals"]} == {
        "p50_ms": (300.0, True),
        "p99_ms": (600.0, False),
        "lost": (0, True),
        "duplicated": (0, True),
    }


def test_processor_rates_are_differences_and_a_restart_gives_none(digested):
    rows = [row for row in digested[1]["machine"] if row["run"] == "machine"]
    assert [(row["second"], row["cpu_cores"], row["rss_bytes"]) for row in rows] == [
        (0, None, 100),
        (1, 0.5, 300),
        (3, None, 200),
    ]


def test_counters_count_over_the_measured_phases(digested):
    run = digested[0]["machine"]
    name = 'x_duplicates_dropped_total{endpoint="a,b"}'
    assert {row["name"]: row["delta"] for row in run["counters"]} == {name: 20, "y_total": 7}
    assert run["measured"]["duplicates_dropped"] == 20
    assert any("y_total" in note and "restart" in note for note in run["notes"])


@pytest.mark.slow
def test_the_job_is_a_script_for_spark_submit(tmp_path, spark):
    """In its own process, found without the package on Spark's path, with a session that is not ours. What it computes
    is `job.digest`, as above; so a run that is not there is enough, and saves half a minute."""
    submit = shutil.which("spark-submit", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if submit is None:
        pytest.skip("spark-submit is not on the path")
    root = Path(__file__).parents[3]
    job = root / "bench" / "spark" / "job.py"
    done = subprocess.run(
        [submit, "--master", "local[1]", "--conf", "spark.ui.enabled=false", job, "/no/such/run", "--out", tmp_path],
        capture_output=True,
        text=True,
        timeout=110,
        env=os.environ | {"PYTHONPATH": str(root), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        check=False,
    )
    assert done.returncode == 1, done.stderr[-2000:]
    # Spark passes on both streams of the script as its output.
    assert done.stdout == "bench: cannot read the run: Path does not exist: file:/no/such/run.\n"
