"""A small world for nodes of an overlay: FIFO links of any latency, and faults.

Owns: links, time, crashes and cuts. Must never: know a protocol, or judge a delivery (``naive`` does).

One seed decides everything. Latencies differ from message to message by a factor of up to a thousand, so that messages
over different links arrive in nearly any order. A link that goes down loses all or some messages under way. Its two
ends learn this at different times, and lose their messages until then.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

from ingeborg.bench.overlay.chance import Drawn
from ingeborg.broker.core.overlay.node import Desk, Node, Peer, Wire

from .naive import Naive

#: Seconds.
LATENCIES = (0.0002, 0.001, 0.001, 0.01, 0.01, 0.03, 0.2)
DETECT_S_MAX = 0.4
UNREACHABLE_S = 0.5


class Link:
    """A link. ``ends``: node -> whether it takes messages."""

    def __init__(self, one: int, other: int) -> None:
        self.broken = False
        self.ends = {one: True, other: True}
        self.last = {one: 0.0, other: 0.0}  # when the latest message arrives there


class Place(Desk):
    """One node's desk."""

    def __init__(self, small: Small, me: int) -> None:
        super().__init__(Drawn(small.random))
        self.small = small
        self.me = me
        self.links: dict[Peer, Link] = {}
        self.dialling: set[int] = set()
        self.alive = True
        self.node: Node

    def send(self, peer: Peer, wire: Wire, control_bytes: int, payload_bytes: int = 0) -> None:
        assert isinstance(peer, int)
        assert control_bytes > 0
        link = self.links.get(peer)
        if link is not None:
            small = self.small
            small.sent[wire[0]] += 1
            small.payloads += payload_bytes > 0
            small.control_bytes += control_bytes
            small.over(link, peer, lambda: small.places[peer].node.received(self.me, wire, payload_bytes))

    def after(self, seconds: float, what: Any) -> None:
        assert seconds > 0.0
        self.small.at(self.now + seconds, lambda: self.node.due(what), self)

    def deliver(self, root: Peer, number: int, hops: int) -> None:
        assert isinstance(root, int)
        self.small.naive.deliver(self.me, (root, number), self.now)
        self.small.hops = max(self.small.hops, hops)
        self.small.delivering(self.me, root, number)

    def dial(self, peer: Peer) -> None:
        assert isinstance(peer, int)
        assert peer != self.me
        assert peer not in self.links, f"{self.me} dials {peer}, to which it has a link"
        assert peer not in self.dialling
        self.dialling.add(peer)
        self.small.at(self.now + self.small.latency(), lambda: self.small.asked(self, self.small.places[peer]))

    def hang_up(self, peer: Peer) -> None:
        link = self.links.pop(peer, None)
        if link is not None:
            assert isinstance(peer, int)
            link.ends[self.me] = False
            self.small.over(link, peer, lambda: self.small.down(link, self.small.places[peer]))

    def contacts(self) -> list[Peer]:
        self.small.registry_reads += 1
        living: list[Peer] = [place.me for place in self.small.places if place.alive and place is not self]
        return self.random.sample(living, min(3, len(living)))


