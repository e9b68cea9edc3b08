"""`bench packing` as an evaluation: its report, and what it checks before it runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ingeborg.bench import cli
from ingeborg.bench.experiments import runner
from ingeborg.bench.packing import cases, job
from ingeborg.bench.report import html
from ingeborg.bench.text.blocks import claims_of

from . import small

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
@pytest.mark.usefixtures("one_session")
def test_a_run_gives_a_report_with_every_figure(tmp_path: Path, results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = [unit for unit in small.units() if unit.part != cases.OPTIMUM]
    monkeypatch.setattr(cases, "units", lambda seeds, parts: plan)
    out = tmp_path / "packing"
    assert cli.main(["packing", "--out", str(out), "--processes", "2"]) == 0
    for unit in plan:
        for path in results.glob(f"*/{unit.name}.jsonl"):
            assert path.parent.name == "times" or path.read_bytes() == (out / path.relative_to(results)).read_bytes()
    page = (out / runner.PAGE).read_text(encoding="utf-8")
    for number in ("5", "6 and 7", "8", "9", "11a", "11b", "12a", "12b"):
        assert f"Figure {number}:" in page or f"Figures {number}:" in page or f"Figure {number} " in page, number


@pytest.mark.spark
def test_a_part_alone_gives_a_report(results: Path, spark: SparkSession) -> None:
    from ingeborg.bench.experiments.experiment import Digest
    from ingeborg.bench.packing import report

    whole = job.figures(spark, results)
    alone = whole.pure | {"scores": {"names": [], "rows": []}, "reductions": None, "fronts": [], "naming": []}
    made = report.report(Digest(alone, {}))
    assert {claim.where for claim in claims_of(made)} == {"VI-C", "Abstract"}
    assert "Figure 9" not in html.page(made)


@pytest.mark.parametrize(
    ("option", "says"),
    [([], "the part optimum needs --optimum PYTHON"), (["--optimum", "/nonexistent"], "nonexistent does not start")],
)
def test_a_missing_solver_is_refused_before_anything_runs(
    tmp_path: Path, option: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "packing"
    assert cli.main(["packing", "--out", str(out), "--whole", *option]) in (1, 2)
    assert says in capsys.readouterr().err
    assert not out.exists()
