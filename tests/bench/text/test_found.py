"""The sentences that say what a workload does and what a comparison found."""

from __future__ import annotations

import pytest

from ingeborg.bench.text import figures, found
from tests.bench import digests


@pytest.mark.parametrize(
    ("workload", "config", "said"),
    [
        ("topics", {"topics": 1, "window": 10_000}, "One client subscribes to 1 topic, and another publishes to them"),
        ("topics", {}, "with at most messages in flight."),
        ("traffic", digests.TRAFFIC, "Over 20 connections, clients publish and subscribe to 1,000 topics; the run"),
        ("traffic", digests.TRAFFIC, "the greatest rate that keeps p99 within 50.0 ms, and measures at that rate"),
        ("traffic", digests.TRAFFIC | {"rate": 100.0}, "subscribe to 1,000 topics, at a fixed rate."),
        ("replay", {"clients": 1}, "to every listener (1 client in all) that wishes for the song."),
        ("causal", {"clients": 32}, "Some of 32 clients ask questions"),
        ("causal", {"clients": "x"}, "Some of clients ask questions"),
    ],
)
def test_a_workload_is_one_sentence_with_its_settings(workload: str, config: digests.Json, said: str) -> None:
    text = found.workload(digests.facts(workload=workload, config=config))
    assert said in text
    assert text.count(". ") == 0
    assert text.endswith(".")


def test_an_unknown_workload_has_no_sentence() -> None:
    assert found.workload(digests.facts(workload=digests.HOSTILE, config=None)) == ""


def test_a_comparison_says_who_delivers_most_who_failed_and_what_the_limit_was() -> None:
    limits = digests.saturated("machine")
    document = digests.document(
        digests.traffic("a", rate=4000, variant="home", limits=limits),
        digests.traffic("b", rate=8000, system="nats", limits=limits),
        digests.traffic("c", rate=2000, system="mqtt"),
        digests.topics("d", 1, variant="home"),
        digests.topics("e", 2, variant="home"),
        digests.topics("f", 1, system="kafka"),
        digests.topics("g", 2, system="kafka", failed="time-out"),
    )
    assert found.compared(document) == [
        "Traffic: of 3 systems, nats delivers most, 30,800/s at its sustained rate.",
        "Traffic: ingeborg · home is number 2 and delivers 15,400/s.",
        "Traffic: 2 of 3 systems may do better, because something else was at its limit: machine (2).",
        "Topics: 1 of 2 systems finished 2 topics; kafka failed at 2.",
    ]


def test_one_thing_has_no_plural() -> None:
    assert [figures.counted(number, "run") for number in (0, 1, 2, 1000)] == ["0 runs", "1 run", "2 runs", "1,000 runs"]
    assert figures.counted(2, "delivery", "deliveries") == "2 deliveries"
