"""HyParView's passive view: known nodes that are not neighbours.

Owns: the set of these nodes. Must never: know whether one lives; dialling it shows that.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from .node import Desk, Peer

#: Known nodes that are not neighbours: six times the neighbours (section 4.2.1).
PASSIVE_MAX: Final = 30


class Passive:
    """A passive view. ``size_max``: its limit. ``without``: the node itself."""

    __slots__ = ("_random", "_size_max", "_without", "names")

    def __init__(self, desk: Desk, without: Peer, size_max: int = PASSIVE_MAX) -> None:
        self._random = desk.random
        self._without = without
        self._size_max = size_max
        self.names: dict[Peer, None] = {}  # a dictionary, so that random draws do not depend on hashes

    def note(self, peer: Peer) -> None:
        """Add a peer; in a full view it replaces a random other."""
        if peer != self._without and peer not in self.names:
            if len(self.names) >= self._size_max:
                del self.names[self._random.choice(list(self.names))]
            self.names[peer] = None

    def forget(self, peer: Peer) -> None:
        """Remove a peer that is a neighbour, or could not be reached."""
        self.names.pop(peer, None)

    def some(self, count: int) -> list[Peer]:
        """At most ``count`` random peers."""
        return self._random.sample(list(self.names), min(count, len(self.names)))

    def merge(self, names: Iterable[Peer], neighbours: dict[Peer, None], sent: Iterable[Peer]) -> None:
        """Add a shuffle's names. They first replace the names sent in return, which another node now knows."""
        leaving = [peer for peer in sent if peer in self.names]
        for peer in names:
            if peer in self.names or peer in neighbours or peer == self._without:
                continue
            while leaving and len(self.names) >= self._size_max:
                self.names.pop(leaving.pop(), None)
            self.note(peer)
