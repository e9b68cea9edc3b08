"""Hits as libcachesim counts them, in a process of its own (`simulator_program.py`): what our policies are checked by.

Owns: the question. Must never: be needed for a figure of ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ingeborg.bench.asked import Asked

PROGRAM: Final = Path(__file__).with_name("simulator_program.py")

#: What it calls the policies that both have.
NAMES: Final = {"lru": "LRU", "sieve": "Sieve", "tinylfu": "WTinyLFU", "gdsf": "GDSF", "belady": "Belady"}


class Simulator(Asked):
    """``python``: an interpreter that has libcachesim."""

    def __init__(self, python: str) -> None:
        super().__init__(
            *(python, PROGRAM), name="the simulator", remedy="make simulator prepares an environment with libcachesim"
        )

    def hits(self, policy: str, entries_max: int, items: Sequence[int]) -> int:
        """Of requests for these items, each of size 1, with room for so many."""
        found: int = self.ask({"policy": NAMES[policy], "entries_max": entries_max, "items": list(items)})
        return found
