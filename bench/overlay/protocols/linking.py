"""Make a new link safe: discovery, rediscovery, and the messages alpha, beta, pi and rho (section 3.4.1, Algorithms 2
to 10).

Owns: the set of unsafe links, the progress of each exchange, and the buffers that fill meanwhile. Must never: depend on
how a message is forwarded (``prc`` forwards over all links, and ``cptcast`` over a tree).

**Links.** In the document, a link carries messages in one direction, from N1 to N2. A link of the desk carries messages
in both directions. So a link of the desk corresponds to two links of the document, and each end makes its outgoing link
safe. The messages of an exchange take other links that are safe. Only B_beta takes the new link.

**Joining.** In the document, NEIGHBOUR_UP says whether the link is the first link of a joining node (Algorithm 2, line
14), because such a link is safe from the start. The desk does not say whether a link is the first link, but the new
node knows. So both ends begin a link with a HELLO that says whether the sender is new. A node handles NEIGHBOUR_UP when
the other end's HELLO has arrived. From that moment, both ends also agree on which link they mean. Otherwise, one end
could begin an exchange before the other end has noticed the end of an earlier link. The exchange could then finish on a
link that the other end is about to forget. A HELLO can arrive before ``Node.up``, if the membership reports a new link
to one end earlier than to the other.

**New.** A node is new if it has no link and has delivered no message. If a node has delivered a message and then loses
its last safe link, it stays alone, because its DISCOVERY reaches nobody. (It cannot count as new again, because its
neighbours can still send it messages that it has delivered.) In the same way, two groups of nodes that have never had a
safe link between them stay separate.

**A built overlay** begins with links that are safe in both directions, and does no exchange for them. To make the links
of 10,000 nodes safe one after the other, each link would take two floods, which is about 10^9 messages in total.

A path lists the nodes that a control message still has to reach, including the last node. Like every message, a path is
an immutable value, so removing the next node from it does not change a stored path.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from ingeborg.broker.core.overlay.node import Desk, Peer, Wire

from .expecting import Expecting
from .repairs import REPAIRED, Repairs
from .wires import (
    ALPHA,
    B_BETA,
    BETA,
    DISCOVERY,
    HELLO,
    HELLO_BYTES,
    PI,
    REDISCOVERY,
    REDISCOVERY_BYTES,
    RHO,
    Mid,
    buffer_bytes,
    control_bytes,
)

TRAVERSALS_MAX: Final = 4_096
"""Maximum number of floods that a node remembers (``Repairs.forgets``). A flood is over within a second or two, and
every flood reaches every node. So this number is enough for about a thousand links that begin or retry in that time."""

DISCOVERY_TIMER: Final = "discovery"
"""The first field of this module's timers."""

Path = tuple[Peer, ...]
Buffered = tuple[Mid, int, int]
"""A message in a sender's buffer: its id, its hops as sent, and the bytes of its payload."""


@dataclass(frozen=True)
class LinkingOptions:
    """Values that the document does not give.

    ``discovery_timeout``: time limit of an exchange, in seconds. An exchange takes two floods and five messages along a
    path, with 12.5 ms for each crossing of the network. In CPTCast, each crossing can also wait for an announced
    message (``timeout1``). An exchange that takes longer begins again. If the limit is too short, an exchange never
    ends. If it is too long, this only delays links whose path broke.

    ``max_discoveries``: number of failed attempts after which the node requests another neighbour from the membership.
    An attempt fails if a link of its path goes down within the second or so of the exchange. After five failures in a
    row, the cause must be that the neighbour itself is alone.
    """

    discovery_timeout: float = 2.0
    max_discoveries: int = 5
    repairs: Repairs = REPAIRED


class ReceiverBuffers:
    """The messages that N2 delivers while a link from N1 becomes safe. They are in B_alpha until pi arrives, and then
    in B_pi."""

    __slots__ = ("alpha", "pi")

    def __init__(self) -> None:
        self.alpha: set[Mid] = set()
        self.pi: set[Mid] | None = None


