"""`ingeborg.bench.budgets.replication`: the judgements, the output, and the measurement in small."""

from __future__ import annotations

import pytest

from ingeborg.bench.budgets import replication, scaling
from ingeborg.bench.budgets.replication import KINDS, LOADS, Cost, Kind, Turn
from ingeborg.bench.budgets.scaling import TOPICS

ALONE = KINDS[0]
MS_NS = 1_000_000


def cost(cpu_us: float, reply_ns: int) -> Cost:
    return Cost(cpu_us, 200.0, [reply_ns] * 100)


def test_the_least_cpu_of_all_rounds_counts_and_every_reply() -> None:
    turns = [Turn(50.0, 200.0, [3, 1]), Turn(40.0, 201.0, [2, 9])]
    assert Cost.of(turns) == Cost(40.0, 201.0, [1, 2, 3, 9])


@pytest.mark.parametrize(("more_ns", "met"), [(MS_NS, True), (MS_NS + 1000, False)])
def test_a_reply_to_a_single_publish_may_take_a_millisecond_more(more_ns: int, met: bool) -> None:
    found = replication.checks({(ALONE, 5): (cost(100.0, MS_NS), cost(150.0, MS_NS + more_ns))})
    assert [check.met for check in found] == [True, met]
    assert found[0].measured == "+50 us, 1.50 times 100 us"
    assert found[1].measured == f"{more_ns // 1000:+} us, from 1000 to {1000 + more_ns // 1000}"


def test_what_bursts_cost_is_reported_and_has_no_goal() -> None:
    found = replication.checks({(KINDS[1], 1): (cost(100.0, MS_NS), cost(900.0, 9 * MS_NS))})
    assert [(check.goal, check.met) for check in found] == [("reported", True)] * 2


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.words)
def test_every_topic_is_published_equally_often_at_every_endpoint(kind: Kind) -> None:
    count = replication.publishes(kind)
    assert count % (replication.ENDPOINTS * TOPICS) == 0
    assert count % (replication.ENDPOINTS * kind.burst) == 0
    assert count >= 1_000  # with fewer, the p99 would come from very few values


@pytest.mark.parametrize(("without", "has"), [(0, True), (12, False)])
def test_an_endpoints_page_says_whether_its_slots_have_replicas(without: int, has: bool) -> None:
    page = f"# HELP …\ningeborg_slots_without_replica {without}\n"
    assert replication.has_replicas(page) is has


@pytest.mark.cluster
async def test_a_small_load_is_measured_and_copied_only_where_there_are_replicas(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replication, "LOAD_S", 0.2)
    monkeypatch.setattr(scaling, "IDLE_S", 0.1)
    found = await replication.measure(1)
    assert list(found) == LOADS
    for (kind, _), (off, on) in found.items():
        assert off.copied == 0
        assert on.copied > 120  # at least the payload
        for seen in (off, on):  # its CPU may be lower than that of an idle tenth of a second
            assert len(seen.replies_ns) == replication.publishes(kind)
            assert 0 < seen.replies_ns[0] <= seen.replies_ns[-1]
