"""The comparison of topics benchmarks: each system's figures over the number of topics, and where its series ended.

Owns the compared figures of a topics run, and the slope of memory over topics. All functions are pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ingeborg.bench.comparison.groups import (
    Figures,
    Limit,
    Read,
    baseline_first,
    by_load,
    distinct,
    failure,
    figures,
    load,
    of_kind,
    repetitions,
    saturated,
)
from ingeborg.bench.digest.document import Json

LOAD = ("messages", "window", "size")
"""The settings that determine the load of a topics benchmark. Only series with equal settings are in one table."""

OF_A_RUN = frozenset({"topics", "first", "last"})
"""Settings that may differ between the runs of one series, or between a longer and a shorter series."""

SLOPE_TOPICS_MIN = 1024
"""Below this number, things other than topics dominate the growth of memory. A single additional page of memory would
already look like kilobytes per topic."""


@dataclass(frozen=True)
class TopicsPoint:
    """A series at one number of topics. `subscribing` and `flooding` are the parts, other than the system, that were at
    their limit in these phases. `failed` says why figures are missing."""

    topics: int
    runs: tuple[Json, ...]
    figures: Figures
    subscribing: tuple[Limit, ...]
    flooding: tuple[Limit, ...]
    failed: str | None

    @property
    def limits(self) -> tuple[Limit, ...]:
        return distinct((*self.subscribing, *self.flooding))

    def limits_of(self, figure: str) -> tuple[Limit, ...]:
        """Return the limits that affect a figure. Memory has no such limits, because a saturated part does not change
        it."""
        if figure == "server_bytes":
            return ()
        return self.subscribing if figure.startswith("subscribe") else self.flooding


@dataclass(frozen=True)
class TopicsSeries:
    """The results of one system and variant, in ascending order of the number of topics."""

    name: str
    system: str
    variant: str
    points: tuple[TopicsPoint, ...]

    @property
    def finished(self) -> int | None:
        """Return the greatest number of topics that succeeded."""
        return max((point.topics for point in self.points if point.failed is None), default=None)

    @property
    def failure(self) -> TopicsPoint | None:
        """Return the first number of topics that failed."""
        return next((point for point in self.points if point.failed is not None), None)

    def at(self, topics: int) -> TopicsPoint | None:
        return next((point for point in self.points if point.topics == topics), None)

    @property
    def bytes_per_topic(self) -> float | None:
        """Return the slope of the servers' memory, from the first number of topics that is at least `SLOPE_TOPICS_MIN`
        to the last number."""
        sized = [(p.topics, memory.value) for p in self.points if (memory := p.figures["server_bytes"]) is not None]
        sized = [point for point in sized if point[0] >= SLOPE_TOPICS_MIN]
        return slope(sized[0], sized[-1]) if len(sized) > 1 else None


@dataclass(frozen=True)
class TopicsTable:
    """The series of one load. The baseline comes first."""

    load: Json
    series: tuple[TopicsSeries, ...]

    @property
    def baseline(self) -> TopicsSeries:
        return self.series[0]

    @property
    def numbers(self) -> list[int]:
        return sorted({point.topics for series in self.series for point in series.points})

    def common(self, series: TopicsSeries) -> int | None:
        """Return the greatest number of topics that both this series and the baseline finished."""
        done = [{p.topics for p in each.points if p.failed is None} for each in (series, self.baseline)]
        return max(done[0] & done[1], default=None)


def topics(document: Json) -> list[TopicsTable]:
    """Return one table per load, in the document's order."""
    runs = [run for run in document["runs"] if run["facts"]["workload"] == "topics"]
    return [
        TopicsTable(
            settings,
            tuple(baseline_first([_series(name, group) for name, group in repetitions(of_load, OF_A_RUN)])),
        )
        for settings, of_load in by_load(runs, LOAD)
    ]


def slope(first: tuple[float, float], last: tuple[float, float]) -> float:
    """Return how much y grows per x between two points."""
    return (last[1] - first[1]) / (last[0] - first[0])


def _flood(name: str) -> Read:
    return lambda run: phase[name] if (phase := _flood_phase(run)) else None


def _flood_phase(run: Json) -> Json | None:
    phase = of_kind(run, "run")
    return phase if phase is not None and phase["measured"] else None


def _subscribed(name: str) -> Read:
    """Read the rate of a subscribe phase that made all its subscriptions. A phase that ended early has no rate."""

    def read(run: Json) -> float | None:
        phase = of_kind(run, "subscribe")
        value: float | None = phase[name] if phase is not None and phase["amount"] is not None else None
        return value

    return read


def _server_bytes(run: Json) -> float | None:
    phase = _flood_phase(run)
    server = phase["processes"].get("server") if phase else None
    if server is None:
        return None
    value: float | None = server["rss_bytes"] if server["anon_bytes"] is None else server["anon_bytes"]
    return value


_FIGURES: Mapping[str, Read] = {
    "subscribe_s": _subscribed("duration_s"),
    "subscribe_per_s": _subscribed("amount_per_s"),
    "produce_per_s": _flood("produce_per_s"),
    "consume_per_s": _flood("consume_per_s"),
    "end_to_end_per_s": _flood("end_to_end_per_s"),
    "server_cpu_us": lambda run: phase["cpu_us_per_delivered"]["server"] if (phase := _flood_phase(run)) else None,
    "server_bytes": _server_bytes,
}


def _series(name: str, runs: Sequence[Json]) -> TopicsSeries:
    facts = runs[0]["facts"]
    by_number: dict[int, list[Json]] = {}
    for run in runs:
        by_number.setdefault(number_of_topics(run), []).append(run)
    points = []
    for number, group in sorted(by_number.items()):
        subscribing, flooding = (
            saturated(phase for run in group if (phase := of_kind(run, kind)) is not None)
            for kind in ("subscribe", "run")
        )
        failed = next((text for run in group if (text := failure(run)) is not None), None)
        points.append(TopicsPoint(number, tuple(group), figures(_FIGURES, group), subscribing, flooding, failed))
    return TopicsSeries(name, str(facts["system"]), str(facts.get("variant") or ""), tuple(points))


def number_of_topics(run: Json) -> int:
    """Return the number of topics of a run, or 0 if its configuration does not say it."""
    value = load(run, ("topics",)).get("topics")
    return value if isinstance(value, int) else 0
