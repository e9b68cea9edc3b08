"""Hits as libcachesim counts them, in a process of its own (`simulator_program.py`): what our policies are checked by.

Owns: the process, and the question. Must never: be needed for a figure of ours.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ingeborg.bench.errors import BenchError

PROGRAM: Final = Path(__file__).with_name("simulator_program.py")

#: What it calls the policies that both have.
NAMES: Final = {"lru": "LRU", "sieve": "Sieve", "tinylfu": "WTinyLFU", "gdsf": "GDSF", "belady": "Belady"}


class Simulator:
    """The process. ``python``: an interpreter that has libcachesim."""

    def __init__(self, python: str) -> None:
        self._python = python
        command = [python, "-I", str(PROGRAM)]
        try:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        except OSError as error:
            raise BenchError(f"{python} does not start ({error}): give an interpreter that has libcachesim") from error

    def __enter__(self) -> Simulator:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def hits(self, policy: str, entries_max: int, items: Sequence[int]) -> int:
        """Of requests for these items, each of size 1, with room for so many."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        question = json.dumps({"policy": NAMES[policy], "entries_max": entries_max, "items": list(items)})
        try:
            process.stdin.write(question + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            pass
        answer = process.stdout.readline()
        if not answer:
            raise BenchError(
                f"the simulator has ended: {self._python} {PROGRAM.name} says why above; "
                "it wants libcachesim (pip install libcachesim==0.3.5 in an environment of its own)"
            )
        found: int = json.loads(answer)
        return found
