"""Flooding (Algorithm 1), which is a causal broadcast if neighbours never change.

Owns: only its neighbours. Must never: be used for causal order, or for delivering a message only once, if links come
and go. Figure 3.2 and a test show what happens then.

In the document, a link carries messages in one direction. A link of the desk carries them in both directions. So a
neighbour here means one link in each direction, and enters ``inView`` and ``outView`` at the same time.
"""

from __future__ import annotations

from collections.abc import Iterable

from ingeborg.broker.core.overlay.node import Desk, Peer, Wire

from .expecting import Expecting
from .wires import GOSSIP, GOSSIP_BYTES, Mid


class Flood(Expecting):
    """``neighbours``: the neighbours that the node has from the start. ``up`` reports further neighbours."""

    __slots__ = ("out_view",)

    def __init__(self, desk: Desk, me: Peer, neighbours: Iterable[Peer] = ()) -> None:
        super().__init__(desk, me)
        self.out_view: dict[Peer, None] = {}
        for peer in neighbours:
            self.up(peer, False)

    def up(self, peer: Peer, dialled: bool) -> None:
        self.out_view[peer] = None
        self.hear(peer)

    def down(self, peer: Peer) -> None:
        self.out_view.pop(peer, None)
        self.unhear(peer)

    def received(self, peer: Peer, wire: Wire, payload_bytes: int) -> None:
        self.receive_message(wire[1], wire[2], payload_bytes, peer)

    def forward(self, mid: Mid, hops: int, payload_bytes: int, sender: Peer | None) -> None:
        """Send a message over every link, including the link to its sender, which expects the message (Algorithm 1,
        lines 22-26)."""
        send = self.desk.send
        wire = (GOSSIP, mid, hops + 1)
        for peer in self.out_view:
            send(peer, wire, GOSSIP_BYTES, payload_bytes)
