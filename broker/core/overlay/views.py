"""HyParView, a membership protocol. It maintains a node's neighbours, and a set of other known nodes.

Owns: the active view, the passive view, and every link of the node. No other module dials or hangs up. Must never: know
the messages that the higher-level protocol sends over the links.

In the protocol (Leitão, Pereira and Rodrigues, "HyParView", 2007), each node has two views. The small *active view* has
the neighbours. It is symmetrical, and there is an open link to each neighbour. The larger *passive view* has nodes that
can replace neighbours. When a newcomer joins, its contact starts random walks, and the nodes where these end become the
newcomer's neighbours. Shuffles exchange parts of passive views. This implementation differs in these points:

* A peer becomes a neighbour only when the peer has answered and both nodes have agreed.
* A node looks for neighbours while it has fewer than ``ACTIVE`` neighbours, and accepts requests while it has fewer
  than ``ACTIVE_MAX``. Nearly every request finds room, so the accepting node seldom has to evict a neighbour.
* A neighbour that goes down is replaced from the passive view. Only two kinds of node ask the registry: a node without
  neighbours, and a node that has had too few neighbours for a long time and knows no other nodes. If nodes joined again
  at every loss, the overlay would keep changing.
* A neighbour that went down without a DISCONNECT may be cut off. The node redials this neighbour for ``LOST_S``.
  Otherwise the two sides of a cut would never find each other, because their views have filled up meanwhile.
* The answer to a shuffle goes back along the path of the shuffle, over open links.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ingeborg.protocol.native import mypyc_attr

from .node import Desk, Node, Peer, Wire
from .passive import PASSIVE_MAX as PASSIVE_MAX
from .walks import ARWL, Walks
from .words import ACCEPT, DISCONNECT, FORWARD_JOIN, HEAD_BYTES, JOIN, NAME_BYTES, NEIGHBOUR, REFUSE, SHUFFLE, SHUFFLED

#: The number of neighbours that a node looks for. It is log10 n + 1 for n = 10,000 nodes (section 4.2.1 of the thesis,
#: see ``docs/overlay.md``).
ACTIVE: Final = 5

#: The largest number of neighbours that a node accepts, one more than it looks for, as explained above.
ACTIVE_MAX: Final = 6

#: The interval between a node's shuffles, in seconds. A shuffle exchanges 7 names over at most 12 links.
SHUFFLE_S: Final = 10.0

#: A node with too few neighbours, or with lost neighbours, tries again after this time, in seconds. The actual wait is
#: random, between half of this time and the whole time. The two sides of a cut find each other again within this time
#: and the time of a dial.
RETRY_S: Final = 2.0

#: A node redials a lost neighbour for this time, in seconds. After this time, registries have removed dead nodes. A
#: node redials at most ``LOST_MAX`` lost neighbours, twice the number of its neighbours.
LOST_S: Final = 300.0
LOST_MAX: Final = 12

#: After this many refusals a node stops asking a lost neighbour. At that point most nodes have found other neighbours
#: on the other side of the former cut, so that the two sides are connected.
REFUSALS_MAX: Final = 3

#: Starting with the second request to a lost neighbour, one request in this many has priority. The two sides of a
#: former cut can therefore connect even if no node has room for a neighbour, and few neighbours are evicted.
PRIORITY_OF: Final = 8

#: If the two ends of a link have not become neighbours after this time, in seconds, the node closes the link.
IDLE_S: Final = 5.0

# Names of timers. The higher-level protocol has other timers.
SHUFFLE_DUE: Final = 100
RETRY_DUE: Final = 101

# Purposes of a link.
IDLE: Final = 0  # the peer opened the link and has not sent a request yet
ASKED: Final = 1  # this node has asked the peer to become a neighbour, and waits for the answer
URGED: Final = 2  # the same as ASKED, but this node would evict another neighbour for the peer
NEIGHBOURS: Final = 3

# Reasons for dialling a peer.
TO_JOIN: Final = 0
TO_REPLACE: Final = 1
TO_WELCOME: Final = 2  # the peer is a newcomer whose walk has ended at this node
TO_FIND: Final = 3  # the peer was lost


class Options:
    """Sizes of views."""

    __slots__ = ("active", "active_max", "passive_max")

    def __init__(self, active: int = ACTIVE, active_max: int = ACTIVE_MAX, passive_max: int = PASSIVE_MAX) -> None:
        self.active = active
        self.active_max = active_max
        self.passive_max = passive_max


@mypyc_attr(allow_interpreted_subclasses=True)
class Hyparview(Walks):
    """One node's membership protocol. ``upper`` is the higher-level protocol, which is notified only of neighbours, and
    not of other links.

    ``registry_reads`` counts reads of the registry, ``joins`` counts the JOIN wires that the node has sent, and
    ``put_out`` counts the neighbours that it has evicted to make room.
    """

    def __init__(self, desk: Desk, me: Peer, upper: Node, options: Options | None = None) -> None:
        self.options = options or Options()
        super().__init__(desk, me, self.options.passive_max)
        self.upper = upper
        self._links: dict[Peer, tuple[int, float]] = {}  # the purpose of each link, and its start time
        self._dialling: dict[Peer, int] = {}  # the reason for each dial
        self._lost: dict[Peer, tuple[float, int]] = {}  # when each neighbour was lost, and its refusals since then
        self._tried: dict[Peer, None] = {}  # nodes asked in this round of the search for neighbours
        self._expected: dict[Peer, None] = {}
        self._read_at = float("-inf")  # when the registry was last read
        self._pause_s = RETRY_S
        self._joined = False  # whether this node has had a contact or a neighbour
        self._left = False
        self._retry_at = float("inf")
        self.registry_reads = self.joins = self.put_out = 0

    # Beginning and end

    def start(self, contact: Peer | None = None) -> None:
        """Join the overlay through this contact. ``None`` means that this node is the first node and waits for others.
        Call either this method or ``expect``, and only once."""
        self._start()
        if contact is not None:
            self._joined = True
            self._dial(contact, TO_JOIN)

    def expect(self, active: Sequence[Peer], passive: Sequence[Peer]) -> None:
        """Start inside an existing overlay. Links to the nodes in ``active`` will come up without a request, and these
        nodes are neighbours."""
        self._start()
        self._expected = dict.fromkeys(active)
        for peer in passive:
            self.passive.note(peer)

    def leave(self) -> None:
        """Leave the overlay. Notify the neighbours, so that they look for other neighbours."""
        self._left = True
        for peer in list(self._links):
            self._part(peer, True)

    def _start(self) -> None:
        # A random delay, so that nodes that start at the same time do not shuffle at the same time.
        self._desk.after(SHUFFLE_S * (0.5 + self._random.random()), SHUFFLE_DUE)

    # Events

    def broadcast(self, payload_bytes: int) -> None:
        """See ``Node``."""
        self.upper.broadcast(payload_bytes)

    def received(self, peer: Peer, wire: Wire, payload_bytes: int) -> None:
        """See ``Node``."""
        kind: int = wire[0]
        if kind < JOIN:
            self.upper.received(peer, wire, payload_bytes)
        elif peer in self._links and not self._left:
            self._word(peer, kind, wire)

    def due(self, what: Any) -> None:
        """See ``Node``."""
        if what == SHUFFLE_DUE:
            if not self._left:
                self._shuffle()
                self._end_idle()
                self._seek()
                self._desk.after(SHUFFLE_S, SHUFFLE_DUE)
        elif what == RETRY_DUE:
            if not self._left and self._desk.now > self._retry_at - 0.001:
                self._try_again()
        else:
            self.upper.due(what)

    def up(self, peer: Peer, dialled: bool) -> None:
        """See ``Node``."""
        if peer in self.active:  # only the peer was notified that the former link ended
            self._lose(peer)
        why = self._dialling.pop(peer, -1)
        self._links[peer] = (IDLE, self._desk.now)
        if self._left:
            self._hang_up(peer)
        elif peer in self._expected:
            del self._expected[peer]
            self._agree(peer, dialled)
        elif why == TO_JOIN:
            self._links[peer] = (URGED, self._desk.now)
            self.joins += 1
            self._send(peer, (JOIN,), HEAD_BYTES)
        elif why >= 0:
            self._ask(peer, why)

    def down(self, peer: Peer) -> None:
        """See ``Node``."""
        self._links.pop(peer, None)
        if self._left:
            return
        if peer in self.active:
            self._lose(peer)
            if len(self._lost) < LOST_MAX:
                self._lost[peer] = (self._desk.now, 0)
            self._pause_s = RETRY_S
            self._retry()
        self._seek()

    def unreachable(self, peer: Peer) -> None:
        """See ``Node``."""
        self._dialling.pop(peer, None)
        self.passive.forget(peer)
        if not self._left:
            self._seek()

    # Words of peers

    def _word(self, peer: Peer, kind: int, wire: Wire) -> None:
        if kind == FORWARD_JOIN:
            self._walk(peer, wire[1], wire[2])
        elif kind == SHUFFLE:
            self._shuffle_on(wire[1], wire[2], wire[3])
        elif kind == SHUFFLED:
            self._shuffle_back(wire[1], wire[2])
        elif kind == JOIN:
            self._accept(peer)
            for other in list(self.active):
                if other != peer:
                    self._send(other, (FORWARD_JOIN, peer, ARWL), HEAD_BYTES + NAME_BYTES)
        elif kind == NEIGHBOUR:
            asked_too = self._links[peer][0] != IDLE
            if wire[1] or asked_too or len(self.active) < self.options.active_max:
                self._accept(peer)
            else:
                self._send(peer, (REFUSE,), HEAD_BYTES)
                self.passive.note(peer)
        elif kind == ACCEPT:
            if peer in self.active:
                return
            if self._links[peer][0] == URGED or len(self.active) < self.options.active_max:
                self._make_room()
                self._agree(peer, True)
            else:
                self._part(peer, False)
        elif kind == REFUSE:
            self._refused(peer)
        elif kind == DISCONNECT:
            self._parted(peer, wire[1])

    def _ask(self, peer: Peer, why: int) -> None:
        """Ask the peer to become a neighbour, over a link that this node has dialled."""
        full = len(self.active) >= self.options.active_max
        priority = not self.active
        if why == TO_FIND:
            refusals = self._lost[peer][1] if peer in self._lost else 0
            priority = priority or (refusals > 0 and self._random.random() * PRIORITY_OF < 1.0)
            full = full and not priority
        elif why == TO_REPLACE:
            full = len(self.active) >= self.options.active
        if full:
            self._refused(peer)
            return
        self._links[peer] = (ASKED if why == TO_REPLACE else URGED, self._desk.now)
        self._send(peer, (NEIGHBOUR, priority), HEAD_BYTES)

    def _accept(self, peer: Peer) -> None:
        """Accept the peer's request. The ACCEPT goes to the peer before any message of the higher-level protocol."""
        if peer not in self.active:
            self._make_room()
            self._send(peer, (ACCEPT,), HEAD_BYTES)
            self._agree(peer, False)

    def _agree(self, peer: Peer, dialled: bool) -> None:
        self._joined = True
        self._links[peer] = (NEIGHBOURS, self._desk.now)
        self.active[peer] = None
        self.passive.forget(peer)
        self._lost.pop(peer, None)
        self.upper.up(peer, dialled)
        if len(self.active) == self.options.active:
            self._pause_s = RETRY_S
        self._seek()

    def _refused(self, peer: Peer) -> None:
        """Release a peer that is alive but has no room, or for which this node has no room."""
        self._hang_up(peer)
        if peer in self._lost:
            since, refusals = self._lost.pop(peer)
            if refusals + 1 < REFUSALS_MAX:
                self._lost[peer] = (since, refusals + 1)
        self.passive.note(peer)
        self._seek()

    # The end of a neighbourhood

    def _make_room(self) -> None:
        while len(self.active) >= self.options.active_max:
            self.put_out += 1
            self._part(self._random.choice(list(self.active)), False)

    def _part(self, peer: Peer, leaves: bool) -> None:
        """Notify the peer that it is no longer a neighbour, and close the link."""
        self._send(peer, (DISCONNECT, leaves), HEAD_BYTES)
        if peer in self.active:
            self._lose(peer)
            self.passive.note(peer)
        self._hang_up(peer)

    def _parted(self, peer: Peer, leaves: bool) -> None:
        """Handle a peer's notice that this node is no longer its neighbour."""
        if peer in self.active:
            self._lose(peer)
        self._hang_up(peer)
        if leaves:
            self.passive.forget(peer)
        else:
            self.passive.note(peer)
        self._seek()

    def _lose(self, peer: Peer) -> None:
        """Remove a neighbour."""
        self._links.pop(peer, None)
        self.active.pop(peer, None)
        self.upper.down(peer)

    def _hang_up(self, peer: Peer) -> None:
        self._links.pop(peer, None)
        self._desk.hang_up(peer)

    def _end_idle(self) -> None:
        before = self._desk.now - IDLE_S
        for peer, (for_what, since) in list(self._links.items()):
            if for_what != NEIGHBOURS and since < before:
                self._hang_up(peer)

    # The search for neighbours

    def _dial(self, peer: Peer, why: int) -> None:
        if peer == self.me or peer in self._dialling or peer in self.active:
            return
        if peer not in self._links:
            self._dialling[peer] = why
            self._desk.dial(peer)
        elif self._links[peer][0] == IDLE:  # the peer has dialled this node
            self._ask(peer, why)

    def _welcome(self, newcomer: Peer) -> None:
        """See ``Walks``."""
        self._dial(newcomer, TO_WELCOME)

    def _seek(self) -> None:
        """Ask one node of the passive view for each missing neighbour."""
        lacking = self.options.active - len(self.active) - len(self._expected)
        if lacking <= 0:
            return
        lacking -= sum(1 for why in self._dialling.values() if why != TO_FIND)
        lacking -= sum(1 for for_what, _ in self._links.values() if for_what in (ASKED, URGED))
        untried = [peer for peer in self.passive.names if peer not in self._tried]
        while lacking > 0 and untried:
            peer = untried.pop(int(self._random.random() * len(untried)))
            self._tried[peer] = None
            if peer not in self._links and peer not in self._dialling:
                self._dial(peer, TO_REPLACE)
                lacking -= 1
        if lacking > 0:
            if lacking == self.options.active:
                self._ask_registry()
            self._retry()

    def _ask_registry(self) -> None:
        """Read nodes from the registry, because no known node could become a neighbour. The very first node of an
        overlay waits for others instead."""
        now = self._desk.now
        if not self._joined or now < self._read_at + RETRY_S / 2.0:
            return
        self._read_at = now
        self.registry_reads += 1
        for peer in self._desk.contacts():
            if not (self.active or self._dialling):
                self._dial(peer, TO_JOIN)
            elif peer not in self.active:
                self.passive.note(peer)

    def _retry(self) -> None:
        now = self._desk.now
        pause_s = RETRY_S if self._lost else self._pause_s
        if now + pause_s < self._retry_at:
            pause_s *= 0.5 + self._random.random() / 2.0
            self._retry_at = now + pause_s
            self._desk.after(pause_s, RETRY_DUE)

    def _try_again(self) -> None:
        """Search again, because neighbours are missing or were lost."""
        now = self._desk.now
        self._retry_at = float("inf")
        self._tried.clear()
        for peer, (since, _) in list(self._lost.items()):
            if since < now - LOST_S:
                del self._lost[peer]
            else:
                self._dial(peer, TO_FIND)
        if self._lost:
            self._retry()
        if len(self.active) < self.options.active:
            # In a small overlay neighbours are always missing, so the search slows down.
            self._pause_s = min(2.0 * self._pause_s, SHUFFLE_S)
            if self._pause_s == SHUFFLE_S and not self.passive.names:
                self._ask_registry()
            self._shuffle()
            self._seek()
