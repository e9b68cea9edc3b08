"""Find the messages that a connection received too late, which means after a message that depends on them.

Owns: the running maximum of the clocks of arrived messages. Must never: know another connection's clocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

Arrival = TypeVar("Arrival")


class Arrivals(Generic[Arrival]):
    """One connection's arrivals. `came` takes the first copies of a run's messages, in the order of their arrival."""

    def __init__(self) -> None:
        self._latest: dict[int, tuple[int, Arrival]] = {}
        """For each axis, the highest number on which an arrived message depends, and the first arrival that depends on
        it."""

    def came(self, arrival: Arrival, axis: int, number: int, clock: Sequence[int]) -> Arrival | None:
        """Record an arrival.

        Args:
            arrival: Identifies the arrival for the caller.
            axis: The message's axis.
            number: The message's number on the axis.
            clock: The message's clock: axis, number, axis, number …

        Returns:
            An earlier arrival that depends on this message, or None.
        """
        latest = self._latest
        before = latest.get(axis)
        pairs = iter(clock)
        for each, known in zip(pairs, pairs, strict=True):
            had = latest.get(each)
            if had is None or had[0] < known:
                latest[each] = known, arrival
        return before[1] if before is not None and before[0] >= number else None
