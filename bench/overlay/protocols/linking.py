"""How a new link is made safe: discovery, rediscovery, and alpha, beta, pi, rho (section 3.4.1, Algorithms 2 to 10).

Owns: which links are not safe yet, how far the exchange of each has come, and the buffers that are filled meanwhile.
Must never: know how a message is sent on (``prc``: by all links; ``cptcast``: by a tree).

**Links.** A link of the document leads one way, from N1 to N2. A link of the desk has two ends, and messages go both
ways. So it is two links of the document, and each end makes the one that goes out from it safe; what belongs to an
exchange goes by other, safe links, and only B_beta by the new one.

**Joining.** NEIGHBOUR_UP says whether the link is the first of a node that joins (Algorithm 2, line 14): such a link is
safe at once. The desk does not say so, but the new node knows. So both ends begin a link with a HELLO that says whether
its sender is new, and NEIGHBOUR_UP is when the other end's HELLO has come. That is also when both ends hold the same
link: an exchange that one end begins while the other has not noticed yet that an earlier link is gone could come to its
end on a link that the other end is about to forget. A HELLO may precede ``Node.up``, where the membership tells one end
of a neighbour earlier than the other.

**New** is a node without a link that has delivered nothing. One that has delivered something and then loses its last
safe link stays alone: its DISCOVERY leads nowhere. (It cannot come back as a new one: its neighbours may still send it
what it has delivered.) So do two groups of nodes that have never had a safe link between them.

**A built overlay** begins with links that are all safe, at both ends; nothing is said on them. To make the links of
10,000 nodes safe one after the other takes two floods each, some 10^9 messages.

A path is the nodes that a control message has still to come to, the last one included. As every message it is a value:
to take the next node off it does not change what is kept.
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
"""Floods that a node knows for having been here (``Repairs.forgets``). A flood is over within a second or two: room for
some thousand links that are begun or tried again in that time, in a network where all hear of each."""

DISCOVERY_TIMER: Final = "discovery"
"""The first field of its timers."""

Path = tuple[Peer, ...]
Buffered = tuple[Mid, int, int]
"""A message in a sender's buffer: hops as it is sent, and the bytes of its payload."""


@dataclass(frozen=True)
class LinkingOptions:
    """What the document gives no values for.

    ``discovery_timeout``: seconds for an exchange: two floods and five ways along a path of the network, 12.5 ms a
    crossing; in CPTCast each crossing may wait for an announced message (``timeout1``). A link that takes longer
    begins again, so that too short a time never ends; too long a one delays only links whose path broke.

    ``max_discoveries``: so often it is begun again, before the membership is asked for another neighbour. A path breaks
    when one of its links goes within the second or so that it is used; five times in a row that is the neighbour's own
    fault: it is alone.
    """

    discovery_timeout: float = 2.0
    max_discoveries: int = 5
    repairs: Repairs = REPAIRED


class ReceiverBuffers:
    """The messages that N2 delivers while a link from N1 is made safe: B_alpha until pi comes, then B_pi."""

    __slots__ = ("alpha", "pi")

    def __init__(self) -> None:
        self.alpha: set[Mid] = set()
        self.pi: set[Mid] | None = None


