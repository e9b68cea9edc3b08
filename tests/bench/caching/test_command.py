"""`bench caching` from its arguments to its page: in processes, resumed, and the same bytes again."""

from __future__ import annotations

import contextlib
import json
import lzma
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ingeborg.bench import cli
from ingeborg.bench.caching import command, plan, work
from ingeborg.bench.caching.cases import Document, Sweep, Unit
from ingeborg.bench.caching.found import LIVE
from ingeborg.bench.caching.live import cases as live_cases
from ingeborg.bench.caching.live import subscribing
from ingeborg.bench.caching.policies.named import NOVEL
from ingeborg.bench.experiments import units
from ingeborg.bench.experiments.units import PLAN

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UNITS: list[Unit] = [
    *(Document(60, seed, share) for seed in (1, 2) for share in (None, 0.1)),
    *(Sweep(policy, seed, records=60) for policy in NOVEL for seed in (1, 2)),
]
MEASURED = [
    *(live_cases.Unit("latency", 200, name, subscribers=30) for name in ("none", "all")),
    live_cases.Unit("latency", 200, "none", via=live_cases.KAFKA, subscribers=30),
]


@pytest.fixture
def one_session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the tests' session in place of separate sessions."""
    from ingeborg.bench.caching import job
    from ingeborg.bench.caching.live import job as live_job

    @contextlib.contextmanager
    def same(*_: Any) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(live_job, "local_session", same)
    monkeypatch.setattr(job, "local_session", same)


@pytest.fixture
def small_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscribing, "POLL_S", 0.05)
    monkeypatch.setattr(plan, "streams", lambda *_, **__: UNITS)
    monkeypatch.setattr(plan, "processes", lambda *_, **__: MEASURED)


@pytest.mark.spark
@pytest.mark.usefixtures("one_session", "small_plan")
def test_a_run_that_was_cut_short_is_resumed_and_gives_the_same_bytes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "caching"
    arguments = ["caching", "--out", str(out), "--seeds", "2", "--processes", "2"]
    with monkeypatch.context() as patch:
        patch.setattr(plan, "streams", lambda *_, **__: UNITS[:1])
        patch.setattr(command, "_digest", lambda out: None)
        patch.setattr(command, "_pages", lambda out: None)
        assert cli.main([*arguments, "--no-live"]) == 0
        said = capsys.readouterr().out
        assert "latency and throughput are left out (--no-live)" in said
        assert not (out / LIVE).exists()
    assert cli.main([*arguments, "--note", "Nothing else ran."]) == 0
    said = capsys.readouterr().out
    assert re.search("10 streams, 1 done before", said)
    assert "no comparison with libcachesim" in said
    assert "1 units are left out without a Kafka: give --kafka" in said
    assert "| 1. Buffer has consistently the best hit rate" in said
    kept = {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}
    assert kept.keys() >= {command.DIGEST, command.MEASURED, command.PAGE, command.SUMMARY, PLAN}
    facts = json.loads(lzma.decompress(kept[command.MEASURED]))["facts"]
    assert facts["note"] == "Nothing else ran."
    assert facts.keys() >= {"cores", "memory_bytes", "kernel", "python", "form"}
    assert "Nothing else ran." in kept[command.PAGE].decode()
    for name in (command.PAGE, command.SUMMARY):
        (out / name).unlink()
    assert cli.main(["caching", "--out", str(out), "--again"]) == 0
    assert {name: (out / name).read_bytes() for name in kept} == kept

    other = tmp_path / "other"
    assert cli.main(["caching", "--out", str(other), "--seeds", "2", "--processes", "1", "--no-live"]) == 0
    assert (other / command.DIGEST).read_bytes() == kept[command.DIGEST]
    text = (other / command.PAGE).read_text(encoding="utf-8")
    assert "Experiment 1" in text
    assert "Experiment 3" not in text


@pytest.mark.usefixtures("small_plan")
def test_what_has_failed_is_said_after_the_page_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made: list[Path] = []
    monkeypatch.setattr(units, "run_streams", lambda *_: None)
    monkeypatch.setattr(command, "_live", lambda *_: ["one", "other"])
    monkeypatch.setattr(command, "_digest", made.append)
    monkeypatch.setattr(command, "_pages", made.append)
    assert cli.main(["caching", "--out", str(tmp_path)]) == 1
    assert made == [tmp_path, tmp_path]
    assert "2 units have failed: one, other; run the command again" in capsys.readouterr().err


def test_without_a_log_its_streams_are_left_out_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plans: list[list[Unit]] = []
    monkeypatch.setattr(units, "run_streams", lambda _, due, *__: plans.append([unit for unit, *_ in due]))
    monkeypatch.setattr(command, "_digest", lambda _: None)
    monkeypatch.setattr(command, "_pages", lambda _: None)
    assert cli.main(["caching", "--out", str(tmp_path), "--no-live"]) == 0
    [units_of] = plans
    left_out = len(plan.streams(log=True)) - len(units_of)
    assert left_out > 0
    assert not any(unit.wants_log for unit in units_of)
    assert f"{left_out} streams are left out without a now-playing log: give --log" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--seeds", "0"], "--seeds must be from 1 to 100"),
        (["--only", "experiment1", "experiment9"], "no part is called experiment9; the parts are experiment1, "),
        (["--processes", "0"], "--processes has to be 1 or more"),
        (["--store", "lmdb"], "--store must be riak:HOST:PORT"),
        (["--store", "riak:one:port"], "--store riak:one:port: 'one:port' must be HOST:PORT"),
        (["--store", "riak:127.0.0.1:1"], "127.0.0.1:1"),
        (["--libcachesim", "/nowhere/python"], "/nowhere/python does not start"),
        (["--log", __file__], "no column station, offset_s, artist, track, duration_s in the header line"),
        (["--log", "/nowhere.csv"], "/nowhere.csv: No such file"),
        (["--again"], "has no caching.json.xz and live.json.xz of bench caching"),
    ],
)
def test_what_cannot_be_run_is_said_in_a_line(
    tmp_path: Path, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["caching", "--out", str(tmp_path), *arguments]) == (
        2 if re.search("has to be|must be|no part", words) else 1
    )
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1
    assert not any(tmp_path.iterdir())


@pytest.mark.usefixtures("small_plan")
def test_results_of_another_plan_are_not_mixed_in(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    former = {"seeds": 3, "log": None, "sources": "of a former release"}
    (tmp_path / PLAN).write_text(json.dumps(former), encoding="utf-8")
    assert cli.main(["caching", "--out", str(tmp_path), "--seeds", "2"]) == 1
    assert "holds the results of another plan (other seeds, sources): give another --out" in capsys.readouterr().err
    assert not (tmp_path / work.ROWS).exists()


def test_the_policies_are_among_the_sources_and_what_looks_at_rows_is_not() -> None:
    here = Path(command.__file__).parent
    assert all((here / name).is_file() for name in command.NOT_IN_ROWS if name != "__main__.py")
    assert command.sources() != command.live_sources()


def test_a_part_and_a_seed_run_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Unit] = []
    monkeypatch.setattr(units, "run_streams", lambda _, due, *__: ran.extend(unit for unit, *_ in due))
    monkeypatch.setattr(command, "_digest", lambda _: None)
    monkeypatch.setattr(command, "_pages", lambda _: None)
    assert cli.main(["caching", "--out", str(tmp_path), "--only", "experiment6", "--seeds", "1"]) == 0
    assert ran == [Sweep("mean", 1), Sweep("mean", 1, 0.1)]
    assert not (tmp_path / LIVE).exists()
