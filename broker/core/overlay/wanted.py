"""Announced messages whose payload is not here: decides how long their tree has to bring them.

Owns: when to ask for a payload, and the estimate of the lag behind that decision. Must never: choose the neighbour to
ask.

A GRAFT timer below the tree's latency asks for payloads that are on their way. That moves the tree's branches to slower
links, which makes payloads later still. So the timer follows the tree: it is twice the 99th percentile of the **lag**,
the time from a message's first announcement to the payload that the tree brings. This payload may follow a requested
one. Then it is a duplicate, and its lag still counts. If only the requested one comes, the tree is broken, and no
lag exists: otherwise failures would lengthen the timer, and slow their own repair.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from .branch import Branch
from .history import Key

#: Bounds of the timer, in seconds. Below, jitter would set it off; above, a broken tree would heal too slowly.
TIMER_S_MIN: Final = 0.1
TIMER_S_MAX: Final = 2.0

#: The initial estimate of the lag, in seconds.
LAG_S: Final = 0.25

#: The step of the estimate, in seconds: a lag above the estimate moves it up by 99 hundredths of a step, others move it
#: down by one.
#: The two are in balance when one lag in a hundred is above the estimate (Ma, Muthukrishnan and Sandler, "Frugal
#: Streaming for Estimating Quantiles", 2013).
STEP_S: Final = 0.02

#: A neighbour has this long to send a requested payload, in seconds: some round trips. It has as long as the tree, if
#: that is more. The next neighbour has twice as long.
ANSWER_S: Final = 0.5

#: After one neighbour announces a gap, the others have this long to announce the missing messages, in seconds. They may
#: first need new neighbours: noticing a crash takes a second, and a link another.
GAP_WAIT_S: Final = 4.0

#: Requested payloads that have arrived and of which the tree may bring another copy.
ANSWERED_MAX: Final = 256


class Want:
    """One wanted message. ``asked``: number of requests for it; ``of``: the neighbour asked last. Times in seconds."""

    __slots__ = ("asked", "due_at", "first_at", "of")

    def __init__(self, first_at: float, due_at: float, of: Branch | None = None) -> None:
        self.first_at = first_at
        self.due_at = due_at
        self.asked = 0 if of is None else 1
        self.of = of


class Wanted:
    """All messages that one node wants. ``timer_s_min``, ``timer_s_max``: bounds of the timer.

    While nothing is wanted, which is nearly always, a caller can count an incoming payload in ``in_time`` instead of
    calling ``came``.
    """

    __slots__ = ("_lag_s", "_timer_s_max", "_timer_s_min", "answered", "in_time", "rows")

    def __init__(self, timer_s_min: float = TIMER_S_MIN, timer_s_max: float = TIMER_S_MAX) -> None:
        self.rows: dict[Key, Want] = {}  # roughly in the order in which they are due
        self.answered: dict[Key, float] = {}  # payloads that arrived on request: when each was first announced
        self._lag_s = LAG_S
        self.in_time = 0  # payloads with a lag below the estimate, which it has not counted yet
        self._timer_s_min = timer_s_min
        self._timer_s_max = timer_s_max

    def lag_s(self) -> float:
        """The estimated 99th percentile of the lag."""
        if self.in_time:
            self._lag_s = max(0.0, self._lag_s - 0.01 * STEP_S * self.in_time)
            self.in_time = 0
        return self._lag_s

    def timer_s(self) -> float:
        """The time that a tree has from a message's first announcement on."""
        return min(max(2.0 * self.lag_s(), self._timer_s_min), self._timer_s_max)

    def came(self, key: Key, branch: Branch, now: float) -> None:
        """Note that a payload is here, announced or not."""
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
        """Note a duplicate. If the first payload arrived on request, the tree has brought this one."""
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
        """Note a request for the message. Each further request waits longer: the neighbour may be slow."""
        want.of = of
        want.asked += 1
        want.due_at = now + min(max(ANSWER_S, self.timer_s()) * want.asked, self._timer_s_max)

    def due(self, now: float) -> list[Key]:
        """The messages that are due."""
        return [key for key, want in self.rows.items() if want.due_at <= now]

    def next_at(self) -> float:
        """When the next message is due; infinity without any."""
        return min(self._times(), default=float("inf"))

    def _times(self) -> Iterator[float]:
        for want in self.rows.values():
            yield want.due_at
