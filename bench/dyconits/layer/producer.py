"""A producer's delays between messages, and its reports.

Owns: the throttle of section 4.5. Must never: wait, or read a clock.
"""

from __future__ import annotations

import random

from ingeborg.bench.dyconits.layer.messages import ProducerReport, ProducerUpdate
from ingeborg.bench.dyconits.layer.settings import ProducerSettings


class Producer:
    """The state of the producer of one topic. The delays follow from ``seed``."""

    def __init__(self, name: str, topic: str, settings: ProducerSettings, seed: int) -> None:
        self.name = name
        self.topic = topic
        self._settings = settings
        self._chance = random.Random(f"producer {topic} {seed}")
        self._throttle_ms = 0.0
        self._throttled_until_ms = 0.0
        self._reported = 0
        self.produced = 0

    def next_ms(self, now_ms: float) -> float:
        """Count a message at ``now_ms``, and return the time of the next message. Both times are in milliseconds."""
        self.produced += 1
        delay_ms = self._chance.uniform(self._settings.interval_min_ms, self._settings.interval_max_ms)
        if now_ms < self._throttled_until_ms:
            delay_ms = max(delay_ms, self._throttle_ms)
        return now_ms + delay_ms

    def report(self, *, has_ended: bool = False) -> ProducerReport:
        """Return a report on the messages since the last report."""
        count, self._reported = self.produced - self._reported, self.produced
        return ProducerReport(self.name, {self.topic: count}, has_ended)

    def updated(self, update: ProducerUpdate, now_ms: float) -> None:
        """Take an update of the manager. ``now_ms``: the time, in milliseconds."""
        self._throttle_ms = update.delay_ms
        self._throttled_until_ms = now_ms + update.throttle_ms
