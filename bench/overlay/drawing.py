"""An overlay and one tree in it, as numbers to draw: who is whose neighbour, and who got a message from whom.

Owns: the small world that is drawn, and where its nodes are put. Must never: make markup.

The tree is drawn from its root outwards: a node stands as far out as its payload has crossed links, and each branch has
a part of the circle as wide as it has ends. The overlay's other links are drawn behind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from math import cos, pi, sin
from typing import Any, Final

from ingeborg.bench.overlay.experiments import Cell
from ingeborg.bench.overlay.making import grown, neighbours_in
from ingeborg.bench.overlay.world import End
from ingeborg.broker.core.overlay.node import Peer, Wire

NODES: Final = 150
"""As many as a person can tell apart on a page."""

ROOT: Final = 0

JOIN_S: Final = 0.05
"""Between two nodes that join."""

SETTLE_S: Final = 20.0
"""After the last one: two shuffles of each node."""

DIGITS: Final = 4


@dataclass(frozen=True)
class Drawing:
    """``places``: of each node, from -1 to 1 both ways. ``links``: of the overlay, the lower number first.
    ``parents``: from whom each node got the message first; its own number at the root."""

    places: list[tuple[float, float]]
    links: list[tuple[int, int]]
    parents: list[int]


def drawing(seed: int, nodes: int = NODES) -> dict[str, Any]:
    """An overlay that came to be by joins, and the second message of a root of grove: the first has made the tree."""
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
    """Where the nodes of a tree are put."""
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
