"""Every figure, from handmade records."""

from __future__ import annotations

from collections import Counter

import pytest

from ingeborg.bench.overlay.metrics import (
    Life,
    Traffic,
    figures,
    islands,
    memory_bytes,
    owed_to,
    percentile,
    redundancy,
)
from ingeborg.bench.overlay.record import Record

SIZE = 100


def record() -> Record:
    """Root 0 sends one in slot 10; 1 to 4 get it in 20, 30, 40, 50, over 1, 1, 2, 2 links. 4 gets it twice."""
    found = Record()
    found.delivered(10, 0, 0, 1, 0)
    for node, hops in ((1, 1), (2, 1), (3, 2), (4, 2)):
        found.delivered(10 + 10 * node, node, 0, 1, hops)
    found.delivered(60, 4, 0, 1, 9)
    return found


def lives(count: int, **changes: Life) -> list[Life]:
    return [changes.get(f"n{node}", Life(0, True)) for node in range(count)]


def test_the_figures_of_a_message() -> None:
    row = figures(record(), "run", lives(5), Traffic(30, 8 * SIZE, 500), SIZE)
    assert row == {
        "messages": 1,
        "deliveries": 4,
        "reliability": 1.0,
        "least": 1.0,
        "mean_ms": 2.5,
        "p50_ms": 2.0,
        "p99_ms": 4.0,
        "max_ms": 4.0,
        "last_ms": 4.0,
        "last_hop": 2.0,
        "redundancy": 1.0,
        "control_bytes": 100.0,
        "sends": 6.0,
    }


def test_figures_are_of_one_phase() -> None:
    found = record()
    found.phase = "other"
    found.delivered(100, 1, 1, 1, 0)
    found.delivered(107, 0, 1, 1, 3)
    row = figures(found, "other", lives(5), Traffic(1, SIZE, 10), SIZE)
    assert (row["messages"], row["deliveries"], row["mean_ms"], row["last_hop"]) == (1, 1, 0.7, 3.0)
    assert row["reliability"] == row["least"] == 0.25
    assert figures(found, "none", lives(5), Traffic(), SIZE)["messages"] == 0


def test_nobody_is_owed_what_was_sent_before_it_came_or_when_it_had_gone() -> None:
    found = record()
    message = found.messages[0]
    among = lives(9, n5=Life(11, True), n6=Life(10, True), n7=Life(None, True), n8=Life(0, False))
    assert owed_to(message, 0, among, found) == [1, 2, 3, 4, 6]
    row = figures(found, "run", among, Traffic(), SIZE)
    assert (row["reliability"], row["messages"]) == (0.8, 1)


def test_what_died_with_its_root_is_owed_to_none_and_what_one_has_to_all() -> None:
    found = Record()
    found.delivered(1, 0, 0, 1, 0)
    found.delivered(2, 1, 0, 1, 1)
    dead = Life(0, False)
    assert owed_to(found.messages[0], 0, lives(4, n0=dead, n1=dead), found) == []
    assert owed_to(found.messages[0], 0, lives(4, n0=dead), found) == [1, 2, 3]
    assert owed_to(found.messages[0], 0, lives(4), found) == [1, 2, 3]


def test_redundancy_is_that_of_the_plumtree_paper() -> None:
    assert redundancy(9_999, 10_000) == 0.0
    assert redundancy(5 * 9_999, 10_000) == 4.0
    assert redundancy(0, 1) == 0.0


def test_a_percentile_is_by_nearest_rank() -> None:
    counts = Counter({1: 98, 5: 1, 9: 1})
    assert [percentile(counts, share) for share in (0.5, 0.98, 0.99, 1.0)] == [1, 1, 5, 9]
    assert percentile(Counter(), 0.5) == 0


def test_traffic_is_what_came_since() -> None:
    assert Traffic(5, 7, 9).since(Traffic(1, 2, 3)) == Traffic(4, 5, 6)


def test_islands_are_parts_without_a_way_out() -> None:
    links = {0: [1], 1: [0, 2], 2: [1], 3: [4], 4: [3, 9], 5: []}
    assert islands(links.__getitem__, list(links)) == [3, 2, 1]
    assert islands(links.__getitem__, []) == []


def test_memory_is_of_what_is_reached_and_not_shared() -> None:
    class Holder:
        def __init__(self, what: object) -> None:
            self.what = what

    payload = [bytes(10_000)]
    alone = memory_bytes(Holder(payload), [])
    assert 10_000 < alone < 12_000
    assert memory_bytes(Holder([payload, payload]), []) == pytest.approx(alone, abs=200)
    assert memory_bytes(Holder(payload), [payload]) < 1_000
