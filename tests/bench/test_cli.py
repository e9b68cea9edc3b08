"""The command as a user runs it: output, errors, exit codes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench import cli
from tests.bench import synthetic


def bench(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bench.cli", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=110,
        env=os.environ | environment,
        cwd=Path(__file__).parents[2],
        check=False,
    )


@pytest.mark.spark
def test_from_logs_to_the_page_without_a_word_of_sparks(tmp_path, spark):
    """And a path with the characters of glob patterns and URIs in it."""
    run = synthetic.radio_run("the run", seconds=3, rate=30).write(tmp_path / "a run [1] {x} %20 ü")
    digest, page = tmp_path / "digest", tmp_path / "new" / "report.html"
    done = bench("digest", run, "--out", digest)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Digested 1 run (")
    assert done.stdout.count("\n") == 1

    done = bench("summary", digest)
    assert done.returncode == 0
    assert "p50" in done.stdout
    assert "4 of 4 met" in done.stdout

    done = bench("report", digest, "--out", page)
    assert (done.returncode, done.stdout) == (0, f"Report: {page}\n")
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert page.with_name("summary.md").read_text(encoding="utf-8").startswith("# Summary")


@pytest.mark.spark
def test_an_old_java_is_one_line_and_no_stack_trace(tmp_path):
    pytest.importorskip("pyspark", reason="PySpark is not installed")
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    java.chmod(0o755)
    done = bench("digest", tmp_path, "--out", tmp_path / "out", JAVA_HOME=str(tmp_path))
    assert done.returncode == 1
    assert done.stderr.startswith("bench: Java 11 ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("arguments", [[], ["digest"], ["report", "d"], ["digest", "r", "--out"], ["unknown"]])
def test_wrong_usage_is_exit_code_2(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2
    assert "usage: bench" in capsys.readouterr().err


def test_help_shows_the_commands(capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    for text in ("digest", "report", "summary", "bench digest runs/"):
        assert text in shown


@pytest.mark.parametrize("command", [["summary"], ["report", "--out", "x.html"]])
def test_what_is_no_digest_is_an_error_in_one_line(command, tmp_path, capsys):
    assert cli.main([command[0], str(tmp_path), *command[1:]]) == 1
    (tmp_path / "digest.json").write_text('{"digest": 99, "runs": []}')
    assert cli.main([command[0], str(tmp_path), *command[1:]]) == 1
    said = capsys.readouterr().err.splitlines()
    assert [line.startswith("bench: ") for line in said] == [True, True]
    assert "is not a digest" in said[0]
    assert "version" in said[1]
