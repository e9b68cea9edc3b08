"""The guarantees of SPEC section 8, in a thousand seeded histories with faults, and in undisturbed ones.

A failing history prints its seed; ``python -m tests.simulator.replay SEED`` shows it event by event.
"""

from __future__ import annotations

from typing import Any

import pytest

from ingeborg.broker.core.limits import Limits, Sizes
from ingeborg.broker.core.model import Shape
from tests.planted import finds, search
from tests.proof import Seeds, seeds

from .history import History
from .world import FORGETTABLE

HISTORIES = 1_000
PER_TEST = 100


def check(drawn: Seeds, **options: object) -> None:
    for seed in drawn:
        violations = History(seed, **options).run()  # type: ignore[arg-type]
        assert not violations, f"seed {seed} (python -m tests.simulator.replay {seed}): {violations[:5]}"


@pytest.mark.parametrize("first", range(0, HISTORIES, PER_TEST))
def test_guarantees_hold_through_crashes_cuts_stalls_and_store_outages(first: int) -> None:
    check(seeds(first, PER_TEST, 5))


OWN_KEYS: dict[str, tuple[dict[str, Any], int]] = {
    "in peace": ({"faults": False}, 100),
    "drains": ({"faults": False, "drains": True}, 100),
    "cuts": ({"faults": False, "cuts": True, "drains": True}, 100),
    "crashes": ({"replication": True, "crashes": True}, 80),
    "faults": ({}, 0),
    "slow": ({"slow": True}, 0),
    "lookup": ({"faults": False, "routing": "lookup"}, 0),
}


@pytest.mark.parametrize(("options", "conflicts"), OWN_KEYS.values(), ids=OWN_KEYS)
def test_a_key_of_its_own_makes_a_retry_a_duplicate_and_another_payload_a_conflict(
    options: dict[str, Any], conflicts: int
) -> None:
    drawn = seeds(95_000, 15, 2)
    found = 0
    for seed in drawn:
        history = History(seed, own_keys=True, **options)
        assert not history.run(), f"seed {seed}: {history.violations[:5]}"
        found += history.conflicts_checked
    assert found >= drawn.enough(conflicts)


@pytest.mark.parametrize("endpoints", [1, 2, 5])
def test_guarantees_hold_with_any_number_of_endpoints(endpoints: int) -> None:
    check(seeds(10_000, 40), endpoints=endpoints)


@pytest.mark.timeout(600)  # half a minute of computing
def test_an_undisturbed_cluster_delivers_exactly_once_and_in_order_ten_thousand_times() -> None:
    drawn = seeds(20_000, 330, 20)
    deliveries = moved = 0
    for seed in drawn:
        history = History(seed, faults=False)
        assert not history.run(), f"seed {seed}"
        deliveries += history.steady_deliveries
        moved += history.moved_deliveries
    assert deliveries >= drawn.enough(10_000)
    assert moved >= drawn.enough(10_000)


def test_a_rolling_restart_loses_nothing_and_doubles_nothing() -> None:
    drawn = seeds(60_000, 40, 3)
    drained = deliveries = 0
    for seed in drawn:
        history = History(seed, faults=False, drains=True)
        assert not history.run(), f"seed {seed}: {history.violations[:5]}"
        drained += history.drained
        deliveries += history.steady_deliveries
    assert drained == 3 * len(drawn)
    assert deliveries >= drawn.enough(500)


def test_guarantees_hold_when_endpoints_are_drained_among_faults() -> None:
    check(seeds(61_000, 40, 2), drains=True)


def test_what_is_under_way_over_a_link_that_is_cut_for_a_while_is_delivered_once() -> None:
    check(seeds(84_000, 40, 2), faults=False, cuts=True, drains=True)
    check(seeds(85_000, 20), faults=False, cuts=True)


