"""Announced messages whose payload has not arrived. For each message, this module decides how long to wait until the
tree brings the payload.

Owns: the time at which to request a payload, and the estimate of the lag that this time depends on. Must never: choose
the neighbour to ask.

If the GRAFT timer is shorter than the tree's latency, a node requests payloads that are already on their way. This
moves branches of the tree to slower links, which delays payloads further. The timer therefore adapts to the tree. It is
twice the 99th percentile of the **lag**, which is the time from a message's first announcement until the tree brings
the payload. If the node has meanwhile requested the payload from a neighbour, the tree's copy is a duplicate, but the
node still counts the lag of this copy. If only the requested copy arrives, the tree is broken, and the node counts no
lag. Otherwise failures would lengthen the timer and so delay their own repair.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from .branch import Branch
from .history import Key

#: The bounds of the timer, in seconds. With a shorter timer, jitter would trigger it. With a longer timer, a broken
#: tree would heal too slowly.
TIMER_S_MIN: Final = 0.1
TIMER_S_MAX: Final = 2.0

#: The initial estimate of the lag, in seconds.
LAG_S: Final = 0.25

#: The step of the estimate, in seconds. A lag above the estimate raises it by 99 hundredths of a step, and any other
#: lag lowers it by one hundredth. The estimate is stable when one lag in a hundred is above it (Ma, Muthukrishnan and
#: Sandler, "Frugal Streaming for Estimating Quantiles", 2013).
STEP_S: Final = 0.02

#: The time that a neighbour has to send a requested payload, in seconds. It is enough for several round trips. If the
#: tree's timer is longer, the neighbour has as long as that timer. The neighbour that gets the next request has twice
#: as long.
ANSWER_S: Final = 0.5

#: After one neighbour has announced a gap, the other neighbours have this time to announce the missing messages, in
#: seconds. They may need new neighbours first. It takes a second to notice a crash, and another second to open a link.
GAP_WAIT_S: Final = 4.0

#: The largest number of requested payloads to remember after their arrival. The tree may still bring another copy of
#: each payload.
ANSWERED_MAX: Final = 256


class Want:
    """One wanted message. ``asked`` is the number of requests for it, and ``of`` the neighbour that got the last
    request. Times are in seconds."""

    __slots__ = ("asked", "due_at", "first_at", "of")

    def __init__(self, first_at: float, due_at: float, of: Branch | None = None) -> None:
        self.first_at = first_at
        self.due_at = due_at
        self.asked = 0 if of is None else 1
        self.of = of


class Wanted:
    """All messages that one node wants. ``timer_s_min`` and ``timer_s_max`` are the bounds of the timer.

    While no message is wanted, which is nearly always the case, a caller may count an incoming payload in ``in_time``
    instead of calling ``came``.
    """

    __slots__ = ("_lag_s", "_timer_s_max", "_timer_s_min", "answered", "in_time", "rows")

    def __init__(self, timer_s_min: float = TIMER_S_MIN, timer_s_max: float = TIMER_S_MAX) -> None:
        self.rows: dict[Key, Want] = {}  # roughly in the order in which they are due
        self.answered: dict[Key, float] = {}  # requested payloads that arrived, and when each was announced
        self._lag_s = LAG_S
        self.in_time = 0  # payloads with a lag below the estimate, which does not include them yet
        self._timer_s_min = timer_s_min
        self._timer_s_max = timer_s_max

    def lag_s(self) -> float:
        """Return the estimated 99th percentile of the lag, in seconds."""
        if self.in_time:
            self._lag_s = max(0.0, self._lag_s - 0.01 * STEP_S * self.in_time)
            self.in_time = 0
        return self._lag_s

    def timer_s(self) -> float:
        """Return the time that a tree has to bring a payload after the message's first announcement, in seconds."""
        return min(max(2.0 * self.lag_s(), self._timer_s_min), self._timer_s_max)

    def came(self, key: Key, branch: Branch, now: float) -> None:
        """Handle the arrival of a payload, which may have been announced or not."""
        want = self.rows.pop(key, None) if self.rows else None
        if want is None:
            self.in_time += 1
        elif want.of is branch:
            if len(self.answered) >= ANSWERED_MAX:
                del self.answered[next(iter(self.answered))]
            self.answered[key] = want.first_at
        else:
            self._learn(now - want.first_at)

    def came_again(self, key: Key, now: float) -> None:
        """Handle a duplicate payload. If the first copy arrived on request, the tree has brought this second copy."""
        first_at = self.answered.pop(key, None)
        if first_at is not None:
            self._learn(now - first_at)

    def _learn(self, lag_s: float) -> None:
        lag_now_s = self.lag_s()
        if lag_s > lag_now_s:
            self._lag_s = min(lag_now_s + 0.99 * STEP_S, self._timer_s_max / 2.0)
        else:
            self.in_time += 1

    def ask(self, want: Want, of: Branch, now: float) -> None:
        """Record a request for the message. The timer of each further request is longer, because the neighbours may be
        slow."""
        want.of = of
        want.asked += 1
        want.due_at = now + min(max(ANSWER_S, self.timer_s()) * want.asked, self._timer_s_max)

    def due(self, now: float) -> list[Key]:
        """Return the messages that are due."""
        return [key for key, want in self.rows.items() if want.due_at <= now]

    def next_at(self) -> float:
        """Return the time when the next message is due, or infinity if no message is wanted."""
        return min(self._times(), default=float("inf"))

    def _times(self) -> Iterator[float]:
        for want in self.rows.values():
            yield want.due_at
