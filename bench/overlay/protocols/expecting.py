"""Which copies of a message are still to come: the memory of Algorithm 1, of which every protocol here but gossip,
Plumtree and the star makes use.

Owns: ``inView`` and ``expectedMsgs``. Must never: keep anything of a message whose last copy has come, or send one.

The document keeps for each incoming neighbour the set of messages that are expected from it. This keeps the same turned
round: for each message the neighbours it is expected from, as the bits of a number. So "is it expected from anybody"
(line 14), which is asked at every copy, is one look-up, and a message expected from nobody takes no memory.
"""

from __future__ import annotations

from ingeborg.broker.core.overlay.node import Desk, Node, Peer

from .wires import Mid


class Expecting(Node):
    """A node that delivers a message at its first copy, and then expects one from every neighbour that it hears.

    What it holds is bounded by the messages that are under way: a link that is up brings every message once.
    """

    __slots__ = ("bits", "desk", "expected", "in_mask", "me", "number")

    def __init__(self, desk: Desk, me: Peer) -> None:
        self.desk = desk
        self.me = me
        self.number = 0  # of its latest broadcast
        self.bits: dict[Peer, int] = {}  # inView, and the bit of each
        self.in_mask = 0  # all of them
        self.expected: dict[Mid, int] = {}

    @property
    def in_view(self) -> list[Peer]:
        """Neighbours whose messages are taken as coming in order, each once."""
        return list(self.bits)

    def expected_from(self, peer: Peer) -> set[Mid]:
        """``expectedMsgs`` of the peer, as the document keeps it."""
        bit = self.bits.get(peer, 0)
        return {mid for mid, mask in self.expected.items() if mask & bit}

    def hear(self, peer: Peer) -> None:
        """Put it into ``inView``. Nothing is expected from it yet."""
        if peer not in self.bits:
            free = ~self.in_mask & (self.in_mask + 1)  # the lowest bit that nobody has
            self.bits[peer] = free
            self.in_mask |= free

    def unhear(self, peer: Peer) -> None:
        """Algorithm 15, lines 4 and 7: nothing is expected from it any more."""
        bit = self.bits.pop(peer, 0)
        if bit:
            self.in_mask &= ~bit
            for mid in [mid for mid, mask in self.expected.items() if mask & bit]:
                self.came(mid, bit)

    def came(self, mid: Mid, bit: int) -> None:
        """One copy of an expected message has come, from the neighbour of this bit."""
        left = self.expected[mid] & ~bit
        if left:
            self.expected[mid] = left
        else:
            del self.expected[mid]

    def broadcast(self, payload_bytes: int) -> None:
        """Algorithm 1, lines 8-10."""
        self.number += 1
        self.receive_message((self.me, self.number), 0, payload_bytes, None)

    def receive_message(self, mid: Mid, hops: int, payload_bytes: int, sender: Peer | None) -> None:
        """Algorithm 1, lines 11-21. ``sender``: None of an own message."""
        expected = self.expected
        left = expected.get(mid)
        if left is None:
            self.desk.deliver(mid[0], mid[1], hops)
            mask = self.in_mask & ~self.bits.get(sender, 0)
            if mask:
                expected[mid] = mask
            self.forward(mid, hops, payload_bytes, sender)
        else:
            left &= ~self.bits.get(sender, 0)
            if left:
                expected[mid] = left
            else:
                del expected[mid]

    def forward(self, mid: Mid, hops: int, payload_bytes: int, sender: Peer | None) -> None:
        """Send a message that has just been delivered on."""
        raise NotImplementedError
