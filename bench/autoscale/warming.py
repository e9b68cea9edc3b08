"""The warm-up before a run, which is the same for every group.

Owns: the load of the warm-up, and what "settled" and "caught up" mean. Must never: read a clock, or know which group it
warms up.

The group first joins without a load. Then the load grows evenly to the first measurement of the stream, and stays
there. The warm-up is over when the group has settled and has caught up. A group has *caught up* if it has passed on
every record that has been due for longer than ``CAUGHT_UP_S``. A group has *settled* if it says that it has. A group
whose number of members follows the load may say so only after the whole load has been there for some time. A group with
a fixed number of members need not wait for the whole load, which may be more than some of its members can read.

If the warm-up takes longer than ``MOST_S``, the run begins anyway. Its facts then say whether the group had not settled
or not caught up, and how far it was behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

#: Time limit for a group to join without a load, in seconds.
JOIN_S_MAX: Final = 80.0
#: Seconds in which the load grows to its first value. If the whole load came suddenly, the group would need more
#: members than later.
RAMP_S: Final = 20
#: The minimum and the maximum length of the warm-up, in seconds.
LEAST_S: Final = 5.0
MOST_S: Final = 120.0
#: A group counts as caught up even if a record has been unread for this long, in seconds.
CAUGHT_UP_S: Final = 1.0


class Warmed(NamedTuple):
    """The state of a group at the end of its warm-up. ``behind_s`` is the age of its oldest unread record."""

    warming_s: float
    settled: bool
    caught_up: bool
    behind_s: float
    unread: int


def ramp(first: Sequence[float]) -> list[list[float]]:
    """Return the load of the warm-up, one row for each second, from the stream's first measurement."""
    return [[rate * min((second + 1) / RAMP_S, 1.0) for rate in first] for second in range(int(MOST_S))]


def loaded_s(since_s: float) -> float:
    """Return for how many seconds the group has had the whole load, if the warm-up began ``since_s`` seconds ago. The
    value is negative while the load is still growing."""
    return since_s - RAMP_S + 1


def behind_s(now_ms: int, due_ms: Sequence[Sequence[int]], handed_on: Sequence[int]) -> float:
    """Return the age of the oldest record that has not been passed on: the seconds since it became due. Return 0 if
    there is no such record. ``due_ms`` has the due times of each partition's records, in the order of offsets.
    ``handed_on`` has the number of records that each partition's reader has passed on."""
    oldest = [times[count] for times, count in zip(due_ms, handed_on, strict=True) if count < len(times)]
    return max(0.0, (now_ms - min(oldest)) / 1e3) if oldest else 0.0


def has_caught_up(behind: float) -> bool:
    """Return whether a group that is ``behind`` by this many seconds has caught up."""
    return behind <= CAUGHT_UP_S


def is_over(since_s: float, settled: bool, behind: float) -> bool:
    """Return whether the warm-up may end when it has lasted ``since_s`` seconds."""
    return since_s >= LEAST_S and settled and has_caught_up(behind)
