"""A consumer's polling delays, which follow its CPU usage, its bounds and the priorities of its topics.

Owns: the local priorities of section 4.2, Algorithm 2 and equation 4.2. Must never: wait, or read a clock.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from ingeborg.bench.dyconits.layer.manager import DISABLED, ENDED
from ingeborg.bench.dyconits.layer.messages import ConsumerReport, ConsumerUpdate
from ingeborg.bench.dyconits.layer.settings import ConsumerSettings, Readings

_LOWEST: Final = math.nextafter(DISABLED, 0.0)
"""The lowest local priority of a topic that is neither disabled nor ended."""


def localised(priorities: Mapping[str, float], local: Mapping[str, float], readings: Readings) -> dict[str, float]:
    """Return a consumer's priorities. The highest is 1. Special priorities do not change, and other priorities do not
    become special.

    Args:
        priorities: the global priority of each of the consumer's topics.
        local: the consumer's local priority of each topic. It is 0 for a topic without an entry.
        readings: how to combine and normalise the priorities.
    """
    usual = {}
    for topic, value in priorities.items():
        if value > DISABLED:
            own = local.get(topic, 0.0)
            usual[topic] = value + own if readings.summed else (value + own) / 2
    highest = max(usual.values(), default=0.0)
    if readings.shifted:
        # If the highest priority is -1, all priorities are -1.
        usual = {topic: (value + 1) / (highest + 1) if highest > -1 else 1.0 for topic, value in usual.items()}
    elif highest > 0:
        usual = {topic: value / highest for topic, value in usual.items()}
    else:
        # No division makes the highest priority 1, so all priorities are shifted.
        usual = {topic: value + 1 - highest for topic, value in usual.items()}
    return {topic: max(usual[topic], _LOWEST) if topic in usual else value for topic, value in priorities.items()}


@dataclass
class _Topic:
    """The bounds and the state of a topic. Times are in milliseconds. ``newest_ms``: the production time of the last
    consumed message, or None before the first message. ``increment``: the next increment of ``stale_priority``."""

    delay_ms: float
    numerical: float
    staleness_ms: float
    stale_priority: float
    increment: float
    priority: float = 0.0
    production_ms: float = 0.0
    produced: int = 0
    consumed: int = 0
    newest_ms: float | None = None


class Consumer:
    """The state of one consumer."""

    def __init__(self, name: str, topics: Iterable[str], settings: ConsumerSettings, readings: Readings) -> None:
        self.name = name
        self._settings = settings
        self._readings = readings
        self._cpu = 0.0
        self._awaits_bounds = False
        self._topics = {
            topic: _Topic(
                settings.delay_ms,
                settings.numerical,
                settings.staleness_ms,
                settings.stale_priorities.get(topic, 0.0),
                settings.stale_increment,
                production_ms=settings.delay_max_ms,
            )
            for topic in topics
        }

    def delay_ms(self, topic: str) -> float:
        """Return the minimum time between two messages of a topic, in milliseconds."""
        return self._topics[topic].delay_ms

    def bounds(self, topic: str) -> tuple[float, float]:
        """Return a topic's numerical bound in messages, and its staleness bound in milliseconds."""
        return self._topics[topic].numerical, self._topics[topic].staleness_ms

    def priority(self, topic: str) -> float:
        """Return a topic's priority at this consumer."""
        return self._topics[topic].priority

    def has_ended(self, topic: str) -> bool:
        """Return whether the topic has ended. Then the consumer can unsubscribe."""
        return self._topics[topic].priority <= ENDED

    def took(self, topic: str, produced_ms: float) -> None:
        """Count a message that has been consumed. ``produced_ms``: its production time, in milliseconds."""
        state = self._topics[topic]
        state.consumed += 1
        state.newest_ms = produced_ms

    def report(self, cpu: float, now_ms: float) -> ConsumerReport:
        """Return a report, and adjust the delays. The report requests new bounds if the CPU usage exceeds its
        threshold, unless the answer to an earlier request is still missing.

        Args:
            cpu: the CPU usage since the last report, in per cent of a core.
            now_ms: the time, in milliseconds.
        """
        self._cpu = cpu
        wants = cpu > self._settings.cpu_threshold and not self._awaits_bounds
        self._awaits_bounds = self._awaits_bounds or wants
        self._adjust(now_ms)
        return ConsumerReport(self.name, cpu, {name: topic.consumed for name, topic in self._topics.items()}, wants)

    def updated(self, update: ConsumerUpdate, now_ms: float) -> None:
        """Take an update of the manager, and adjust the delays. ``now_ms``: the time, in milliseconds."""
        self._awaits_bounds = False
        for name, each in update.topics.items():
            topic = self._topics[name]
            topic.production_ms, topic.produced = each.delay_ms, each.produced
            topic.numerical += each.numerical or 0.0
            if each.staleness_ms is not None:
                topic.staleness_ms += each.staleness_ms
                topic.increment = self._settings.stale_increment
                if not self._readings.growing:  # the programs reset the priority itself
                    topic.stale_priority = self._settings.stale_priorities.get(name, 0.0)
        priorities = {name: each.priority for name, each in update.topics.items()}
        for name, value in localised(priorities, self._settings.local_priorities, self._readings).items():
            self._topics[name].priority = value
        self._adjust(now_ms)

    def _adjust(self, now_ms: float) -> None:
        """Update the delays (Algorithm 2)."""
        difference = self._cpu - self._settings.cpu_target
        step = self._settings.step_ms
        update_step = step * ((difference > 0) - (difference < 0))  # equation 4.2, which has no value for 0
        for name, topic in self._topics.items():
            if topic.priority <= DISABLED:
                topic.delay_ms = self._settings.delay_max_ms
            elif self._is_stale(topic, now_ms):
                priority = topic.stale_priority + (topic.priority if self._readings.added else 0.0)
                self._change(topic, update_step - step * priority)
                if self._readings.limited:
                    self._limit(topic)
                self._stale(name, topic)
            else:
                self._change(topic, update_step - step * topic.priority)
                if topic.produced - topic.consumed > topic.numerical:
                    self._limit(topic)

    def _is_stale(self, topic: _Topic, now_ms: float) -> bool:
        may_be = self._readings.quiet or topic.produced > topic.consumed
        return may_be and topic.newest_ms is not None and now_ms - topic.newest_ms > topic.staleness_ms

    def _change(self, topic: _Topic, by_ms: float) -> None:
        most_ms, least_ms = self._settings.delay_max_ms, self._settings.delay_min_ms
        topic.delay_ms = max(min(topic.delay_ms + by_ms, most_ms), least_ms)

    def _limit(self, topic: _Topic) -> None:
        """Let the delay be at most the production delay, but not below the least delay."""
        topic.delay_ms = max(min(topic.delay_ms, topic.production_ms), self._settings.delay_min_ms)

    def _stale(self, name: str, topic: _Topic) -> None:
        """Let the priority of a stale topic grow."""
        topic.stale_priority += topic.increment
        if self._readings.growing:
            topic.increment += self._settings.stale_increment
        else:
            default = self._settings.stale_priorities.get(name, 0.0)
            topic.stale_priority = min(topic.stale_priority, 3 * (default + 1))
