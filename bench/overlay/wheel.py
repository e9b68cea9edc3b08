"""Virtual time, as slots of 0.1 ms with the events of each.

Owns: the order of events. Must never: depend on the purpose of an event.

Events of one slot run in the order in which they were inserted, so the same seed gives the same run. A slot is a list
in a dict with the slots' numbers as keys. So inserting an event always costs one append, whereas a heap would compare
the event with about twenty other events. A timer can be arbitrarily far ahead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

SLOT_S: Final = 1e-4
SLOT_NS: Final = 100_000
"""A third of the smallest latency. Longer slots would distort that latency, and shorter slots would only leave more
slots empty."""

SLOTS_PER_S: Final = 10_000

MESSAGE: Final = 0
"""An event is (subject, content, payload bytes, size). If the size is 0 or more, the event is a message, and the size
is its number of bytes on the wire."""

HELD: Final = -1
"""The size of an event for a message that has waited for its receiver's interface."""

TIMER: Final = -2
"""The size of an event that is a node's timer."""

CALL: Final = -3
"""The size of an event that calls a function, for rare events. The event has the function and its arguments."""

Event = tuple[Any, Any, int, int]


class Wheel:
    """``slots``: due events by slot number. ``now``: the running slot. ``now_ns``: the beginning of that slot."""

    def __init__(self) -> None:
        self.slots: dict[int, list[Event]] = {}
        self.now = 0
        self.now_ns = 0

    def put(self, slot: int, event: Event) -> None:
        """Append an event to its slot, or to the present slot if its own slot is past."""
        slot = max(slot, self.now)
        batch = self.slots.get(slot)
        if batch is None:
            self.slots[slot] = [event]
        else:
            batch.append(event)

    def call(self, seconds: float, function: Callable[..., None], *arguments: Any) -> None:
        """Call the function after this time."""
        self.put(self.now + slots(seconds), (function, arguments, 0, CALL))


def slots(seconds: float) -> int:
    """Convert seconds to slots. The result is at least one, so that an event runs after the slot that schedules it."""
    return max(1, round(seconds * SLOTS_PER_S))