class Linking(Expecting):
    """A node that makes its links safe. ``neighbours``: the neighbours in a built overlay, with links that are safe in
    both directions.

    The state has the document's names: ``unsafe_in``, ``unsafe_out``, ``traversals``, ``r_buffers`` and ``s_buffers``.
    Only ``safe_paths`` is divided into ``paths_in`` and ``paths_out`` (see ``Repairs.two_ways``).
    """

    __slots__ = (
        "answered",
        "controls",
        "discovery_timers",
        "early",
        "linking",
        "links",
        "nothing_delivered",
        "paths_in",
        "paths_out",
        "r_buffers",
        "s_buffers",
        "traversals",
        "unsafe_in",
        "unsafe_out",
    )

    def __init__(self, desk: Desk, me: Peer, neighbours: Iterable[Peer], linking: LinkingOptions) -> None:
        super().__init__(desk, me)
        self.linking = linking
        self.links: dict[Peer, bool] = {}  # links that are up, and whether this node was new at that time
        self.early: dict[Peer, bool] = {}  # HELLOs that arrived before their links
        self.nothing_delivered = True
        self.controls = 0  # control messages made so far
        self.unsafe_in: dict[Peer, Mid] = {}
        self.unsafe_out: dict[Peer, Mid] = {}
        self.answered: dict[Peer, int] = {}  # the count in the id of the latest DISCOVERY that was answered
        self.traversals: dict[Mid, None] = {}  # oldest first
        self.paths_out: dict[Peer, Path] = {}  # paths for the links to the peers
        self.paths_in: dict[Peer, Path] = {} if linking.repairs.two_ways else self.paths_out  # for links from the peers
        self.discovery_timers: dict[Peer, tuple[str, Peer, int]] = {}  # the valid timers; earlier timers are ignored
        self.r_buffers: dict[Peer, ReceiverBuffers] = {}
        self.s_buffers: dict[Peer, list[Buffered]] = {}
        for peer in neighbours:
            self.links[peer] = False
            self.open_out(peer)
            self.hear(peer)

    # The protocol's use of safe links

    def outgoing(self) -> Iterable[Peer]:
        """Return the neighbours to which there is a safe link."""
        raise NotImplementedError

    def is_outgoing(self, peer: Peer | None) -> bool:
        """Return whether there is a safe link to the peer."""
        raise NotImplementedError

    def open_out(self, peer: Peer) -> None:
        """Record that the link to the neighbour is safe."""
        raise NotImplementedError

    def send_in_order(self, peer: Peer, wire: Wire, size: int) -> None:
        """Send a control message over a safe link, after all messages that were sent or announced on that link."""
        raise NotImplementedError

    # Links come and go

    def up(self, peer: Peer, dialled: bool) -> None:
        if peer in self.links:  # a link of the built overlay
            return
        is_new = self.nothing_delivered and not self.links
        self.links[peer] = is_new
        self.desk.send(peer, (HELLO, is_new), HELLO_BYTES)
        if peer in self.early:
            other_is_new = self.early.pop(peer)
            self.neighbour_up(peer, is_new or other_is_new)

    def neighbour_up(self, peer: Peer, is_join: bool) -> None:
        """Handle NEIGHBOUR_UP (Algorithm 2)."""
        if is_join:
            self.open_out(peer)
            self.hear(peer)
        else:
            self._discover(peer, 0, None)

    def down(self, peer: Peer) -> None:
        """Remove a neighbour's links (Algorithm 15). Subclasses also remove their own state."""
        kept: tuple[dict[Peer, Any], ...] = (
            self.links,
            self.early,
            self.unsafe_in,
            self.unsafe_out,
            self.answered,
            self.paths_in,
            self.paths_out,
            self.r_buffers,
            self.s_buffers,
            self.discovery_timers,
        )
        for each in kept:
            each.pop(peer, None)
        self.unhear(peer)

    def due(self, what: Any) -> None:
        """Handle a timer (Algorithm 3, lines 1-9)."""
        _, peer, version = what
        if self.discovery_timers.get(peer) is not what:
            return
        if version < self.linking.max_discoveries:
            self._discover(peer, version + 1, None)
        else:  # SWITCH_NEIGHBOUR
            self.down(peer)
            self.desk.hang_up(peer)

    # Discovery

    def _discover(self, peer: Peer, version: int, after: Mid | None) -> None:
        """Look for a safe path to the neighbour (Algorithm 2, lines 18-22). ``after``: the REDISCOVERY that caused
        this, if any (Algorithm 5, lines 15-19)."""
        timer = self.discovery_timers[peer] = (DISCOVERY_TIMER, peer, version)
        self.desk.after(self.linking.discovery_timeout, timer)
        mid = self._new_mid()
        self.unsafe_out[peer] = mid
        self._remember(mid)
        self._flood((DISCOVERY, mid, self.me, peer, mid if after is None else after, (), ()), None)

    def control(self, sender: Peer, wire: Wire) -> None:
        """Handle a control message or a B_beta."""
        kind = wire[0]
        if kind == DISCOVERY:
            self._discovery(sender, wire)
        elif kind == REDISCOVERY:
            self._rediscovery(sender, wire)
        elif kind == HELLO:
            if sender in self.links:
                self.neighbour_up(sender, wire[1] or self.links[sender])
            else:
                self.early[sender] = wire[1]
        elif kind == ALPHA:
            self._alpha(wire)
        elif kind == BETA:
            self._beta(wire)
        elif kind == PI:
            self._pi(wire)
        elif kind == RHO:
            self._rho(wire)
        elif kind == B_BETA:
            self._b_beta(sender, wire)
        else:
            raise AssertionError(f"unknown kind of message: {kind}")

    def _discovery(self, sender: Peer, wire: Wire) -> None:
        """Handle a DISCOVERY (Algorithm 4)."""
        _, mid, origin, target, previous, path, way_back = wire
        if mid in self.traversals:
            return
        self._remember(mid)
        path = (*path, self.me)
        if target != self.me:
            self._flood((DISCOVERY, mid, origin, target, previous, path, way_back), sender)
        elif not way_back:
            self._answer(origin, mid, previous, path)
        elif self.unsafe_out.get(origin) == previous:
            alpha = self._new_mid()
            self.unsafe_out[origin] = alpha
            self.paths_out[origin] = way_back
            self._send_control((ALPHA, alpha, self.me, origin, mid, way_back, path))

    def _answer(self, origin: Peer, mid: Mid, previous: Mid, path: Path) -> None:
        """Answer the discovery of a path from ``origin``, by looking for a path back (Algorithm 4, lines 9-17)."""
        repairs = self.linking.repairs
        if repairs.strangers and origin not in self.links:
            return
        if repairs.in_turn:
            if mid[1] < self.answered.get(origin, 0):
                return
            self.answered[origin] = mid[1]
        if mid != previous:
            if repairs.two_ways:
                self.r_buffers.pop(origin, None)
            else:
                self.unsafe_out.pop(origin, None)
            self.paths_in.pop(origin, None)
        answer = self._new_mid()
        self.unsafe_in[origin] = answer
        self._flood((DISCOVERY, answer, self.me, origin, mid, (), path), None)

    def _rediscovery(self, sender: Peer, wire: Wire) -> None:
        """Handle a REDISCOVERY (Algorithm 5, lines 11-21)."""
        _, mid, origin, target = wire
        if mid in self.traversals:
            return
        self._remember(mid)
        if origin == self.me and target in self.unsafe_out:
            self.paths_out.pop(target, None)
            self._discover(target, 0, mid)
        else:
            self._flood(wire, sender)

    def _flood(self, wire: Wire, sender: Peer | None) -> None:
        """Forward a flood (Algorithm 3, lines 10-12)."""
        size = REDISCOVERY_BYTES if wire[0] == REDISCOVERY else control_bytes(wire)
        send = self.desk.send
        for peer in self.outgoing():
            if peer != sender:
                send(peer, wire, size)

    def _new_mid(self) -> Mid:
        self.controls += 1
        return (self.me, self.controls)

    def _remember(self, mid: Mid) -> None:
        self.traversals[mid] = None
        if len(self.traversals) > TRAVERSALS_MAX and self.linking.repairs.forgets:
            del self.traversals[next(iter(self.traversals))]

    # The exchange. ``origin`` is N1, and ``target`` is N2. All other nodes only forward the messages of an exchange.

    def _send_control(self, wire: Wire) -> None:
        """Send a message to the next node of its path, or ask N1 to look for another path (Algorithm 5, lines 1-10)."""
        path = wire[5]
        if path and self.is_outgoing(path[0]):
            onward = (*wire[:5], path[1:], *wire[6:])
            self.send_in_order(path[0], onward, control_bytes(onward))
        else:
            mid = self._new_mid()
            self._remember(mid)
            self._flood((REDISCOVERY, mid, wire[2], wire[3]), None)

    def _alpha(self, wire: Wire) -> None:
        """Handle alpha (Algorithm 6). N2 now has all messages that N1 had delivered when it sent alpha. From now on, N2
        buffers its deliveries."""
        _, mid, origin, target, previous, _, way_back = wire
        if target != self.me:
            self._send_control(wire)
        elif self.unsafe_in.get(origin) == previous:
            self.r_buffers[origin] = ReceiverBuffers()
            self.paths_in[origin] = way_back
            beta = self._new_mid()
            self.unsafe_in[origin] = beta
            self._send_control((BETA, beta, origin, target, mid, way_back))

    def _beta(self, wire: Wire) -> None:
        """Handle beta (Algorithm 7). N1 now has all messages that N2 had delivered when it sent beta. From now on, N1
        buffers its deliveries."""
        _, mid, origin, target, previous, _ = wire
        if origin != self.me:
            self._send_control(wire)
        elif self.unsafe_out.get(target) == previous:
            self.s_buffers[target] = []
            pi = self._new_mid()
            self.unsafe_out[target] = pi
            self._send_control((PI, pi, origin, target, mid, self.paths_out.get(target, ())))

    def _pi(self, wire: Wire) -> None:
        """Handle pi (Algorithm 8). N2 now has all messages that N1 had delivered before N1's buffer began. N1 may still
        send the messages that N2 delivers next."""
        _, mid, origin, target, previous, _ = wire
        if target != self.me:
            self._send_control(wire)
        elif self.unsafe_in.get(origin) == previous:
            self.r_buffers[origin].pi = set()
            rho = self._new_mid()
            self.unsafe_in[origin] = rho
            self._send_control((RHO, rho, origin, target, mid, self.paths_in.get(origin, ())))

    def _rho(self, wire: Wire) -> None:
        """Handle rho (Algorithm 9). From now on the link is safe. First, N1 sends its buffer over it."""
        _, mid, origin, target, previous, _ = wire
        if origin != self.me:
            self._send_control(wire)
        elif self.unsafe_out.get(target) == previous:
            buffer = tuple(self.s_buffers.pop(target))
            payload_bytes = sum(size for _, _, size in buffer)
            self.desk.send(target, (B_BETA, mid, buffer), buffer_bytes(len(buffer)), payload_bytes)
            self.open_out(target)
            del self.unsafe_out[target]
            self.paths_out.pop(target, None)
            self.discovery_timers.pop(target, None)

    def _b_beta(self, sender: Peer, wire: Wire) -> None:
        """Handle B_beta (Algorithm 10). N2 delivers the messages that only N1 had, and notes the messages that N1 will
        send although N2 has them."""
        _, previous, buffer = wire
        if self.unsafe_in.get(sender) != previous:
            return
        buffers = self.r_buffers[sender]
        alpha, pi = buffers.alpha, buffers.pi
        assert pi is not None
        for mid, hops, payload_bytes in buffer:
            if mid not in alpha and mid not in pi:
                self.receive_message(mid, hops, payload_bytes, sender)
        self.hear(sender)
        bit = self.bits[sender]
        for mid in pi.difference(mid for mid, _, _ in buffer):
            self.expected[mid] = self.expected.get(mid, 0) | bit
        del self.r_buffers[sender], self.unsafe_in[sender]
        self.paths_in.pop(sender, None)
        if not self.linking.repairs.two_ways:
            self.discovery_timers.pop(sender, None)

    def keep(self, mid: Mid, hops: int, payload_bytes: int) -> None:
        """Put a delivered message into the buffers of all exchanges (Algorithm 14, lines 3-7). ``hops``: the number
        with which the node forwards the message."""
        for buffer in self.s_buffers.values():
            buffer.append((mid, hops, payload_bytes))
        for buffers in self.r_buffers.values():
            (buffers.alpha if buffers.pi is None else buffers.pi).add(mid)
