"""The desk of a protocol that can request another neighbour from its membership, as PRC-broadcast and CPTCast do.

Owns: the implementation of the document's SWITCH_NEIGHBOUR on HyParView. Must never: change any other function of the
node's desk.

These protocols hang up on a neighbour if the link to it cannot be made safe (Algorithm 3, line 8). HyParView owns the
links, so this desk tells HyParView that the neighbour has hung up. HyParView then looks for another neighbour, and
remembers the name of the old one.
"""

from __future__ import annotations

from typing import Any

from ingeborg.broker.core.overlay.node import Desk, Node, Peer, Wire
from ingeborg.broker.core.overlay.words import DISCONNECT


class Above(Desk):
    """The desk. ``views`` is the membership, which is set as soon as it exists."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        super().__init__(desk.random)
        self.views: Node

    @property
    def now(self) -> float:
        """Return the node's time."""
        return self._desk.now

    @now.setter
    def now(self, now: float) -> None:
        """Do nothing, because the node sets the time."""

    def send(self, peer: Peer, wire: Wire, control_bytes: int, payload_bytes: int = 0) -> None:
        self._desk.send(peer, wire, control_bytes, payload_bytes)

    def after(self, seconds: float, what: Any) -> None:
        self._desk.after(seconds, what)

    def deliver(self, root: Peer, number: int, hops: int) -> None:
        self._desk.deliver(root, number, hops)

    def hang_up(self, peer: Peer) -> None:
        self.views.received(peer, (DISCONNECT, False), 0)
