"""The fewest bins that will do, by a solver in a process of its own (``optimum_program.py``).

Owns: the process, and the questions that settle an optimum. Must never: take silence for an answer.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ingeborg.bench.errors import BenchError

PROGRAM: Final = Path(__file__).with_name("optimum_program.py")


class Solver:
    """The process. ``python``: an interpreter that has OR-tools."""

    def __init__(self, python: str) -> None:
        self._python = python
        command = [python, "-I", str(PROGRAM)]
        try:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        except OSError as error:
            raise BenchError(f"{python} does not start ({error}): make optimum prepares one with OR-tools") from error

    def __enter__(self) -> Solver:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def fits(self, sizes: Sequence[float], capacity: float, bins: int) -> bool | None:
        """Do the items fit into so many bins? ``None``: the solver does not know within its effort."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        question = json.dumps({"sizes": list(sizes), "capacity": capacity, "bins": bins})
        try:
            process.stdin.write(question + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            pass
        answer = process.stdout.readline()
        if not answer:
            raise BenchError(
                f"the solver has ended: {self._python} {PROGRAM.name} says why above; "
                "make optimum prepares an environment with OR-tools"
            )
        found: bool | None = json.loads(answer)
        return found

    def fewest(self, sizes: Sequence[float], capacity: float, lower: int, upper: int) -> int | None:
        """The optimum, which is known to lie between the two; ``None``: not known within the solver's effort."""
        while upper > lower:
            fits = self.fits(sizes, capacity, upper - 1)
            if fits is None:
                return None
            if not fits:
                return upper
            upper -= 1
        return upper
