"""PRC delivers once and causally while any links come and go."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingeborg.bench.overlay.protocols.prc import Prc
from ingeborg.bench.overlay.protocols.wires import GOSSIP
from ingeborg.broker.core.overlay.node import Peer, Wire
from tests.planted import fault, search
from tests.proof import seeds

from .small import Make, World, chords, ring, wander


def node_of(world: World, name: Peer) -> Prc:
    node = world.nodes[name]
    assert isinstance(node, Prc)
    return node


def wandered(seed: int, nodes: int, make: Make = Prc) -> World:
    """Return a world after links between its nodes have come and gone; a circle of links has stayed."""
    world = World(make, range(nodes), ring(nodes), Random(seed))
    wander(world, chords(nodes), range(nodes), 500)
    world.settle()
    return world


def nothing_is_left(world: World) -> None:
    """Check that all links are safe in both directions, and that no node keeps a message or an exchange."""
    for name in world.nodes:
        node = node_of(world, name)
        assert sorted(node.links, key=str) == sorted(node.out_view, key=str) == sorted(node.in_view, key=str)
        assert not any((node.expected, node.unsafe_in, node.unsafe_out, node.r_buffers, node.s_buffers))


def test_everybody_gets_everything_once_and_causally_while_links_come_and_go() -> None:
    @settings(max_examples=80)
    @given(st.integers(0, 2**32), st.integers(4, 9))
    def check(seed: int, nodes: int) -> None:
        world = wandered(seed, nodes)
        judge = world.judge
        assert (judge.doubles(), judge.disorder(), judge.lacking(range(nodes))) == ([], [], [])
        nothing_is_left(world)

    check()


def test_a_node_that_joins_gets_what_is_sent_from_then_on() -> None:
    @settings(max_examples=40)
    @given(st.integers(0, 2**32))
    def check(seed: int) -> None:
        world = World(Prc, range(5), ring(5), Random(seed))
        wander(world, chords(5), range(5), 200)
        world.add("new")
        world.link("new", 2)
        world.pass_on(2, "new")  # its first link
        wander(world, [*chords(5), ("new", 0), ("new", 4)], range(5), 300)
        world.settle()
        everybody = [*range(5), "new"]
        later = [world.broadcast(name) for name in everybody]
        world.settle()
        judge = world.judge
        assert (judge.doubles(), judge.disorder(), judge.lacking(range(5))) == ([], [], [])
        assert set(later) <= set(judge.order["new"])
        nothing_is_left(world)

    check()


def test_when_a_node_crashes_the_others_have_the_same() -> None:
    @settings(max_examples=60)
    @given(st.integers(0, 2**32))
    def check(seed: int) -> None:
        world = World(Prc, range(6), ring(6), Random(seed))
        wander(world, chords(6), range(6), 300)
        world.crash(3)
        others = [name for name in range(6) if name != 3]
        wander(world, [pair for pair in chords(6) if 3 not in pair], others, 300)
        world.settle()
        judge = world.judge
        assert (judge.doubles(), judge.disorder(), judge.lacking(others, others)) == ([], [], [])
        assert len({frozenset(judge.order[name]) for name in others}) == 1
        nothing_is_left(world)

    check()


def test_figure_3_2_does_not_happen() -> None:
    for seed in range(50):
        world = World(Prc, ["N1", "N2", "N3"], [("N1", "N2"), ("N1", "N3")], Random(seed))
        m1 = world.broadcast("N1")
        world.pass_on("N1", "N2")
        world.link("N3", "N2")
        world.flow(lambda frm, to, wire: wire[0] == GOSSIP and (frm, to) == ("N1", "N3"))
        assert world.judge.lacking(world.nodes) == [("N3", m1)]
        world.flow()
        assert (world.judge.doubles(), world.judge.lacking(world.nodes)) == ([], [])
        nothing_is_left(world)


def test_every_node_sends_by_all_its_links() -> None:
    world = World(Prc, range(5), ring(5))
    world.broadcast(0)
    world.flow()
    assert len(world.sent) == 2 * 5


# Planted faults


class TrustsNewLinks(Prc):
    """Treats a link as safe as soon as it is up."""

    def neighbour_up(self, peer: Peer, is_join: bool) -> None:
        super().neighbour_up(peer, True)


class ForgetsBPi(Prc):
    """Does not expect the messages that N1 has still to send although it has them."""

    def _pi(self, wire: Wire) -> None:
        super()._pi(wire)
        if wire[2] in self.r_buffers and wire[3] == self.me:
            self.r_buffers[wire[2]].alpha.clear()

    def keep(self, mid: tuple[Peer, int], hops: int, payload_bytes: int) -> None:
        pi = {peer: set(each.pi) for peer, each in self.r_buffers.items() if each.pi is not None}
        super().keep(mid, hops, payload_bytes)
        for peer, before in pi.items():
            self.r_buffers[peer].pi = before


class LosesItsBuffer(Prc):
    """Sends B_beta empty."""

    def _rho(self, wire: Wire) -> None:
        if wire[2] == self.me and wire[3] in self.s_buffers:
            self.s_buffers[wire[3]].clear()
        super()._rho(wire)


def _doubles(world: World) -> bool:
    return bool(world.judge.doubles())


def _leftovers(world: World) -> bool:
    return any(node_of(world, name).expected for name in world.nodes)


@pytest.mark.parametrize(
    ("plant", "sign", "seed"),
    [
        fault(TrustsNewLinks, _doubles, seed=0),
        fault(ForgetsBPi, _doubles, seed=4),
        fault(LosesItsBuffer, _leftovers, seed=4),
    ],
)
def test_a_planted_fault_is_found(plant: type[Prc], sign: Callable[[World], bool], seed: int) -> None:
    search(plant, seed, range(40), lambda seed: sign(wandered(seed, 6, plant)))
    assert not any(sign(wandered(seed, 6)) for seed in seeds(0, 40, 10))


def test_hops_are_the_links_that_a_payload_has_crossed() -> None:
    world = World(Prc, "abcd", [("a", "b"), ("b", "c"), ("c", "d")])
    mid = world.broadcast("a")
    world.flow()
    assert [world.judge.hops[name, mid] for name in "abcd"] == [0, 1, 2, 3]
