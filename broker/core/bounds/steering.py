"""Decides how much of the clients' slack an endpoint uses, as a level that follows the endpoint's load.

Owns: the level. Must never: read a clock or measure a load (callers pass both).

The level rises while the process is busier than its target, or its event loop is late. It falls slowly at first, and
faster while the load stays low. A level that is too high delays messages needlessly, and a level that swings costs CPU.
"""

from __future__ import annotations

import math
from typing import Final

from ..model import Load

LEVEL_MAX: Final = 19

#: The share of a CPU core that the endpoint's process should use, and the deviation from it at which the level changes.
BUSY_TARGET: Final = 0.7
BUSY_SLACK: Final = 0.1

#: Lateness of the event loop, in seconds: the level rises while the lateness is above ``LATE_S``, and can fall only
#: while the lateness is below ``PUNCTUAL_S``.
LATE_S: Final = 0.02
PUNCTUAL_S: Final = 0.005

#: The time between two steps up, and between two steps down, in seconds.
UP_S: Final = 0.2
DOWN_S: Final = 1.5

#: The time over which the load is averaged, in seconds.
SMOOTHED_S: Final = 0.5


class Steering:
    """One endpoint's steering. ``busy_target``: the share of a CPU core that its process should use, from 0 to 1."""

    def __init__(self, now: float, busy_target: float = BUSY_TARGET) -> None:
        self.level = 0
        self.busy = 0.0  # averaged
        self.target = busy_target
        self._at = now
        self._up_at = self._down_at = now
        self._steps_down = 1  # the size of the next step down, which doubles while the load stays low

    def observe(self, load: Load, now: float) -> None:
        """Adapt the level to the load since the last call."""
        passed = max(now - self._at, 0.0)
        self._at = now
        self.busy += (load.busy - self.busy) * (1.0 - math.exp(-passed / SMOOTHED_S))
        if self.busy > self.target + BUSY_SLACK or load.lag_s > LATE_S:
            self._steps_down = 1
            self._down_at = now + DOWN_S
            if now >= self._up_at:
                self._up_at = now + UP_S
                self.level = min(LEVEL_MAX, max(self.level + 1, _level_for(load.lag_s)))
        elif self.busy < max(self.target - BUSY_SLACK, self.target / 2) and load.lag_s < PUNCTUAL_S:
            if now >= self._down_at:
                self._down_at = now + DOWN_S
                self.level = max(0, self.level - self._steps_down)
                self._steps_down *= 2
        else:
            self._steps_down = 1
            self._down_at = now + DOWN_S


def _level_for(lag_s: float) -> int:
    """Return the level at which the pace of a bound of priority 0 equals this lag. This pace is acceptable, because the
    lag delays the messages anyway."""
    return 0 if lag_s < 0.1 else 4 + math.floor(math.log2(lag_s / 0.01))
