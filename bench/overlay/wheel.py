"""Virtual time: the events of each slot of 0.1 ms.

Owns: the order of events. Must never: know the purpose of an event.

Events of one slot run in the order of their insertion, and nothing else decides: so the same seed gives the same run. A
slot is a list, found by its number. So an event costs an append, no matter how many are due (a heap would compare it
with some twenty others), and a timer can be any time ahead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

SLOT_S: Final = 1e-4
SLOT_NS: Final = 100_000
"""A third of the least latency: coarser would shift it, finer would only leave more slots empty."""

SLOTS_PER_S: Final = 10_000

MESSAGE: Final = 0
"""An event is (subject, content, payload bytes, size). A size from 0 on marks a message, with its bytes on the wire."""

HELD: Final = -1
"""A message that has waited for its receiver's interface."""

TIMER: Final = -2
"""A node's timer."""

CALL: Final = -3
"""A function and its arguments, for rare events."""

Event = tuple[Any, Any, int, int]


class Wheel:
    """``slots``: due events, by slot number. ``now``: the running slot; ``now_ns``: its beginning."""

    def __init__(self) -> None:
        self.slots: dict[int, list[Event]] = {}
        self.now = 0
        self.now_ns = 0

    def put(self, slot: int, event: Event) -> None:
        """Put an event last into its slot, or into the present one if that slot is past."""
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
    """Convert to slots, at least one: a request for now never runs within the same event."""
    return max(1, round(seconds * SLOTS_PER_S))
