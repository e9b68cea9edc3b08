"""The plan of the traffic workload, which follows thesis 6.2.1 and 6.4 and present-day benchmarks.

Owns: the topics to which each connection subscribes. For each publish, it owns the topic, or the message that the
publish repeats. Must never: know how well a system handles the traffic.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator, Sequence
from random import Random

from . import popularity
from .plan import Send
from .settings import Traffic

_NS = 1_000_000_000
#: The number of latest messages from which a publish chooses a message to repeat. It does not repeat a message that is
#: older than ``repeat_within_s``.
_REPEATABLE_MAX = 4096
#: The plan remembers at least this number of repetitions. At 100,000 publishes a second, these are the repetitions of
#: the last ten seconds. If messages arrive even later, the run has failed.
_REMEMBERED_MIN = 1 << 18
#: A time before all times of a segment.
_LONG_AGO_NS = -(1 << 62)


class TrafficPlan:
    """See ``Plan``. Publishes are evenly spaced.

    One connection (topic number modulo connections) is the first to publish each message of a topic, and only the other
    connections repeat it. So all new messages of a topic come from one publisher. A system can promise to keep the
    order of such messages, and their sequence numbers show whether it does.
    """

    notes: Sequence[str] = ()

    def __init__(self, settings: Traffic, *, duplicates: float) -> None:
        self._settings = settings
        self._duplicates = duplicates
        self._seqs = [0] * settings.topics
        self._segment = 0
        # The time when another connection was due to repeat a message, by the message's topic and number. The second
        # dict holds older entries.
        self._repeats: dict[tuple[int, int], int] = {}
        self._repeats_before: dict[tuple[int, int], int] = {}
        self.connections = settings.connections
        self.topics: Sequence[str] = [f"traffic topic {number:06d}" for number in range(settings.topics)]
        self._receives: list[set[int]] = [set() for _ in range(settings.connections)]
        # Topics with many subscribers are spread over the topic numbers. Otherwise skewed publishing would send the
        # most messages to the topics with the most subscribers.
        random = Random(f"subscribers {settings.seed}")
        ranked = random.sample(range(settings.topics), settings.topics)
        self._expected = [0] * settings.topics
        shares = popularity.counts(settings.topics, settings.fanout, settings.connections, 1.0)
        for topic, count in zip(ranked, shares, strict=True):
            self._expected[topic] = count
            for connection in random.sample(range(settings.connections), count):
                self._receives[connection].add(topic)
        self._published = popularity.cumulative(settings.topics, settings.skew) if settings.skew else None

    def subscriptions(self, connection: int) -> list[str]:
        """See ``Plan``."""
        return [self.topics[topic] for topic in sorted(self._receives[connection])]

    def receives(self, connection: int) -> frozenset[int]:
        """See ``Plan``."""
        return frozenset(self._receives[connection])

    def expected(self, topic: int) -> int:
        """See ``Plan``."""
        return self._expected[topic]

    def publisher(self, topic: int, seq: int, by_ns: int) -> int | None:
        """See ``Plan``."""
        key = topic, seq
        at_ns = self._repeats_before.get(key, self._repeats.get(key))
        return topic % self.connections if at_ns is None or at_ns > by_ns else None

    def _repeated(self, topic: int, seq: int, at_ns: int) -> None:
        if len(self._repeats) >= _REMEMBERED_MIN:
            self._repeats_before, self._repeats = self._repeats, {}
        self._repeats.setdefault((topic, seq), at_ns)

    def sends(
        self, rate_per_s: float | None, duration_s: float, process: int = 0, processes: int = 1
    ) -> Iterator[Send]:
        """See ``Plan``. The segment has ``int(rate_per_s * duration_s)`` publishes."""
        assert rate_per_s is not None
        self._segment += 1
        self._repeats_before, self._repeats = dict.fromkeys(self._repeats, _LONG_AGO_NS), {}
        random = Random(f"traffic {self._settings.seed} segment {self._segment}").random
        sizes = Random(f"sizes {self._settings.seed} segment {self._segment}")
        draw_size = self._settings.payload_sizes.draw
        # Items and weights have their own random generator. So with or without them, the same seed draws the same
        # topics, sizes and repetitions.
        about = Random(f"about {self._settings.seed} segment {self._segment}").random
        items, weight = self._settings.items, self._settings.weight
        connections, topics, seqs = self.connections, len(self.topics), self._seqs
        duplicates, published = self._duplicates, self._published
        repeat_within_ns = int(self._settings.repeat_within_s * _NS)
        span = min(_REPEATABLE_MAX, max(2, int(rate_per_s * self._settings.repeat_within_s * (1 - duplicates))))
        recent: list[Send] = []  # a ring of the latest messages
        made = 0
        for number in range(int(rate_per_s * duration_s)):
            at_ns = int(number * _NS / rate_per_s)
            if made and connections > 1 and random() < duplicates:
                again = recent[(made - 1 - int(random() * min(made, span))) % _REPEATABLE_MAX]
                if at_ns - again.at_ns <= repeat_within_ns:
                    self._repeated(again.topic, again.seq, at_ns)
                    other = (again.connection + 1 + int(random() * (connections - 1))) % connections
                    yield again._replace(at_ns=at_ns, connection=other, first=False)
                    continue
            topic = int(random() * topics) if published is None else bisect(published, random())
            seqs[topic] = seq = seqs[topic] + 1
            send = Send(at_ns, topic % connections, topic, seq, at_ns, True, draw_size(sizes))
            if items or weight:
                item = f"item {int(about() * items)}" if items else None
                send = send._replace(item=item, weight=about() * weight if weight else None)
            if made < _REPEATABLE_MAX:
                recent.append(send)
            else:
                recent[made % _REPEATABLE_MAX] = send
            made += 1
            yield send
