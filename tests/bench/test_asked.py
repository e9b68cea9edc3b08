"""A program of another environment: its answers, and the errors without one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ingeborg.bench import asked
from ingeborg.bench.asked import Asked
from ingeborg.bench.errors import BenchError


def asking(folder: Path, source: str) -> Asked:
    program = folder / "program.py"
    program.write_text(source, encoding="utf-8")
    return Asked(sys.executable, program, name="the oracle", remedy="make oracle prepares one")


def test_each_question_has_its_answer(tmp_path: Path) -> None:
    source = "import json, sys\nfor line in sys.stdin: print(json.dumps(len(json.loads(line))), flush=True)"
    with asking(tmp_path, source) as one:
        assert [one.ask(question) for question in ([], [1, 2], {"a": 1})] == [0, 2, 1]


def test_one_that_ends_is_said_with_what_to_do(tmp_path: Path) -> None:
    with (
        asking(tmp_path, "raise SystemExit(3)") as one,
        pytest.raises(BenchError, match=r"the oracle has ended: .*make"),
    ):
        one.ask(1)


def test_an_answer_that_is_none_is_shown(tmp_path: Path) -> None:
    with (
        asking(tmp_path, "print('?')") as one,
        pytest.raises(BenchError, match=r"the oracle answers b'\?.*; make oracle"),
    ):
        one.ask(1)


@pytest.mark.parametrize(
    ("source", "question"),
    [
        ("import sys\nfor line in sys.stdin: pass", 1),
        ("import sys\nfor line in sys.stdin: print('[', end='', flush=True)", 1),
        ("import signal\nsignal.pause()", "x" * (1 << 20)),  # more than fits in a pipe
    ],
    ids=["says nothing", "says half of it", "does not read"],
)
def test_one_that_does_not_answer_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, question: object
) -> None:
    monkeypatch.setattr(asked, "ANSWER_S", 0.2)
    with asking(tmp_path, source) as one, pytest.raises(BenchError, match=r"the oracle has not answered for 0.2 s: "):
        one.ask(question)


def test_no_such_interpreter(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match=r"nothing-here does not start .*: make oracle"):
        Asked(str(tmp_path / "nothing-here"), tmp_path, name="the oracle", remedy="make oracle prepares one")
