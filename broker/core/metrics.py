"""A part's metrics: names with units, help texts, samples.

Owns: the record. Must never: count. A part counts in its own state, because that costs less than counting in a record,
and makes metrics from its counts on request.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from .histogram import Histogram

GAUGE: Final = "gauge"
COUNTER: Final = "counter"
HISTOGRAM: Final = "histogram"

#: The help text of a metric that several parts add samples to.
EVICTIONS: Final = "Entries that left a full cache"

Sample = tuple[tuple[str, ...], float]
"""The values of the labels, and the value of the metric."""


class Metric(NamedTuple):
    """One metric, or some of its samples. ``/metrics`` groups the samples of all metrics that have the same name.

    Attributes:
        kind: ``GAUGE``, ``COUNTER`` or ``HISTOGRAM``.
        name: the name with its unit, without the prefix that all metrics share.
        help: the help text for operators.
        labels: the names of the labels.
        samples: the values of a gauge or counter.
        times: a histogram's times in seconds, for each combination of label values.
    """

    kind: str
    name: str
    help: str
    labels: tuple[str, ...] = ()
    samples: tuple[Sample, ...] = ()
    times: tuple[tuple[tuple[str, ...], Histogram], ...] = ()


def gauge(name: str, help: str, value: float) -> Metric:
    """Return a gauge: a value that can rise and fall."""
    return Metric(GAUGE, name, help, (), (((), float(value)),))


def gauges(name: str, help: str, labels: tuple[str, ...], samples: Iterable[Sample]) -> Metric:
    """Return a gauge with one sample for each combination of label values."""
    return Metric(GAUGE, name, help, labels, tuple(samples))


def counter(name: str, help: str, value: float) -> Metric:
    """Return a counter: a value that only rises while the endpoint runs."""
    return Metric(COUNTER, name, help, (), (((), float(value)),))


def counters(name: str, help: str, labels: tuple[str, ...], samples: Iterable[Sample]) -> Metric:
    """Return a counter with one sample for each combination of label values."""
    return Metric(COUNTER, name, help, labels, tuple(samples))


def counters_by(name: str, help: str, label: str, counts: Mapping[str, float]) -> Metric:
    """Return a counter with one sample for each value of a label."""
    return Metric(COUNTER, name, help, (label,), tuple(((value,), float(count)) for value, count in counts.items()))


def histogram(name: str, help: str, times: Histogram) -> Metric:
    """Return a histogram of durations."""
    return Metric(HISTOGRAM, name, help, (), (), (((), times),))
