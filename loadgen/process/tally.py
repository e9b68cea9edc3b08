"""The messages that one process of the generator has sent and received so far: counts and approximate percentiles.

Owns: telling a delivery from a repetition and a reordering, and latencies by bucket. Must never: replace the log. The
digest computes published figures from the log; these steer the search and fill the display.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable
from heapq import nsmallest
from typing import NamedTuple, TypedDict

_SUB_BITS = 5  # 32 buckets per doubling: within 3 %
_SUB = 1 << _SUB_BITS
#: Up to this many pairs of connection and topic, sequence numbers lie in one array (4 bytes each) and not in a dict.
_DENSE_MAX = 1 << 24


class Dump(TypedDict):
    """A histogram as JSON. ``buckets``: number and count of each that is not empty."""

    max_ns: int
    buckets: list[tuple[int, int]]


class Latencies:
    """A histogram of latencies in ns, of bounded size. Negative ones count in the lowest bucket."""

    def __init__(self) -> None:
        self.count = 0
        self.max_ns = 0
        self._buckets: list[int] = []

    def add(self, ns: int) -> None:
        """Count one latency."""
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
        """Return it as JSON."""
        return {"max_ns": self.max_ns, "buckets": [(i, n) for i, n in enumerate(self._buckets) if n]}

    @classmethod
    def merged(cls, dumps: Iterable[Dump]) -> Latencies:
        """Merge what several processes dumped."""
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
        """Return the upper end of the bucket with the percentile; ``None`` without latencies."""
        wanted = self.count * percent / 100
        seen = 0
        for bucket, count in enumerate(self._buckets):
            seen += count
            if count and seen >= wanted:
                exponent = max((bucket >> _SUB_BITS) - 1, 0)
                units = bucket - (exponent << _SUB_BITS)
                return min((units + 1) << exponent << 10, max(self.max_ns, 0))
        return None


class _Doubtful(NamedTuple):
    """A delivery while an earlier message of its stream was missing. ``late``: it is such a message itself."""

    stream: int
    seq: int
    at_ns: int
    late: bool


class Sequences:
    """The sequence numbers that each of ``connections`` has received of each of ``topics``; such a pair is a stream.

    It keeps a stream's highest number, and the missing numbers below it: memory grows with pairs of connection and
    topic and with losses, not with messages, nor with those that others stand for.

    A message that arrives after a later one is ``reordered`` if only one connection can have published both: these have
    an order (SPEC 8.5). It is ``overtaken`` if another connection had also published one of the two: the later one may
    have arrived from there. The publishers are known only when the plan is drawn up to that time, so ``judge`` decides
    afterwards.
    """

    def __init__(self, connections: int, topics: int) -> None:
        self._topics = topics
        dense = connections * topics <= _DENSE_MAX
        self._highest: array[int] | Counter[int] = array("I", bytes(4 * connections * topics)) if dense else Counter()
        self._missing: dict[int, set[int]] = {}  # by stream: the numbers that it misses
        self._doubtful: list[_Doubtful] = []
        self._before: dict[tuple[int, int], int] = {}  # by stream and only publisher: the highest doubtful one
        self.repeated = 0
        self.reordered = 0
        self.overtaken = 0

    def add(self, connection: int, topic: int, seq: int, at_ns: int) -> bool:
        """Count a message; return whether it came for the first time."""
        stream = connection * self._topics + topic
        highest = self._highest[stream]
        late = seq <= highest
        if late:
            if seq not in self._missing.get(stream, ()):
                self.repeated += 1
                return False
            self._forget(stream, (seq,))
        else:
            self._highest[stream] = seq
            if seq == highest + 1 and stream not in self._missing:
                return True
            self._missing.setdefault(stream, set()).update(range(highest + 1, seq))
        self._doubtful.append(_Doubtful(stream, seq, at_ns, late))
        return True

    def skip(self, connection: int, topic: int, number: int) -> None:
        """Take that the latest message of the stream stands for this many missing ones: the lowest, since these are the
        least likely to come after all."""
        stream = connection * self._topics + topic
        self._forget(stream, nsmallest(number, self._missing.get(stream, ())))

    def _forget(self, stream: int, seqs: Iterable[int]) -> None:
        missing = self._missing.get(stream)
        if missing is not None:
            missing.difference_update(seqs)
            if not missing:
                del self._missing[stream]

    def judge(self, publisher: Callable[[int, int, int], int | None], until_ns: float) -> None:
        """Tell reordered from overtaken, for messages that arrived before ``until_ns``. ``publisher``: returns the only
        connection that the plan let publish a message of that topic and number until a time; ``None`` for several."""
        judged = 0
        for stream, seq, at_ns, late in self._doubtful:
            if at_ns >= until_ns:
                break
            judged += 1
            only = publisher(stream % self._topics, seq, at_ns)
            before = 0 if only is None else self._before.get((stream, only), 0)
            if late and seq < before:
                self.reordered += 1
            elif late:
                self.overtaken += 1
            if only is not None:
                self._before[stream, only] = max(before, seq)
        del self._doubtful[:judged]
