"""Messages that a neighbour has announced and whose payload is not here: how long their tree has time to bring them.

Owns: when a payload is asked for, and the estimate of the lag that this rests on. Must never: choose whom to ask.

A GRAFT timer below the latency of the tree asks for payloads that are on their way. That moves the tree's branches to
links that are slower, which makes payloads later still. So the timer follows the tree: it is twice the 99th percentile
of the **lag**, the time from the first announcement of a message to its payload.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from .history import Key

#: Bounds of the timer, in seconds. Below, jitter would set it off; above, a broken tree would take too long to heal.
TIMER_S_MIN: Final = 0.1
TIMER_S_MAX: Final = 2.0

#: The lag that is supposed at first, in seconds.
LAG_S: Final = 0.25

#: The step of the estimate, in seconds: up by 99 hundredths of it at a lag above the estimate, down by one at others.
#: The two balance where one lag of a hundred is above (Ma, Muthukrishnan and Sandler, "Frugal Streaming for Estimating
#: Quantiles", 2013).
STEP_S: Final = 0.02

#: After a gap has been announced by one neighbour, the others have so long to bring what is missing, in seconds. Some
#: round trips: they have it in their histories, or do not.
GAP_WAIT_S: Final = 2.0


class Want:
    """One message that is wanted. ``asked``: how often it has been asked for. Times in seconds."""

    __slots__ = ("asked", "due_at", "first_at")

    def __init__(self, first_at: float, due_at: float, asked: int) -> None:
        self.first_at = first_at
        self.due_at = due_at
        self.asked = asked


class Wanted:
    """All that one node wants. ``timer_s_min``, ``timer_s_max``: bounds of the timer."""

    __slots__ = ("_lag_s", "_timer_s_max", "_timer_s_min", "rows")

    def __init__(self, timer_s_min: float = TIMER_S_MIN, timer_s_max: float = TIMER_S_MAX) -> None:
        self.rows: dict[Key, Want] = {}  # nearly in the order in which they come due
        self._lag_s = LAG_S
        self._timer_s_min = timer_s_min
        self._timer_s_max = timer_s_max

    @property
    def lag_s(self) -> float:
        """The 99th percentile of the lag, as estimated."""
        return self._lag_s

    def timer_s(self) -> float:
        """So long a tree has time from a message's first announcement on."""
        return min(max(2.0 * self._lag_s, self._timer_s_min), self._timer_s_max)

    def came(self, key: Key, now: float) -> None:
        """Its payload is here, announced or not. One that was asked for counts as well: where the timer is below the
        tree's latency these are all there are, and the estimate has to grow by them."""
        want = self.rows.pop(key, None) if self.rows else None
        if want is not None and now - want.first_at > self._lag_s:
            self._lag_s = min(self._lag_s + 0.99 * STEP_S, self._timer_s_max / 2.0)
        elif self._lag_s > 0.0:
            self._lag_s -= 0.01 * STEP_S

    def ask_again_at(self, want: Want, now: float) -> float:
        """It has just been asked for: when to ask the next neighbour. Longer each time: the first may be slow."""
        return now + min(self.timer_s() * (1 + want.asked), self._timer_s_max)

    def due(self, now: float) -> list[Key]:
        """What is due."""
        return [key for key, want in self.rows.items() if want.due_at <= now]

    def next_at(self) -> float:
        """When the next one is due; infinity without any."""
        return min(self._times(), default=float("inf"))

    def _times(self) -> Iterator[float]:
        for want in self.rows.values():
            yield want.due_at
