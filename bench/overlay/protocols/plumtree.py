"""Plumtree: payloads take the links of a tree, and announcements take all other links (Leitão, Pereira, Rodrigues 2007;
sections 2.2.3 and 3.4.2 of the document).

Owns: the links of the tree, the announcers of missing messages, and the payloads kept for requests. Must never: promise
an order.

A link belongs to the tree (*eager*) until it brings a payload that has already arrived. Then both ends of the link make
it *lazy*. If an announced message does not arrive within TIMEOUT1, the node requests it, and the link belongs to the
tree again. If the message does not arrive within TIMEOUT2 either, the node requests it from the next announcer.

The paper's optimisation, which replaces a path by a shorter one, is left out, because the document does not have it. If
there is no other announcer, the timer ends. The next announcement sets it again. (The paper does not specify this.)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from ingeborg.broker.core.overlay.node import Desk, Node, Peer, Wire

from .wires import (
    GOSSIP,
    GOSSIP_BYTES,
    GRAFT,
    GRAFT_BYTES,
    IHAVE,
    IHAVE_BYTES,
    PRUNE,
    PRUNE_BYTES,
    Mid,
)

RECEIVED_MAX: Final = 10_000
"""Maximum number of messages that a node remembers, and can send on request. The number is sufficient, because a
request arrives within a few time-outs after the announcement, and the experiments have at most about a hundred
broadcasts per second."""

_PRUNE: Final = (PRUNE,)


@dataclass(frozen=True)
class PlumtreeOptions:
    """Time-outs in seconds. The document gives no values.

    ``timeout1``: the time for an announced message to arrive without a request. The payload's path over the tree is
    longer than the announcement's path by a few crossings of the network, 12.5 ms each. With a shorter time-out, the
    node grafts links that the next message prunes again.

    ``timeout2``: the time for a requested message to arrive. It is shorter, because it only has to cover one round
    trip.
    """

    timeout1: float = 0.25
    timeout2: float = 0.1


class Plumtree(Node):
    """``neighbours``: the neighbours that the node has from the start. ``up`` reports further neighbours."""

    __slots__ = ("desk", "eager", "lazy", "me", "missing", "number", "options", "received_messages", "timers")

    def __init__(
        self, desk: Desk, me: Peer, neighbours: Iterable[Peer] = (), options: PlumtreeOptions | None = None
    ) -> None:
        self.desk = desk
        self.me = me
        self.options = options or PlumtreeOptions()
        self.number = 0
        self.eager = dict.fromkeys(neighbours)
        self.lazy: dict[Peer, None] = {}
        self.received_messages: dict[Mid, tuple[int, int]] = {}  # hops, payload bytes; oldest first
        self.missing: dict[Mid, list[Peer]] = {}  # announcers that got no request yet, in order
        self.timers: dict[Mid, tuple[Mid]] = {}  # the valid timer of each message; earlier timers are ignored

    def up(self, peer: Peer, dialled: bool) -> None:
        if peer not in self.lazy:
            self.eager[peer] = None

    def down(self, peer: Peer) -> None:
        self.eager.pop(peer, None)
        self.lazy.pop(peer, None)
        for peers in self.missing.values():
            if peer in peers:
                peers.remove(peer)

    def broadcast(self, payload_bytes: int) -> None:
        self.number += 1
        self._take((self.me, self.number), 0, payload_bytes, None)

    def received(self, peer: Peer, wire: Wire, payload_bytes: int) -> None:
        kind = wire[0]
        if kind == IHAVE:
            mid = wire[1]
            if mid not in self.received_messages:
                peers = self.missing.get(mid)
                if peers is None:
                    peers = self.missing[mid] = []
                if peer not in peers:
                    peers.append(peer)
                if mid not in self.timers:
                    self._set_timer(mid, self.options.timeout1)
        elif kind == GOSSIP:
            mid = wire[1]
            if mid not in self.received_messages:
                self._elongate(peer)
                self._take(mid, wire[2], payload_bytes, peer)
            else:
                self._shorten(peer)
                self.desk.send(peer, _PRUNE, PRUNE_BYTES)
        elif kind == PRUNE:
            self._shorten(peer)
        else:
            self._grafted(peer, wire[1])

    def _grafted(self, peer: Peer, mid: Mid) -> None:
        self._elongate(peer)
        kept = self.received_messages.get(mid)
        if kept is not None:
            hops, payload_bytes = kept
            self.desk.send(peer, (GOSSIP, mid, hops + 1), GOSSIP_BYTES, payload_bytes)

    def due(self, what: Any) -> None:
        mid = what[0]
        if self.timers.get(mid) is not what:
            return
        peers = self.missing[mid]
        if not peers:
            del self.timers[mid], self.missing[mid]
            return
        self._set_timer(mid, self.options.timeout2)
        peer = peers.pop(0)
        self._elongate(peer)
        self.desk.send(peer, (GRAFT, mid), GRAFT_BYTES)

    def _set_timer(self, mid: Mid, seconds: float) -> None:
        what = self.timers[mid] = (mid,)
        self.desk.after(seconds, what)

    def _elongate(self, peer: Peer) -> None:
        """Add the link to the tree."""
        if peer in self.lazy:
            del self.lazy[peer]
            self.eager[peer] = None

    def _shorten(self, peer: Peer) -> None:
        """Remove the link from the tree."""
        if peer in self.eager:
            del self.eager[peer]
            self.lazy[peer] = None

    def _take(self, mid: Mid, hops: int, payload_bytes: int, sender: Peer | None) -> None:
        kept = self.received_messages
        kept[mid] = (hops, payload_bytes)
        if len(kept) > RECEIVED_MAX:
            del kept[next(iter(kept))]
        desk = self.desk
        desk.deliver(mid[0], mid[1], hops)
        if self.timers.pop(mid, None) is not None:
            del self.missing[mid]
        send = desk.send
        wire = (GOSSIP, mid, hops + 1)
        for peer in self.eager:
            if peer != sender:
                send(peer, wire, GOSSIP_BYTES, payload_bytes)
        if self.lazy:
            announcement = (IHAVE, mid)
            for peer in self.lazy:
                if peer != sender:
                    send(peer, announcement, IHAVE_BYTES)
