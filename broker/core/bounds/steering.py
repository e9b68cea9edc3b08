"""How much of the allowed slack an endpoint uses: a level that follows its load.

Owns: the level. Must never: read a clock or a load; it gets both.

The level goes up while the process is busier than it should be, or its loop is late. It goes down slowly, and faster
the longer the load stays low: a level that was wrong costs freshness, and one that swings costs CPU.
"""

from __future__ import annotations

import math
from typing import Final

from ..model import Load

LEVEL_MAX: Final = 19

#: The part of a core that the endpoint's process should take, and how far off it may be before the level changes.
BUSY_TARGET: Final = 0.7
BUSY_SLACK: Final = 0.1

#: A loop that is later than this, in seconds, has too much to do. One that is later than the second still has enough.
LATE_S: Final = 0.02
PUNCTUAL_S: Final = 0.005

#: The time between two steps up, and between two steps down, in seconds.
UP_S: Final = 0.2
DOWN_S: Final = 1.5

#: The time over which the load is averaged, in seconds.
SMOOTHED_S: Final = 0.5


class Steering:
    """One endpoint's. ``busy_target``: the part of a core that its process should take, from 0 to 1."""

    def __init__(self, now: float, busy_target: float = BUSY_TARGET) -> None:
        self.level = 0
        self.busy = 0.0  # averaged
        self.target = busy_target
        self._at = now
        self._up_at = self._down_at = now
        self._steps_down = 1  # in the next step: twice as many as in the last, while the load stays low

    def observe(self, load: Load, now: float) -> None:
        """Take in the load since the last call."""
        passed = max(now - self._at, 0.0)
        self._at = now
        self.busy += (load.busy - self.busy) * (1.0 - math.exp(-passed / SMOOTHED_S))
        if self.busy > self.target + BUSY_SLACK or load.lag_s > LATE_S:
            self._steps_down = 1
            self._down_at = now + DOWN_S
            if now >= self._up_at:
                self._up_at = now + UP_S
                self.level = min(LEVEL_MAX, max(self.level + 1, _level_for(load.lag_s)))
        elif self.busy < self.target - BUSY_SLACK and load.lag_s < PUNCTUAL_S:
            if now >= self._down_at:
                self._down_at = now + DOWN_S
                self.level = max(0, self.level - self._steps_down)
                self._steps_down *= 2
        else:
            self._steps_down = 1
            self._down_at = now + DOWN_S


def _level_for(lag_s: float) -> int:
    """The level at which a bound of priority 0 has a pace of this lag: what is late anyway may wait that long."""
    return 0 if lag_s < 0.1 else 4 + math.floor(math.log2(lag_s / 0.01))
