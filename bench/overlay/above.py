"""The desk of a protocol that can ask its membership for another neighbour, as PRC-broadcast and CPTCast do.

Owns: the meaning of the document's SWITCH_NEIGHBOUR over HyParView. Must never: change anything else of the node's
desk.

These protocols hang up on a neighbour whose link cannot be made safe (Algorithm 3, line 8). HyParView owns the links,
so this desk reports the neighbour's end to it as if the neighbour had hung up. HyParView then looks for another
neighbour, and keeps this one's name.
"""

from __future__ import annotations

from typing import Any

from ingeborg.broker.core.overlay.node import Desk, Node, Peer, Wire
from ingeborg.broker.core.overlay.words import DISCONNECT


class Above(Desk):
    """``views``: the membership, set once it exists."""

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
        """Do nothing: the node sets the time."""

    def send(self, peer: Peer, wire: Wire, control_bytes: int, payload_bytes: int = 0) -> None:
        self._desk.send(peer, wire, control_bytes, payload_bytes)

    def after(self, seconds: float, what: Any) -> None:
        self._desk.after(seconds, what)

    def deliver(self, root: Peer, number: int, hops: int) -> None:
        self._desk.deliver(root, number, hops)

    def hang_up(self, peer: Peer) -> None:
        self.views.received(peer, (DISCONNECT, False), 0)
