"""Get hit counts from libcachesim, in its own process (`simulator_program.py`), to check this project's policies.

Owns: the form of a question. Must never: be needed for a figure of this project.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ingeborg.bench.asked import Asked

PROGRAM: Final = Path(__file__).with_name("simulator_program.py")

#: libcachesim's names for the policies that it has in common with this project.
NAMES: Final = {"lru": "LRU", "sieve": "Sieve", "tinylfu": "WTinyLFU", "gdsf": "GDSF", "belady": "Belady"}


class Simulator(Asked):
    """A process with libcachesim. ``python`` is an interpreter that can import it."""

    def __init__(self, python: str) -> None:
        super().__init__(
            *(python, PROGRAM), name="the simulator", remedy="make simulator prepares an environment with libcachesim"
        )

    def hits(self, policy: str, entries_max: int, items: Sequence[int]) -> int:
        """Return the number of hits if these items are requested in order. Each item has size 1, and ``entries_max``
        items fit."""
        found: int = self.ask({"policy": NAMES[policy], "entries_max": entries_max, "items": list(items)})
        return found


def check(python: str) -> None:
    """Check that this interpreter's libcachesim answers. Raises ``BenchError`` if it does not."""
    with Simulator(python) as simulator:
        simulator.hits("lru", 1, [1])
