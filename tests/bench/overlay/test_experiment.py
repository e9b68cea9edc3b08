"""`bench overlay` as an evaluation: from its arguments to its report, and the check of its logs."""

from __future__ import annotations

import contextlib
import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ingeborg.bench import cli
from ingeborg.bench.errors import BenchError
from ingeborg.bench.experiments import runner
from ingeborg.bench.experiments.experiment import Results, Unit
from ingeborg.bench.overlay import cases, experiment, work
from ingeborg.bench.overlay.cases import Cell
from ingeborg.bench.overlay.experiment import Overlay
from tests import wants

if TYPE_CHECKING:
    pass

Json = dict[str, Any]

CELLS = [Cell("thesis", protocol, 30, broadcasts=5) for protocol in ("flood", "plumtree", "grove")]


def planned(monkeypatch: pytest.MonkeyPatch, cells: Sequence[Cell] = CELLS) -> list[Unit]:
    """Make these cells the plan of every command."""
    plan = [Unit(cell.name, "grove", cell, cell.cost) for cell in cells]
    monkeypatch.setattr(cases, "units", lambda *_: plan)
    return plan


@pytest.mark.spark
@pytest.mark.usefixtures("one_session")
def test_a_run_checks_its_logs_and_deletes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from ingeborg.bench.experiments.digesting import DIGESTED

    planned(monkeypatch)
    monkeypatch.setattr(experiment, "AT_ONCE", 2 * CELLS[0].deliveries)
    out = tmp_path / "out"
    assert cli.main(["overlay", "--out", str(out), "--processes", "2"]) == 0
    said = capsys.readouterr().out
    assert said.count("checking the logs of 2 cells …") == said.count("checking the logs of 1 cells …") == 1
    assert not list((out / work.LOGS).iterdir())
    document = Results(out).read("overlay.json.xz")
    assert [row["cell"] for row in document["cells"]] == sorted(cell.name for cell in CELLS)
    assert all(row["digest"]["run"]["lost"] == 0 for row in document["cells"])
    assert "All protocols compared" in (out / runner.PAGE).read_text(encoding="utf-8")

    # As if the run had been interrupted before the check of the last batch.
    work.run(CELLS[2], Results(out))
    Results(out).path(DIGESTED, CELLS[2].name).unlink()
    assert cli.main(["overlay", "--out", str(out), "--resume", "--keep-logs"]) == 0
    assert capsys.readouterr().out.count("checking the logs of 1 cells …") == 1
    assert [path.name for path in (out / work.LOGS).iterdir()] == [CELLS[2].name]
    assert Results(out).read("overlay.json.xz") == document

    # As if the run had been interrupted between the digest of a log and its deletion, or while deleting it.
    (out / work.LOGS / CELLS[0].name).mkdir()
    assert cli.main(["overlay", "--out", str(out), "--resume"]) == 0
    assert "checking" not in capsys.readouterr().out
    assert not list((out / work.LOGS).iterdir())


def digested(row: Json) -> Json:
    """Return a digest's document that agrees with the simulator's row (`test_log.py` has a real one)."""
    counts = dict.fromkeys(("lost", "duplicated", "reordered", "excess"), 0)
    phases = [
        {"phase": name, "news": ours["messages"], "delivered": ours["deliveries"], "expected": ours["deliveries"]}
        | {"latency_ns": {figure: ours[f"{figure}_ms"] * 1e6 for figure in ("mean", "p50", "p99", "max")}, **counts}
        for name, ours in row["phases"].items()
    ]
    return {"runs": [{"run": CELLS[0].name, "log": {"lines": 1}, "phases": phases}]}


@pytest.mark.parametrize("differs", [True, False])
def test_a_digest_that_differs_from_the_row_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, differs: bool
) -> None:
    wants.module("pyspark", "bench")
    from ingeborg.bench.experiments import digesting
    from ingeborg.bench.spark import job

    monkeypatch.setattr(digesting, "local_session", lambda *_: contextlib.nullcontext())
    (unit,) = planned(monkeypatch, CELLS[:1])
    results = Results(tmp_path)
    Overlay().run(unit, results)
    path = results.path(work.ROWS, unit.name)
    document = digested(json.loads(path.read_text(encoding="utf-8")))
    monkeypatch.setattr(job, "digest", lambda *_, **__: document)
    if differs:
        path.write_text(path.read_text(encoding="utf-8").replace('"p99_ms":', '"p99_ms":1'), encoding="utf-8")
        with pytest.raises(BenchError, match="the run and the digest of its log differ: first: p99_ms"):
            Overlay().after([unit], results)
    else:
        Overlay().after([unit], results)
    assert work.log_of(unit.work, results).is_dir() is differs


def test_a_batch_has_few_deliveries_or_one_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planned(monkeypatch)
    for most, sizes in ((1, [1, 1, 1]), (2 * CELLS[0].deliveries, [2, 1]), (10**9, [3])):
        monkeypatch.setattr(experiment, "AT_ONCE", most)
        assert [len(batch) for batch in Overlay().batches(plan)] == sizes


@pytest.mark.parametrize("nodes", ["11", "20001"])
def test_a_wrong_number_of_nodes_is_refused_before_anything_runs(
    tmp_path: Path, nodes: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new"
    assert cli.main(["overlay", "--out", str(out), "--nodes", nodes]) == 2
    assert "--nodes must be from 12 to 20000" in capsys.readouterr().err
    assert not out.exists()


def test_the_plan_is_printed_without_java(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nonexistent")
    assert cli.main(["overlay", "--out", str(tmp_path), "--plan", "--only", "grove", "--nodes", "1000"]) == 0
    assert "thesis-grove-n1000-s20-1KB-20ms-seed2" in capsys.readouterr().out
    if importlib.util.find_spec("pyspark") is not None:
        assert cli.main(["overlay", "--out", str(tmp_path / "new"), "--only", "grove"]) == 1
        assert not (tmp_path / "new").exists()
