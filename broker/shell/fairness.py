"""Turns: what a connection has sent beyond a quantum is taken when the others with as much have had theirs.

Owns: whose turn it is. Must never: know what is in a chunk.

Deficit round robin (Shreedhar and Varghese, "Efficient Fair Queueing using Deficit Round Robin", 1995) with the two
lists of FQ-CoDel (RFC 8290 section 4.1): who sends little is served as it comes, and waits for one pass at most; who
sends more than a quantum at once waits here, and so does who is not connected yet.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

#: Of one connection at once, in bytes of frames: some thirty small commands. Costs go with bytes rather than with
#: commands: a `subscribe` of many topics is long.
QUANTUM_BYTES = 4096

#: For how long turns are given in one pass of the loop, in seconds: what one that sends little waits for those that
#: send much. Each pass beside that costs a flush and a poll.
PASS_S = 0.002


class RoundRobin(Generic[T]):
    """``turn``: gives one its turn; true: it wants another one. ``clock``: monotonic seconds."""

    def __init__(self, turn: Callable[[T], bool], clock: Callable[[], float]) -> None:
        self._turn = turn
        self._clock = clock
        self._waiting: deque[T] = deque()

    def add(self, one: T) -> bool:
        """It waits from here on, once. True: it is the only one, and ``run`` has to be called."""
        self._waiting.append(one)
        return len(self._waiting) == 1

    def run(self) -> bool:
        """Give turns for one pass. True: some still wait."""
        until = self._clock() + PASS_S
        waiting = self._waiting
        while waiting:
            one = waiting[0]
            again = self._turn(one)
            waiting.popleft()  # only now: `add` need not ask for a second run
            if again:
                waiting.append(one)
            if self._clock() >= until:
                break
        return bool(waiting)
