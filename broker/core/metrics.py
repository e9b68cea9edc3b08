"""What a part counts and measures, as it tells it to whoever asks: names, units in the name, help texts, samples.

Owns: the record. Must never: count; a part counts in its own state, which costs less, and reads it when it is asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from .histogram import Histogram

GAUGE: Final = "gauge"
COUNTER: Final = "counter"
HISTOGRAM: Final = "histogram"

#: The help of a family that several parts have a share in.
EVICTIONS: Final = "Entries that left a full cache"

Sample = tuple[tuple[str, ...], float]
"""The values of the labels, and the figure."""


class Metric(NamedTuple):
    """One family, or a part of one: those of the same name are shown together. ``name``: without the prefix of all
    metrics. ``times``: of a histogram, in seconds, by the values of the labels."""

    kind: str
    name: str
    help: str
    labels: tuple[str, ...] = ()
    samples: tuple[Sample, ...] = ()
    times: tuple[tuple[tuple[str, ...], Histogram], ...] = ()


def gauge(name: str, help: str, value: float) -> Metric:
    """A figure that goes up and down."""
    return Metric(GAUGE, name, help, (), (((), float(value)),))


def gauges(name: str, help: str, labels: tuple[str, ...], samples: Iterable[Sample]) -> Metric:
    """The same by labels."""
    return Metric(GAUGE, name, help, labels, tuple(samples))


def counter(name: str, help: str, value: float) -> Metric:
    """A figure that goes up only, since the start."""
    return Metric(COUNTER, name, help, (), (((), float(value)),))


def counters(name: str, help: str, labels: tuple[str, ...], samples: Iterable[Sample]) -> Metric:
    """The same by labels."""
    return Metric(COUNTER, name, help, labels, tuple(samples))


def counters_by(name: str, help: str, label: str, counts: Mapping[str, float]) -> Metric:
    """The same by one label."""
    return Metric(COUNTER, name, help, (label,), tuple(((value,), float(count)) for value, count in counts.items()))


def histogram(name: str, help: str, times: Histogram) -> Metric:
    """How long something took."""
    return Metric(HISTOGRAM, name, help, (), (), (((), times),))
