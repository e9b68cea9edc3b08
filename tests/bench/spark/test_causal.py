"""The causal check over logs: known ones, random ones, bad ones, and as a goal of the digest."""

from __future__ import annotations

import importlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ingeborg.bench import cli
from ingeborg.bench.digest.document import Json
from ingeborg.bench.errors import BenchError
from ingeborg.bench.text import causal as text
from tests import wants
from tests.bench import synthetic
from tests.bench.causality import plain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

A, B, C, D = ((topic, 1) for topic in (1, 2, 3, 4))

Late = tuple[int, plain.Message, plain.Message]
"""Connection, the late message, and the message that depends on it and came before."""

KNOWN: dict[str, tuple[str, list[Late]]] = {
    "swapped across topics": ("1>a 1>b 2<b 2<a 3<a 3<b", [(2, A, B)]),
    "received, then sent": ("1>a 2<a 2>b 3<b 3<a", [(3, A, B)]),
    "sent, then received": ("2>b 1>a 2<a 3<b 3<a", []),
    # 2 has not subscribed to b, and 4 has subscribed to neither; 3 gets a after c.
    "through others": ("1>a 2<a 2>b 4<b 4>c 3<c 3<a", [(3, A, C)]),
    "through an own one": ("1>a 2<a 2>b 2>c 4<c 4>d 3<d 3<a 3<b", [(3, A, D), (3, B, D)]),
    "lost": ("1>a 2<a 2>b 3<b", []),
    "copied after": ("1>a 2<a 2>b 3<a 3<b 3<a", []),
    "copied before": ("1>a 2<a 2>b 3<b 3<b 3<a 3<a", [(3, A, B)]),
    "of no order": ("1>a 2>b 3<b 3<a 4<a 4<b", []),
    # One clock reading: the lines of one connection have an order, those of two connections none.
    "received and sent at once": ("1>a 2<a@5 2>b@5 3<b 3<a", [(3, A, B)]),
    "sent and received at once": ("1>a 2>b@5 2<a@5 3<b 3<a", []),
    "all come at once": ("1>a 2<a 2>b 3<b@9 3<a@9 4<a@9 4<b@9", [(3, A, B)]),
    "sent at once by two": ("1>a@5 2>b@5 3<b 3<a 4<a 4<b", []),
    # The write of b may have begun before a came; and it began afterwards.
    "while it was sent": ("1>a 2<a@6 2>b@5-8 3<b 3<a", []),
    "before it was sent late": ("1>a 2<a@5 2>b@5-8 3<b 3<a", [(3, A, B)]),
    # A copy that came before the write returned shows no order; a later message from the same sender does.
    "before the report": ("2<a 1>a 2>b 3<b 3<a", []),
    # A duplicate stands for its original: its sender identifies it, and it depends on the same as the original.
    "a duplicate, then another": ("1>a 4<a 2>a 2>b 3<b 3<a", [(3, A, B)]),
    "a duplicate of what was known": ("1>b 3<b 2<b 1>a 2<a 2>b 3<a 4<b 4<a", []),
    # Either report may have been the original: then b depends on the causes of both.
    "two originals, one had it": ("1>a 2<a 2>b@10 4>b@10-11 3<b 3<a", []),
    "two originals, both had it": ("1>a 2<a 4<a 2>b@10 4>b@10-11 3<b 3<a", [(3, A, B)]),
    # The report that was meant to be first failed, and has no row: it may still have been the original.
    "a report without the first": ("1>a 2<a 2>b~ 3<b 3<a", []),
    "known by a report without the first": ("1>a~ 2<a 2>b 3<b 3<a", [(3, A, B)]),
    "sent by nobody": ("2<a 2>b 3<b 3<a", []),
    # With marks, only marked messages depend on others, marked or not.
    "marked": ("1>a 2<a 2>b* 3<b 3<a", [(3, A, B)]),
    "not marked": ("1>c* 1>a 2<a 2>b 3<b 3<a", []),
    "through one not marked": ("1>a 2<a 2>b 4<b 4>c* 3<c 3<a 3<b", [(3, B, C)]),
}


def check(spark: SparkSession, *paths: Path, shown: int = 10) -> dict[str, Json]:
    from ingeborg.bench.spark import causal

    return {verdict["run"]: verdict for verdict in causal.check(spark, [str(path) for path in paths], shown=shown)}


def lates(examples: Iterable[Json]) -> list[Late]:
    return [
        (each["connection"], (each["topic"], each["seq"]), (each["before_topic"], each["before_seq"]))
        for each in examples
    ]


