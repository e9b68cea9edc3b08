"""What a run has brought so far: counts and approximate percentiles, for the progress line and the summary.

Owns: telling a delivery from a duplicate, a reordering and a stray. Must never: replace the log; published figures are
computed from that, these only say at once how it went.
"""

from __future__ import annotations

from collections import Counter

_SUB_BITS = 5  # 32 buckets per doubling: within 3 %
_SUB = 1 << _SUB_BITS


class Latencies:
    """A histogram of latencies in ns: bounded however many come. Negative ones count in the lowest bucket."""

    def __init__(self) -> None:
        self.count = 0
        self.max_ns = 0
        self._buckets: list[int] = []

    def add(self, ns: int) -> None:
        """Count one."""
        units = max(ns, 0) >> 10  # about a microsecond
        exponent = max(units.bit_length() - _SUB_BITS - 1, 0)
        bucket = (exponent << _SUB_BITS) + (units >> exponent)
        if bucket >= len(self._buckets):
            self._buckets.extend([0] * (bucket + 1 - len(self._buckets)))
        self._buckets[bucket] += 1
        self.count += 1
        self.max_ns = max(self.max_ns, ns)

    def percentile_ms(self, percent: float) -> float | None:
        """The upper end of the bucket that the percentile falls into; ``None`` of nothing."""
        wanted = self.count * percent / 100
        seen = 0
        for bucket, count in enumerate(self._buckets):
            seen += count
            if count and seen >= wanted:
                exponent = max((bucket >> _SUB_BITS) - 1, 0)
                units = bucket - (exponent << _SUB_BITS)
                return min(((units + 1) << exponent << 10), max(self.max_ns, 0)) / 1e6
        return None


class Tally:
    """Counts of a run. Memory: one integer per delivery, some 100 bytes; ten million of them are a gigabyte."""

    def __init__(self, connections: int) -> None:
        self._connections = connections
        self.news = 0
        self.expected = 0
        self.sent = 0
        self.received = 0  # all of them
        self.delivered = 0  # distinct
        self.duplicates = 0
        self.reordered = 0
        self.errors: Counter[str] = Counter()
        self.latencies = Latencies()
        self._seen: set[int] = set()
        self._highest: dict[int, int] = {}

    @property
    def lost(self) -> int:
        """Expected deliveries that have not come."""
        return self.expected - self.delivered

    def add_news(self, expected: int) -> None:
        """Something happened that so many connections must get."""
        self.news += 1
        self.expected += expected

    def add_received(self, connection: int, news: int, topic: int, seq: int, latency_ns: int) -> None:
        """A connection that wished for it got news number ``news``."""
        self.received += 1
        self.latencies.add(latency_ns)
        key = news * self._connections + connection
        if key in self._seen:
            self.duplicates += 1
            return
        self._seen.add(key)
        self.delivered += 1
        where = topic * self._connections + connection
        if seq < self._highest.get(where, 0):
            self.reordered += 1
        else:
            self._highest[where] = seq
