"""The progress of a job: on a terminal one line that is rewritten, otherwise lines; and the parts of a step."""

from __future__ import annotations

import io
import re
import time
from collections.abc import Callable
from functools import partial
from operator import mul
from types import SimpleNamespace
from typing import Any

import pytest

from ingeborg.bench.spark import progress

PATIENCE_S = 20


class Tracker:
    """Stands in for Spark's: `stages` has the active stages, with their tasks done and in all."""

    def __init__(self, stages: dict[int, tuple[int, int]]) -> None:
        self.stages = stages

    def getActiveStageIds(self) -> list[int]:
        return [*self.stages]

    def getStageInfo(self, number: int) -> Any:
        done, of = self.stages.get(number, (None, None))
        return None if of is None else SimpleNamespace(numCompletedTasks=done, numTasks=of)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LOOK_S", 0.005)
    monkeypatch.setattr(progress, "LINE_S", 0.0)


def until(is_true: Callable[[], object]) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while not is_true():
        assert time.monotonic() < end_s, "it does not say so"
        time.sleep(0.001)


def test_without_a_terminal_a_step_says_its_name_and_then_its_parts_and_tasks() -> None:
    out = io.StringIO()
    display = progress.Display(out, {"TERM": "xterm"})
    display.step("reading", parts=2)
    until(lambda: re.search(r"reading: 0 of 2, \d+ s\n", out.getvalue()))
    assert out.getvalue().startswith("reading …\n")

    display.tracker = tracker = Tracker({1: (3, 5), 2: (0, 4)})  # type: ignore[assignment]
    display.part()
    until(lambda: re.search(r"reading: 1 of 2, 3 of 9 tasks, \d+ s\n", out.getvalue()))
    tracker.stages = {2: (1, 4)}
    until(lambda: re.search(r"reading: 1 of 2, 6 of 9 tasks, \d+ s\n", out.getvalue()))

    display.step("writing")
    until(lambda: re.search(r"writing: 1 of 4 tasks, \d+ s\n\Z", out.getvalue()))
    display.close()
    said = out.getvalue()
    time.sleep(0.02)
    assert out.getvalue() == said, "the thread has ended"


def test_on_a_terminal_the_progress_is_one_line_that_goes_away() -> None:
    out = Terminal()
    display = progress.Display(out, {"TERM": "xterm"})
    display.step("reading")
    display.tracker = Tracker({1: (3, 5)})  # type: ignore[assignment]
    until(lambda: "reading" in out.getvalue() and "3 of 5 tasks" in out.getvalue())
    assert "\n" not in out.getvalue()
    display.close()
    assert out.getvalue().endswith("\x1b[2K"), "the line is erased"


@pytest.mark.parametrize("environ", [{"TERM": "dumb"}, {"TERM": "xterm", "NO_COLOR": "1"}, {}])
def test_a_terminal_without_escape_codes_gets_lines(environ: dict[str, str]) -> None:
    out = Terminal()
    display = progress.Display(out, environ)
    display.step("reading")
    until(lambda: "reading …\n" in out.getvalue())
    display.close()
    assert "\x1b" not in out.getvalue()


def test_when_spark_is_gone_the_display_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    class Gone(Tracker):
        def getActiveStageIds(self) -> list[int]:
            raise ConnectionRefusedError

    with progress.shown():
        progress.step("computing")
        progress.watch(Gone({}))  # type: ignore[arg-type]
        until(lambda: not progress._displays[0].tracker)
        until(lambda: "computing: " in capsys.readouterr().err)
    progress.step("afterwards")
    assert "afterwards" not in capsys.readouterr().err


def test_parts_run_at_once_and_return_their_results_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.shown():
        assert progress.run("counting", [partial(mul, number, 2) for number in range(9)], 3) == [*range(0, 18, 2)]
        until(lambda: re.search(r"counting: 9 of 9, \d+ s", capsys.readouterr().err))

    def fails() -> int:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        progress.run("failing", [lambda: 1, fails], 2)
