"""One end of a link in ``grove``. It records the entries that have arrived from the neighbour, and this node's entries
that wait to be sent to the neighbour.

Owns: this end's state of one link. Must never: make decisions. ``grove`` makes them.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from .history import Key
from .node import Peer

#: The kind of an entry in ``Branch.index`` that is a *floor*. The entry has a message number of a root. The neighbour
#: has delivered or skipped the root's messages up to this number, and cannot send them. A floor has no place in the
#: neighbour's order. This node removes the floor from the queue when it has these messages or has given them up.
FLOOR: Final = 0
#: The kind of an entry whose message the neighbour has delivered at this place in its order, but can no longer send.
PLACE: Final = 1
#: The same as ``PLACE``, except that the neighbour can still send the message.
SENDABLE: Final = 2

#: After this many bits have been given to links, the node renumbers its links, so that masks fit in a machine word.
BITS_MAX: Final = 56


class Branch:
    """One end of a link. ``bit`` is the link's bit in the masks of roots.

    ``ordered`` is true if the neighbour has this node's vector, so that the neighbour's entries form an order. ``out``
    is true if this node has the neighbour's vector, so that this node's entries form an order for the neighbour.
    ``queue`` has the neighbour's entries that this node has not passed yet, in the neighbour's order of delivery.
    ``index`` has the same entries, each with its kind. ``pending`` has this node's entries that wait for the next
    batch.
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
