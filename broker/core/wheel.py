"""A timer wheel: due times for a hundred thousand things at once.

Owns: the slots of time, and the things due in each. Must never: read a clock. Its users have two: monotonic time for
pings, and Unix time for tokens.

Adding and removing cost the same for any number of things, and a check costs only what is due (Varghese and Lauck,
"Hashed and Hierarchical Timing Wheels", 1987, scheme 6 with a dictionary for the array).
"""

from __future__ import annotations

import math
from typing import Generic, TypeVar

T = TypeVar("T")


class Wheel(Generic[T]):
    """``slot_s``: a slot's length in seconds; things come due at its end. ``now``: the time at which it begins."""

    def __init__(self, now: float, slot_s: float) -> None:
        self._slot_s = slot_s
        self._slots: dict[int, dict[T, None]] = {}  # each a dictionary, which keeps the order of adding
        self._looked = self._slot(now)  # the last slot checked

    def __len__(self) -> int:
        return sum(map(len, self._slots.values()))

    def _slot(self, at: float) -> int:
        return math.floor(at / self._slot_s)

    def add(self, thing: T, at: float) -> int:
        """Add a thing that is due at ``at``. If it is due already, it comes with the next slot. Returns its slot, for
        ``remove``."""
        slot = max(math.ceil(at / self._slot_s), self._looked + 1)
        self._slots.setdefault(slot, {})[thing] = None
        return slot

    def remove(self, thing: T, slot: int) -> None:
        """Remove a thing, if it is still there."""
        things = self._slots.get(slot)
        if things is not None:
            things.pop(thing, None)
            if not things:
                del self._slots[slot]

    def due(self, now: float) -> list[T]:
        """Return the things that have come due since the last call, the earliest first. If the clock was set back,
        nothing is due."""
        last = self._slot(now)
        since, self._looked = self._looked, last
        slots = self._slots
        if last - since <= len(slots):
            numbers = [number for number in range(since + 1, last + 1) if number in slots]
        else:
            numbers = sorted(number for number in slots if number <= last)
        return [thing for number in numbers for thing in slots.pop(number)]
