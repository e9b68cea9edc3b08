"""Finds the smallest sufficient number of bins, with a solver in a separate process (`optimum_program.py`).

Owns: the sequence of questions to the solver that determines an optimum.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ingeborg.bench.asked import Asked
from ingeborg.bench.errors import BenchError, UsageError

PROGRAM: Final = Path(__file__).with_name("optimum_program.py")


class Solver(Asked):
    """The process of the solver. ``python`` is an interpreter that can import OR-tools."""

    def __init__(self, python: str) -> None:
        super().__init__(
            *(python, PROGRAM), name="the solver", remedy="make optimum prepares an environment with OR-tools"
        )

    def fits(self, sizes: Sequence[float], capacity: float, bins: int) -> bool | None:
        """Return whether the items fit into ``bins`` bins, or ``None`` if the solver reaches its effort limit first."""
        found: bool | None = self.ask({"sizes": list(sizes), "capacity": capacity, "bins": bins})
        return found

    def fewest(self, sizes: Sequence[float], capacity: float, lower: int, upper: int) -> int | None:
        """Return the optimum, which is known to lie between ``lower`` and ``upper``, or ``None`` if the solver reaches
        its effort limit first."""
        while upper > lower:
            fits = self.fits(sizes, capacity, upper - 1)
            if fits is None:
                return None
            if not fits:
                return upper
            upper -= 1
        return upper


def check(python: str | None) -> None:
    """Check that there is an interpreter, and that its solver answers. This takes a second or two. Raises
    ``UsageError`` if there is no interpreter, and ``BenchError`` if the solver does not answer."""
    if python is None:
        raise UsageError("the part optimum needs --optimum PYTHON: make optimum prepares an environment")
    with Solver(python) as solver:
        if solver.fits([1.0], 1.0, 1) is not True:
            raise BenchError(f"the solver of {python} says that one item does not fit into one bin: make optimum")
