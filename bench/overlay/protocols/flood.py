"""Flooding: Algorithm 1, a causal broadcast for neighbours that never change.

Owns: nothing but its neighbours. Must never: be taken for causal, or for delivering once, where links come and go:
figure 3.2 shows what happens then, and a test does.

A link of the desk has two ends; a link of the document leads one way. So a neighbour is one link each way: it is put
into ``inView`` and ``outView`` together.
"""

from __future__ import annotations

from collections.abc import Iterable

from ingeborg.broker.core.overlay.node import Desk, Peer, Wire

from .expecting import Expecting
from .wires import GOSSIP, GOSSIP_BYTES, Mid


class Flood(Expecting):
    """``neighbours``: those that it has from the start. More are told of by ``up``."""

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
        """Algorithm 1, lines 22-26: by every link, back to the sender as well, which expects it."""
        send = self.desk.send
        wire = (GOSSIP, mid, hops + 1)
        for peer in self.out_view:
            send(peer, wire, GOSSIP_BYTES, payload_bytes)
