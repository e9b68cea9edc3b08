"""Computes the size of each queue for the packing: its rate of writes, plus a share of its unread bytes.

Owns: each queue's current size, and its recent maximum. Must never: read a clock.
"""

from __future__ import annotations

from collections import deque

from .model import Flow, Queue

#: The time window is divided into this many parts.
PARTS = 30


class Sizes:
    """The sizes of all queues. ``look_back_s``: how many seconds the recent maximum of a size covers. ``catch_up_s``:
    unread bytes count as if they arrived within this many seconds. If it is 0, unread bytes do not count."""

    def __init__(self, look_back_s: float, catch_up_s: float) -> None:
        self._part_s = look_back_s / PARTS
        self._catch_up_s = catch_up_s
        self.now: dict[Queue, float] = {}
        self._since_s = self._measured_s = 0.0
        #: The largest size of each queue in each part of the window. The latest part is last.
        self._parts: deque[dict[Queue, float]] = deque([{}], maxlen=PARTS + 1)
        self._first_s: float | None = None

    def measured(self, now_s: float, flows: list[Flow]) -> None:
        """Process a measurement of all existing queues."""
        if self._first_s is None or now_s - self._measured_s > self._part_s * PARTS > 0:
            # The first measurement, or the first after a pause longer than the window.
            self._first_s = self._since_s = now_s
            self._parts.clear()
            self._parts.append({})
        self._measured_s = now_s
        self.now = {flow.queue: self._size(flow) for flow in flows}
        if self._part_s and now_s - self._since_s >= self._part_s:
            # A pause longer than the window leaves no earlier part.
            for _ in range(min(int((now_s - self._since_s) / self._part_s), PARTS + 1)):
                self._parts.append({})
            self._since_s = now_s
        part = self._parts[-1]
        for queue, size in self.now.items():
            if size > part.get(queue, -1.0):
                part[queue] = size

    def _size(self, flow: Flow) -> float:
        return flow.bytes_per_s + (flow.stock / self._catch_up_s if self._catch_up_s else 0.0)

    def peaks(self) -> dict[Queue, float]:
        """Return the largest size of each existing queue within the window."""
        if not self._part_s:
            return dict(self.now)
        return {queue: max(part.get(queue, 0.0) for part in self._parts) for queue in self.now}

    def known_s(self, now_s: float) -> float:
        """Return the seconds since the first measurement."""
        return 0.0 if self._first_s is None else now_s - self._first_s
