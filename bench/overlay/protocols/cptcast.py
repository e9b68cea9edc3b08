"""CPTCast: a causal broadcast over a tree, while links come and go (Algorithms 1 to 15).

Owns: ``eagerPushPeers`` and ``lazyPushPeers``, with the waiting messages of each neighbour, and the announcers of
missing messages. Must never: let a message overtake an announced message on its link.

Payloads take eager links and announcements take lazy links, as in ``plumtree``. Causality comes from one rule: a link
carries every message that its sender has delivered, in the order of delivery. It carries either the whole message, or a
notice that the receiver already has the message. An announcement is neither of the two. So everything after an
announcement *waits* on that link, until the receiver answers. If the receiver requests the announced message (GRAFT),
the node sends all waiting messages. If the receiver shows that it has the message (GOSSIP or IHAVE), the node announces
the next message.

As printed, the queue of waiting messages has no limit. It grows with the messages that arrive while an announcement is
under way, and it keeps their payloads. It is dropped when the neighbour leaves.

``linking`` makes new links safe.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

from ingeborg.broker.core.overlay.node import Desk, Peer, Wire

from .linking import DISCOVERY_TIMER, Linking, LinkingOptions
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

ANNOUNCEMENT_TIMER: Final = "announcement"
"""The first field of this module's timers."""

_PRUNE: Final = (PRUNE,)

Waiting = dict[Any, tuple[Wire, int, int]]
"""The messages that wait for a neighbour, the oldest message first. Each entry has the message, its control bytes and
its payload bytes. The key is the message's id, or the message itself if it is a control message."""

Timer = tuple[str, Mid]


@dataclass(frozen=True)
class CptCastOptions:
    """``timeout1``, ``timeout2``: seconds, as in ``plumtree.PlumtreeOptions``. ``waiting``: if False, a node announces
    every message immediately, and a GRAFT brings only the message that it names. This causes the effect in figure
    3.4."""

    timeout1: float = 0.25
    timeout2: float = 0.1
    waiting: bool = True
    linking: LinkingOptions = field(default_factory=LinkingOptions)


