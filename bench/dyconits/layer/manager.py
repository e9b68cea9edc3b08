"""The manager: it knows production rates and priorities, answers the reports of consumers, and throttles producers.

Owns: equation 4.1, Algorithm 1, and the new bounds of section 4.6. Must never: wait, or send.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ingeborg.bench.dyconits.layer.messages import (
    ConsumerReport,
    ConsumerUpdate,
    ProducerReport,
    ProducerUpdate,
    TopicUpdate,
)
from ingeborg.bench.dyconits.layer.settings import ManagerSettings, Readings

DISABLED, ENDED = -1.0, -2.0
"""Special priorities. A consumer ignores the bounds of a topic at ``DISABLED``, and unsubscribes at ``ENDED``."""

Update = ConsumerUpdate | ProducerUpdate


def priority(rate: float, rate_max: float, default: float) -> float:
    """Return a topic's global priority (equation 4.1).

    Args:
        rate: the topic's production rate, in messages per second.
        rate_max: the greatest production rate of all topics, in messages per second.
        default: the topic's default priority.
    """
    share = rate / rate_max if rate_max else 0.0
    return (share * 2 - 1 + default) / 2


def growth(step: float, priority: float) -> float:
    """Return by how much a bound grows: by one step for the highest priority, and by two steps for the lowest."""
    return step + step * (1 - (1 + priority) / 2)


@dataclass
class _Topic:
    """``rates`` has the production rate of each producer, and ``reported_ms`` the time of its last report."""

    default: float
    priority: float
    rates: dict[str, float] = field(default_factory=dict)
    reported_ms: dict[str, float] = field(default_factory=dict)
    produced: int = 0
    has_ended: bool = False

    @property
    def rate(self) -> float:
        """Return the rate of all producers together, in messages per second."""
        return sum(self.rates.values())


class Manager:
    """The state of the whole system. A topic that the settings do not name has the default priority 0."""

    def __init__(self, settings: ManagerSettings, readings: Readings) -> None:
        self._settings = settings
        self._readings = readings
        self._topics = {topic: _Topic(default, default) for topic, default in settings.priorities.items()}
        self._consumed: dict[str, dict[str, int]] = {}
        self._wanting: dict[str, bool] = {}
        self._granted: set[str] = set()

    def priority(self, topic: str) -> float:
        """Return a topic's global priority."""
        return self._topics[topic].priority

    def producer_report(self, report: ProducerReport, at_ms: float) -> list[Update]:
        """Take a producer's report. If a rate has changed sufficiently, consumers get the new rate.

        Args:
            report: the report.
            at_ms: the time of the report, in milliseconds. Rates follow from these times.

        Returns:
            The updates to send.
        """
        changed = [topic for topic, count in report.produced.items() if self._produced(report, topic, count, at_ms)]
        rate_max = max((topic.rate for topic in self._topics.values()), default=0.0)
        for topic in self._topics.values():
            topic.priority = priority(topic.rate, rate_max, topic.default)
        concerned = [name for name, consumed in self._consumed.items() if any(topic in consumed for topic in changed)]
        return [update for name in concerned for update in self._updates(name)]

    def consumer_report(self, report: ConsumerReport) -> list[Update]:
        """Take a consumer's report, and return the updates to send. The consumer always gets an update."""
        self._consumed[report.consumer] = dict(report.consumed)
        self._wanting[report.consumer] = report.wants_bounds
        self._granted.discard(report.consumer)
        for topic in report.consumed:
            self._topic(topic)
        return self._updates(report.consumer)

    def _topic(self, name: str) -> _Topic:
        return self._topics.setdefault(name, _Topic(0.0, 0.0))

    def _produced(self, report: ProducerReport, name: str, count: int, at_ms: float) -> bool:
        """Count a producer's messages. Return whether the topic's rate has changed sufficiently."""
        topic = self._topic(name)
        before = topic.rate
        topic.produced += count
        last_ms = topic.reported_ms.get(report.producer)
        topic.reported_ms[report.producer] = at_ms
        if report.has_ended:
            topic.rates[report.producer] = 0.0
            topic.has_ended = not any(topic.rates.values())
        elif last_ms is not None and at_ms > last_ms:  # the first report has no interval
            topic.rates[report.producer] = count / (at_ms - last_ms) * 1e3
            topic.has_ended = False
        return abs(topic.rate - before) > self._settings.notify * before

    def _updates(self, consumer: str) -> list[Update]:
        """Return the updates for a consumer and for producers (Algorithm 1)."""
        return [*self._throttled(), self._update(consumer)]

    def _throttled(self) -> list[Update]:
        wanting = sum(self._wanting.values())
        if not self._settings.can_throttle or wanting <= self._settings.struggling * len(self._wanting):
            return []
        delay_ms, throttle_ms = self._settings.throttle_delay_ms, self._settings.throttle_ms
        producers = {producer: None for name in self._low() for producer in self._topics[name].rates}
        if producers:
            self._wanting = dict.fromkeys(self._wanting, False)
        return [ProducerUpdate(producer, delay_ms, throttle_ms) for producer in producers]

    def _low(self) -> list[str]:
        """Return the topics of sufficiently low priority."""
        highest = max((topic.priority for topic in self._topics.values()), default=0.0)
        low = [name for name, topic in self._topics.items() if highest - topic.priority > self._settings.low_priority]
        low.sort(key=lambda name: self._topics[name].priority)
        return low if self._readings.all_low else low[:1]

    def _update(self, consumer: str) -> ConsumerUpdate:
        # A request counts until the next report, even if it has been granted.
        wanting = self._wanting[consumer] and (self._readings.regranted or consumer not in self._granted)
        self._granted.add(consumer)
        low = self._low() if wanting and self._settings.can_disable else []
        topics = {}
        for name, consumed in self._consumed[consumer].items():
            topic = self._topics[name]
            shown = topic.priority
            if self._settings.can_end and topic.has_ended and consumed >= topic.produced > 0:
                shown = ENDED
            elif name in low:
                shown = DISABLED
            topics[name] = TopicUpdate(
                1e3 / topic.rate if topic.rate else self._settings.silent_delay_ms,
                shown,
                topic.produced,
                growth(self._settings.numerical_step, topic.priority) if wanting else None,
                growth(self._settings.staleness_step_ms, topic.priority) if wanting else None,
            )
        return ConsumerUpdate(consumer, topics)
