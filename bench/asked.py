"""A program that answers questions in its own environment, whose packages endpoints and their tests do without.

Owns: the process, and a limit on every wait for it. Must never: take silence for an answer.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
from pathlib import Path
from typing import Any, Final, Self

from ingeborg.bench.errors import BenchError

ANSWER_S: Final = 300.0
"""The longest wait for an answer: far longer than any answer takes on a busy machine."""


class Asked:
    """The process: ``program``, a source file, run by ``python``, an interpreter that has the imports. ``name``: the
    program's name in errors; ``remedy``: how to get such an interpreter. A line of JSON is a question, and the next one
    its answer. Raises ``BenchError``: there is no such interpreter, or no answer."""

    def __init__(self, python: str, program: Path, *, name: str, remedy: str) -> None:
        self._what = f"{python} {program.name}"
        self._name = name
        self._remedy = remedy
        self._late = False
        command = [python, "-I", str(program)]
        try:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        except OSError as error:
            raise BenchError(f"{python} does not start ({error}): {remedy}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def ask(self, question: Any) -> Any:
        """Ask one question; return its answer."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        # The process may read nothing, or write half a line: ending it ends the wait.
        timer = threading.Timer(ANSWER_S, self._give_up)
        timer.start()
        try:
            with contextlib.suppress(BrokenPipeError):  # it has ended, as its answer shows
                process.stdin.write(json.dumps(question).encode() + b"\n")
                process.stdin.flush()
            answer = process.stdout.readline()
        finally:
            timer.cancel()
        if self._late:
            raise BenchError(f"{self._name} has not answered for {ANSWER_S:g} s: {self._what}")
        if not answer:
            raise BenchError(f"{self._name} has ended: {self._what} says why above; {self._remedy}")
        try:
            return json.loads(answer)
        except ValueError as error:
            raise BenchError(f"{self._name} answers {answer[:80]!r}: {self._what}; {self._remedy}") from error

    def _give_up(self) -> None:
        self._late = True
        self._process.kill()