class Small:
    """The world. ``make``: makes a node at a desk. ``latencies``: the seconds to draw from."""

    def __init__(self, make: Callable[[Desk, int], Node], seed: int, latencies: tuple[float, ...] = LATENCIES) -> None:
        self.random = Random(seed)
        self.naive = Naive()
        self.now = 0.0
        self.places: list[Place] = []
        self.sent: Counter[int] = Counter()
        self.payloads = self.control_bytes = self.registry_reads = self.hops = 0
        self.delivering: Callable[[int, int, int], None] = lambda node, root, number: None
        self._make = make
        self._latencies = latencies
        self._events: list[tuple[float, int, Callable[[], None], Place | None]] = []
        self._number = 0
        self._side: Callable[[int], object] = lambda node: None

    # Time

    def at(self, when: float, what: Callable[[], None], place: Place | None = None) -> None:
        """Schedule an action. If it belongs to a node, it runs only while the node lives."""
        self._number += 1
        heapq.heappush(self._events, (when, self._number, what, place))

    def run(self, seconds: float) -> None:
        """Let time pass."""
        until = self.now + seconds
        while self._events and self._events[0][0] <= until:
            self.now, _, what, place = heapq.heappop(self._events)
            if place is None or place.alive:
                if place is not None:
                    place.now = self.now
                what()
        self.now = until

    def latency(self) -> float:
        """Draw a message's latency."""
        return self.random.choice(self._latencies) * (0.5 + self.random.random())

    # Nodes

    def add(self, count: int = 1) -> list[int]:
        """Add nodes without links."""
        new = []
        for _ in range(count):
            place = Place(self, len(self.places))
            place.now = self.now
            place.node = self._make(place, place.me)
            self.places.append(place)
            new.append(place.me)
        return new

    def living(self) -> list[int]:
        """Return the nodes that have not crashed."""
        return [place.me for place in self.places if place.alive]

    def node(self, number: int) -> Any:
        """Return the node, after setting its time."""
        place = self.places[number]
        place.now = self.now
        return place.node

    def broadcast(self, root: int, payload_bytes: int = 1) -> None:
        """Broadcast one message, if the root lives."""
        if self.places[root].alive:
            self.node(root).broadcast(payload_bytes)

    def crash(self, number: int) -> None:
        """Crash the node; only some of its messages under way arrive."""
        place = self.places[number]
        place.alive = False
        for peer in list(place.links):
            self.sever(number, peer)

    # Links

    def peers(self, node: int) -> list[int]:
        """Return the peers at the node's links."""
        return [peer for peer in self.places[node].links if isinstance(peer, int)]

    def connect(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Open links at once."""
        for one, other in pairs:
            link = Link(one, other)
            for me, peer in ((one, other), (other, one)):
                self.places[me].links[peer] = link
            for me, peer in ((one, other), (other, one)):
                self.node(me).up(peer, me == one)

    def asked(self, frm: Place, to: Place) -> None:
        """Handle a dial."""
        if to.me not in frm.dialling or not frm.alive:
            return
        if not to.alive or self._side(frm.me) != self._side(to.me):
            self.at(self.now + UNREACHABLE_S * self.random.random(), lambda: self._refused(frm, to.me), frm)
            return
        old = to.links.get(frm.me)
        if old is not None:
            self.down(old, to)
        too = frm.me in to.dialling
        to.dialling.discard(frm.me)
        link = Link(frm.me, to.me)
        to.links[frm.me] = link
        link.last[frm.me] = self.now + self.latency()
        self.at(link.last[frm.me], lambda: self._answered(link, frm, to.me), frm)
        self.node(to.me).up(frm.me, too)

    def _answered(self, link: Link, place: Place, peer: int) -> None:
        if link.broken:
            self._refused(place, peer)
            return
        place.dialling.discard(peer)
        old = place.links.get(peer)
        if old is not None:
            self.down(old, place)
        place.links[peer] = link
        place.node.up(peer, True)

    def _refused(self, place: Place, peer: int) -> None:
        if peer in place.dialling:
            place.dialling.discard(peer)
            place.node.unreachable(peer)

    def over(self, link: Link, to: int, what: Callable[[], None]) -> None:
        """Run an action at the link's far end, after everything sent before."""
        link.last[to] = max(link.last[to], self.now + self.latency())
        place = self.places[to]
        self.at(link.last[to], lambda: what() if link.ends[to] else None, place)

    def down(self, link: Link, place: Place) -> None:
        """Tell this end that the link is gone."""
        link.ends[place.me] = False
        for peer, each in list(place.links.items()):
            if each is link:
                del place.links[peer]
                place.now = self.now
                place.node.down(peer)

    def sever(self, one: int, other: Peer) -> None:
        """Break the link between the two."""
        link = self.places[one].links.get(other)
        if link is None:
            return
        link.broken = True
        for me in link.ends:
            comes = self.random.random() < 0.5
            told = self.now + DETECT_S_MAX * self.random.random()
            if not comes:
                link.ends[me] = False
            self.at(told, lambda me=me: self.down(link, self.places[me]), self.places[me])  # type: ignore[misc]

    def cut(self, side: Callable[[int], object]) -> None:
        """Let nothing pass between nodes of different sides."""
        self._side = side
        for place in self.places:
            for peer in list(place.links):
                assert isinstance(peer, int)
                if place.me < peer and side(place.me) != side(peer):
                    self.sever(place.me, peer)

    def heal(self) -> None:
        """Let nodes open links again."""
        self._side = lambda node: None