@pytest.mark.parametrize(
    "options",
    [{}, {"drains": True}, {"slow": True}, {"faults": False, "cuts": True, "drains": True}],
    ids=["faults", "drains", "slow", "cuts"],
)
def test_guarantees_hold_with_a_store_that_is_read_at_once_and_a_small_cache(options: dict[str, Any]) -> None:
    limits = {} if "slow" in options else {"limits": Limits(routes_topics=2)}
    check(seeds(86_000, 30), shape=Shape(reads_memory=True), **limits, **options)


def test_lookup_routing_with_a_store_that_is_read_at_once_delivers_in_an_undisturbed_cluster() -> None:
    check(seeds(87_000, 20), faults=False, routing="lookup", shape=Shape(reads_memory=True))


def test_lookup_routing_delivers_in_an_undisturbed_cluster() -> None:
    check(seeds(30_000, 30), faults=False, routing="lookup")


def test_guarantees_hold_when_every_message_goes_out_in_slices() -> None:
    sizes = Sizes(delivery_slice=1, clients_per_slice=1, recipients_max=3, list_ids_max=6)
    check(seeds(50_000, 50, 2), sizes=sizes)
    check(seeds(51_000, 20), sizes=sizes, faults=False)


def test_guarantees_hold_when_frames_are_read_elsewhere_and_closed_connections_taken_in_slices() -> None:
    sizes = Sizes(closed_per_slice=0)
    for large_bytes in (1, 70):  # all frames are large; some are
        limits = Limits(large_bytes=large_bytes)
        check(seeds(70_000, 40), limits=limits, sizes=sizes)
        check(seeds(71_000, 20), limits=limits, sizes=sizes, faults=False)


def test_guarantees_hold_when_every_change_and_what_has_waited_begins_and_ends_in_turns() -> None:
    sizes = Sizes(topics_at_once=0, backlog_bytes_per_turn=1)
    check(seeds(72_000, 60, 2), sizes=sizes)
    check(seeds(73_000, 20), sizes=sizes, faults=False)
    check(seeds(74_000, 20), sizes=sizes, drains=True, faults=False)


def test_guarantees_hold_when_clients_do_not_read_and_send_more_than_there_is_room_for() -> None:
    drawn = seeds(80_000, 60, 8)
    paused = blocked = closed = deliveries = 0
    for seed in drawn:
        history = History(seed, slow=True)
        assert not history.run(), f"seed {seed}: {history.violations[:5]}"
        paused, blocked = paused + history.paused, blocked + history.blocked
        closed, deliveries = closed + history.slow_closed, deliveries + history.steady_deliveries
    check(seeds(81_000, 20), slow=True, faults=False)
    check(seeds(82_000, 10), slow=True, drains=True, faults=False)
    assert min(paused, blocked, closed) >= drawn.enough(20)
    assert deliveries >= drawn.enough(500)


#: The forgotten step, and a seed that finds it.
FORGOTTEN = {"to drain": 83_001, "to write on": 83_000, "to read on": 83_000, "to go on": 83_000}


@pytest.mark.parametrize(
    ("what", "seed"),
    [
        pytest.param(what, FORGOTTEN[what], marks=finds(f"Every endpoint forgets {what}.", FORGOTTEN[what]), id=what)
        for what in FORGETTABLE
    ],
)
def test_an_endpoint_that_forgets_to_resume_is_found(what: str, seed: int) -> None:
    search(what, seed, range(83_000, 83_010), lambda seed: History(seed, slow=True, faults=False, forgets=what).run())


def test_a_history_is_its_seed() -> None:
    first, second = History(7), History(7)
    first.run()
    second.run()
    assert first.log == second.log
    assert first.homes_checked > 0


def test_the_checks_see_a_lost_delivery() -> None:
    history = History(20_000, faults=False)
    assert not history.run()
    for subscriber in history.subscribers:
        for client in subscriber.connections:
            client.notes.clear()
    history.check_deliveries()
    assert any("never got" in violation for violation in history.violations)
