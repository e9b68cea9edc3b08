"""Scripts of names: a live endpoint keeps its name, and a dead one gives it up. ADR 15."""

from __future__ import annotations

from ingeborg.broker.core.cluster.joining import NAME_QUIET_S, PERIOD_S
from tests.simulator.world import Node, World

#: Seconds for a few calls to the store and to peers in a quick network.
MOMENT_S = 0.5


def world_of(*, alone_at_url: bool) -> tuple[World, Node, Node]:
    """Return two joined endpoints; another endpoint will claim the name of the first."""
    world = World(1, alone_at_url=alone_at_url)
    world.delay = lambda: 0.001  # type: ignore[method-assign]
    nodes = [world.start(name) for name in ("twin", "other")]
    world.run(NAME_QUIET_S)
    assert all(node.router.members.joined for node in nodes)
    return world, nodes[0], nodes[1]


def holder(world: World) -> str:
    """Return the incarnation registered as ``twin``."""
    return world.store.registry["twin"].incarnation


def test_who_comes_under_the_name_of_a_living_endpoint_ends_and_says_why() -> None:
    world, first, other = world_of(alone_at_url=False)
    second = world.start("twin")
    world.run(4 * PERIOD_S + MOMENT_S)
    assert second.router.joining.stopping == (
        "endpoint 'twin' is already running at ws://twin; give every endpoint its own --name"
    )
    assert not second.router.members.joined
    world.run(NAME_QUIET_S)
    assert first.router.joining.stopping is None
    assert first.router.members.joined
    assert holder(world) == first.me.incarnation
    assert other.router.members.view() == [first.me.incarnation]
    assert other.router.counters.counts["endpoints_gone"] == 0


def test_the_name_of_one_that_has_died_is_free_when_everybody_takes_it_for_dead() -> None:
    world, first, _ = world_of(alone_at_url=False)
    world.crash(first)
    second = world.start("twin")
    world.run(NAME_QUIET_S - MOMENT_S)
    assert holder(world) == first.me.incarnation
    world.run(PERIOD_S + 2 * MOMENT_S)
    assert holder(world) == second.me.incarnation
    world.run(MOMENT_S)
    assert second.router.members.joined
    assert second.router.joining.stopping is None


def test_where_nobody_else_can_be_at_its_url_it_is_free_at_once() -> None:
    world, first, _ = world_of(alone_at_url=True)
    world.crash(first)
    second = world.start("twin")
    world.run(MOMENT_S)
    assert holder(world) == second.me.incarnation
    assert second.router.members.joined


def test_a_last_write_of_the_dead_that_comes_late_is_no_sign_of_life() -> None:
    world, first, _ = world_of(alone_at_url=False)
    entry = world.store.registry["twin"]
    world.crash(first)
    second = world.start("twin")
    world.run(2 * PERIOD_S)
    world.store.heartbeat(entry._replace(heartbeat=entry.heartbeat + 1))
    world.run(NAME_QUIET_S + 2 * PERIOD_S + MOMENT_S)
    assert second.router.joining.stopping is None
    assert holder(world) == second.me.incarnation


def test_who_leaves_gives_up_its_name() -> None:
    world, first, _ = world_of(alone_at_url=False)
    first.router.joining.leave()
    first.router.joining.depart()
    world.run(8.0)
    assert first.router.joining.left
    first.alive = False
    second = world.start("twin")
    world.run(MOMENT_S)
    assert second.router.members.joined


def test_one_that_has_stood_still_so_long_that_its_name_was_taken_ends() -> None:
    world, first, _ = world_of(alone_at_url=False)
    first.stalled_until = world.now + 10.0
    second = world.start("twin")
    world.run(12.0)
    assert holder(world) == second.me.incarnation
    assert second.router.joining.stopping is None
    assert first.router.joining.stopping is not None
    assert not first.router.members.joined


def test_of_two_that_come_at_once_one_stays() -> None:
    for seed in range(20):
        world = World(seed, alone_at_url=False)
        twins = [world.start("twin"), world.start("twin")]
        world.run(NAME_QUIET_S)
        staying = [twin for twin in twins if twin.router.joining.stopping is None]
        assert [twin.me.incarnation for twin in staying] == [holder(world)]


def test_while_the_store_does_not_answer_nothing_is_decided() -> None:
    world, first, _ = world_of(alone_at_url=False)
    world.store.answers = lambda incarnation, operation: False  # type: ignore[method-assign]
    second = world.start("twin")
    world.run(10.0)
    assert second.router.joining.stopping is None
    del world.store.answers
    world.run(10.0)
    assert holder(world) == first.me.incarnation
    assert first.router.joining.stopping is None
    assert second.router.joining.stopping is not None
