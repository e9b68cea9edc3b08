"""The number of members that KEDA runs for a group, from its lag, by the rule of Kubernetes' HorizontalPodAutoscaler.

Owns: the rule. Must never: query a lag, or start a member.

KEDA's scaler for Kafka gives the autoscaler the group's total lag as a metric. The target of this metric is an average
value for each pod, the ``lagThreshold``. Kubernetes' autoscaler does the rest. The desired number of members is the
metric divided by the threshold, rounded up. The number of members does not change if the desired number is within a
tenth of the running number. At each check, the number of members grows by at most four, or at most doubles if that is
more. It never falls below the greatest number that was desired in the last five minutes. The number of members at the
first check also counts as a desired number. All of these numbers are defaults. KEDA runs no more members than there are
partitions.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Final

#: Tolerance of the ratio of desired to running members.
TOLERANCE: Final = 0.1
#: Seconds between two checks, and seconds for which a lower number must have been desired before members end.
LOOK_S: Final = 15.0
STABLE_S: Final = 300.0
#: Maximum number of members to add at a check, unless doubling the number of members adds more.
PODS: Final = 4


class LagRule:
    """The rule for one group. ``lag_each`` is the number of unread records that a member may have. ``most`` is the
    maximum number of members. ``stable_s`` has the meaning of ``STABLE_S``."""

    def __init__(self, lag_each: float, most: int, stable_s: float = STABLE_S) -> None:
        self._lag_each = lag_each
        self._most = most
        self._stable_s = stable_s
        self._wanted: deque[tuple[float, int]] = deque()

    def wanted(self, now_s: float, lag: float, running: int) -> int:
        """Return how many members to run if ``running`` members run now, and ``lag`` records are unread."""
        ratio = lag / (self._lag_each * running)
        wanted = running if abs(ratio - 1.0) <= TOLERANCE else math.ceil(lag / self._lag_each)
        wanted = min(max(wanted, 1), self._most)
        if not self._wanted:
            self._wanted.append((now_s, running))
        self._wanted.append((now_s, wanted))
        while self._wanted[0][0] < now_s - self._stable_s:
            self._wanted.popleft()
        if wanted > running:
            return min(wanted, max(running + PODS, 2 * running))
        return min(running, max(each for _, each in self._wanted))
