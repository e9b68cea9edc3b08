"""The copies of a message that have not arrived yet, which are the memory of Algorithm 1. All protocols here except
gossip, Plumtree and the star use this module.

Owns: ``inView`` and ``expectedMsgs``. Must never: remember a message after its last copy has arrived, or send a
message.

For each incoming neighbour, the document keeps the set of messages expected from it. This module keeps the reverse: for
each message, the neighbours that are expected to send it, as the bits of a number. For every copy, line 14 of the
algorithm checks whether any neighbour is expected to send the message. Here, this check takes one look-up. A message
that no neighbour is expected to send takes no memory.
"""

from __future__ import annotations

from ingeborg.broker.core.overlay.node import Desk, Node, Peer

from .wires import Mid


class Expecting(Node):
    """A node that delivers a message when its first copy arrives, and then expects one more copy from every other
    neighbour in ``inView``.

    Its state is bounded by the number of messages under way, because every link that is up brings every message once.
    """

    __slots__ = ("bits", "desk", "expected", "in_mask", "me", "number")

    def __init__(self, desk: Desk, me: Peer) -> None:
        self.desk = desk
        self.me = me
        self.number = 0  # the number of its latest broadcast
        self.bits: dict[Peer, int] = {}  # the neighbours (inView), with the bit of each
        self.in_mask = 0  # the union of these bits
        self.expected: dict[Mid, int] = {}

    @property
    def in_view(self) -> list[Peer]:
        """Return ``inView``: the neighbours whose messages count as arriving in order. Each neighbour is listed
        once."""
        return list(self.bits)

    def expected_from(self, peer: Peer) -> set[Mid]:
        """Return the peer's ``expectedMsgs`` in the document's form."""
        bit = self.bits.get(peer, 0)
        return {mid for mid, mask in self.expected.items() if mask & bit}

    def hear(self, peer: Peer) -> None:
        """Put the peer into ``inView``. Nothing is expected from it yet."""
        if peer not in self.bits:
            free = ~self.in_mask & (self.in_mask + 1)  # the lowest free bit
            self.bits[peer] = free
            self.in_mask |= free

    def unhear(self, peer: Peer) -> None:
        """Expect nothing more from the peer (Algorithm 15, lines 4 and 7)."""
        bit = self.bits.pop(peer, 0)
        if bit:
            self.in_mask &= ~bit
            for mid in [mid for mid, mask in self.expected.items() if mask & bit]:
                self.came(mid, bit)

    def came(self, mid: Mid, bit: int) -> None:
        """Record that the neighbour with this bit has sent its copy of an expected message."""
        left = self.expected[mid] & ~bit
        if left:
            self.expected[mid] = left
        else:
            del self.expected[mid]

    def broadcast(self, payload_bytes: int) -> None:
        """Broadcast a message (Algorithm 1, lines 8-10)."""
        self.number += 1
        self.receive_message((self.me, self.number), 0, payload_bytes, None)

    def receive_message(self, mid: Mid, hops: int, payload_bytes: int, sender: Peer | None) -> None:
        """Handle a message (Algorithm 1, lines 11-21). ``sender``: ``None`` for a message of this node."""
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
        """Forward a message that has just been delivered."""
        raise NotImplementedError
