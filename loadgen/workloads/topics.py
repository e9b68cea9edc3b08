"""The plan of the topics workload: one client publishes to N topics in turn, another subscribes to all. Thesis 6.5.

Owns: the names of the topics and the order of the messages. Must never: know how many topics a system can handle. The
system does not store messages in this workload. So the subscriber subscribes before the publisher publishes. The thesis
uses the opposite order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

from .plan import Send
from .settings import Topics

SUBSCRIBER, PUBLISHER = 0, 1


class _Names(Sequence[str]):
    """Topic names by number, made on demand, so that two million names take no memory."""

    def __init__(self, prefix: str, count: int) -> None:
        self._prefix = prefix
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number):  # type: ignore[no-untyped-def]
        if isinstance(number, slice):
            return [self[each] for each in range(*number.indices(self._count))]
        if not 0 <= number < self._count:
            raise IndexError(number)
        return f"{self._prefix} {number:07d}"


class TopicsPlan:
    """The ``Plan`` for one number of topics. Each number of topics has its own topic names, so that an earlier run with
    another number does not affect this run."""

    notes: Sequence[str] = ()
    connections = 2

    def __init__(self, settings: Topics, topics: int, prefix: str) -> None:
        self._settings = settings
        self.topics: Sequence[str] = _Names(f"{prefix} {topics}", topics)
        self.messages = max(settings.messages, topics)

    def subscriptions(self, connection: int) -> list[str]:
        """See ``Plan``."""
        return list(self.topics) if connection == SUBSCRIBER else []

    def receives(self, connection: int) -> frozenset[int]:
        """See ``Plan``."""
        return frozenset(range(len(self.topics))) if connection == SUBSCRIBER else frozenset()

    def expected(self, topic: int) -> int:
        """See ``Plan``."""
        return 1

    def publisher(self, topic: int, seq: int, by_ns: int) -> int | None:
        """See ``Plan``."""
        return PUBLISHER

    def sends(
        self, rate_per_s: float | None, duration_s: float, process: int = 0, processes: int = 1
    ) -> Iterator[Send]:
        """See ``Plan``. Messages go round-robin over the topics. A closed loop has no intended times, so all times are
        0."""
        random = Random(f"sizes {self._settings.seed}")
        draw_size = self._settings.payload_sizes.draw
        topics = len(self.topics)
        for number in range(self.messages):
            seq, topic = divmod(number, topics)
            yield Send(0, PUBLISHER, topic, seq + 1, 0, True, draw_size(random))
