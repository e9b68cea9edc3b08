"""The page `/metrics`, in Prometheus' text format 0.0.4.

Owns: the names' prefix and the format. Must never: count anything, or read a part's counters, because each part lists
its own metrics.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.core import Metric as Family

from ..core.histogram import Histogram
from ..core.metrics import COUNTER, GAUGE, Metric
from ..shell.status import Status

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

PREFIX = "ingeborg_"


def page(status: Status) -> str:
    """Return all metrics of the endpoint as the page's text."""
    return generate_latest(_registry(status)).decode()


@functools.lru_cache(maxsize=1)
def _registry(status: Status) -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Endpoint(status))
    ProcessCollector(registry=registry)
    return registry


class _Endpoint:
    """A collector for the Prometheus library."""

    def __init__(self, status: Status) -> None:
        self._status = status

    def collect(self) -> Iterator[Family]:
        """Yield all families. Metrics of the same kind and name form one family."""
        together: dict[tuple[str, str], list[Metric]] = {}
        for metric in self._status.metrics():
            together.setdefault((metric.kind, metric.name), []).append(metric)
        yield from map(_family, together.values())
        uptime_s = time.time() - self._status.started_unix_s
        yield GaugeMetricFamily("process_uptime_seconds", "Time since the process started", value=uptime_s)


def _family(metrics: list[Metric]) -> Family:
    kind, name, help, labels = metrics[0][:4]
    if kind not in (GAUGE, COUNTER):
        histograms = HistogramMetricFamily(f"{PREFIX}{name}_seconds", help, labels=labels)
        for metric in metrics:
            for values, times in metric.times:
                histograms.add_metric(values, _buckets(times), times.sum_s)
        return histograms
    made = GaugeMetricFamily if kind == GAUGE else CounterMetricFamily
    family = made(PREFIX + name, help, labels=labels)
    for values, value in sorted(sample for metric in metrics for sample in metric.samples):
        family.add_metric(values, value)
    return family


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    return [("+Inf" if bound is None else f"{bound:g}", count) for bound, count in histogram.buckets()]
