"""A helper program that answers questions. It has its own Python environment, because endpoints and their tests do not
need its packages.

Owns: the process, and the time limit on each answer. Must never: treat a missing answer as an answer.
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
"""The longest wait for an answer, in seconds. Even on a busy machine, every answer takes much less time."""


class Asked:
    """A running helper program. ``program`` is its source file, and ``python`` is an interpreter that can import the
    packages that ``program`` needs. ``name`` is the program's name in errors, and ``remedy`` says how to get such an
    interpreter. Each question and each answer is one line of JSON. Raises ``BenchError`` if the interpreter does not
    start, or if the program does not answer."""

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
        """Ask one question, and return its answer."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        # The process may hang before it reads the question, or after it has written half a line. Killing the process
        # ends the wait.
        timer = threading.Timer(ANSWER_S, self._give_up)
        timer.start()
        try:
            with contextlib.suppress(BrokenPipeError):  # the process has ended, so its answer below is empty
                process.stdin.write(json.dumps(question).encode() + b"\n")
                process.stdin.flush()
            answer = process.stdout.readline()
        finally:
            timer.cancel()
        if self._late:
            raise BenchError(f"{self._name} has not answered for {ANSWER_S:g} s: {self._what}")
        if not answer:
            raise BenchError(f"{self._name} has ended: see the output of {self._what} above; {self._remedy}")
        try:
            return json.loads(answer)
        except ValueError as error:
            raise BenchError(f"{self._name} answers {answer[:80]!r}: {self._what}; {self._remedy}") from error

    def _give_up(self) -> None:
        self._late = True
        self._process.kill()
