"""The rows of a run: the production times of messages, and the messages that each reader had taken at each sample.

Owns: their format. Must never: compute a figure.

Times are in milliseconds since the beginning of the measured time. A reader takes the messages of a topic in order, so
``last`` says which messages it has passed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

PRODUCED, SAMPLES, USED, CONTROLS, FACTS = "produced", "samples", "used", "controls", "facts"
"""Names of folders with rows."""

SAMPLE_MS: Final = 100.0
"""The time between two samples of a reader."""

CHUNK: Final = 500
"""Number of messages in a row of ``PRODUCED``."""


class Sample(NamedTuple):
    """The state of a topic at a reader.

    Attributes:
        reader: the reader's name.
        topic: the topic.
        at_ms: the time.
        taken: number of messages that the reader has processed.
        skipped: number of messages that newer messages have replaced.
        last: number of messages of the topic up to and including the last message that was taken.
        received: the same for the last message that has reached the reader's process.
    """

    reader: str
    topic: str
    at_ms: float
    taken: int
    skipped: int
    last: int
    received: int


class Used(NamedTuple):
    """``cpu_s``: CPU time of a reader since its start, in seconds."""

    reader: str
    at_ms: float
    cpu_s: float


class Control(NamedTuple):
    """The state of the document's layer for one topic at a reader: its polling delay, its bounds and its priority."""

    reader: str
    topic: str
    at_ms: float
    delay_ms: float
    numerical: float
    staleness_ms: float
    priority: float


def produced(topic: str, times_ms: Sequence[float]) -> Iterator[dict[str, Any]]:
    """Yield the rows of a topic's production times, in the order of its messages."""
    for first in range(0, len(times_ms), CHUNK):
        times = [round(time_ms, 1) for time_ms in times_ms[first : first + CHUNK]]
        yield {"topic": topic, "first": first + 1, "at_ms": times}


def rows(values: Iterable[Sample | Used | Control]) -> Iterator[dict[str, Any]]:
    """Yield rows of samples."""
    for value in values:
        yield {name: round(each, 3) if isinstance(each, float) else each for name, each in value._asdict().items()}
