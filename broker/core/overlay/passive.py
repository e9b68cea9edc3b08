"""HyParView's passive view: the nodes that a node knows but that are not its neighbours.

Owns: the set of these nodes. Must never: know whether such a node is alive. Only a dial shows this.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from .node import Desk, Peer

#: The largest number of nodes in the passive view, six times the number of neighbours (section 4.2.1 of the thesis, see
#: ``docs/overlay.md``).
PASSIVE_MAX: Final = 30


class Passive:
    """A passive view with at most ``size_max`` nodes. ``without`` is the node that owns the view and never appears in
    it."""

    __slots__ = ("_random", "_size_max", "_without", "names")

    def __init__(self, desk: Desk, without: Peer, size_max: int = PASSIVE_MAX) -> None:
        self._random = desk.random
        self._without = without
        self._size_max = size_max
        self.names: dict[Peer, None] = {}  # an ordered set, so that random draws do not depend on hashes

    def note(self, peer: Peer) -> None:
        """Add a peer. If the view is full, the new peer replaces a random peer."""
        if peer != self._without and peer not in self.names:
            if len(self.names) >= self._size_max:
                del self.names[self._random.choice(list(self.names))]
            self.names[peer] = None

    def forget(self, peer: Peer) -> None:
        """Remove a peer that has become a neighbour, or that could not be reached."""
        self.names.pop(peer, None)

    def some(self, count: int) -> list[Peer]:
        """Return at most ``count`` random peers."""
        return self._random.sample(list(self.names), min(count, len(self.names)))

    def merge(self, names: Iterable[Peer], neighbours: dict[Peer, None], sent: Iterable[Peer]) -> None:
        """Add the names that a shuffle has brought. They first replace the names that this node sent in the same
        shuffle, because the other node knows these names now."""
        leaving = [peer for peer in sent if peer in self.names]
        for peer in names:
            if peer in self.names or peer in neighbours or peer == self._without:
                continue
            while leaving and len(self.names) >= self._size_max:
                self.names.pop(leaving.pop(), None)
            self.note(peer)
