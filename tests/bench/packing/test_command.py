"""`bench packing` from its arguments to its page: in processes, resumed, and reproduced byte for byte."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ingeborg.bench import cli
from ingeborg.bench.packing import cases, command, page, work
from ingeborg.bench.units import PLAN

from . import small

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def small_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cases, "units", lambda seeds, only: without_solver())


def without_solver() -> list[cases.Unit]:
    return [unit for unit in small.units() if unit.part != cases.OPTIMUM]


@pytest.mark.spark
@pytest.mark.usefixtures("small_plan")
def test_a_run_that_was_cut_short_is_resumed_and_gives_the_same_bytes(
    tmp_path: Path,
    results: Path,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from ingeborg.bench.packing import job

    monkeypatch.setattr(job, "digest", lambda out: job.figures(spark, out))
    out = tmp_path / "packing"
    arguments = ["packing", "--out", str(out), "--seeds", "2", "--processes", "2"]
    first = small.first("200 in order")
    with monkeypatch.context() as patch:
        patch.setattr(cases, "units", lambda seeds, only: [first])
        patch.setattr(command, "_digest", lambda out: None)
        patch.setattr(command, "_pages", lambda out: None)
        assert cli.main(arguments) == 0
    monkeypatch.setattr(cases, "units", lambda seeds, only: [unit for unit in without_solver() if unit.seed == 1])
    assert cli.main(arguments) == 0
    said = capsys.readouterr().out
    assert re.search(r"\d+ streams, 1 done before", said)
    assert "mend" in said
    for kind in (work.ROWS, work.LATENCIES):
        for path in (out / kind).iterdir():
            assert path.read_bytes() == (results / kind / path.name).read_bytes()
    kept = {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}
    assert kept.keys() >= {command.DIGEST, command.TIMES, command.PAGE, command.SUMMARY}
    for name in kept.keys() - {command.DIGEST, command.TIMES, PLAN}:
        (out / name).unlink()
    assert cli.main(["packing", "--out", str(out), "--again"]) == 0
    assert {name: (out / name).read_bytes() for name in (command.PAGE, command.SUMMARY)} == {
        name: kept[name] for name in (command.PAGE, command.SUMMARY)
    }
    assert cli.main(arguments) == 0
    assert (out / command.DIGEST).read_bytes() == kept[command.DIGEST]
    html = kept[command.PAGE].decode()
    assert "The optimum is unknown" in html
    assert all(f"Figure {number}" in html for number in (5, 7, 8, 9, 10, 11, "12a", "12b"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--seeds", "0"], "--seeds has to be from 1 to 1000"),
        (["--seeds", "1001"], "--seeds has to be from 1 to 1000"),
        (["--processes", "0"], "--processes has to be 1 or more"),
        (["--again"], "has no packing.json.xz and times.json of bench packing"),
    ],
)
def test_what_cannot_be_run_is_said_in_a_line(
    tmp_path: Path, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["packing", "--out", str(tmp_path), *arguments]) == (2 if "has to be" in words else 1)
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1


def test_an_interpreter_without_a_solver_is_refused_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "packing"
    assert cli.main(["packing", "--out", str(out), "--optimum", str(tmp_path / "nonexistent")]) == 1
    assert "nonexistent does not start" in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.usefixtures("small_plan")
def test_results_of_another_plan_are_not_mixed_in(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    former = {"seeds": 3, "optimum": True, "sources": "of a former release"}
    (tmp_path / PLAN).write_text(json.dumps(former), encoding="utf-8")
    assert cli.main(["packing", "--out", str(tmp_path), "--seeds", "3"]) == 1
    assert "holds the results of another plan (other optimum, sources): give another --out" in capsys.readouterr().err
    assert not (tmp_path / work.ROWS).exists()


def test_the_summary_is_a_table_for_each_of_the_documents_sizes() -> None:
    rows = [
        {"case": case, "items": int(case), "delta": delta, "algorithm": name, "seeds": 2}
        | {"cbs": [0.118, 0.01], "rscore": [8.83, 0.1]}
        for case in ("32", "200")
        for delta in (0.0, 5.0)
        for name in ("MWF", "mend")
    ]
    found = {"names": list(rows[0]), "rows": [list(row.values()) for row in rows]}
    lines = page.summary({"scores": found}).splitlines()
    [small, large] = [line for line in lines if line.startswith("| MWF")]
    assert small == "| MWF       | 11.8%, 8.83 | 11.8%, 8.83 |"
    assert large == "| MWF        | 11.8%, 8.83 | 11.8%, 8.83 |"
