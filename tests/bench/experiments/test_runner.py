"""The behaviour that the commands of all evaluations share."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ingeborg.bench.errors import BenchError, Interrupted, UsageError
from ingeborg.bench.experiments import runner
from ingeborg.bench.experiments.experiment import Results
from tests.bench.experiments.squares import SQUARES, Squares

Run = Callable[..., int]


@pytest.fixture
def bench() -> Run:
    """Run the command with these arguments."""

    def command(*arguments: object, experiment: Squares | None = None) -> int:
        parser = argparse.ArgumentParser(prog="bench")
        runner.add(parser.add_subparsers(), experiment or Squares())
        options = parser.parse_args(["squares", *map(str, arguments)])
        return int(options.command(options))

    return command


def squares(out: Path) -> list[int]:
    return sorted(row["square"] for row in Results(out).rows(SQUARES))


def test_a_run_leaves_rows_a_digest_and_a_report(
    bench: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench("--out", tmp_path / "new" / "out", "--processes", 2) == 0
    out = tmp_path / "new" / "out"
    assert squares(out) == [1, 4, 9]
    assert Results(out).read("squares.json.xz") == {"squares": [[1, 1], [2, 4], [3, 9]]}
    assert "Squares &amp; more" in (out / runner.PAGE).read_text()
    assert (out / runner.SUMMARY).read_text().startswith("# Squares & more\n")
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "3 numbers; about 3 s"
    assert said[1].startswith("  3 of 3 numbers after ")
    assert said[2:] == [
        "digesting …",
        "Squares & more: holds 1, depends 1",
        "  holds    A square is at least its number. 3 of 3. All of them.",
        "  depends  No square exceeds 8.",
        str(out / runner.PAGE),
    ]


def test_a_finished_folder_is_continued_only_on_request(bench: Run, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert bench("--out", out, "--seeds", 1) == 0
    with pytest.raises(UsageError, match=r"has results already: continue them with --resume, or give another --out"):
        bench("--out", out, "--seeds", 2)
    assert bench("--out", out, "--seeds", 2, "--resume") == 0
    assert squares(out) == [1, 4]


def test_a_finished_unit_does_not_run_again(bench: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bench("--out", tmp_path, "--seeds", 2)
    capsys.readouterr()
    assert bench("--out", tmp_path, "--resume", "--fail", 1) == 0  # the unit that would fail is finished
    assert capsys.readouterr().out.splitlines()[0] == "3 numbers, 2 done before; about 2 s"


def test_parts_can_be_selected_and_added(bench: Run, tmp_path: Path) -> None:
    assert bench("--out", tmp_path, "--seeds", 1, "--only", "large") == 0
    assert squares(tmp_path) == [10_000]
    assert bench("--out", tmp_path, "--seeds", 1, "--only", "small", "--resume") == 0
    assert squares(tmp_path) == [1, 10_000]


def test_the_whole_plan_has_the_parts_that_do_not_run_by_default(bench: Run, tmp_path: Path) -> None:
    assert bench("--out", tmp_path, "--seeds", 1, "--whole") == 0
    assert squares(tmp_path) == [1, 10_000]


def test_a_plan_can_be_printed(bench: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench("--out", tmp_path / "out", "--seeds", 2, "--whole", "--plan", "--processes", 2) == 0
    assert capsys.readouterr().out.splitlines() == [
        "small: numbers from 1 to 3. 2 numbers, about 2 s",
        "  small-1",
        "  small-2",
        "large: numbers from 100. 2 numbers, about 3 min",
        "  large-100",
        "  large-101",
        "all: 4 numbers, about 3 min",
    ]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--seeds", 0], "--seeds has to be from 1 to 1000"),
        (["--processes", 0], "--processes has to be 1 or more"),
        (["--fail", -1], "--fail has to be a number of the plan"),
        (["--only", "small", "--whole"], "give either --only or --whole"),
        (["--resume"], "has no run to continue: leave out --resume"),
    ],
)
def test_a_wrong_argument_is_refused_before_anything_runs(
    bench: Run, tmp_path: Path, arguments: list[object], says: str
) -> None:
    with pytest.raises(UsageError, match=says):
        bench("--out", tmp_path / "out", *arguments)
    assert not (tmp_path / "out").exists()


def test_an_unknown_part_is_refused_with_the_names_of_the_parts(
    bench: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        bench("--out", tmp_path, "--only", "smal")
    assert ended.value.code == 2
    assert "invalid choice: 'smal'" in capsys.readouterr().err


def test_a_folder_of_other_sources_is_not_continued(bench: Run, tmp_path: Path) -> None:
    bench("--out", tmp_path, "--seeds", 1)
    other = Squares()
    other.sources = "two"
    with pytest.raises(BenchError, match=r"another plan \(other sources\)"):
        bench("--out", tmp_path, "--resume", experiment=other)


@pytest.mark.parametrize(("parts", "number"), [("small", 2), ("large", 101)])
def test_a_unit_that_fails_leaves_the_others_alone(
    bench: Run, tmp_path: Path, parts: str, number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(BenchError, match=rf"^1 numbers have failed: {parts}-{number}; repeat with --resume$"):
        bench("--out", tmp_path, "--only", parts, "--fail", number)
    assert f"  {parts}-{number}: {number} has no square" in capsys.readouterr().out
    assert len(squares(tmp_path)) == 2
    assert (tmp_path / runner.PAGE).is_file()
    assert bench("--out", tmp_path, "--only", parts, "--resume") == 0
    assert len(squares(tmp_path)) == 3


@pytest.mark.parametrize("processes", [1, 2])
def test_a_unit_whose_process_is_killed_has_failed_and_the_others_run(
    bench: Run, tmp_path: Path, processes: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(BenchError, match=r"^1 numbers have failed: small-1; repeat with --resume$"):
        bench("--out", tmp_path, "--kill", 1, "--processes", processes)
    assert "  small-1: its process was killed, perhaps because memory ran out" in capsys.readouterr().out
    assert squares(tmp_path) == [4, 9]


def test_without_a_finished_unit_there_is_no_digest(bench: Run, tmp_path: Path) -> None:
    with pytest.raises(BenchError, match=r"^1 numbers have failed: small-1; repeat with --resume$"):
        bench("--out", tmp_path, "--seeds", 1, "--fail", 1)
    assert not (tmp_path / "squares.json.xz").exists()


def test_an_interrupted_digest_says_how_to_continue(
    bench: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Squares, "digest", interrupted)
        with pytest.raises(Interrupted, match=r"^the units have ended; digest them with"):
            bench("--out", tmp_path, "--seeds", 1)
    assert bench("--out", tmp_path, "--seeds", 1, "--resume", "--fail", 1) == 0


@pytest.mark.parametrize(("parts", "number", "before"), [("small", 3, "2 of 3"), ("large", 101, "1 of 3")])
def test_an_interrupted_run_says_how_to_continue(
    bench: Run, tmp_path: Path, parts: str, number: int, before: str
) -> None:
    says = rf"^{before} numbers after \d+ s; continue with the same command and --resume$"
    with pytest.raises(Interrupted, match=says):
        bench("--out", tmp_path, "--only", parts, "--stop", number, "--processes", 1)
    assert not (tmp_path / runner.PAGE).exists()
    first = 1 if parts == "small" else 100
    # The unit that would fail has finished before the interrupt.
    assert bench("--out", tmp_path, "--only", parts, "--resume", "--fail", first) == 0
    assert len(squares(tmp_path)) == 3


def test_the_report_can_be_made_again(bench: Run, tmp_path: Path) -> None:
    bench("--out", tmp_path, "--seeds", 1)
    (tmp_path / runner.PAGE).unlink()
    assert bench("--out", tmp_path, "--report-only") == 0
    assert (tmp_path / runner.PAGE).is_file()
    with pytest.raises(BenchError, match=r"has no squares\.json\.xz: run the command without --report-only first"):
        bench("--out", tmp_path / "other", "--report-only")


def test_a_damaged_digest_is_named(bench: Run, tmp_path: Path) -> None:
    (tmp_path / "squares.json.xz").write_bytes(b"{}")
    with pytest.raises(BenchError, match=r"squares\.json\.xz cannot be read"):
        bench("--out", tmp_path, "--report-only")


def test_the_command_line_prints_the_message_of_an_interrupt() -> None:
    """In ``cli.main``, for every command."""
    code = (
        "from ingeborg.bench import cli, errors\n"
        "import argparse\n"
        "def stop(_): raise errors.Interrupted('2 of 3')\n"
        "cli._parser = lambda: argparse.Namespace(parse_args=lambda _: argparse.Namespace(command=stop))\n"
        "raise SystemExit(cli.main([]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (130, "bench: interrupted: 2 of 3\n")
