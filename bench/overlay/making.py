"""Make the nodes of a cell: their protocol, their overlay, and their membership if they have one.

Owns: the table of protocols, the start of a world, and the join of a node. Must never: run a world.

Without faults, there is no membership, because it would have nothing to do. Nodes then have the neighbours that would
be in the membership's views. With faults, each node is a HyParView with the protocol above it. The active view has the
node's neighbours in the built overlay. The passive view is drawn from all nodes, as if many shuffles had filled it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any, Final

from ingeborg.bench.overlay.above import Above
from ingeborg.bench.overlay.cases import EVENTS_PRINTED_MAX, PRINTED, UNREPAIRED, Cell
from ingeborg.bench.overlay.drawn import SPARE, degree, overlay
from ingeborg.bench.overlay.protocols.cptcast import CptCast, CptCastOptions
from ingeborg.bench.overlay.protocols.flood import Flood
from ingeborg.bench.overlay.protocols.gossip import Gossip
from ingeborg.bench.overlay.protocols.linking import Linking, LinkingOptions
from ingeborg.bench.overlay.protocols.plumtree import Plumtree, PlumtreeOptions
from ingeborg.bench.overlay.protocols.prc import Prc
from ingeborg.bench.overlay.protocols.repairs import AS_PRINTED, REPAIRED
from ingeborg.bench.overlay.protocols.star import Star
from ingeborg.bench.overlay.world import EVENTS_MAX, World
from ingeborg.broker.core.overlay.grove import Grove
from ingeborg.broker.core.overlay.node import Desk, Node, Peer
from ingeborg.broker.core.overlay.views import PASSIVE_MAX, Hyparview, Options

Neighbours = Sequence[Sequence[int]]

#: Protocols whose constructor takes the neighbours of a built overlay, and which accept a later report of the same
#: neighbours. Grove learns of all neighbours by reports.
_WITH_NEIGHBOURS: Final[dict[str, Callable[[Desk, int, Sequence[int]], Node]]] = {
    "flood": Flood,
    "gossip": Gossip,
    "star": Star,
}

#: The wait for a requested message, as a share of ``timeout1``. It is shorter than ``timeout1``, because it covers a
#: round trip instead of the depth of a tree.
_TIMEOUT2: Final = 0.4

#: Protocols that can request another neighbour.
_SWITCHING: Final = ("cptcast", "prc")

#: The number of a star's hub.
HUB: Final = 0

#: Names of the protocols' counters. Not every protocol has all of them.
_COUNTED: Final = ("duplicates", "prunes", "grafts", "restarts", "gaps", "forgotten", "stray", "unheard")


def neighbours_of(cell: Cell) -> list[list[int]]:
    """Return the overlay at the start of a cell's world."""
    if cell.protocol == "star":
        return [list(range(1, cell.nodes)), *([HUB] for _ in range(1, cell.nodes))]
    return overlay(cell.nodes, degree(cell.nodes), Random(f"overlay {cell.seed}"))


def world_of(cell: Cell) -> World:
    """Return a cell's world, with all links of the overlay."""
    neighbours = neighbours_of(cell)

    def make(desk: Desk, me: int) -> Node:
        known = neighbours[me] if me < cell.nodes else ()
        return _stacked(cell, desk, me, known) if cell.faulty else _protocol(cell, desk, me, known)

    events_max = EVENTS_PRINTED_MAX if cell.experiment == UNREPAIRED else EVENTS_MAX
    world = World(cell.nodes, make, cell.seed, events_max=events_max)
    if cell.faulty:
        _expect(world, cell, neighbours)
    else:
        world.connect(neighbours)
    return world


def grown(cell: Cell, every_s: float) -> World:
    """Return a world that has not run yet. Its nodes will join one after the other, and each will join through an
    earlier node."""
    world = World(cell.nodes, lambda desk, me: _stacked(cell, desk, me, ()), cell.seed)
    chance = Random(f"contacts {cell.seed}")
    for me in range(cell.nodes):
        world.at(me * every_s, _start, world, me, chance.randrange(me) if me else None)
    return world


def _start(world: World, me: int, contact: int | None) -> None:
    node = world.node(me)
    assert isinstance(node, Hyparview)
    node.start(contact)


