"""A timer wheel, which tracks the due times of a hundred thousand objects at the same time.

Owns: the slots of time, and the objects due in each slot. Must never: read a clock. Callers pass the time: monotonic
time for pings, and Unix time for tokens.

Adding or removing an object takes the same time for any number of objects. A check takes time only for the objects that
are due. (Varghese and Lauck, "Hashed and Hierarchical Timing Wheels", 1987, scheme 6 with a dictionary instead of the
array.)
"""

from __future__ import annotations

import math
from typing import Generic, TypeVar

T = TypeVar("T")


class Wheel(Generic[T]):
    """``slot_s``: a slot's length in seconds. Objects come due at the end of their slot. ``now``: the time at which the
    wheel begins."""

    def __init__(self, now: float, slot_s: float) -> None:
        self._slot_s = slot_s
        self._slots: dict[int, dict[T, None]] = {}  # each slot is a dictionary, which keeps the order of insertion
        self._looked = self._slot(now)  # the last slot checked

    def __len__(self) -> int:
        return sum(map(len, self._slots.values()))

    def _slot(self, at: float) -> int:
        return math.floor(at / self._slot_s)

    def add(self, thing: T, at: float) -> int:
        """Add an object that is due at ``at``. If that time has passed, the object comes due with the next slot. Return
        its slot, which ``remove`` needs."""
        slot = max(math.ceil(at / self._slot_s), self._looked + 1)
        self._slots.setdefault(slot, {})[thing] = None
        return slot

    def remove(self, thing: T, slot: int) -> None:
        """Remove an object, if the slot still has it."""
        things = self._slots.get(slot)
        if things is not None:
            things.pop(thing, None)
            if not things:
                del self._slots[slot]

    def due(self, now: float) -> list[T]:
        """Return the objects that have come due since the last call, the earliest first. If the clock was set back,
        nothing is due."""
        last = self._slot(now)
        since, self._looked = self._looked, last
        slots = self._slots
        if last - since <= len(slots):
            numbers = [number for number in range(since + 1, last + 1) if number in slots]
        else:
            numbers = sorted(number for number in slots if number <= last)
        return [thing for number in numbers for thing in slots.pop(number)]
