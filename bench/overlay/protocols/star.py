"""A star: every message goes to one hub, which sends it to all other nodes. It is the baseline for trees.

Owns: the hub, and its leaves. Must never: try to tolerate faults. Without the hub, there is no broadcast. If a leaf has
no link to the hub, no node receives its messages.

A star is causal, because the hub sends the same messages in the same order to every leaf, and because a leaf's
broadcast reaches the hub after the hub has sent all messages that the leaf had received.
"""

from __future__ import annotations

from collections.abc import Iterable

from ingeborg.broker.core.overlay.node import Desk, Node, Peer, Wire

from .wires import GOSSIP, GOSSIP_BYTES, UP, Mid


class Star(Node):
    """``hub``: the hub's number, which is the same at every node. ``neighbours``: the nodes to which links exist from
    the start. At the hub, these are the leaves. At a leaf, it is the hub. ``unheard``: number of this node's messages
    that could not be sent, because the node had no link to the hub."""

    __slots__ = ("desk", "hub", "me", "number", "peers", "unheard")

    def __init__(self, desk: Desk, me: Peer, neighbours: Iterable[Peer] = (), hub: Peer = 0) -> None:
        self.desk = desk
        self.me = me
        self.hub = hub
        self.number = 0
        self.unheard = 0
        self.peers = dict.fromkeys(neighbours)

    def up(self, peer: Peer, dialled: bool) -> None:
        self.peers[peer] = None

    def down(self, peer: Peer) -> None:
        self.peers.pop(peer, None)

    def broadcast(self, payload_bytes: int) -> None:
        self.number += 1
        mid = (self.me, self.number)
        self.desk.deliver(self.me, self.number, 0)
        if self.me == self.hub:
            self._spread(mid, 1, payload_bytes, None)
        elif self.hub in self.peers:
            self.desk.send(self.hub, (UP, mid, 1), GOSSIP_BYTES, payload_bytes)
        else:
            self.unheard += 1

    def received(self, peer: Peer, wire: Wire, payload_bytes: int) -> None:
        kind, mid, hops = wire
        self.desk.deliver(mid[0], mid[1], hops)
        if kind == UP:
            self._spread(mid, hops + 1, payload_bytes, peer)

    def _spread(self, mid: Mid, hops: int, payload_bytes: int, sender: Peer | None) -> None:
        wire = (GOSSIP, mid, hops)
        send = self.desk.send
        for peer in self.peers:
            if peer != sender:
                send(peer, wire, GOSSIP_BYTES, payload_bytes)
