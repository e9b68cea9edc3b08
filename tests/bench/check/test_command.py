"""`bench check causal` as a user runs it: output, errors, exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ingeborg.bench import cli
from ingeborg.bench.text import causal as text
from tests.bench.causality import plain


@pytest.mark.spark
@pytest.mark.prove  # tests/bench/spark/test_causal.py tests the rest, without the process and its own session
@pytest.mark.usefixtures("java")
def test_violations_are_named_and_are_exit_code_1(tmp_path: Path) -> None:
    plain.written("bad", "1>a 2<a 2>b 3<b 3<a").write(tmp_path / "runs" / "bad")
    plain.written("good", "1>a 2<a 2>b 3<a 3<b").write(tmp_path / "runs" / "good")
    out = tmp_path / "causal.json"
    environment = {name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"}
    done = subprocess.run(
        [sys.executable, "-m", "ingeborg.bench.cli", "check", "causal", tmp_path / "runs", "--out", out],
        capture_output=True,
        text=True,
        timeout=500,
        cwd=Path(__file__).parents[3],
        env=environment | {"TMPDIR": str(tmp_path)},
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith("bad: 1 causal violation at 1 connection; 3 deliveries judged, 1 later")
    assert "good: no causal violation; 3 deliveries judged" in done.stdout
    bad, good = json.loads(out.read_text())
    assert [(link["topic"], link["connection"]) for link in bad["examples"][0]["trail"]] == [(1, 1), (2, 2)]
    assert (good["violations"], good["late"]) == (0, 0)
    assert not list(tmp_path.glob("bench-check-*")), "Spark's log is kept only for somebody who has to read it"


def test_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["check"], ["check", "causal"], ["check", "causal", "r", "--shown", "-1"]):
        with pytest.raises(SystemExit) as ended:
            cli.main(arguments)
        assert ended.value.code == 2
    assert "argument --shown: '-1' is not a number of violations: give 0 or more" in capsys.readouterr().err


def test_of_a_log_nothing_moves_the_cursor_and_nothing_shown_is_not_one_more() -> None:
    counts = dict.fromkeys(("deliveries", "late", "reports", "marked", "unsent", "messages"), 0)
    made = counts | {"run": "\x1b[2Jr", "violations": 2, "connections": 1, "whole": True, "examples": []}
    first, *_, last = text.verdicts([made]).splitlines()
    assert first.startswith("?[2Jr: 2 causal violations at 1 connection; ")
    assert last == "  2 not shown"
    assert text.shown(str(10**30)) == text.SHOWN_MAX
