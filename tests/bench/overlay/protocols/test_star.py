"""The star."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from ingeborg.bench.overlay.protocols.star import Star

from .small import World, wander

LEAVES = range(1, 6)


def test_everybody_gets_everything_once_and_causally() -> None:
    @settings(max_examples=30)
    @given(st.integers(0, 2**32))
    def check(seed: int) -> None:
        world = World(Star, range(6), [(0, leaf) for leaf in LEAVES], Random(seed))
        wander(world, [], range(6), 300)
        world.flow()
        judge = world.judge
        assert (judge.doubles(), judge.disorder(), judge.lacking(range(6))) == ([], [], [])

    check()


def test_a_message_crosses_every_leafs_link_once() -> None:
    world = World(Star, range(6), [(0, leaf) for leaf in LEAVES])
    world.broadcast(3)
    world.broadcast(0)
    world.flow()
    assert len(world.sent) == 5 + 5
    assert [world.judge.hops[node, (3, 1)] for node in range(6)] == [1, 2, 2, 0, 2, 2]
    assert [world.judge.hops[node, (0, 1)] for node in range(6)] == [0, 1, 1, 1, 1, 1]


def test_a_leaf_without_its_hub_is_heard_by_nobody() -> None:
    world = World(Star, range(3), [(0, 1), (0, 2)])
    world.cut(0, 1)
    world.flow()
    world.broadcast(1)
    leaf = world.nodes[1]
    assert isinstance(leaf, Star)
    assert leaf.unheard == 1
    world.link(1, 0)
    world.flow()
    mid = world.broadcast(1)
    world.flow()
    assert world.judge.order[2] == [mid]
