"""What one connection got too late: after a message that depends on it.

Owns the running maximum of the clocks of what has come. Must never know another connection's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

Arrival = TypeVar("Arrival")


class Arrivals(Generic[Arrival]):
    """`came` takes the first copies of a run's messages at one connection, in the order in which they came."""

    def __init__(self) -> None:
        self._latest: dict[int, tuple[int, Arrival]] = {}
        """Axis -> how many of it have a dependent that has come, and the first that said so."""

    def came(self, arrival: Arrival, axis: int, number: int, clock: Sequence[int]) -> Arrival | None:
        """The message at this place came, as `arrival` says for the caller. Returns the arrival of one that depends on
        it and came before, if any did. `clock`: axis, number, axis, number …"""
        latest = self._latest
        before = latest.get(axis)
        pairs = iter(clock)
        for each, known in zip(pairs, pairs, strict=True):
            had = latest.get(each)
            if had is None or had[0] < known:
                latest[each] = known, arrival
        return before[1] if before is not None and before[0] >= number else None