def test_known_logs_have_what_they_should_and_nothing_else(spark: SparkSession, tmp_path: Path) -> None:
    """All run in one job: each is judged separately, although all have the same connections and topics."""
    for name, (events, _) in KNOWN.items():
        plain.written(name, events).write(tmp_path / name)
    made = check(spark, tmp_path)
    assert {name: lates(verdict["examples"]) for name, verdict in made.items()} == {
        name: late for name, (_, late) in KNOWN.items()
    }
    assert made["sent by nobody"]["unsent"] == 2
    assert made["lost"]["late"] == 0
    assert (made["marked"]["marked"], made["marked"]["reports"], made["lost"]["marked"]) == (1, 2, 0)

    said = text.verdicts([made["through others"]])
    assert said.splitlines() == [
        "through others: 1 causal violation at 1 connection; 4 deliveries judged, 1 of them after a message "
        "that was sent later",
        "  3 publishes, none marked causal, so each depends on everything that its connection had sent or received",
        f"  sequential pass: {made['through others']['pass_s']:.2f} s of a core for 3 messages; clocks have "
        "0.67 entries on average and 1 at most, for messages that could still come too late",
        "  connection 3 got topic 3 no. 1 at 0.006000 s, but topic 1 no. 1, on which it depends, only at 0.007000 s:",
        "    0.001000 s: connection 1 sent topic 1 no. 1",
        "    0.003000 s: connection 2 sent topic 2 no. 1 after topic 1 no. 1, received at 0.002000 s",
        "    0.005000 s: connection 4 sent topic 3 no. 1 after topic 2 no. 1, received at 0.004000 s",
    ]
    said = text.verdicts([made["marked"], made["not marked"], made["sent by nobody"]])
    assert "1 of 2 publishes are marked causal, and only these depend on earlier messages" in said
    assert "not marked: no causal violation; 3 deliveries judged" in said
    assert "not judged: 2 deliveries of messages that nobody in the log sent" in said


