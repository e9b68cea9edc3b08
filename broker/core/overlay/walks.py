"""HyParView's random walks. Newcomers find neighbours on such walks, and shuffles exchange parts of passive views.

Owns: the choice of a walk's next node, and the exchange at a walk's end. Must never: dial. ``views`` does this.
"""

from __future__ import annotations

from typing import Final

from ingeborg.protocol.native import mypyc_attr

from .node import Desk, Node, Peer
from .passive import Passive
from .words import FORWARD_JOIN, HEAD_BYTES, NAME_BYTES, SHUFFLE, SHUFFLED

#: The lengths of a newcomer's random walks, as in the paper. After ``ARWL`` steps the newcomer gets a neighbour.
#: ``PRWL`` steps before the end, the newcomer enters a passive view.
ARWL: Final = 6
PRWL: Final = 3

#: The number of nodes from the active view and from the passive view in a shuffle, as in the paper.
SHUFFLED_ACTIVE: Final = 3
SHUFFLED_PASSIVE: Final = 4


@mypyc_attr(allow_interpreted_subclasses=True)
class Walks(Node):
    """One node's views, and its part in walks. ``passive_max`` is the size of the passive view."""

    def __init__(self, desk: Desk, me: Peer, passive_max: int) -> None:
        self._desk = desk
        self._send = desk.send
        self._random = desk.random
        self.me = me
        self.active: dict[Peer, None] = {}
        self.passive = Passive(desk, me, passive_max)
        self._shuffled: list[Peer] = []  # the names that this node sent in its last shuffle

    def _welcome(self, newcomer: Peer) -> None:
        """Handle a newcomer whose walk has ended at this node."""
        raise NotImplementedError

    def _seek(self) -> None:
        """If neighbours are missing, ask nodes of the passive view, which may have grown."""
        raise NotImplementedError

    def _walk(self, sender: Peer, newcomer: Peer, ttl: int) -> None:
        """Continue or end a newcomer's walk."""
        onward = [peer for peer in self.active if peer != sender and peer != newcomer]
        if ttl <= 0 or not onward:
            self._welcome(newcomer)
            return
        if ttl == PRWL and newcomer not in self.active:
            self.passive.note(newcomer)
        self._send(self._random.choice(onward), (FORWARD_JOIN, newcomer, ttl - 1), HEAD_BYTES + NAME_BYTES)

    def _shuffle(self) -> None:
        """Begin a shuffle."""
        if not self.active:
            return
        neighbours = list(self.active)
        names = self._random.sample(neighbours, min(SHUFFLED_ACTIVE, len(neighbours)))
        names += self.passive.some(SHUFFLED_PASSIVE)
        self._shuffled = names
        wire = (SHUFFLE, (self.me, *names), ARWL, (self.me,))
        self._send(self._random.choice(neighbours), wire, HEAD_BYTES + NAME_BYTES * (2 + len(names)))

    def _shuffle_on(self, names: tuple[Peer, ...], ttl: int, way: tuple[Peer, ...]) -> None:
        """Forward a shuffle to another node, or answer it."""
        onward = [peer for peer in self.active if peer not in way]
        if ttl > 1 and onward:
            wire = (SHUFFLE, names, ttl - 1, (*way, self.me))
            size = HEAD_BYTES + NAME_BYTES * (len(names) + len(way) + 1)
            self._send(self._random.choice(onward), wire, size)
            return
        answer = self.passive.some(len(names))
        self._shuffle_back(tuple(answer), way)
        self.passive.merge(names, self.active, answer)
        self._seek()

    def _shuffle_back(self, names: tuple[Peer, ...], way: tuple[Peer, ...]) -> None:
        """Forward the answer to a shuffle, or use it."""
        if way:
            size = HEAD_BYTES + NAME_BYTES * (len(names) + len(way) - 1)
            self._send(way[-1], (SHUFFLED, names, way[:-1]), size)
        else:
            self.passive.merge(names, self.active, self._shuffled)
            self._seek()
