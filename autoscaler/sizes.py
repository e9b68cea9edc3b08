"""How large a queue is, as the packing sees it: what is written into it, and what has not been read.

Owns: the size now, and the greatest of late. Must never: read a clock.
"""

from __future__ import annotations

from collections import deque

from .model import Flow, Queue

#: The time that is looked back is kept in so many parts.
PARTS = 30


class Sizes:
    """Of all queues. ``look_back_s``: of the greatest; ``catch_up_s``: what has not been read counts as if it came in
    so many seconds; 0: it does not count."""

    def __init__(self, look_back_s: float, catch_up_s: float) -> None:
        self._part_s = look_back_s / PARTS
        self._catch_up_s = catch_up_s
        self.now: dict[Queue, float] = {}
        self._since_s = self._measured_s = 0.0
        #: The greatest size of each queue, by part of the time; the latest last.
        self._parts: deque[dict[Queue, float]] = deque([{}], maxlen=PARTS + 1)
        self._first_s: float | None = None

    def measured(self, now_s: float, flows: list[Flow]) -> None:
        """All queues that there are."""
        if self._first_s is None or now_s - self._measured_s > self._part_s * PARTS > 0:
            # The first, or the first after so long that nothing of before is looked back to.
            self._first_s = self._since_s = now_s
            self._parts.clear()
            self._parts.append({})
        self._measured_s = now_s
        self.now = {flow.queue: self._size(flow) for flow in flows}
        if self._part_s and now_s - self._since_s >= self._part_s:
            # A pause longer than what is looked back leaves nothing of before.
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
        """The greatest size of each queue that there is, in the time that is looked back."""
        if not self._part_s:
            return dict(self.now)
        return {queue: max(part.get(queue, 0.0) for part in self._parts) for queue in self.now}

    def known_s(self, now_s: float) -> float:
        """For so long it has been measured."""
        return 0.0 if self._first_s is None else now_s - self._first_s
