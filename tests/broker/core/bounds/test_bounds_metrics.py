"""The metrics of bounds: what operators see while an endpoint holds messages."""

from __future__ import annotations

from ingeborg.broker.core.histogram import Histogram
from ingeborg.broker.core.metrics import HISTOGRAM
from tests.broker.core.talk import Cluster

from .test_bounds_scenarios import bounds, busy, publish, reader


class Figures:
    """An endpoint's metrics of bounds, without the beginning of their names."""

    def __init__(self, cluster: Cluster) -> None:
        found = [metric for metric in cluster.nodes["a"].router.metrics() if metric.name.startswith("bounds_")]
        self.values = {
            (metric.name.removeprefix("bounds_"), *labels): value
            for metric in found
            for labels, value in metric.samples
        }
        self.times: dict[str, Histogram] = {
            labels[0]: times for metric in found if metric.kind == HISTOGRAM for labels, times in metric.times
        }

    def __getitem__(self, name: tuple[str, ...] | str) -> float:
        return self.values[(name,) if isinstance(name, str) else name]

    def by_band(self, name: str) -> list[float]:
        return [self.values[name, band] for band in ("low", "medium", "high")]


def test_what_is_held_and_replaced_is_counted_by_band() -> None:
    cluster = Cluster("a")
    low = reader(cluster, "low", "t", bounds=bounds(staleness_ms=2_000, deliver="latest", priority=-1))
    medium = reader(cluster, "medium", "t", bounds=bounds(staleness_ms=2_000, deliver="latest", priority=0))
    reader(cluster, "high", "t", bounds=bounds(staleness_ms=2_000, deliver="latest", priority=1))
    reader(cluster, "none", "t")
    busy(cluster, 2.5)
    for number in range(4):
        publish(low, "t", number, weight=2)
    cluster.world.run(0.05)
    figures = Figures(cluster)
    assert (figures["clients"], figures["held"]) == (3, 3)
    assert figures["level"] > 8
    assert 0.9 < figures["busy"] <= 1
    assert figures["busy_target"] == 0.7
    assert figures.by_band("conflated") == [3, 3, 3]
    assert figures.by_band("weight") == [0, 0, 0]
    cluster.world.run(2.1)
    figures = Figures(cluster)
    assert figures["held"] == 0
    assert figures.by_band("weight") == [8, 8, 8]
    assert [times.buckets()[-1][1] for times in figures.times.values()] == [1, 1, 1]
    assert figures["released", "due"] == 3
    assert low.say("bounds", bounds=[]) == ["ok"]
    assert Figures(cluster)["clients"] == 2
    medium.close()
    cluster.world.run(0.1)
    assert Figures(cluster)["clients"] == 1
    assert figures.by_band("exceeded") == [0, 0, 0]


def test_a_bound_that_passes_while_a_client_takes_nothing_is_counted_in_its_band() -> None:
    cluster = Cluster("a")
    ann = reader(cluster, "ann", "t", window=1, bounds=bounds(staleness_ms=100, priority=1))
    for number in range(3):
        publish(ann, "t", number)
    cluster.world.run(0.3)
    assert ann.payloads() == [0]
    ann.send(command="credit", count=1)
    cluster.world.run(0.1)
    figures = Figures(cluster)
    assert figures.by_band("exceeded") == [0, 0, 1]
    assert (ann.payloads(), figures["held"]) == ([1], 1)
    assert figures.by_band("weight") == [0, 0, 1]


def test_a_message_that_leaves_before_its_bound_exceeds_nothing() -> None:
    cluster = Cluster("a")
    ann = reader(cluster, "ann", "t", window=1, bounds=bounds(staleness_ms=10_000))
    for number in range(2):
        publish(ann, "t", number)
    cluster.world.run(0.3)
    ann.send(command="credit", count=1)
    cluster.world.run(0.1)
    assert ann.payloads() == [0, 1]
    assert Figures(cluster).by_band("exceeded") == [0, 0, 0]


def test_topics_beyond_the_limit_of_conits_are_counted() -> None:
    cluster = Cluster("a")
    ann = reader(cluster, "ann", "t,u", bounds=bounds(interval_ms=1_000))
    cluster.nodes["a"].router.layers.bounds.holding._held_max = 1
    for topic in ("t", "u", "u"):
        publish(ann, topic, 0)
    cluster.world.run(0.1)
    assert ann.payloads() == [0, 0, 0]
    assert Figures(cluster)["released", "limit"] == 2
