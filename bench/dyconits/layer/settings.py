"""The settings of the layer's programs, and the interpretations of the document's text.

Owns: the names, units and defaults of all settings. The defaults are those of section 5.4.2 and of the document's
programs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

HIGH, MEDIUM, LOW = "high", "medium", "low"
TOPICS: Final = (HIGH, MEDIUM, LOW)


@dataclass(frozen=True)
class Readings:
    """The answers to questions that the document's text leaves open. The defaults follow the text, except ``quiet``.

    Attributes:
        shifted: a consumer normalises priorities as (p + 1) / (highest + 1), like the document's programs. The text
            only says that the highest priority becomes 1, for which p / highest is enough.
        summed: a consumer adds its local priority to the global priority, like the programs. The text takes the mean of
            the two.
        added: the priority of a stale topic is the sum of its priority and its stale priority, like the programs. The
            text's equation has only the stale priority.
        limited: the delay of a stale topic is at most its production delay, as the text says. The text's equation and
            the programs have no such limit.
        growing: the increment of the stale priority also grows, as the text says. In the text's equation and the
            programs it is constant, and the programs limit the stale priority.
        all_low: the manager throttles or disables all topics of sufficiently low priority, like the programs. The text
            takes only the topic with the lowest priority.
        quiet: a topic is stale if its last consumed message is old, as section 3.3 of the text says. A topic without
            new messages is then always stale. In the programs, a message must also be waiting, by the manager's last
            count.
        regranted: after a request for new bounds, each update grants it until the consumer's next report, like the
            programs. In the text, only the update that answers the request has new bounds.
    """

    shifted: bool = False
    summed: bool = False
    added: bool = False
    limited: bool = True
    growing: bool = True
    all_low: bool = False
    quiet: bool = False
    regranted: bool = False


TEXT: Final = Readings()
PROGRAMS: Final = Readings(
    shifted=True, summed=True, added=True, limited=False, growing=False, all_low=True, regranted=True
)
NAMED: Final = {"text": TEXT, "programs": PROGRAMS}
"""The interpretations with which an experiment can run on a real Kafka."""


def _priorities() -> dict[str, float]:
    return {HIGH: 0.5, MEDIUM: 0.0, LOW: -0.5}


def _no_priorities() -> dict[str, float]:
    return dict.fromkeys(TOPICS, 0.0)


def _stale_priorities() -> dict[str, float]:
    return {HIGH: 1.0, MEDIUM: 0.5, LOW: 0.0}


@dataclass(frozen=True)
class ManagerSettings:
    """The settings of the manager (section 4.7).

    Attributes:
        priorities: the default priority of each topic, above -1 and at most 1.
        can_throttle: whether the manager may slow producers down.
        can_disable: whether the manager may disable topics for a consumer that requests new bounds.
        can_end: whether the manager may tell a consumer that a topic has ended.
        low_priority: a topic's priority is sufficiently low if it is lower than the highest priority by more than this.
        numerical_step: the increment of a numerical bound, in messages.
        staleness_step_ms: the increment of a staleness bound, in milliseconds.
        notify: if a production rate changes by more than this share, consumers get the new rate.
        struggling: the share of consumers that must request new bounds before the manager throttles.
        throttle_delay_ms: the delay between messages for which a throttling manager asks, in milliseconds.
        throttle_ms: how long a producer keeps to that delay, in milliseconds.
        silent_delay_ms: the production delay of a topic without messages, in milliseconds.
    """

    priorities: dict[str, float] = field(default_factory=_priorities)
    can_throttle: bool = False
    can_disable: bool = False
    can_end: bool = True
    low_priority: float = 0.75
    numerical_step: float = 500.0
    staleness_step_ms: float = 1_000.0
    notify: float = 0.5
    struggling: float = 0.6
    throttle_delay_ms: float = 300.0
    throttle_ms: float = 15_000.0
    silent_delay_ms: float = 2_500.0


@dataclass(frozen=True)
class ConsumerSettings:
    """The settings of a consumer (section 4.7). Delays are times between two messages of a topic, in milliseconds.

    Attributes:
        delay_ms: the delay at the beginning.
        delay_min_ms: the least delay.
        delay_max_ms: the greatest delay.
        step_ms: the step by which delays change.
        report_ms: the time between two reports, in milliseconds.
        cpu_target: the CPU usage that the consumer tries to reach, in per cent of a core.
        cpu_threshold: the CPU usage above which the consumer requests new bounds, in per cent of a core.
        numerical: the numerical bound of each topic at the beginning, in messages.
        staleness_ms: the staleness bound of each topic at the beginning, in milliseconds.
        stale_increment: the increment of a stale topic's priority.
        local_priorities: the local priority of each topic.
        stale_priorities: the stale priority of each topic at the beginning.
    """

    delay_ms: float = 250.0
    delay_min_ms: float = 0.0
    delay_max_ms: float = 3_000.0
    step_ms: float = 50.0
    report_ms: float = 5_000.0
    cpu_target: float = 7.5
    cpu_threshold: float = 15.0
    numerical: float = 1_000.0
    staleness_ms: float = 10_000.0
    stale_increment: float = 0.1
    local_priorities: dict[str, float] = field(default_factory=_no_priorities)
    stale_priorities: dict[str, float] = field(default_factory=_stale_priorities)


@dataclass(frozen=True)
class ProducerSettings:
    """The settings of the producers. Each topic has one.

    Attributes:
        report_ms: the time between two reports, in milliseconds.
        interval_min_ms, interval_max_ms: the time between two messages is drawn from this range, in milliseconds.
    """

    report_ms: float = 5_000.0
    interval_min_ms: float = 4.0
    interval_max_ms: float = 8.12