class Linking(Expecting):
    """A node that makes its links safe. ``neighbours``: those of a built overlay, safe in both directions.

    The state has the document's names: ``unsafe_in``, ``unsafe_out``, ``safe_paths`` (as ``paths_in`` and
    ``paths_out``: see ``Repairs.two_ways``), ``traversals``, ``r_buffers``, ``s_buffers``.
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
        self.links: dict[Peer, bool] = {}  # that are up, and whether this node was new when they came up
        self.early: dict[Peer, bool] = {}  # HELLOs that came before their links did
        self.nothing_delivered = True
        self.controls = 0  # control messages made so far
        self.unsafe_in: dict[Peer, Mid] = {}
        self.unsafe_out: dict[Peer, Mid] = {}
        self.answered: dict[Peer, int] = {}  # the count of the DISCOVERY that was answered last
        self.traversals: dict[Mid, None] = {}  # oldest first
        self.paths_out: dict[Peer, Path] = {}  # of the link to the peer
        self.paths_in: dict[Peer, Path] = {} if linking.repairs.two_ways else self.paths_out  # of the link from it
        self.discovery_timers: dict[Peer, tuple[str, Peer, int]] = {}  # the present one of each; earlier ones are over
        self.r_buffers: dict[Peer, ReceiverBuffers] = {}
        self.s_buffers: dict[Peer, list[Buffered]] = {}
        for peer in neighbours:
            self.links[peer] = False
            self.open_out(peer)
            self.hear(peer)

    # What the protocol does with safe links

    def outgoing(self) -> Iterable[Peer]:
        """Neighbours to which a safe link leads."""
        raise NotImplementedError

    def is_outgoing(self, peer: Peer | None) -> bool:
        """Does a safe link lead there?"""
        raise NotImplementedError

    def open_out(self, peer: Peer) -> None:
        """The link to the neighbour is safe."""
        raise NotImplementedError

    def send_in_order(self, peer: Peer, wire: Wire, size: int) -> None:
        """Send a control message over a safe link, behind all messages that were sent or announced on it."""
        raise NotImplementedError

    # Links come and go

    def up(self, peer: Peer, dialled: bool) -> None:
        if peer in self.links:  # of the built overlay
            return
        is_new = self.nothing_delivered and not self.links
        self.links[peer] = is_new
        self.desk.send(peer, (HELLO, is_new), HELLO_BYTES)
        if peer in self.early:
            other_is_new = self.early.pop(peer)
            self.neighbour_up(peer, is_new or other_is_new)

    def neighbour_up(self, peer: Peer, is_join: bool) -> None:
        """Algorithm 2."""
        if is_join:
            self.open_out(peer)
            self.hear(peer)
        else:
            self._discover(peer, 0, None)

    def down(self, peer: Peer) -> None:
        """Algorithm 15, as far as it is about links. A protocol adds what it keeps of them."""
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
        """Algorithm 3, lines 1-9."""
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
        """Look for a safe path to the neighbour (Algorithm 2, lines 18-22). ``after``: the REDISCOVERY that it follows
        (Algorithm 5, lines 15-19)."""
        timer = self.discovery_timers[peer] = (DISCOVERY_TIMER, peer, version)
        self.desk.after(self.linking.discovery_timeout, timer)
        mid = self._new_mid()
        self.unsafe_out[peer] = mid
        self._remember(mid)
        self._flood((DISCOVERY, mid, self.me, peer, mid if after is None else after, (), ()), None)

    def control(self, sender: Peer, wire: Wire) -> None:
        """Any message that is not about broadcasts, but B_beta."""
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
            raise AssertionError(f"a message of kind {kind}")

    def _discovery(self, sender: Peer, wire: Wire) -> None:
        """Algorithm 4."""
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
        """A path from ``origin`` has been found; look for one there (Algorithm 4, lines 9-17)."""
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
        """Algorithm 5, lines 11-21."""
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
        """Algorithm 3, lines 10-12."""
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

    # The exchange. ``origin`` is N1, ``target`` N2; either may be in the middle of another's path.

    def _send_control(self, wire: Wire) -> None:
        """To the next node of its path, or ask N1 to look for another path (Algorithm 5, lines 1-10)."""
        path = wire[5]
        if path and self.is_outgoing(path[0]):
            onward = (*wire[:5], path[1:], *wire[6:])
            self.send_in_order(path[0], onward, control_bytes(onward))
        else:
            mid = self._new_mid()
            self._remember(mid)
            self._flood((REDISCOVERY, mid, wire[2], wire[3]), None)

    def _alpha(self, wire: Wire) -> None:
        """Algorithm 6: N2 has all that N1 had delivered when it sent this. From now on it keeps what it delivers."""
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
        """Algorithm 7: N1 has all that N2 had delivered. From now on it keeps what it delivers."""
        _, mid, origin, target, previous, _ = wire
        if origin != self.me:
            self._send_control(wire)
        elif self.unsafe_out.get(target) == previous:
            self.s_buffers[target] = []
            pi = self._new_mid()
            self.unsafe_out[target] = pi
            self._send_control((PI, pi, origin, target, mid, self.paths_out.get(target, ())))

    def _pi(self, wire: Wire) -> None:
        """Algorithm 8: N2 has what N1 had delivered before its buffer began. What it delivers now N1 may yet send."""
        _, mid, origin, target, previous, _ = wire
        if target != self.me:
            self._send_control(wire)
        elif self.unsafe_in.get(origin) == previous:
            self.r_buffers[origin].pi = set()
            rho = self._new_mid()
            self.unsafe_in[origin] = rho
            self._send_control((RHO, rho, origin, target, mid, self.paths_in.get(origin, ())))

    def _rho(self, wire: Wire) -> None:
        """Algorithm 9: the link is safe from here on. First of all its buffer goes over it."""
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
        """Algorithm 10: N2 delivers what only N1 has had, and knows what N1 will send that it has had."""
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
        """Put a message that was delivered into the buffers of all exchanges (Algorithm 14, lines 3-7). ``hops``: as it
        is sent on."""
        for buffer in self.s_buffers.values():
            buffer.append((mid, hops, payload_bytes))
        for buffers in self.r_buffers.values():
            (buffers.alpha if buffers.pi is None else buffers.pi).add(mid)
