"""The command as a user runs it: output, errors, exit codes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from ingeborg.bench import cli
from ingeborg.bench.starting.child import over
from tests import wants
from tests.bench import digests, synthetic

STEPS = {
    "starting Spark",
    "finding the runs",
    "comparing the files with their checksums",
    "reading the logs",
    "computing the figures",
    "writing the digest",
}


def steps(lines: Sequence[str]) -> list[str]:
    """Return the steps of these lines of progress. Each begins with a line, and others give its counts."""
    return [line.removesuffix(" …") for line in lines if not re.fullmatch(r"[A-Za-z ]+: ([0-9]+ of .*, )?\d+ s", line)]


def bench(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ingeborg.bench.cli", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=500,
        env=os.environ | environment,
        cwd=Path(__file__).parents[2],
        check=False,
    )


@pytest.mark.spark
@pytest.mark.usefixtures("java")
def test_from_logs_to_the_page_without_a_word_of_sparks(tmp_path: Path) -> None:
    """The path has characters of glob patterns and URIs."""
    run = synthetic.radio_run("the run", seconds=3, rate=30).write(tmp_path / "a run [1] {x} %20 ü")
    digest, page = tmp_path / "digest", tmp_path / "new" / "report.html"
    done = bench("digest", run, "--out", digest)
    assert done.returncode == 0
    assert done.stdout.startswith("Digested 1 run (")
    assert done.stdout.count("\n") == 1
    said = steps(done.stderr.splitlines())
    assert said[0] == "starting Spark"
    assert {"reading the logs", "computing the figures"} < set(said) <= STEPS

    done = bench("summary", digest)
    assert done.returncode == 0
    assert "p50" in done.stdout
    assert "4 of 4 met" in done.stdout

    done = bench("report", digest, "--out", page)
    assert (done.returncode, done.stdout) == (0, f"Report: {page}\n")
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert page.with_name("summary.md").read_text(encoding="utf-8").startswith("# Summary")

    # The digests that the tests of the page make by hand have the same shape as Spark's.
    (made,) = json.loads((digest / "digest.json").read_text(encoding="utf-8"))["runs"]
    by_hand = digests.traffic("by hand")
    assert set(by_hand) <= set(made)
    for name in ("measured", "memory", "log"):
        assert set(by_hand[name]) <= set(made[name]), name
    for phase in made["phases"]:
        assert set(by_hand["phases"][0]) == set(phase)
        assert set(phase["cpu_us_per_delivered"]) == {"server", "layer", "generator"}


@pytest.mark.spark
@pytest.mark.usefixtures("java")
@pytest.mark.parametrize(
    ("step", "number"),
    [("starting Spark", signal.SIGINT), ("starting Spark", signal.SIGTERM), ("finding the runs", signal.SIGINT)],
)
def test_an_interrupt_ends_a_digest_with_one_line_and_leaves_no_result(
    tmp_path: Path, step: str, number: signal.Signals
) -> None:
    run = synthetic.radio_run("run", seconds=1, rate=10).write(tmp_path / "run")
    command = [sys.executable, "-m", "ingeborg.bench.cli", "digest", str(run), "--out", str(tmp_path / "out")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as process:
        assert process.stderr is not None
        while process.stderr.readline() != f"{step} …\n":
            assert process.poll() is None
        java = wait_for_java(process.pid)
        process.send_signal(number)
        *said, last = steps(process.stderr.read().splitlines())
    assert (process.returncode, last) == (130, "bench: interrupted")
    assert set(said) <= STEPS, "no stack trace"
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["spark.log"]
    assert over(java)


def wait_for_java(pid: int) -> psutil.Process:
    """Return the process that this one has started to run Spark."""
    while True:
        for child in psutil.Process(pid).children():
            if any("pyspark-shell" in word for word in child.cmdline()):
                return child
        time.sleep(0.01)


@pytest.mark.spark
def test_an_old_java_is_one_line_and_no_stack_trace(tmp_path: Path) -> None:
    wants.module("pyspark", "bench")
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    java.chmod(0o755)
    done = bench("digest", tmp_path, "--out", tmp_path / "out", JAVA_HOME=str(tmp_path))
    assert done.returncode == 1
    assert done.stderr.startswith("bench: Java 11 ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("arguments", [[], ["digest"], ["report", "d"], ["digest", "r", "--out"], ["unknown"]])
def test_wrong_usage_is_exit_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2
    assert "usage: bench" in capsys.readouterr().err


def test_help_shows_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    for text in ("digest", "report", "summary", "rivals", "bench digest runs/"):
        assert text in shown


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("digest", ("--fresh", "--driver-memory SIZE", "4g", "Does not compute a run again")),
        ("report", ("FILE.html", "summary.md")),
        ("summary", ("DIGEST",)),
        ("convert", ("DIGEST", "FILE.parquet|DIR", "Both hold the same values")),
        ("rivals", ("up", "down", "status")),
    ],
)
def test_every_command_has_its_help(command: str, said: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main([command, "--help"])
    assert ended.value.code == 0
    shown = " ".join(capsys.readouterr().out.split())
    for text in said:
        assert text in shown


def test_a_library_that_is_not_installed_is_the_trouble_of_its_own_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ingeborg.bench.rivals.commands", None)
    monkeypatch.delattr("ingeborg.bench.rivals.commands", raising=False)
    assert cli.main(["rivals", "up", "redis"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("bench: bench rivals is not installed")
    assert said.endswith("pip install 'ingeborg[bench]'\n")
    assert cli.main(["summary", str(tmp_path)]) == 1
    assert "is not a digest" in capsys.readouterr().err


def test_a_digest_of_many_runs_is_summed_up_and_reported_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    digests.write(tmp_path, *digests.compared(doublings=3)["runs"])
    assert cli.main(["summary", str(tmp_path)]) == 0
    assert "Greatest sustained rate" in capsys.readouterr().out
    assert cli.main(["report", str(tmp_path), "--out", str(tmp_path / "page.html")]) == 0
    assert "Produce rate over N topics" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_notes_of_a_hundred_runs_do_not_bury_the_first(capsys: pytest.CaptureFixture[str]) -> None:
    cli.say_notes([digests.demo(f"r{number}") | {"notes": ["no machine.csv \x1b[31m"]} for number in range(100)])
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "  r0: no machine.csv ?[31m"
    assert len(said) == cli.NOTES_MAX + 1
    assert said[-1] == "  and 80 more notes, which are on the page"


@pytest.mark.parametrize("command", [["summary"], ["report", "--out", "x.html"]])
def test_what_is_no_digest_is_an_error_in_one_line(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([command[0], str(tmp_path), *command[1:]]) == 1
    (tmp_path / "digest.json").write_text('{"digest": 99, "runs": []}')
    assert cli.main([command[0], str(tmp_path), *command[1:]]) == 1
    said = capsys.readouterr().err.splitlines()
    assert [line.startswith("bench: ") for line in said] == [True, True]
    assert "is not a digest" in said[0]
    assert "version" in said[1]
