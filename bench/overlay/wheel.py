"""Virtual time: what is due in which slot of 0.1 ms.

Owns: the order of events. Must never: know what an event is for.

Events of one slot come in the order in which they were put there, and nothing else decides: that is why the same seed
gives the same run. A slot is a list, found by its number, so that an event costs an append, whatever is due besides (a
heap would compare it with some twenty others), and a timer may be any time ahead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

SLOT_S: Final = 1e-4
SLOT_NS: Final = 100_000
"""A third of the least latency: coarser would shift it, finer would only leave more slots empty."""

SLOTS_PER_S: Final = 10_000

MESSAGE: Final = 0
"""An event is (subject, content, payload bytes, size). A size from 0 on: a message, with its bytes on the wire."""

HELD: Final = -1
"""A message that has waited for its receiver's interface."""

TIMER: Final = -2
"""A node's timer."""

CALL: Final = -3
"""A function and its arguments: whatever happens seldom."""

Event = tuple[Any, Any, int, int]


class Wheel:
    """``slots``: what is due, by slot number. ``now``: the slot that is being run; ``now_ns``: its beginning."""

    def __init__(self) -> None:
        self.slots: dict[int, list[Event]] = {}
        self.now = 0
        self.now_ns = 0

    def put(self, slot: int, event: Event) -> None:
        """Last in its slot, which is the present one if it would be past."""
        slot = max(slot, self.now)
        batch = self.slots.get(slot)
        if batch is None:
            self.slots[slot] = [event]
        else:
            batch.append(event)

    def call(self, seconds: float, function: Callable[..., None], *arguments: Any) -> None:
        """Call it when so much time is over."""
        self.put(self.now + slots(seconds), (function, arguments, 0, CALL))


def slots(seconds: float) -> int:
    """So many slots, at least one: what is asked for now never happens within the same event."""
    return max(1, round(seconds * SLOTS_PER_S))
