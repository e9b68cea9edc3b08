"""What one process of the generator has sent and received so far: counts and approximate percentiles, as it goes.

Owns: telling a delivery from a repetition and a reordering, and latencies by bucket. Must never: replace the log:
published figures are computed from that, these steer the search and fill the display.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable
from typing import TypedDict

_SUB_BITS = 5  # 32 buckets per doubling: within 3 %
_SUB = 1 << _SUB_BITS
#: Pairs of connection and topic up to which their sequence numbers lie in one array (4 bytes each) and not in a dict.
_DENSE_MAX = 1 << 24


class Dump(TypedDict):
    """A histogram as JSON. ``buckets``: number and count of each that is not empty."""

    max_ns: int
    buckets: list[tuple[int, int]]


class Latencies:
    """A histogram of latencies in ns: bounded however many come. Negative ones count in the lowest bucket."""

    def __init__(self) -> None:
        self.count = 0
        self.max_ns = 0
        self._buckets: list[int] = []

    def add(self, ns: int) -> None:
        """Count one."""
        units = ns >> 10 if ns > 0 else 0  # about a microsecond
        exponent = units.bit_length() - _SUB_BITS - 1
        bucket = (exponent << _SUB_BITS) + (units >> exponent) if exponent > 0 else units
        try:
            self._buckets[bucket] += 1
        except IndexError:
            self._buckets.extend([0] * (bucket + 1 - len(self._buckets)))
            self._buckets[bucket] += 1
        self.count += 1
        if ns > self.max_ns:
            self.max_ns = ns

    def dump(self) -> Dump:
        """As JSON."""
        return {"max_ns": self.max_ns, "buckets": [(i, n) for i, n in enumerate(self._buckets) if n]}

    @classmethod
    def merged(cls, dumps: Iterable[Dump]) -> Latencies:
        """What several processes dumped, as one."""
        made = cls()
        for dump in dumps:
            made.max_ns = max(made.max_ns, dump["max_ns"])
            for bucket, count in dump["buckets"]:
                if bucket >= len(made._buckets):
                    made._buckets.extend([0] * (bucket + 1 - len(made._buckets)))
                made._buckets[bucket] += count
                made.count += count
        return made

    def percentile_ns(self, percent: float) -> int | None:
        """The upper end of the bucket that the percentile falls into; ``None`` of nothing."""
        wanted = self.count * percent / 100
        seen = 0
        for bucket, count in enumerate(self._buckets):
            seen += count
            if count and seen >= wanted:
                exponent = max((bucket >> _SUB_BITS) - 1, 0)
                units = bucket - (exponent << _SUB_BITS)
                return min((units + 1) << exponent << 10, max(self.max_ns, 0))
        return None


class Sequences:
    """The sequence numbers that each of ``connections`` has received of each of ``topics``.

    A stream's highest number is kept, and the numbers below it that are missing: memory grows with pairs of connection
    and topic and with what was lost, not with messages.
    """

    def __init__(self, connections: int, topics: int) -> None:
        self._topics = topics
        dense = connections * topics <= _DENSE_MAX
        self._highest: array[int] | Counter[int] = array("I", bytes(4 * connections * topics)) if dense else Counter()
        self._missing: set[tuple[int, int]] = set()
        self.repeated = 0
        self.reordered = 0

    def add(self, connection: int, topic: int, seq: int) -> bool:
        """Whether it came for the first time."""
        where = connection * self._topics + topic
        highest = self._highest[where]
        if seq == highest + 1:
            self._highest[where] = seq
            return True
        if seq > highest:
            self._highest[where] = seq
            self._missing.update((where, between) for between in range(highest + 1, seq))
            return True
        if (where, seq) in self._missing:
            self._missing.remove((where, seq))
            self.reordered += 1
            return True
        self.repeated += 1
        return False
