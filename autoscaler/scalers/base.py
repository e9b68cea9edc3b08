"""What the autoscaler asks of a scaler: who runs, and how many should.

Owns: the contract, and its errors. Must never: know an implementation.

``tests/autoscaler/scalers/contract.py`` holds every scaler to this that can tell who runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


class ScalerError(Exception):
    """The scaler could not do, or say, what it was asked. The text is for the operator: what failed, and what to do.
    The controller asks again."""


@dataclass(frozen=True, slots=True)
class Running:
    """``names``: of the members that the scaler runs, started or about to start, in no order; ``None``: it knows their
    number and not their names. ``count``: of them. A member that has been told to end is no longer one of them, even
    while it still runs: another may be started for it."""

    count: int
    names: frozenset[str] | None


class Scaler(Protocol):
    """Runs members. A member's name is the one that it says in its ``hello``."""

    async def running(self) -> Running | None:
        """Who runs now; ``None``: this scaler never knows, and those that beat are all there is to go by. Raises
        ``ScalerError``."""

    async def scale(self, count: int, leaving: Sequence[str]) -> None:
        """Have so many members run. ``leaving``: those that have nothing left to do, so these are to end where fewer
        are wanted, the first of them first. No other member is ever told to end: where ``leaving`` has too few, more
        than ``count`` go on. Names in it that the scaler does not know change nothing. Returns when the order is given,
        which is before it has been carried out. The same order may come again, and then changes nothing. Raises
        ``ScalerError``; then a part of the order may have been given."""

    async def close(self) -> None:
        """Give back what is held here. Members go on."""
