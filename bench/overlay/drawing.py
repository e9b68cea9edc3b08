"""Compute an overlay and one tree in it for drawing: the neighbours of each node, and the paths of a message.

Owns: the small world in the drawing, and the positions of its nodes. Must never: make markup.

The drawing shows the tree from its root outwards. A node's distance from the centre is the number of links that the
payload crossed to reach the node, and a branch takes an angle in proportion to its number of leaves. The overlay's
other links are behind the tree.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from math import cos, pi, sin
from typing import Any, Final

from ingeborg.bench.overlay.cases import Cell
from ingeborg.bench.overlay.making import grown, neighbours_in
from ingeborg.bench.overlay.world import End
from ingeborg.broker.core.overlay.node import Peer, Wire

NODES: Final = 150
"""The number of nodes. A reader can still tell them apart on a page."""

ROOT: Final = 0

JOIN_S: Final = 0.05
"""Seconds between two joins."""

SETTLE_S: Final = 20.0
"""Seconds to wait after the last join. In this time, each node shuffles twice."""

DIGITS: Final = 4


@dataclass(frozen=True)
class Drawing:
    """``places``: the coordinates of each node, from -1 to 1. ``links``: the overlay's links, each with the lower
    number first. ``parents``: for each node, the node from which it first got the message. The root's parent is the
    root itself."""

    places: list[tuple[float, float]]
    links: list[tuple[int, int]]
    parents: list[int]


def drawing(nodes: int = NODES, seed: int = 1) -> dict[str, Any]:
    """Grow an overlay by joins, let a root broadcast two messages with grove, and return the paths of the second
    message. The first message makes the tree."""
    world = grown(Cell("churn", "grove", nodes, seed=seed), JOIN_S)
    world.run(nodes * JOIN_S + SETTLE_S)
    parents = list(range(nodes))

    def note(end: End, received: Callable[[Peer, Wire, int], None]) -> Callable[[Peer, Wire, int], None]:
        def noted(peer: Peer, wire: Wire, payload_bytes: int) -> None:
            if payload_bytes and parents[end.to] == end.to != ROOT:
                parents[end.to] = end.frm
            received(peer, wire, payload_bytes)

        return noted

    world.broadcast(ROOT, 1_000)
    world.run(world.now_s + 2.0)
    links = [(one, other) for one in range(nodes) for other in sorted(neighbours_in(world, one)) if one < other]
    for place in world.places:
        for end in place.ends.values():
            end.received = note(end, end.received)
    world.broadcast(ROOT, 1_000)
    world.run(world.now_s + 2.0)
    return asdict(Drawing(placed(parents), links, parents))


def placed(parents: Sequence[int]) -> list[tuple[float, float]]:
    """Return the coordinates of a tree's nodes."""
    children: list[list[int]] = [[] for _ in parents]
    root = next(node for node, parent in enumerate(parents) if node == parent)
    for node, parent in enumerate(parents):
        if node != parent:
            children[parent].append(node)
    order, depth = [root], [0] * len(parents)
    for node in order:
        for child in children[node]:
            depth[child] = depth[node] + 1
            order.append(child)
    ends = [1] * len(parents)
    for node in reversed(order):
        if children[node]:
            ends[node] = sum(ends[child] for child in children[node])
    begins = [0] * len(parents)
    for node in order:
        begin = begins[node]
        for child in children[node]:
            begins[child] = begin
            begin += ends[child]
    deepest = max(depth) or 1
    found = []
    for node in range(len(parents)):
        angle = 2 * pi * (begins[node] + ends[node] / 2) / ends[root]
        radius = depth[node] / deepest
        found.append((round(radius * cos(angle), DIGITS), round(radius * sin(angle), DIGITS)))
    return found
