"""The worlds of cells: with or without a membership, joins of nodes, and switches of neighbours."""

from __future__ import annotations

import pytest

from ingeborg.bench.overlay.above import Above
from ingeborg.bench.overlay.cases import PROTOCOLS, Cell
from ingeborg.bench.overlay.making import facts_of, grown, join, neighbours_in, neighbours_of, protocol_of, world_of
from ingeborg.bench.overlay.metrics import islands
from ingeborg.bench.overlay.protocols.cptcast import CptCast
from ingeborg.bench.overlay.protocols.plumtree import Plumtree
from ingeborg.bench.overlay.protocols.prc import Prc
from ingeborg.broker.core.overlay.views import Hyparview

NODES = 40


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_without_faults_nodes_are_the_protocol_and_have_the_overlays_neighbours(protocol: str) -> None:
    cell = Cell("thesis", protocol, NODES)
    world = world_of(cell)
    drawn = neighbours_of(cell)
    for number, place in enumerate(world.places):
        assert not isinstance(place.node, Hyparview)
        assert sorted(neighbours_in(world, number)) == sorted(drawn[number])
    assert protocol_of(world.places[0].node) is world.places[0].node


@pytest.mark.parametrize("protocol", ["grove", "plumtree", "prc"])
def test_with_faults_a_membership_has_the_same_neighbours_and_knows_of_others(protocol: str) -> None:
    cell = Cell("churn", protocol, NODES)
    world = world_of(cell)
    drawn = neighbours_of(cell)
    for number, place in enumerate(world.places):
        views = place.node
        assert isinstance(views, Hyparview)
        assert sorted(neighbours_in(world, number)) == sorted(drawn[number])
        assert protocol_of(views) is views.upper


def test_a_node_that_joins_asks_the_registry_once_and_gets_neighbours() -> None:
    world = world_of(Cell("churn", "grove", NODES))
    world.run(1.0)
    join(world)
    world.run(4.0)
    assert world.registry_reads == 1
    newcomer = len(world.places) - 1
    others = neighbours_in(world, newcomer)
    assert others
    assert all(newcomer in neighbours_in(world, other) for other in others)


def test_an_overlay_comes_to_be_by_joins_and_carries_messages() -> None:
    world = grown(Cell("churn", "grove", 100), 0.05)
    world.run(25.0)
    degrees = [len(neighbours_in(world, number)) for number in range(100)]
    assert 2 <= min(degrees) <= max(degrees) <= 4
    assert islands(lambda number: neighbours_in(world, number), range(100)) == [100]
    for number in range(20):
        world.at(25.0 + 0.01 * number, world.broadcast, number, 100)
    world.run(30.0)
    assert len(world.record.slots) == 20 * 100
    assert world.record.violations == 0
    assert world.registry_reads == 0


def test_a_protocol_that_hangs_up_gets_another_neighbour_from_its_membership() -> None:
    world = world_of(Cell("churn", "prc", NODES))
    world.run(1.0)
    protocol = protocol_of(world.node(0))
    assert isinstance(protocol, Prc)
    assert isinstance(protocol.desk, Above)
    before = neighbours_in(world, 0)
    protocol.down(before[0])
    protocol.desk.hang_up(before[0])
    assert before[0] not in neighbours_in(world, 0)
    assert protocol.desk.now == world.places[0].now
    world.run(10.0)
    assert len(neighbours_in(world, 0)) >= len(before) - 1
    assert all(0 in neighbours_in(world, other) for other in neighbours_in(world, 0))


def test_what_protocols_count_is_summed_over_the_nodes_that_are_up() -> None:
    world = world_of(Cell("thesis", "grove", NODES))
    world.run(1.0)
    world.broadcast(0, 100)
    world.run(2.0)
    found = facts_of(world, range(NODES))
    assert found["duplicates"] > 0
    assert found["kept_most"]["roots"] == 1
    assert facts_of(world, []) == {}
    assert facts_of(world_of(Cell("thesis", "prc", NODES)), range(NODES)) == {}


@pytest.mark.parametrize("protocol", ["plumtree", "cptcast"])
def test_a_cells_timers_are_those_of_its_nodes(protocol: str) -> None:
    for timeout1_ms, seconds in ((250, (0.25, 0.1)), (10, (0.01, 0.004))):
        node = protocol_of(world_of(Cell("timers", protocol, NODES, timeout1_ms=timeout1_ms)).places[0].node)
        assert isinstance(node, Plumtree | CptCast)
        assert (node.options.timeout1, node.options.timeout2) == pytest.approx(seconds)
