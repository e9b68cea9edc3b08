"""Hits according to libcachesim, in its own process (`simulator_program.py`): a check of our policies.

Owns: the question. Must never: be needed for a figure of ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ingeborg.bench.asked import Asked

PROGRAM: Final = Path(__file__).with_name("simulator_program.py")

#: Its names for the policies that both have.
NAMES: Final = {"lru": "LRU", "sieve": "Sieve", "tinylfu": "WTinyLFU", "gdsf": "GDSF", "belady": "Belady"}


class Simulator(Asked):
    """``python``: an interpreter that has libcachesim."""

    def __init__(self, python: str) -> None:
        super().__init__(
            *(python, PROGRAM), name="the simulator", remedy="make simulator prepares an environment with libcachesim"
        )

    def hits(self, policy: str, entries_max: int, items: Sequence[int]) -> int:
        """Count the hits of requests for these items, each of size 1, with room for this number."""
        found: int = self.ask({"policy": NAMES[policy], "entries_max": entries_max, "items": list(items)})
        return found
