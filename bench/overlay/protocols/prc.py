"""PRC-broadcast as in the document: a causal broadcast by flooding, while links come and go (Algorithms 1 to 10).

Owns: ``outView``. Must never: send over an unsafe link.

A node sends every message over all its safe links, and forgets the message when every neighbour in ``inView`` has sent
a copy.
``linking`` makes new links safe.
"""

from __future__ import annotations

from collections.abc import Iterable

from ingeborg.broker.core.overlay.node import Desk, Peer, Wire

from .linking import Linking, LinkingOptions
from .wires import GOSSIP, GOSSIP_BYTES, Mid


class Prc(Linking):
    """``neighbours``: the neighbours in a built overlay, with links that are safe in both directions. ``up`` reports
    further neighbours."""

    __slots__ = ("out_view",)

    def __init__(
        self, desk: Desk, me: Peer, neighbours: Iterable[Peer] = (), options: LinkingOptions | None = None
    ) -> None:
        self.out_view: dict[Peer, None] = {}
        super().__init__(desk, me, neighbours, options or LinkingOptions())

    def received(self, peer: Peer, wire: Wire, payload_bytes: int) -> None:
        if wire[0] == GOSSIP:
            self.receive_message(wire[1], wire[2], payload_bytes, peer)
        else:
            self.control(peer, wire)

    def forward(self, mid: Mid, hops: int, payload_bytes: int, sender: Peer | None) -> None:
        """Send a message over all safe links (Algorithm 1, lines 22-26, and Algorithm 14, lines 3-7)."""
        self.nothing_delivered = False
        hops += 1
        if self.s_buffers or self.r_buffers:
            self.keep(mid, hops, payload_bytes)
        send = self.desk.send
        wire = (GOSSIP, mid, hops)
        for peer in self.out_view:
            send(peer, wire, GOSSIP_BYTES, payload_bytes)

    def down(self, peer: Peer) -> None:
        self.out_view.pop(peer, None)
        super().down(peer)

    def outgoing(self) -> Iterable[Peer]:
        return self.out_view

    def is_outgoing(self, peer: Peer | None) -> bool:
        return peer in self.out_view

    def open_out(self, peer: Peer) -> None:
        self.out_view[peer] = None

    def send_in_order(self, peer: Peer, wire: Wire, size: int) -> None:
        """Send a control message immediately. A link keeps messages in order, and in this protocol no earlier message
        waits to be sent."""
        self.desk.send(peer, wire, size)
