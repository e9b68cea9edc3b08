"""A timer wheel: what is due when, for a hundred thousand things at once.

Owns: the slots of time and what is due in each. Must never: read a clock; two clocks are in use here, monotonic time
for pings, and Unix time for tokens.

Adding and removing cost the same however many there are, and a look costs what is due, not what is there (Varghese and
Lauck, "Hashed and Hierarchical Timing Wheels", 1987, scheme 6 with a dictionary for the array).
"""

from __future__ import annotations

import math
from typing import Generic, TypeVar

T = TypeVar("T")


class Wheel(Generic[T]):
    """``slot_s``: a slot's length, in seconds: things come due at its end. ``now``: the time it begins at."""

    def __init__(self, now: float, slot_s: float) -> None:
        self._slot_s = slot_s
        self._slots: dict[int, dict[T, None]] = {}  # a dictionary each: in the order in which they were added
        self._looked = self._slot(now)  # the last slot that has been looked at

    def __len__(self) -> int:
        return sum(map(len, self._slots.values()))

    def _slot(self, at: float) -> int:
        return math.floor(at / self._slot_s)

    def add(self, thing: T, at: float) -> int:
        """It is due at ``at``; what is due already comes with the next slot. Returns its slot, for ``remove``."""
        slot = max(math.ceil(at / self._slot_s), self._looked + 1)
        self._slots.setdefault(slot, {})[thing] = None
        return slot

    def remove(self, thing: T, slot: int) -> None:
        """It is not due any more, if it still was."""
        things = self._slots.get(slot)
        if things is not None:
            things.pop(thing, None)
            if not things:
                del self._slots[slot]

    def due(self, now: float) -> list[T]:
        """What has come due since the last look, the earliest first. A clock that was set back brings nothing."""
        last = self._slot(now)
        since, self._looked = self._looked, last
        slots = self._slots
        if last - since <= len(slots):
            numbers = [number for number in range(since + 1, last + 1) if number in slots]
        else:
            numbers = sorted(number for number in slots if number <= last)
        return [thing for number in numbers for thing in slots.pop(number)]
