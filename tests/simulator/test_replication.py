"""With replicas, no payload is delivered twice after the crash of one home, and no confirmed payload is lost.

In the histories with crashes, one endpoint at a time crashes, whenever every slot has its replica. Other publishers
then repeat the latest messages. In the other histories every fault happens at any time: replicas must not break what
holds without them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ingeborg.broker.core.cluster.membership import Membership
from ingeborg.broker.core.cluster.replicas import Replica, Replicas
from ingeborg.broker.core.messages.in_flight_dedup import InFlightDedup
from tests import wants
from tests.planted import fault, search
from tests.proof import seeds

from .history import History
from .test_histories import check


def test_no_payload_is_delivered_twice_through_the_crash_of_one_home() -> None:
    drawn = seeds(120_000, 80, 5)
    crashed = deliveries = failed_over = 0
    for seed in drawn:
        history = History(seed, replication=True, crashes=True)
        assert not history.run(), f"seed {seed}: {history.violations[:5]}"
        crashed += history.crashed
        deliveries += history.steady_deliveries
        failed_over += sum(node.router.counters.counts["messages_failed_over"] for node in history.world.nodes.values())
    assert crashed >= drawn.enough(120)
    assert deliveries >= drawn.enough(500)
    assert failed_over >= drawn.enough(5)


@pytest.mark.parametrize(
    "options",
    [{}, {"drains": True}, {"slow": True}, {"faults": False, "drains": True, "cuts": True}],
    ids=["faults", "drains", "slow", "cuts"],
)
def test_guarantees_hold_with_replicas_through_every_fault(options: dict[str, Any]) -> None:
    check(seeds(121_000, 25, 2), replication=True, **options)


def test_an_undisturbed_cluster_with_replicas_delivers_exactly_once_and_in_order() -> None:
    check(seeds(122_000, 40, 2), replication=True, faults=False)


# Planted faults


def not_the_next_home(patch: pytest.MonkeyPatch) -> None:
    """Replicas are made, but at an endpoint that does not take over."""
    true = Membership.table_without_me

    def shifted(members: Membership) -> list[str]:
        homes = true(members)
        others = sorted(set(homes))
        return [others[(others.index(home) + 1) % len(others)] for home in homes]

    patch.setattr(Membership, "table_without_me", shifted)


def an_end_told_early(patch: pytest.MonkeyPatch) -> None:
    """A replica counts as whole before it has been sent."""

    def nothing(replicas: Replicas, replica: Replica) -> Any:
        replica.job = None
        replica.sent_all = True
        replicas.send(replica)
        yield from ()

    patch.setattr(Replicas, "_send_all", nothing)


def not_waited_for(patch: pytest.MonkeyPatch) -> None:
    """The replica learns of a message only when a subscriber may already have it."""
    patch.setattr(InFlightDedup, "begin", lambda in_flight_dedup, dispatch, key: None)
    patch.setattr(
        "ingeborg.broker.core.replication.barrier.ReplicationBarrier.begin", lambda barrier, dispatch, key: None
    )


@pytest.mark.parametrize(
    ("plant", "seed"),
    [
        fault(not_the_next_home, seed=123_000),
        fault(an_end_told_early, seed=123_004),
        fault(not_waited_for, seed=123_028),
    ],
)
def test_a_planted_fault_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    wants.interpreted()
    plant(monkeypatch)
    search(plant, seed, range(123_000, 123_100), lambda seed: History(seed, replication=True, crashes=True).run())
