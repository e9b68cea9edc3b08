"""Messages that a neighbour has announced and whose payload is not here: how long their tree has time to bring them.

Owns: when a payload is asked for, and the estimate of the lag that this rests on. Must never: choose whom to ask.

A GRAFT timer below the latency of the tree asks for payloads that are on their way. That moves the tree's branches to
links that are slower, which makes payloads later still. So the timer follows the tree: it is twice the 99th percentile
of the **lag**, the time from the first announcement of a message to the payload that the tree brings. That may come
after one that was asked for: then it is a duplicate, and its lag counts all the same. Where only the one that was asked
for comes, the tree is broken, and there is no lag: else failures would make the timer longer, and their repair slower.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from .branch import Branch
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

#: Who was asked for a payload has so long to answer, in seconds: some round trips; or as long as the tree, if that is
#: more. The next one has twice as long.
ANSWER_S: Final = 0.5

#: After a gap has been announced by one neighbour, the others have so long to announce what is missing, in seconds.
#: They may have to find new neighbours first: a second until a crash is noticed, another for a link.
GAP_WAIT_S: Final = 4.0

#: Payloads that were asked for and have come, of which the tree may bring another.
ANSWERED_MAX: Final = 256


class Want:
    """One message that is wanted. ``asked``: how often it has been asked for; ``of``: whom, the last time. Times in
    seconds."""

    __slots__ = ("asked", "due_at", "first_at", "of")

    def __init__(self, first_at: float, due_at: float, of: Branch | None = None) -> None:
        self.first_at = first_at
        self.due_at = due_at
        self.asked = 0 if of is None else 1
        self.of = of


class Wanted:
    """All that one node wants. ``timer_s_min``, ``timer_s_max``: bounds of the timer.

    While nothing is wanted, which is nearly always, whoever gets a payload may count it in ``in_time`` instead of
    calling ``came``.
    """

    __slots__ = ("_lag_s", "_timer_s_max", "_timer_s_min", "answered", "in_time", "rows")

    def __init__(self, timer_s_min: float = TIMER_S_MIN, timer_s_max: float = TIMER_S_MAX) -> None:
        self.rows: dict[Key, Want] = {}  # nearly in the order in which they come due
        self.answered: dict[Key, float] = {}  # came when asked for: when each was first announced
        self._lag_s = LAG_S
        self.in_time = 0  # payloads with a lag below the estimate that it does not know of yet
        self._timer_s_min = timer_s_min
        self._timer_s_max = timer_s_max

    def lag_s(self) -> float:
        """The 99th percentile of the lag, as estimated."""
        if self.in_time:
            self._lag_s = max(0.0, self._lag_s - 0.01 * STEP_S * self.in_time)
            self.in_time = 0
        return self._lag_s

    def timer_s(self) -> float:
        """So long a tree has time from a message's first announcement on."""
        return min(max(2.0 * self.lag_s(), self._timer_s_min), self._timer_s_max)

    def came(self, key: Key, branch: Branch, now: float) -> None:
        """Its payload is here, announced or not."""
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
        """A duplicate. If the first one had been asked for, the tree has brought this one."""
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
        """It is being asked for. The next one is asked later each time: the first may be slow."""
        want.of = of
        want.asked += 1
        want.due_at = now + min(max(ANSWER_S, self.timer_s()) * want.asked, self._timer_s_max)

    def due(self, now: float) -> list[Key]:
        """What is due."""
        return [key for key, want in self.rows.items() if want.due_at <= now]

    def next_at(self) -> float:
        """When the next one is due; infinity without any."""
        return min(self._times(), default=float("inf"))

    def _times(self) -> Iterator[float]:
        for want in self.rows.values():
            yield want.due_at
