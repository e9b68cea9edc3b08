"""The messages between the layer's programs (section 4.4.2): words separated by blanks.

Owns: their format. Must never: interpret a value.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

QUIT, NEW_BOUNDS = "q", "nb"

CONSUMER_REPORTS, PRODUCER_REPORTS = "consumer_performance", "producer_performance"
"""The topics with the reports to the manager."""


class MessageError(ValueError):
    """Raised if a message does not have the right format."""


def consumer_updates(consumer: str) -> str:
    """Return the topic with a consumer's updates."""
    return f"{consumer}_consumer_update"


def producer_updates(producer: str) -> str:
    """Return the topic with a producer's updates."""
    return f"{producer}_producer_update"


@dataclass(frozen=True)
class ProducerReport:
    """A producer's report. ``produced``: the number of messages in each topic since the previous report. ``has_ended``:
    whether this is the last report."""

    producer: str
    produced: Mapping[str, int]
    has_ended: bool = False

    def text(self) -> str:
        """Return the message."""
        words = [self.producer, *(f"{count} {topic}" for topic, count in self.produced.items())]
        return " ".join(words + [QUIT] * self.has_ended)

    @classmethod
    def parse(cls, text: str) -> ProducerReport:
        """Read a message. Raises ``MessageError``."""
        words = text.split(" ")
        has_ended = words[-1] == QUIT
        values = words[1 : len(words) - has_ended]
        if len(values) % 2:
            raise _bad(text, "ID, and for each topic a number and the topic")
        pairs = zip(values[1::2], values[::2], strict=True)
        return cls(words[0], {topic: int(_number(count, text)) for topic, count in pairs}, has_ended)


@dataclass(frozen=True)
class ConsumerReport:
    """A consumer's report. ``cpu``: CPU usage since the previous report, in per cent of a core. ``consumed``: the
    number of all consumed messages of each topic."""

    consumer: str
    cpu: float
    consumed: Mapping[str, int]
    wants_bounds: bool = False

    def text(self) -> str:
        """Return the message."""
        words = [self.consumer, f"{self.cpu:.3f}", *(f"{topic} {count}" for topic, count in self.consumed.items())]
        return " ".join(words + [NEW_BOUNDS] * self.wants_bounds)

    @classmethod
    def parse(cls, text: str) -> ConsumerReport:
        """Read a message. Raises ``MessageError``."""
        words = text.split(" ")
        wants_bounds = words[-1] == NEW_BOUNDS
        values = words[2 : len(words) - wants_bounds]
        if len(words) < 2 or len(values) % 2:
            raise _bad(text, "ID, CPU usage, and for each topic the topic and a number")
        pairs = zip(values[::2], values[1::2], strict=True)
        consumed = {topic: int(_number(count, text)) for topic, count in pairs}
        return cls(words[0], _number(words[1], text), consumed, wants_bounds)


@dataclass(frozen=True)
class ProducerUpdate:
    """An update for a producer. ``delay_ms``: the minimum delay between messages. ``throttle_ms``: how long this delay
    applies. Both are in milliseconds."""

    producer: str
    delay_ms: float
    throttle_ms: float

    @property
    def to(self) -> str:
        """Return the topic of the message."""
        return producer_updates(self.producer)

    def text(self) -> str:
        """Return the message."""
        return f"{self.producer} md {self.delay_ms:g} tt {self.throttle_ms:g}"

    @classmethod
    def parse(cls, text: str) -> ProducerUpdate:
        """Read a message. Raises ``MessageError``."""
        words = text.split(" ")
        if len(words) != 5 or (words[1], words[3]) != ("md", "tt"):
            raise _bad(text, "ID md DELAY tt TIME")
        return cls(words[0], _number(words[2], text), _number(words[4], text))


@dataclass(frozen=True)
class TopicUpdate:
    """What a consumer learns about a topic.

    Attributes:
        delay_ms: the production delay, which is the time between two messages, in milliseconds.
        priority: the global priority.
        produced: the number of all messages of the topic.
        numerical: the change of the numerical bound in messages, if the consumer has requested new bounds.
        staleness_ms: the change of the staleness bound in milliseconds, if the consumer has requested new bounds.
    """

    delay_ms: float
    priority: float
    produced: int
    numerical: float | None = None
    staleness_ms: float | None = None


_WORDS: Final = {"mp": "delay_ms", "tp": "priority", "ne": "produced", "bn": "numerical", "bs": "staleness_ms"}


@dataclass(frozen=True)
class ConsumerUpdate:
    """The manager's answer to a consumer."""

    consumer: str
    topics: Mapping[str, TopicUpdate] = field(default_factory=dict)

    @property
    def to(self) -> str:
        """Return the topic of the message."""
        return consumer_updates(self.consumer)

    def text(self) -> str:
        """Return the message."""
        words = [self.consumer]
        for topic, update in self.topics.items():
            values = ((word, getattr(update, name)) for word, name in _WORDS.items())
            words += [f"{word} {value:.10g} {topic}" for word, value in values if value is not None]
        return " ".join(words)

    @classmethod
    def parse(cls, text: str) -> ConsumerUpdate:
        """Read a message. Raises ``MessageError``."""
        words = text.split(" ")
        found: dict[str, dict[str, float]] = {}
        for word, value, topic in zip(words[1::3], words[2::3], words[3::3], strict=False):
            if word not in _WORDS:
                raise _bad(text, f"one of {', '.join(_WORDS)}, a number and a topic")
            found.setdefault(topic, {})[_WORDS[word]] = _number(value, text)
        if len(words) % 3 != 1 or not all({"delay_ms", "priority", "produced"} <= set(each) for each in found.values()):
            raise _bad(text, "ID, and for each topic mp, tp and ne, each with a number and the topic")
        return cls(
            words[0],
            {
                topic: TopicUpdate(
                    each["delay_ms"],
                    each["priority"],
                    int(each["produced"]),
                    each.get("numerical"),
                    each.get("staleness_ms"),
                )
                for topic, each in found.items()
            },
        )


def _number(word: str, text: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise _bad(text, f"a number in place of {word!r}")
    return value


def _bad(text: str, wanted: str) -> MessageError:
    return MessageError(f"{text!r} has to have {wanted}")