def _stacked(cell: Cell, desk: Desk, me: int, known: Sequence[int]) -> Node:
    """Return a membership with the protocol above it."""
    view = degree(cell.nodes)
    above = Above(desk) if cell.protocol in _SWITCHING else desk
    views = Hyparview(desk, me, _protocol(cell, above, me, known), Options(view, view + SPARE))
    if isinstance(above, Above):
        above.views = views
    return views


def join(world: World) -> None:
    """Add a node, which finds a contact in the registry."""
    me = world.add()
    _start(world, me, world.contacts(me)[0])


def protocol_of(node: Node) -> Node:
    """Return the protocol of a node, which may be above a membership."""
    return node.upper if isinstance(node, Hyparview) else node


def neighbours_in(world: World, number: int) -> list[int]:
    """Return a node's present neighbours."""
    place = world.places[number]
    return [_number(peer) for peer in (place.node.active if isinstance(place.node, Hyparview) else place.ends)]


def _number(peer: Peer) -> int:
    assert isinstance(peer, int)
    return peer


def _protocol(cell: Cell, desk: Desk, me: int, neighbours: Sequence[int]) -> Node:
    if cell.protocol == "grove":
        return Grove(desk, me)
    timeout1 = cell.timeout1_ms / 1e3
    if cell.protocol == "plumtree":
        return Plumtree(desk, me, neighbours, PlumtreeOptions(timeout1, _TIMEOUT2 * timeout1))
    if cell.protocol == "cptcast":
        return CptCast(
            desk, me, neighbours, CptCastOptions(timeout1, _TIMEOUT2 * timeout1, linking=_linking(cell.without))
        )
    if cell.protocol == "prc":
        return Prc(desk, me, neighbours, _linking(cell.without))
    return _WITH_NEIGHBOURS[cell.protocol](desk, me, neighbours)


def _linking(without: str) -> LinkingOptions:
    """Return the options of a protocol with all repairs, with all repairs except one, or without repairs
    (``PRINTED``)."""
    if without == PRINTED:
        return LinkingOptions(repairs=AS_PRINTED)
    return LinkingOptions(repairs=replace(REPAIRED, **{without: False}) if without else REPAIRED)


def _expect(world: World, cell: Cell, neighbours: Neighbours) -> None:
    """Give every membership its views, and then open the links of the active views."""
    chance = Random(f"passive {cell.seed}")
    for me, active in enumerate(neighbours):
        node = world.node(me)
        assert isinstance(node, Hyparview)
        known = chance.sample(range(cell.nodes), min(cell.nodes, PASSIVE_MAX + len(active) + 1))
        node.expect(list(active), [peer for peer in known if peer != me and peer not in active])
    world.connect(neighbours)


def facts_of(world: World, up: Sequence[int]) -> dict[str, Any]:
    """Return the protocols' own counts, summed over all living nodes. For grove, also return the largest number of each
    kind of record that a node keeps."""
    nodes = [protocol_of(world.places[number].node) for number in up]
    found: dict[str, Any] = {
        name: sum(getattr(node, name) for node in nodes)
        for name in _COUNTED
        if nodes and isinstance(getattr(nodes[0], name, None), int)
    }
    groves = [node.kept() for node in nodes if isinstance(node, Grove)]
    if groves:
        found["kept_most"] = {name: max(kept[name] for kept in groves) for name in groves[0]}
    return found


def left_of(world: World, up: Sequence[int]) -> dict[str, int]:
    """Return the state that all living nodes still keep at the end of a run. ``unsafe``: links that are not safe.
    ``buffers``: buffers of exchanges. ``waiting``: messages that wait for an answer. ``timers``: timers of announced
    messages, each of which restarts until the message arrives. ``ids``: the most ids of floods that a node
    remembers."""
    nodes = [node for node in (protocol_of(world.places[number].node) for number in up) if isinstance(node, Linking)]
    trees = [node for node in nodes if isinstance(node, CptCast)]
    return {
        "unsafe": sum(len(node.unsafe_out) for node in nodes),
        "buffers": sum(len(node.r_buffers) + len(node.s_buffers) for node in nodes),
        "waiting": sum(len(waiting) for node in trees for waiting in (*node.eager.values(), *node.lazy.values())),
        "timers": sum(len(node.timers) for node in trees),
        "ids": max((len(node.traversals) for node in nodes), default=0),
    }
