"""`bench check causal` as a user runs it: output, errors, exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ingeborg.bench import cli
from tests.bench.causality import plain


@pytest.mark.spark
@pytest.mark.usefixtures("java")
def test_violations_are_named_and_are_exit_code_1(tmp_path: Path) -> None:
    plain.written("bad", "1>a 2<a 2>b 3<b 3<a").write(tmp_path / "runs" / "bad")
    plain.written("good", "1>a 2<a 2>b 3<a 3<b").write(tmp_path / "runs" / "good")
    command = [sys.executable, "-m", "ingeborg.bench.cli", "check", "causal"]

    def run(*arguments: Path | str) -> subprocess.CompletedProcess[str]:
        where = Path(__file__).parents[3]
        # A Python of other packages, or of none, comes first on the path: what is shipped runs on ours.
        environment = {name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"}
        environment["TMPDIR"] = str(tmp_path)
        return subprocess.run(
            [*command, *map(str, arguments)], capture_output=True, text=True, timeout=500, cwd=where, env=environment
        )

    done = run(tmp_path / "runs", "--out", tmp_path / "causal.json")
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith("bad: 1 causal violation at 1 connection; 3 deliveries judged, 1 of them")
    assert "good: no causal violation; 3 deliveries judged" in done.stdout
    bad, good = json.loads((tmp_path / "causal.json").read_text())
    assert [(link["topic"], link["connection"]) for link in bad["examples"][0]["trail"]] == [(1, 1), (2, 2)]
    assert (good["violations"], good["late"]) == (0, 0)
    assert not list(tmp_path.glob("bench-check-*")), "Spark's log is kept only for somebody who has to read it"

    done = run(tmp_path / "runs" / "good")
    assert (done.returncode, done.stderr) == (0, "")
    done = run(tmp_path / "none")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("bench: cannot read the run: ")
    assert done.stderr.count("\n") == 1


def test_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["check"], ["check", "causal"]):
        with pytest.raises(SystemExit) as ended:
            cli.main(arguments)
        assert ended.value.code == 2
    assert cli.main(["check", "causal", "r", "--shown", "-1"]) == 1
    assert "--shown has to be 0 or more" in capsys.readouterr().err
