"""The desk of a protocol that may ask its membership for another neighbour, as PRC-broadcast and CPTCast do.

Owns: what SWITCH_NEIGHBOUR of the document means over HyParView. Must never: change anything else of the node's desk.

These protocols hang up on a neighbour that cannot be made safe (Algorithm 3, line 8). HyParView owns the links: the
neighbour's end is told to it as if the neighbour had said so. So it looks for another one, and keeps this one's name.
"""

from __future__ import annotations

from typing import Any

from ingeborg.broker.core.overlay.node import Desk, Node, Peer, Wire
from ingeborg.broker.core.overlay.words import DISCONNECT


class Above(Desk):
    """``views``: the membership, given once it is there."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        super().__init__(desk.random)
        self.views: Node

    @property
    def now(self) -> float:
        """The node's."""
        return self._desk.now

    @now.setter
    def now(self, now: float) -> None:
        """It is not set here."""

    def send(self, peer: Peer, wire: Wire, control_bytes: int, payload_bytes: int = 0) -> None:
        self._desk.send(peer, wire, control_bytes, payload_bytes)

    def after(self, seconds: float, what: Any) -> None:
        self._desk.after(seconds, what)

    def deliver(self, root: Peer, number: int, hops: int) -> None:
        self._desk.deliver(root, number, hops)

    def hang_up(self, peer: Peer) -> None:
        self.views.received(peer, (DISCONNECT, False), 0)