class CptCast(Linking):
    """``neighbours``: the neighbours in a built overlay, with links that are safe in both directions. ``up`` reports
    further neighbours."""

    __slots__ = ("blocks", "eager", "grafted", "lazy", "missing", "options", "repairs", "timers")

    def __init__(
        self, desk: Desk, me: Peer, neighbours: Iterable[Peer] = (), options: CptCastOptions | None = None
    ) -> None:
        self.options = options or CptCastOptions()
        self.repairs = self.options.linking.repairs
        self.blocks = self.options.waiting
        self.eager: dict[Peer, Waiting] = {}  # eagerPushPeers, with the waiting messages of each peer
        self.lazy: dict[Peer, Waiting] = {}  # lazyPushPeers, with the waiting messages of each peer
        self.missing: dict[Mid, list[Peer]] = {}  # announcers that got no request yet, in order
        self.grafted: dict[Mid, list[Peer]] = {}  # the neighbours that got a request
        self.timers: dict[Mid, Timer] = {}  # the valid timer of each message; earlier timers are ignored
        super().__init__(desk, me, neighbours, self.options.linking)

    # Arrivals

    def received(self, peer: Peer, wire: Wire, payload_bytes: int) -> None:
        kind = wire[0]
        if kind == IHAVE:
            self._announced(peer, wire[1])
        elif kind == GOSSIP:
            self._gossip(peer, wire[1], wire[2], payload_bytes)
        elif kind == PRUNE:
            self._make_lazy(peer)
        elif kind == GRAFT:
            self._asked(peer, wire[1])
        else:
            self.control(peer, wire)

    def _gossip(self, sender: Peer, mid: Mid, hops: int, payload_bytes: int) -> None:
        """Handle a GOSSIP (Algorithm 11, lines 4-13)."""
        left = self.expected.get(mid)
        if left is None:
            self._make_eager(sender)
            self._first(mid, hops, payload_bytes, sender, self.repairs.expects)
        else:
            self._prune(sender)
            self._has(sender, mid, left)
            grafted = self.grafted.get(mid)
            if grafted is not None and sender in grafted:
                grafted.remove(sender)

    def _announced(self, sender: Peer, mid: Mid) -> None:
        """Handle an announcement (Algorithm 12, lines 4-11)."""
        left = self.expected.get(mid)
        if left is not None:
            self._has(sender, mid, left)
            return
        peers = self.missing.get(mid)
        if peers is None:
            self.missing[mid] = [sender]
        elif sender not in peers:
            peers.append(sender)
        if mid not in self.timers:
            self._set_timer(mid, self.options.timeout1)

    def _has(self, sender: Peer, mid: Mid, left: int) -> None:
        """Record that the neighbour has an expected message. ``left``: the bits of all neighbours from which the
        message is still expected, including this neighbour's bit."""
        left &= ~self.bits.get(sender, 0)
        if left:
            self.expected[mid] = left
        else:
            del self.expected[mid]
        waiting = self.lazy.get(sender)
        if waiting is None:
            waiting = self.eager.get(sender)
        if waiting:
            self._check_waiting(sender, mid, waiting)

    def _check_waiting(self, sender: Peer, mid: Mid, waiting: Waiting) -> None:
        """Remove the message, which the neighbour has, from the waiting messages (Algorithm 13, lines 10-25)."""
        first = next(iter(waiting))
        if not self.blocks:
            waiting.pop(mid, None)
        elif first == mid:
            del waiting[mid]
            while waiting:
                following = next(iter(waiting))
                wire, size, _ = waiting[following]
                if wire[0] == GOSSIP:
                    self.desk.send(sender, (IHAVE, following), IHAVE_BYTES)
                    break
                del waiting[following]
                self.desk.send(sender, wire, size)
        elif mid in waiting:
            del waiting[mid if self.repairs.removes_found else first]
            self.desk.send(sender, (IHAVE, mid), IHAVE_BYTES)

    def _asked(self, sender: Peer, mid: Mid) -> None:
        """Handle a GRAFT (Algorithm 13, lines 4-9)."""
        self._make_eager(sender)
        waiting = self._waiting(sender)
        if not waiting:
            return
        send = self.desk.send
        if not self.blocks:
            asked_for = waiting.pop(mid, None)
            if asked_for is not None:
                send(sender, *asked_for)
            return
        for wire, size, payload_bytes in waiting.values():
            send(sender, wire, size, payload_bytes)
        waiting.clear()

    # Missing messages

    def due(self, what: Any) -> None:
        if what[0] == DISCOVERY_TIMER:
            super().due(what)
            return
        mid = what[1]
        if self.timers.get(mid) is what:
            self._overdue(mid)

    def _overdue(self, mid: Mid) -> None:
        """Request an announced message that has not arrived (Algorithm 12, lines 12-17)."""
        peers = self.missing.get(mid)
        if not peers and self.repairs.asks_somebody:
            del self.timers[mid]
            self.missing.pop(mid, None)
            return
        self._set_timer(mid, self.options.timeout2)
        if peers:
            peer = peers.pop(0)
            self._make_eager(peer)
            self.grafted.setdefault(mid, []).append(peer)
            self.desk.send(peer, (GRAFT, mid), GRAFT_BYTES)

    def _set_timer(self, mid: Mid, seconds: float) -> None:
        timer = self.timers[mid] = (ANNOUNCEMENT_TIMER, mid)
        self.desk.after(seconds, timer)

    # Forwarding

    def receive_message(self, mid: Mid, hops: int, payload_bytes: int, sender: Peer | None) -> None:
        """Handle this node's own message, or a message that a B_beta brought (Algorithm 1, lines 11-21)."""
        left = self.expected.get(mid)
        if left is None:
            self._first(mid, hops, payload_bytes, sender, True)
        elif sender is not None:
            self._has(sender, mid, left)

    def _first(self, mid: Mid, hops: int, payload_bytes: int, sender: Peer | None, expects: bool) -> None:
        """Deliver a message. ``expects``: whether to note the neighbours that will send the message again."""
        self.desk.deliver(mid[0], mid[1], hops)
        if expects:
            mask = self.in_mask & ~self.bits.get(sender, 0)
            if mask:
                self.expected[mid] = mask
        self.forward(mid, hops, payload_bytes, sender)

    def forward(self, mid: Mid, hops: int, payload_bytes: int, sender: Peer | None) -> None:
        """Forward a message (Algorithm 14)."""
        self.nothing_delivered = False
        hops += 1
        if self.s_buffers or self.r_buffers:
            self.keep(mid, hops, payload_bytes)
        send = self.desk.send
        eager, lazy = self.eager, self.lazy
        announcement = (IHAVE, mid)
        not_to_send: Collection[Peer] = ()
        if sender is not None:
            if sender in eager or sender in lazy:
                send(sender, announcement, IHAVE_BYTES)
            self.timers.pop(mid, None)
            if mid in self.missing or mid in self.grafted:
                not_to_send = self._acknowledge(announcement, mid, sender)
        entry = ((GOSSIP, mid, hops), GOSSIP_BYTES, payload_bytes)
        blocks = self.blocks
        for peer, waiting in eager.items():
            if peer != sender and peer not in not_to_send:
                if waiting and blocks:
                    waiting[mid] = entry
                else:
                    send(peer, *entry)
        for peer, waiting in lazy.items():
            if peer != sender and peer not in not_to_send:
                if not waiting or not blocks:
                    send(peer, announcement, IHAVE_BYTES)
                waiting[mid] = entry

    def _acknowledge(self, announcement: Wire, mid: Mid, sender: Peer) -> list[Peer]:
        """Tell the announcers that the message has arrived, and return them (Algorithm 14, lines 14-22)."""
        announced, grafted = self.missing.pop(mid, []), self.grafted.pop(mid, [])
        safe_only = self.repairs.safe_only
        left = self.expected.get(mid, 0)
        for peer in announced:
            left &= ~self.bits.get(peer, 0)
        if left:
            self.expected[mid] = left
        else:
            self.expected.pop(mid, None)
        told = [*announced, *(peer for peer in grafted if peer != sender)]
        for peer in told:
            if not safe_only or self.is_outgoing(peer):
                self.desk.send(peer, announcement, IHAVE_BYTES)
        return told

    # Links

    def _make_eager(self, peer: Peer) -> None:
        """Make the link eager (Algorithm 11, lines 14-16)."""
        waiting = self.lazy.pop(peer, None)
        if waiting is not None:
            self.eager[peer] = waiting
        elif peer not in self.eager and not self.repairs.safe_only:
            self.eager[peer] = {}

    def _make_lazy(self, peer: Peer) -> None:
        """Make the link lazy (Algorithm 11, lines 18-19 and 21-23)."""
        waiting = self.eager.pop(peer, None)
        if waiting is not None:
            self.lazy[peer] = waiting
        elif peer not in self.lazy and not self.repairs.safe_only:
            self.lazy[peer] = {}

    def _prune(self, peer: Peer) -> None:
        """Handle a duplicate from a neighbour by pruning the link (Algorithm 11, lines 17-20). With
        ``Repairs.safe_only``, nothing changes if there is no safe link to the neighbour, because the neighbour would
        then announce messages and get no answer."""
        if not self.repairs.safe_only or self.is_outgoing(peer):
            self._make_lazy(peer)
            self.desk.send(peer, _PRUNE, PRUNE_BYTES)

    def _waiting(self, peer: Peer) -> Waiting | None:
        waiting = self.lazy.get(peer)
        return waiting if waiting is not None else self.eager.get(peer)

    def down(self, peer: Peer) -> None:
        """Remove a neighbour (Algorithm 15)."""
        self.eager.pop(peer, None)
        self.lazy.pop(peer, None)
        for peers in self.missing.values():
            if peer in peers:
                peers.remove(peer)
        for mid in [mid for mid, peers in self.grafted.items() if peer in peers]:
            self.grafted[mid].remove(peer)
            if not self.grafted[mid]:
                del self.grafted[mid]
        super().down(peer)

    def outgoing(self) -> Iterable[Peer]:
        return chain(self.eager, self.lazy)

    def is_outgoing(self, peer: Peer | None) -> bool:
        return peer in self.eager or peer in self.lazy

    def open_out(self, peer: Peer) -> None:
        self.eager[peer] = {}

    def send_in_order(self, peer: Peer, wire: Wire, size: int) -> None:
        """Send a control message after the messages that wait on its link (Algorithm 14, lines 28-30)."""
        waiting = self._waiting(peer)
        if waiting and self.blocks:
            waiting[wire] = (wire, size, 0)
        else:
            self.desk.send(peer, wire, size)