# One example is one job over all its runs: shrinking it is not needed.
@settings(
    max_examples=1,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(seeds=st.lists(st.integers(0, 2**64 - 1), min_size=150, max_size=150, unique=True))
def test_random_logs_have_the_violations_that_sets_find(several: SparkSession, seeds: list[int]) -> None:
    runs = {f"r{seed}": plain.random_log(f"r{seed}", random.Random(seed)) for seed in seeds}
    with tempfile.TemporaryDirectory() as directory:
        for name, run in runs.items():
            run.write(Path(directory) / name)
        made = check(several, Path(directory), shown=1)
    wrong = 0
    for name, run in runs.items():
        rows = plain.told(run)
        expected, past = plain.violations(rows), plain.order(rows)
        verdict = made[name]
        assert verdict["violations"] == len(expected), name
        assert verdict["connections"] == len({connection for connection, _ in expected}), name
        assert verdict["deliveries"] == sum(row.originals < 0 and row.message in past for row in rows), name
        for example, (connection, first, last) in zip(verdict["examples"], lates(verdict["examples"]), strict=True):
            wrong += 1
            assert last in expected[connection, first], name
            ends = [(link["topic"], link["seq"]) for link in example["trail"]]
            assert (ends[0], ends[-1]) == (first, last), name
    assert 10 < wrong <= 100, "so many are searched for their trails, of all runs together"
    assert sum(bool(verdict["violations"]) for verdict in made.values()) >= wrong


def test_all_are_counted_and_some_are_shown_and_a_run_that_was_cut_short_is_judged_as_far_as_it_goes(
    spark: SparkSession, tmp_path: Path
) -> None:
    """They run in one job, as known logs do."""
    events = "1>a 1>b " + " ".join(f"{connection}<b {connection}<a" for connection in range(2, 9))
    plain.written("many", events).write(tmp_path / "many")
    cut = plain.written("cut", "1>a 2<a 2>b 3<b 3<a 1>c", complete=False).write(tmp_path / "cut")
    part = cut / "events-000-0000.csv"
    part.write_text(part.read_text()[:-4])
    (cut / "events-001-0000.csv").write_text("")
    synthetic.Run(synthetic.facts("dead", complete=False, failed="no server"), [], []).write(tmp_path / "dead")
    made = check(spark, tmp_path, shown=2)

    many = made["many"]
    assert (many["violations"], many["connections"], many["late"], len(many["examples"])) == (7, 7, 7, 2)
    assert text.verdicts([many]).endswith("  and 5 more")
    assert (made["cut"]["violations"], made["cut"]["torn"]) == (1, ["events-000-0000.csv"])
    said = text.verdicts([made["cut"]])
    assert "The run was cut short. Its log up to that time is judged (1 torn file, 1 empty)" in said
    assert made["dead"]["deliveries"] == 0


def test_bad_logs_are_refused_as_the_digest_refuses_them(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(BenchError, match=r"is not a run|no run in"):
        check(spark, tmp_path)
    whole = plain.written("r", "1>a 2<a 2>b 3<b 3<a").write(tmp_path / "r")
    events = whole / "events-000-0000.csv"
    events.write_text(events.read_text()[:-4])
    with pytest.raises(BenchError, match="torn, although no writer was killed"):
        check(spark, whole)


def test_of_the_command_violations_are_exit_code_1_none_is_0_and_no_run_is_one_line(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from ingeborg.bench.spark import session

    monkeypatch.setattr(session, "local_session", lambda *_, **__: nullcontext(spark))
    bad = plain.written("bad", "1>a 2<a 2>b 3<b 3<a").write(tmp_path / "runs" / "bad")
    good = plain.written("good", "1>a 2<a 2>b 3<a 3<b").write(tmp_path / "runs" / "good")
    out = tmp_path / "causal.json"
    assert cli.main(["check", "causal", str(bad.parent), "--out", str(out)]) == 1
    said = capsys.readouterr()
    assert said.out.startswith("bad: 1 causal violation at 1 connection; 3 deliveries judged, 1 of them after ")
    assert "good: no causal violation; 3 deliveries judged" in said.out
    assert said.err == ""
    assert [verdict["violations"] for verdict in json.loads(out.read_text())] == [1, 0]
    assert cli.main(["check", "causal", str(good)]) == 0
    assert capsys.readouterr().out.startswith("good: no causal violation")
    assert cli.main(["check", "causal", str(tmp_path / "none")]) == 1
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert said.err.startswith("bench: cannot read the run: ")


def test_the_digest_judges_the_goal_of_runs_that_have_it(spark: SparkSession, tmp_path: Path) -> None:
    from ingeborg.bench.spark import job

    goal = {"causal_violations": 0}
    news = [synthetic.news("run", 1, 1, 0, 2), synthetic.news("run", 2, 1, 0, 1)]
    for name, events in (("bad", "1>a 2<a 2>b 3<b 3<a"), ("good", "1>a 2<a 2>b 3<a 3<b"), ("free", "1>a 2<a")):
        run = plain.written(name, events, goals={} if name == "free" else goal)
        run.parts[0][:0] = news
        run.write(tmp_path / name)
    document = job.digest(spark, [str(tmp_path)], tmp_path, say=print)
    found = {
        run["run"]: [goal for goal in run["goals"] if goal["goal"] == "causal_violations"] for run in document["runs"]
    }
    assert [(goal["measured"], goal["met"]) for name in ("bad", "good") for goal in found[name]] == [
        (1, False),
        (0, True),
    ]
    assert found["free"] == []


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("script", ["causal", "job"])
def test_of_a_script_an_error_of_java_is_a_line(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from py4j.protocol import Py4JError

    module = importlib.import_module(f"ingeborg.bench.spark.{script}")

    def failing(*_: object, **__: object) -> None:
        raise Py4JError("An error occurred while calling o1.collect.\n: java.io.IOException: no python3")

    session = SimpleNamespace(stop=lambda: None)
    builder = SimpleNamespace(appName=lambda _: SimpleNamespace(getOrCreate=lambda: session))
    monkeypatch.setattr(module, "SparkSession", SimpleNamespace(builder=builder))
    monkeypatch.setattr(module, "check" if script == "causal" else "digest", failing)
    assert module.main(["r"] if script == "causal" else ["r", "--out", str(tmp_path)]) == 1
    assert capsys.readouterr().err == "bench: Spark failed: java.io.IOException: no python3\n"


@pytest.mark.slow
@pytest.mark.prove  # `test_job.py` has a script for spark-submit that fails early
def test_the_check_is_a_script_for_spark_submit(tmp_path: Path, spark: SparkSession) -> None:
    """It runs on executors that cannot find the package: the code goes with the job."""
    submit = shutil.which("spark-submit", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if submit is None:
        wants.skip("spark-submit", "pip install -e '.[bench]'")
    root = Path(__file__).parents[3]
    run = plain.written("r", "1>a 2<a 2>b 3<b 3<a").write(tmp_path / "r")
    settings = ["spark.ui.enabled=false", "spark.sql.shuffle.partitions=2"]
    settings += ["spark.sql.codegen.wholeStage=false", "spark.sql.codegen.factoryMode=NO_CODEGEN"]  # as in conftest.py
    options = [each for setting in settings for each in ("--conf", setting)]
    done = subprocess.run(
        [submit, "--master", "local[1]", *options, root / "bench/spark/causal.py", run],
        capture_output=True,
        text=True,
        timeout=500,
        env=os.environ | {"PYTHONPATH": str(root), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        check=False,
    )
    assert done.returncode == 1, done.stderr[-2000:]
    assert done.stdout.startswith("r: 1 causal violation at 1 connection")
