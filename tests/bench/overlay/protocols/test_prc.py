"""PRC over new links, and the faults that its tests find."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from ingeborg.bench.overlay.protocols.prc import Prc
from ingeborg.bench.overlay.protocols.wires import GOSSIP
from ingeborg.broker.core.overlay.node import Peer, Wire
from tests.planted import fault, search
from tests.proof import seeds

from .causal import nothing_is_left, wandered
from .small import World


def node_of(world: World, name: Peer) -> Prc:
    node = world.nodes[name]
    assert isinstance(node, Prc)
    return node


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
    assert not any(sign(wandered(seed, 6, Prc)) for seed in seeds(0, 40, 10))
