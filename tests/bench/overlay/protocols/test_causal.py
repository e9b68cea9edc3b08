"""PRC-broadcast and CPTCast deliver once and causally while any links come and go; and the hops of all protocols."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingeborg.bench.overlay.protocols.cptcast import CptCast
from ingeborg.bench.overlay.protocols.flood import Flood
from ingeborg.bench.overlay.protocols.gossip import Gossip
from ingeborg.bench.overlay.protocols.plumtree import Plumtree
from ingeborg.bench.overlay.protocols.prc import Prc

from .causal import nothing_is_left, wandered
from .small import Make, World, chords, ring, wander

causal = pytest.mark.parametrize("make", [Prc, CptCast])
seeds = st.integers(0, 2**32)


@causal
@settings(max_examples=100)
@given(seed=seeds, nodes=st.integers(4, 9))
def test_everybody_gets_everything_once_and_causally_while_links_come_and_go(make: Make, seed: int, nodes: int) -> None:
    world = wandered(seed, nodes, make)
    judge = world.judge
    assert (judge.doubles(), judge.disorder(), judge.lacking(range(nodes))) == ([], [], [])
    nothing_is_left(world)


@causal
@settings(max_examples=40)
@given(seed=seeds)
def test_a_node_that_joins_gets_what_is_sent_from_then_on(make: Make, seed: int) -> None:
    world = World(make, range(5), ring(5), Random(seed))
    wander(world, chords(5), range(5), 200)
    world.add("new")
    world.link("new", 2)
    world.pass_on(2, "new")  # its first link
    wander(world, [*chords(5), ("new", 0), ("new", 4)], range(5), 300)
    world.settle()
    later = [world.broadcast(name) for name in (*range(5), "new")]
    world.settle()
    judge = world.judge
    assert (judge.doubles(), judge.disorder(), judge.lacking(range(5))) == ([], [], [])
    assert set(later) <= set(judge.order["new"])
    nothing_is_left(world)


@causal
@settings(max_examples=60)
@given(seed=seeds)
def test_when_a_node_crashes_the_others_have_the_same(make: Make, seed: int) -> None:
    world = World(make, range(6), ring(6), Random(seed))
    wander(world, chords(6), range(6), 300)
    world.crash(3)
    others = [name for name in range(6) if name != 3]
    wander(world, [pair for pair in chords(6) if 3 not in pair], others, 300)
    world.settle()
    judge = world.judge
    assert (judge.doubles(), judge.disorder(), judge.lacking(others, others)) == ([], [], [])
    assert len({frozenset(judge.order[name]) for name in others}) == 1
    nothing_is_left(world)


@pytest.mark.parametrize("make", [Flood, Gossip, Plumtree, Prc, CptCast])
def test_hops_are_the_links_that_a_payload_has_crossed(make: Make) -> None:
    world = World(make, "abcd", [("a", "b"), ("b", "c"), ("c", "d")])
    mid = world.broadcast("a")
    world.flow()
    assert [world.judge.hops[name, mid] for name in "abcd"] == [0, 1, 2, 3]


@pytest.mark.parametrize("make", [Flood, Prc])
def test_every_node_sends_by_all_its_links(make: Make) -> None:
    world = World(make, range(5), ring(5))
    world.broadcast(0)
    world.flow()
    assert len(world.sent) == 2 * 5
