"""`bench overlay` from its arguments to its tables: in processes, resumed, and the same bytes again."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ingeborg.bench import cli
from ingeborg.bench.experiments.units import PLAN
from ingeborg.bench.overlay import command, summary, work
from ingeborg.bench.overlay.experiments import Cell
from tests import wants

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Json = dict[str, Any]

CELLS = [Cell("thesis", protocol, 30, 2, broadcasts=5) for protocol in ("flood", "plumtree", "grove")]


@pytest.fixture
def one_session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the tests' session in place of one for each batch."""
    from ingeborg.bench.overlay import job

    @contextlib.contextmanager
    def same(*_: Any) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(job, "local_session", same)


def test_the_help_and_the_documentation_name_every_experiment(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["overlay", "--help"])
    said = capsys.readouterr().out
    page = (Path(__file__).parents[3] / "docs" / "overlay.md").read_text(encoding="utf-8")
    for experiment in command.EXPERIMENTS:
        assert f"{experiment}:" in said
        assert f"bench overlay {experiment} " in page


@pytest.mark.spark
@pytest.mark.usefixtures("one_session")
def test_a_run_that_was_cut_short_is_resumed_and_gives_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from ingeborg.bench.overlay import job

    def run(out: Path, *more: str) -> str:
        assert cli.main(["overlay", "thesis", "--nodes", "30", "--processes", "2", "--out", str(out), *more]) == 0
        return capsys.readouterr().out

    monkeypatch.setattr(command, "plan", lambda *_: CELLS)
    said = run(tmp_path / "whole")
    assert "3 cells, 0 of them done earlier" in said
    assert re.search(r"3 cells simulated in \d+ s, 3 digested in \d+ s", said)
    assert re.search(r"events in \d+ s of CPU time: [\d,]+ events/s", said)
    assert not list((tmp_path / "whole" / work.LOGS).iterdir())
    kept = {
        path.relative_to(tmp_path / "whole"): path.read_bytes()
        for folder in (work.ROWS, job.DIGESTED, command.CELLS, command.SUMMARY, command.PAGE)
        for path in sorted((tmp_path / "whole" / folder).rglob("*.*")) or [tmp_path / "whole" / folder]
    }
    assert len(kept) == 2 * len(CELLS) + 3

    # As if the run had been cut short after its first cell.
    out = tmp_path / "resumed"
    shutil.copytree(tmp_path / "whole", out, ignore=shutil.ignore_patterns(*(f"*{cell.name}*" for cell in CELLS[1:])))
    for name in (command.CELLS, command.SUMMARY, command.PAGE):
        (out / name).unlink()
    work.run(CELLS[1], out)  # simulated, but not digested yet
    work.run(CELLS[2], out)
    job.discard([CELLS[2]], out)  # its log is gone
    assert "3 cells, 1 of them done earlier" in run(out, "--keep-logs")
    assert sorted(path.name for path in (out / work.LOGS).iterdir()) == sorted(cell.name for cell in CELLS[1:])
    assert {path: (out / path).read_bytes() for path in kept} == kept
    assert "3 cells, 3 of them done earlier" in run(out)
    for name in (command.PAGE, command.SUMMARY):
        (out / name).unlink()
    run(out, "--again")
    assert {path: (out / path).read_bytes() for path in kept} == kept


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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], differs: bool
) -> None:
    wants.module("pyspark", "bench")
    from ingeborg.bench.overlay import job
    from ingeborg.bench.spark import job as of_any_log

    monkeypatch.setattr(job, "local_session", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(command, "plan", lambda *_: CELLS[:1])
    work.run(CELLS[0], tmp_path)
    path = work.path_of(tmp_path, work.ROWS, CELLS[0])
    document = digested(json.loads(path.read_text(encoding="utf-8")))
    monkeypatch.setattr(of_any_log, "digest", lambda *_, **__: document)
    if differs:
        path.write_text(path.read_text(encoding="utf-8").replace('"p99_ms":', '"p99_ms":1'), encoding="utf-8")
    assert cli.main(["overlay", "thesis", "--out", str(tmp_path), "--nodes", "30"]) == int(differs)
    said = capsys.readouterr().err
    assert ("the simulator and the digest of its log differ: first: p99_ms" in said) is differs
    assert (tmp_path / work.LOGS / CELLS[0].name).is_dir() is differs


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--nodes", "11"], "--nodes must be from 12 to 20000"),
        (["--nodes", "20001"], "--nodes must be from 12 to 20000"),
        (["--processes", "0"], "--processes has to be 1 or more"),
        (["--protocols", "star"], "part crash has no cells with protocol star"),
        (["--again"], "has no readable overlay.json.xz from bench overlay"),
    ],
)
def test_what_cannot_be_run_is_said_in_a_line(
    tmp_path: Path, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new"
    assert cli.main(["overlay", "crash", "--out", str(out), *arguments]) == (1 if "readable" in words else 2)
    assert not out.exists()
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1


def test_results_of_other_sources_are_not_mixed_in(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / PLAN).write_text(json.dumps({"sources": "of a former release"}), encoding="utf-8")
    assert cli.main(["overlay", "churn", "--out", str(tmp_path)]) == 1
    assert "holds the results of another plan (other sources): give another --out" in capsys.readouterr().err


def test_a_share_says_whether_it_is_all() -> None:
    assert [summary.share(value) for value in (1.0, 0.99999999, 0.5)] == ["100 %", "99.9999 %", "50.0000 %"]
