"""Gives connections turns. A connection's data beyond a quantum waits until the other waiting connections have had
their turns.

Owns: whose turn it is. Must never: know what is in a chunk.

This is deficit round robin (Shreedhar and Varghese, "Efficient Fair Queueing using Deficit Round Robin", 1995) with the
two lists of FQ-CoDel (RFC 8290 section 4.1). If a client sends little, the endpoint handles its data on arrival, or at
most one pass of the loop later. Clients that send more than a quantum at a time wait in the queue of this module.
Clients that are not connected yet wait there, too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

#: Bytes of frames handled from one connection in one turn: about thirty small commands. The quantum counts bytes and
#: not commands, because the cost of a command grows with its length; a `subscribe` of many topics is long.
QUANTUM_BYTES = 4096

#: Time for turns in one pass of the loop, in seconds. A client that sends little waits this long for clients that send
#: much. With less time there would be more passes, and each pass costs a flush and a poll.
PASS_S = 0.002


class RoundRobin(Generic[T]):
    """The queue. ``turn`` gives an entry its turn, and returns whether the entry needs another turn. ``clock`` returns
    monotonic seconds."""

    def __init__(self, turn: Callable[[T], bool], clock: Callable[[], float]) -> None:
        self._turn = turn
        self._clock = clock
        self._waiting: deque[T] = deque()

    def add(self, one: T) -> bool:
        """Queue an entry that is not queued yet. Return true if it is the only entry; the caller then has to call
        ``run``."""
        self._waiting.append(one)
        return len(self._waiting) == 1

    def run(self) -> bool:
        """Give turns for ``PASS_S``. Return whether entries still wait."""
        until = self._clock() + PASS_S
        waiting = self._waiting
        while waiting:
            one = waiting[0]
            again = self._turn(one)
            waiting.popleft()  # after its turn, so that `add` does not request a second run
            if again:
                waiting.append(one)
            if self._clock() >= until:
                break
        return bool(waiting)
