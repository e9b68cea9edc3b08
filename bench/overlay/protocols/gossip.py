"""Push gossip: a node sends a message that is new to it to some random neighbours (section 2.3.2).

Owns: the ids of messages that the node has seen. Must never: promise an order, or delivery to all nodes. (The
probability of delivery to all nodes grows with the fan-out.)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ingeborg.broker.core.overlay.node import Desk, Node, Peer, Wire

from .wires import GOSSIP, GOSSIP_BYTES, Mid

SEEN_MAX: Final = 10_000
"""Maximum number of message ids that a node remembers. The number is sufficient, because a copy is under way for a few
seconds at most, and the experiments have at most about a hundred broadcasts per second."""


@dataclass(frozen=True)
class GossipOptions:
    """``fanout``: the document's t, which is the number of neighbours to which a node sends a message. With a fan-out
    of 4 and five neighbours, all neighbours except the sender get it."""

    fanout: int = 4


class Gossip(Node):
    """``neighbours``: the neighbours that the node has from the start. ``up`` reports further neighbours."""

    __slots__ = ("desk", "fanout", "me", "number", "peers", "seen")

    def __init__(
        self, desk: Desk, me: Peer, neighbours: Iterable[Peer] = (), options: GossipOptions | None = None
    ) -> None:
        self.desk = desk
        self.me = me
        self.fanout = (options or GossipOptions()).fanout
        self.number = 0
        self.peers = dict.fromkeys(neighbours)
        self.seen: dict[Mid, None] = {}  # oldest first

    def up(self, peer: Peer, dialled: bool) -> None:
        self.peers[peer] = None

    def down(self, peer: Peer) -> None:
        self.peers.pop(peer, None)

    def broadcast(self, payload_bytes: int) -> None:
        self.number += 1
        self._take((self.me, self.number), 0, payload_bytes, None)

    def received(self, peer: Peer, wire: Wire, payload_bytes: int) -> None:
        if wire[1] not in self.seen:
            self._take(wire[1], wire[2], payload_bytes, peer)

    def _take(self, mid: Mid, hops: int, payload_bytes: int, sender: Peer | None) -> None:
        seen = self.seen
        seen[mid] = None
        if len(seen) > SEEN_MAX:
            del seen[next(iter(seen))]
        self.desk.deliver(mid[0], mid[1], hops)
        others = [peer for peer in self.peers if peer != sender]
        if len(others) > self.fanout:
            others = self.desk.random.sample(others, self.fanout)
        send = self.desk.send
        wire = (GOSSIP, mid, hops + 1)
        for peer in others:
            send(peer, wire, GOSSIP_BYTES, payload_bytes)
