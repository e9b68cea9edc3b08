"""Worlds of the protocols over safe links, PRC-broadcast and CPTCast, and the check that nothing is left in them."""

from __future__ import annotations

from random import Random

from ingeborg.bench.overlay.protocols.cptcast import CptCast
from ingeborg.bench.overlay.protocols.linking import Linking

from .small import Make, World, chords, ring, wander


def wandered(seed: int, nodes: int, make: Make) -> World:
    """Return a world after links between its nodes have come and gone; a circle of links has stayed."""
    world = World(make, range(nodes), ring(nodes), Random(seed))
    wander(world, chords(nodes), range(nodes), 500)
    world.settle()
    return world


def nothing_is_left(world: World) -> None:
    """Check that all links are safe in both directions, and that no node keeps a message or an exchange."""
    for node in world.nodes.values():
        assert isinstance(node, Linking)
        assert sorted(node.links, key=str) == sorted(node.outgoing(), key=str) == sorted(node.in_view, key=str)
        assert not any((node.expected, node.unsafe_in, node.unsafe_out, node.r_buffers, node.s_buffers))
        if isinstance(node, CptCast):
            assert not set(node.eager) & set(node.lazy)
            assert not any((node.missing, node.timers, node.grafted))
            assert not any((*node.eager.values(), *node.lazy.values()))
