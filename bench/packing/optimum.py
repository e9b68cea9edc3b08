"""The fewest bins that will do, by a solver in a process of its own (`optimum_program.py`).

Owns: the questions that settle an optimum.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ingeborg.bench.asked import Asked

PROGRAM: Final = Path(__file__).with_name("optimum_program.py")


class Solver(Asked):
    """``python``: an interpreter that has OR-tools."""

    def __init__(self, python: str) -> None:
        super().__init__(
            *(python, PROGRAM), name="the solver", remedy="make optimum prepares an environment with OR-tools"
        )

    def fits(self, sizes: Sequence[float], capacity: float, bins: int) -> bool | None:
        """Do the items fit into so many bins? ``None``: the solver does not know within its effort."""
        found: bool | None = self.ask({"sizes": list(sizes), "capacity": capacity, "bins": bins})
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
