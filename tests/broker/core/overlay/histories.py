"""Random histories of few nodes: joins, messages, and faults.

Owns: the events, drawn from a seed. Must never: judge; ``naive`` does during a history, and the tests do after it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ingeborg.broker.core.overlay.grove import Grove
from ingeborg.broker.core.overlay.node import Desk, Node
from ingeborg.broker.core.overlay.trees import Bounds
from ingeborg.broker.core.overlay.views import Hyparview, Options

from .small import LATENCIES, Small

MakeGrove = Callable[[Desk, int], Grove]

#: Seconds between two messages.
PAUSES = (0.0, 0.001, 0.01, 0.05, 0.2)

#: Faults of nodes, and how many of a hundred steps bring each.
SEVERED, CRASHES, CUTS, LATE, PUT_OUT = "severed", "crashes", "cuts", "late", "put out"
SHARES = {SEVERED: 9, CRASHES: 5, CUTS: 5, LATE: 5, PUT_OUT: 4}

#: The fewest and the most living nodes.
LEAST, MOST = 3, 12


def grove(desk: Desk, me: int, bounds: Bounds | None = None) -> Grove:
    """Return a node's protocol."""
    return Grove(desk, me, bounds)


def still(make: MakeGrove, seed: int, nodes: int, latencies: tuple[float, ...] = LATENCIES) -> Small:
    """Return nodes with permanent links: a random tree, and as many further links."""
    small = Small(make, seed, latencies)
    small.add(nodes)
    random = small.random
    pairs = {(node, random.randrange(node)): None for node in range(1, nodes)}
    for _ in range(nodes):
        one, other = sorted(random.sample(range(nodes), 2), reverse=True)
        pairs[one, other] = None
    small.connect(pairs)
    return small


class History:
    """Nodes that found each other by ``views``. ``since``: node -> the second of its arrival."""

    def __init__(self, seed: int, nodes: int, make: MakeGrove = grove, options: Options | None = None) -> None:
        self.small = Small(lambda desk, me: Hyparview(desk, me, make(desk, me), options), seed)
        self.random = self.small.random
        self.since: dict[int, float] = {}
        self._is_cut = False
        self.come(None)
        for _ in range(nodes - 1):
            self.late()
            self.small.run(self.random.choice((0.01, 0.3)))
        self.small.run(5.0)

    def come(self, contact: int | None) -> None:
        """Add a node."""
        (new,) = self.small.add()
        self.since[new] = self.small.now
        self.small.node(new).start(contact)

    def late(self) -> None:
        """Add a node with a random contact."""
        self.come(self.random.choice(self.small.living()))

    def steps(self, count: int, befall: tuple[str, ...]) -> None:
        """Send messages, with faults of the nodes meanwhile. At the end heal all cuts."""
        for _ in range(count):
            self.small.run(self.random.choice(PAUSES))
            what = self._drawn(befall)
            if not what:
                self.small.broadcast(self.random.choice(self.small.living()))
            else:
                self._befall(what)
        if self._is_cut:
            self._cut()

    def _drawn(self, befall: tuple[str, ...]) -> str:
        drawn = self.random.random() * 100.0
        for what in befall:
            drawn -= SHARES[what]
            if drawn < 0.0:
                return what
        return ""

    def _befall(self, what: str) -> None:
        small, random = self.small, self.random
        living = small.living()
        node = random.choice(living)
        neighbours = sorted(small.node(node).active)
        if what == CRASHES and len(living) > LEAST:
            small.crash(node)
        elif what == LATE and len(living) < MOST:
            self.late()
        elif what == CUTS:
            self._cut()
        elif what == SEVERED and neighbours:
            small.sever(node, random.choice(neighbours))
        elif what == PUT_OUT and neighbours:
            small.node(node).received(random.choice(neighbours), DISCONNECTED, 0)

    def _cut(self) -> None:
        self._is_cut = not self._is_cut
        if self._is_cut:
            first = self.random.randrange(1, len(self.small.places))
            self.small.cut(lambda node: node < first)
        else:
            self.small.heal()

    def groves(self) -> list[Grove]:
        """Return the groves of the living nodes."""
        return [self.small.places[node].node.upper for node in self.small.living()]  # type: ignore[attr-defined]

    def views(self) -> dict[int, Any]:
        """Return the active view of each living node."""
        return {node: list(self.small.places[node].node.active) for node in self.small.living()}  # type: ignore[attr-defined]

    def reached(self) -> int:
        """Count the living nodes that the first one can reach."""
        views = self.views()
        seen = dict.fromkeys(list(views)[:1])
        ahead = list(seen)
        for node in ahead:
            for peer in views[node]:
                if peer in views and peer not in seen:
                    seen[peer] = None
                    ahead.append(peer)
        return len(seen)


DISCONNECTED: tuple[Any, ...] = (105, False)
"""The wire with which a neighbour disconnects a node."""


def nothing_waits(node: Node) -> bool:
    """Has the node delivered all messages that it knows?"""
    assert isinstance(node, Grove)
    kept = node.kept()
    return not (kept["queued"] or kept["wanted"])
