"""One end of a link in ``grove``: the neighbour's order as far as it has arrived, and our own for the neighbour.

Owns: this end's state of one link. Must never: decide; ``grove`` does.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from .history import Key
from .node import Peer

#: The use of a neighbour's entry, in ``Branch.index``. A *floor* has no place in the neighbour's order: up to there the
#: neighbour has passed messages that it cannot send. This node passes it once they are delivered.
FLOOR: Final = 0
#: The neighbour has delivered the message at this place of its order, but can no longer send it.
PLACE: Final = 1
#: As PLACE, and the neighbour can send it.
SENDABLE: Final = 2

#: Bits given to links before renumbering: masks stay within a machine word.
BITS_MAX: Final = 56


class Branch:
    """One end of a link. ``bit``: its place in the masks of roots.

    ``ordered``: the neighbour has our vector, so its entries are an order. ``out``: we have the neighbour's vector, so
    our entries are one. ``queue``: the neighbour's entries not passed yet, in its order of delivery. ``index``: the
    same, with the use of each. ``pending``: our entries that wait for the batch.
    """

    __slots__ = ("bit", "index", "ordered", "out", "peer", "pending", "queue")

    def __init__(self, peer: Peer, bit: int) -> None:
        self.peer = peer
        self.bit = bit
        self.ordered = False
        self.out = False
        self.queue: deque[Key] = deque()
        self.index: dict[Key, int] = {}
        self.pending: dict[Key, None] = {}
