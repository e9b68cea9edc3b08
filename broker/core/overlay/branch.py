"""One end of a link in ``grove``: the neighbour's order as far as it has come, and our own for the neighbour.

Owns: what this end keeps of one link. Must never: decide; ``grove`` does.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from .history import Key
from .node import Peer

#: What an entry of a neighbour is good for, in ``Branch.index``. A *floor* has no place in the neighbour's order: it
#: only says up to where the neighbour has passed messages that it cannot send. It is passed once they are delivered.
FLOOR: Final = 0
#: The neighbour has delivered the message at this place of its order, and cannot send it any more.
PLACE: Final = 1
#: As PLACE, and the neighbour can send it.
SENDABLE: Final = 2

#: Bits that links are given before they are renumbered: masks stay whole numbers of a machine word.
BITS_MAX: Final = 56


class Branch:
    """``bit``: its place in the masks of roots.

    ``ordered``: the neighbour has had our vector, so its entries are an order. ``out``: we have had the neighbour's, so
    ours are one. ``queue``: the entries that have come and not been passed, in the neighbour's order of delivery.
    ``index``: the same, and what each is good for. ``pending``: our entries that wait for the batch.
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
