"""The messages that one process of the generator has sent and received so far: counts and approximate percentiles.

Owns: counting first deliveries, repetitions and reorderings, and counting latencies by bucket. Must never: replace the
log. The digest computes published figures from the log; the figures here only steer the search and fill the display.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable
from heapq import nsmallest
from typing import NamedTuple, TypedDict

_SUB_BITS = 5  # 32 buckets per doubling, so that a bucket is at most 3 % wide
_SUB = 1 << _SUB_BITS
#: Up to this number of pairs of connection and topic, an array holds the sequence numbers (4 bytes each) instead of a
#: dict.
_DENSE_MAX = 1 << 24


class Dump(TypedDict):
    """A histogram as JSON. ``buckets``: the bucket number and the count of each bucket that is not empty."""

    max_ns: int
    buckets: list[tuple[int, int]]


class Latencies:
    """A histogram of latencies in ns, of bounded size. Negative latencies count in the lowest bucket."""

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
        """Return the histogram as JSON."""
        return {"max_ns": self.max_ns, "buckets": [(i, n) for i, n in enumerate(self._buckets) if n]}

    @classmethod
    def merged(cls, dumps: Iterable[Dump]) -> Latencies:
        """Merge the histograms that several processes dumped."""
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
        """Return the upper end of the bucket with the percentile, or ``None`` if there are no latencies."""
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
    """A delivery in a stream with missing messages. ``late``: whether the delivered message was one of the missing
    messages."""

    stream: int
    seq: int
    at_ns: int
    late: bool


class Sequences:
    """The sequence numbers that each connection has received on each topic. A stream is a pair of connection and topic.

    This class keeps the highest number of each stream and the missing numbers below it. So its memory grows with the
    number of streams and of losses. It does not grow with the number of received messages, or with the number of
    messages that a received message replaces.

    A message that arrives after a later message is ``reordered`` if only one connection can have published both,
    because the publishes of one connection on one topic have an order (SPEC 8.5). The message is ``overtaken`` if a
    second connection can also have published either message. Then the later message may have come from that connection.
    The publishers are known only once the plan is drawn up to the time of arrival. So ``judge`` decides later.
    """

    def __init__(self, connections: int, topics: int) -> None:
        self._topics = topics
        dense = connections * topics <= _DENSE_MAX
        self._highest: array[int] | Counter[int] = array("I", bytes(4 * connections * topics)) if dense else Counter()
        self._missing: dict[int, set[int]] = {}  # the missing numbers of each stream
        self._doubtful: list[_Doubtful] = []
        self._before: dict[tuple[int, int], int] = {}  # the highest doubtful number, by stream and its only publisher
        self.repeated = 0
        self.reordered = 0
        self.overtaken = 0

    def add(self, connection: int, topic: int, seq: int, at_ns: int) -> bool:
        """Count a message, and return whether it arrived for the first time."""
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
        """Remove ``number`` missing messages of the stream, because the latest message of the stream replaces them.
        Remove the lowest sequence numbers, because their messages are the least likely to arrive after all."""
        stream = connection * self._topics + topic
        self._forget(stream, nsmallest(number, self._missing.get(stream, ())))

    def _forget(self, stream: int, seqs: Iterable[int]) -> None:
        missing = self._missing.get(stream)
        if missing is not None:
            missing.difference_update(seqs)
            if not missing:
                del self._missing[stream]

    def judge(self, publisher: Callable[[int, int, int], int | None], until_ns: float) -> None:
        """Count late messages that arrived before ``until_ns`` as reordered or overtaken.
        ``publisher(topic, seq, at_ns)`` returns the only connection that the plan let publish that message until
        ``at_ns``, or ``None`` if there are several."""
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
