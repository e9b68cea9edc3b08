"""Flooding, with and without changes of neighbours."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from ingeborg.bench.overlay.protocols.flood import Flood

from .small import World, chords, ring, wander


def test_a_static_system_delivers_everything_once_and_causally() -> None:
    @settings(max_examples=60)
    @given(st.integers(0, 2**32), st.integers(3, 8))
    def check(seed: int, nodes: int) -> None:
        random = Random(seed)
        links = [*ring(nodes), *random.sample(chords(nodes), len(chords(nodes)) // 2)]
        world = World(Flood, range(nodes), links, random)
        wander(world, [], range(nodes), 300)
        world.flow()
        judge = world.judge
        assert (judge.doubles(), judge.disorder(), judge.lacking(range(nodes))) == ([], [], [])
        for node in world.nodes.values():
            assert isinstance(node, Flood)
            assert node.expected == {}

    check()


def test_figure_3_2_a_message_is_delivered_twice_where_links_come() -> None:
    world = World(Flood, ["N1", "N2", "N3"], [("N1", "N2"), ("N1", "N3")])
    n1, n2 = world.nodes["N1"], world.nodes["N2"]
    assert isinstance(n1, Flood)
    assert isinstance(n2, Flood)
    # (a) N1 broadcasts m1, and expects it from N2 and N3.
    m1 = world.broadcast("N1")
    assert n1.expected_from("N2") == n1.expected_from("N3") == {m1}
    # (b) N2 has it, and expects no further copy.
    world.pass_on("N1", "N2")
    assert world.judge.order["N2"] == [m1]
    assert n2.expected == {}
    # (c) N3 adds a link to N2, and gets m1 only afterwards.
    world.link("N3", "N2")
    world.pass_on("N3", "N2")
    world.pass_on("N2", "N3")
    world.pass_on("N1", "N3")
    world.pass_on("N3", "N2")
    assert world.judge.doubles() == [("N2", m1)]


def test_a_neighbour_that_is_gone_is_not_expected_to_send() -> None:
    world = World(Flood, range(3), ring(3))
    node = world.nodes[0]
    assert isinstance(node, Flood)
    mid = world.broadcast(0)
    world.cut(0, 1)
    world.flow()
    assert node.in_view == list(node.out_view) == [2]
    assert node.expected == {}
    assert world.judge.lacking(range(3)) == []
    assert mid == (0, 1)
