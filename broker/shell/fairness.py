"""Turns: a connection's data beyond a quantum waits until the other connections with as much have had their turns.

Owns: whose turn it is. Must never: know what is in a chunk.

Deficit round robin (Shreedhar and Varghese, "Efficient Fair Queueing using Deficit Round Robin", 1995) with the two
lists of FQ-CoDel (RFC 8290 section 4.1). The endpoint serves a client that sends little as its data arrives, after one
pass at most. A client that sends more than a quantum at once waits here, and so does one that is not connected yet.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

#: Bytes of frames taken from one connection at once: about thirty small commands. Costs go with bytes rather than with
#: commands: a `subscribe` of many topics is long.
QUANTUM_BYTES = 4096

#: Time for turns in one pass of the loop, in seconds: a client that sends little waits this long for those that send
#: much. Each further pass costs a flush and a poll.
PASS_S = 0.002


class RoundRobin(Generic[T]):
    """The queue. ``turn``: gives one entry its turn; true if it needs another. ``clock``: monotonic seconds."""

    def __init__(self, turn: Callable[[T], bool], clock: Callable[[], float]) -> None:
        self._turn = turn
        self._clock = clock
        self._waiting: deque[T] = deque()

    def add(self, one: T) -> bool:
        """Queue the entry, which is not queued yet. True: it is the only one, and the caller has to call ``run``."""
        self._waiting.append(one)
        return len(self._waiting) == 1

    def run(self) -> bool:
        """Give turns for one pass. Returns whether some still wait."""
        until = self._clock() + PASS_S
        waiting = self._waiting
        while waiting:
            one = waiting[0]
            again = self._turn(one)
            waiting.popleft()  # only now, so that `add` does not ask for a second run
            if again:
                waiting.append(one)
            if self._clock() >= until:
                break
        return bool(waiting)
