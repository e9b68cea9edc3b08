"""The simulator: nodes of a protocol, the links between them, and what befalls them.

Owns: links with their order, losses and ends; crashes, cuts, late joins; the registry; how much went over the links.
Must never: know a protocol (it is given what makes a node), nor judge a delivery (``record`` does).

Everything is drawn from generators made of the seed, one for the network and one for the nodes, so that two protocols
see the same network until they differ. No set or dict is walked whose order could depend on a hash.

**Links.** Both ends of a link hold an ``End``, the way from them to the other. A message waits for the interface of
its sender's host, takes the latency, waits for the interface of its receiver's host, and never overtakes another of
its link. Headers of TCP and IP are left out: protocols are compared, and all pay them.

**Ends of links.** Who hangs up is told nothing; what it had sent comes, then the other end is told. When a process
crashes, what it had sent comes, and its neighbours are told ``DETECT_S`` later. A cut loses what is under way, and both
ends are told ``DETECT_S`` later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final, cast

from ingeborg.bench.errors import BenchError
from ingeborg.bench.overlay.chance import Drawn
from ingeborg.bench.overlay.record import Record
from ingeborg.bench.overlay.sites import JITTER_NS, Interface, Sites, Spot, latency_ns
from ingeborg.bench.overlay.wheel import CALL, HELD, SLOT_NS, SLOT_S, SLOTS_PER_S, TIMER, Wheel, slots
from ingeborg.broker.core.overlay.node import Desk, Node, Peer, Wire

DETECT_S: Final = 1.0
"""How long a neighbour's crash, or a cut, goes unnoticed: heartbeats find it. The kernel of a host that lives would say
it at once, so this is the worse case."""

UNREACHABLE_S: Final = 1.0
"""After this, a dial across a cut is given up. (A crashed process is refused by its host within a round trip.)"""

CONTACTS: Final = 3
"""Nodes that the registry names at a time: one of them may crash before it is dialled."""

EVENTS_MAX: Final = 2_000_000_000
"""Of one run. The longest cell of the plan has some 60 million; a protocol that has come to this does not end."""

Make = Callable[[Desk, int], Node]
"""What makes the node of this number at this desk."""


class End:
    """The way over a link from one node to another. ``open``: what comes over it is taken."""

    __slots__ = ("back", "desk", "frm", "held", "into", "last", "latency_ns", "open", "out", "received", "to")

    def __init__(self, frm: Place, to: Place, latency: int) -> None:
        self.frm = frm.me
        self.to = to.me
        self.desk = to
        self.received: Callable[[Peer, Wire, int], None] = to.node.received
        self.latency_ns = latency
        # Within a host nothing passes an interface.
        other_host = frm.spot.host != to.spot.host
        self.out: Interface | None = frm.interface if other_host else None
        self.into: Interface | None = to.interface if other_host else None
        self.open = True
        self.last = 0
        """The slot in which the latest message arrives."""
        self.held = 0
        """Messages that wait for the receiver's interface."""
        self.back: End = self


class Place(Desk):
    """One node's desk in this world."""

    def __init__(self, world: World, me: int, spot: Spot) -> None:
        super().__init__(world.chance_of_nodes)
        self.world = world
        self.me = me
        self.spot = spot
        self.interface = world.sites.interfaces[spot.host]
        self.ends: dict[Peer, End] = {}
        self.dialling: dict[Peer, None] = {}
        self.alive = True
        self.linked_at: int | None = None
        """The slot in which its first link was opened."""
        self.node: Node

    def send(self, peer: Peer, wire: Wire, control_bytes: int, payload_bytes: int = 0) -> None:
        end = self.ends.get(peer)
        if end is None:
            return
        world = self.world
        size = control_bytes + payload_bytes
        world.messages += 1
        world.control_bytes += control_bytes
        if world.tap is not None:
            world.tap(wire, control_bytes)
        if payload_bytes:
            world.payload_bytes += payload_bytes
            world.under_way += 1
        wheel = world.wheel
        time: float = wheel.now_ns
        out = end.out
        if out is not None:
            if out.out_free_ns > time:
                time = out.out_free_ns
            time += size * out.ns_per_byte
            out.out_free_ns = time
        slot = int(time + end.latency_ns + world.jitter() * JITTER_NS) // SLOT_NS
        if slot < end.last:
            slot = end.last
        else:
            end.last = slot
        batch = wheel.slots.get(slot)
        if batch is None:
            wheel.slots[slot] = [(end, wire, payload_bytes, size)]
        else:
            batch.append((end, wire, payload_bytes, size))

    def after(self, seconds: float, what: Any) -> None:
        wheel = self.world.wheel
        wheel.put(wheel.now + slots(seconds), (self, what, 0, TIMER))

    def deliver(self, root: Peer, number: int, hops: int) -> None:
        world = self.world
        world.record.delivered(world.wheel.now, self.me, cast(int, root), number, hops)

    def dial(self, peer: Peer) -> None:
        self.world.dial(self, self.world.places[cast(int, peer)])

    def hang_up(self, peer: Peer) -> None:
        self.world.hang_up(self, peer)

    def contacts(self) -> list[Peer]:
        return list(self.world.contacts(self.me))


class World:
    """Nodes 0 to ``nodes`` - 1, without links. ``record``: gets every delivery.

    ``messages``, ``payload_bytes``, ``control_bytes``: sent so far, by all. ``under_way``: messages with a payload
    that have not come yet. ``lost``: messages that came to an end that took nothing any more. ``registry_reads``: by
    ``Desk.contacts``. ``tap``: told of every message that is sent, and its bytes besides a payload.
    """

    def __init__(self, nodes: int, make: Make, seed: int, record: Record | None = None) -> None:
        self.wheel = Wheel()
        self.record = record if record is not None else Record()
        self.sites = Sites(nodes)
        self._make = make
        self.chance_of_nodes = Drawn(Random(f"nodes {seed}"))
        self._chance = Random(f"network {seed}")
        self.jitter = self._chance.random
        self.places: list[Place] = []
        self._side: Callable[[int], object] | None = None
        self.messages = self.payload_bytes = self.control_bytes = self.under_way = self.lost = 0
        self.registry_reads = 0
        self.events = 0
        self.tap: Callable[[Wire, int], None] | None = None
        for _ in range(nodes):
            self.add()

    # Time

    @property
    def now_s(self) -> float:
        """Since the world's beginning."""
        return self.wheel.now * SLOT_S

    def at(self, seconds: float, function: Callable[..., None], *arguments: Any) -> None:
        """Call it at this time since the world's beginning."""
        self.wheel.put(round(seconds * SLOTS_PER_S), (function, arguments, 0, CALL))

    def run(self, until_s: float) -> None:
        """Everything that is due before this time since the world's beginning. Raises BenchError: it does not end."""
        wheel = self.wheel
        due = wheel.slots
        until = round(until_s * SLOTS_PER_S)
        while wheel.now < until:
            batch = due.get(wheel.now)
            if batch is not None:
                self._slot(batch, wheel.now * SLOT_NS)
                del due[wheel.now]
                if self.events > EVENTS_MAX:
                    raise BenchError(f"a run of more than {EVENTS_MAX:,} events: this protocol does not end")
            wheel.now += 1
            wheel.now_ns = wheel.now * SLOT_NS

    def _slot(self, batch: list[Any], now_ns: int) -> None:
        """Run a slot; what is put into it meanwhile comes last."""
        wheel = self.wheel
        now_s = wheel.now * SLOT_S
        end_ns = now_ns + SLOT_NS
        for what, content, payload, size in batch:
            if size >= 0:
                end = what
                into = end.into
                if into is not None and end.open:
                    free = into.in_free_ns
                    free = (free if free > now_ns else now_ns) + size * into.ns_per_byte
                    into.in_free_ns = free
                    if free >= end_ns or end.held:
                        end.held += 1
                        wheel.put(int(free) // SLOT_NS, (end, content, payload, HELD))
                        continue
            elif size == TIMER:
                if what.alive:
                    what.now = now_s
                    what.node.due(content)
                continue
            elif size == CALL:
                what(*content)
                continue
            else:
                end = what
                end.held -= 1
            if payload:
                self.under_way -= 1
            if end.open:
                desk = end.desk
                desk.now = now_s
                end.received(end.frm, content, payload)
            else:
                self.lost += 1
        self.events += len(batch)

    # Nodes

    def add(self) -> int:
        """A new node, without links; its number."""
        me = len(self.places)
        place = Place(self, me, self.sites.spot(me))
        place.now = self.now_s
        place.node = self._make(place, me)
        self.places.append(place)
        return me

    def node(self, number: int) -> Node:
        """The node of this number, told the time: for whoever calls it from outside."""
        place = self.places[number]
        place.now = self.now_s
        return place.node

    def broadcast(self, root: int, payload_bytes: int) -> None:
        """Have this node broadcast; one that has crashed does not."""
        if self.places[root].alive:
            self.node(root).broadcast(payload_bytes)

    def contacts(self, asking: int) -> list[int]:
        """Some living nodes but the one that asks, as the registry knows them. Counted."""
        self.registry_reads += 1
        living = [place.me for place in self.places if place.alive and place.me != asking]
        return self._chance.sample(living, min(CONTACTS, len(living)))

    def crash(self, number: int) -> None:
        """It does nothing any more. What it has sent comes."""
        place = self.places[number]
        place.alive = False
        for end in place.ends.values():
            end.back.open = False
            self.wheel.call(DETECT_S, self._found_down, end.back)
        place.ends.clear()
        place.dialling.clear()

    # Links

    def connect(self, neighbours: Sequence[Sequence[int]]) -> None:
        """Open the links of a built overlay (symmetrical) at once, then tell both ends of each. The lower number has
        dialled."""
        for one, others in enumerate(neighbours):
            for other in others:
                if one < other:
                    self._link(self.places[one], self.places[other])
        for one, others in enumerate(neighbours):
            node = self.node(one)
            for other in others:
                node.up(other, one < other)

    def dial(self, place: Place, to: Place) -> None:
        """Ask for a link, unless there is one or it is being asked for."""
        if to is place or to.me in place.ends or to.me in place.dialling:
            return
        place.dialling[to.me] = None
        self._later(place, to, self._asked, place, to)

    def _asked(self, place: Place, to: Place) -> None:
        """The question for a link arrives. If both have asked, whichever question comes first makes it."""
        if to.me not in place.dialling:
            return
        if self._severed(place.me, to.me):
            self.wheel.call(UNREACHABLE_S, self._refused, place, to)
            return
        if not to.alive:
            self._later(to, place, self._refused, place, to)
            return
        old = to.ends.get(place.me)
        if old is not None:  # its end is under way, or is not noticed yet
            self._told_down(old)
        dialled = place.me in to.dialling
        to.dialling.pop(place.me, None)
        back = self._way(to, place)
        end = self._way(place, to)
        back.back, end.back = end, back
        to.ends[place.me] = back
        self._in_order(back, self._answered, end)
        self._up(to, place.me, dialled)

    def _answered(self, end: End) -> None:
        """The answer arrives, before all that was sent after it."""
        place = end.back.desk
        place.dialling.pop(end.to, None)
        if place.alive:
            place.ends[end.to] = end
            self._up(place, end.to, True)
        else:
            end.back.open = False
            self.wheel.call(DETECT_S, self._found_down, end.back)

    def _up(self, place: Place, peer: int, dialled: bool) -> None:
        if place.linked_at is None:
            place.linked_at = self.wheel.now
        self.node(place.me).up(peer, dialled)

    def _refused(self, place: Place, to: Place) -> None:
        if place.alive and to.me in place.dialling:
            del place.dialling[to.me]
            self.node(place.me).unreachable(to.me)

    def hang_up(self, place: Place, peer: Peer) -> None:
        """End a link; what was sent to this end is lost, what it has sent comes."""
        end = place.ends.pop(peer, None)
        if end is not None:
            end.back.open = False
            self._in_order(end, self._ended, end)

    def _ended(self, end: End) -> None:
        """All that was sent has arrived; what waits for the receiver's interface comes before the end is told."""
        if end.held and end.into is not None:
            self.wheel.put(int(end.into.in_free_ns) // SLOT_NS, (self._ended, (end,), 0, CALL))
        elif end.open:
            self._told_down(end.back)

    def sever(self, one: int, other: int) -> None:
        """Break the link between two nodes, if there is one: what is under way is lost."""
        end = self.places[one].ends.get(other)
        if end is not None:
            end.open = end.back.open = False
            self.wheel.call(DETECT_S, self._found_down, end)
            self.wheel.call(DETECT_S, self._found_down, end.back)

    def cut(self, side: Callable[[int], object]) -> None:
        """Nothing passes any more between nodes of different sides."""
        self._side = side
        for place in self.places:
            for peer in [peer for peer in place.ends if self._severed(place.me, cast(int, peer))]:
                end = place.ends[peer]
                end.open = end.back.open = False
                # Both, for the answer to its dial may still be under way to the other end.
                self.wheel.call(DETECT_S, self._found_down, end)
                self.wheel.call(DETECT_S, self._found_down, end.back)

    def heal(self) -> None:
        """The cut is over. Links that it has broken stay broken: it must have lasted ``DETECT_S``."""
        self._side = None

    def _severed(self, one: int, other: int) -> bool:
        return self._side is not None and self._side(one) != self._side(other)

    def _found_down(self, end: End) -> None:
        """A node finds that the link whose way out is this one is broken."""
        end.open = end.back.open = False
        self._told_down(end)

    def _told_down(self, end: End) -> None:
        """The node from which this way leads is told of the link's end, unless it has no such link any more."""
        place = end.back.desk
        if place.ends.get(end.to) is end:
            del place.ends[end.to]
            end.open = end.back.open = False
            if place.alive:
                self.node(place.me).down(end.to)

    def _link(self, one: Place, other: Place) -> None:
        there, back = self._way(one, other), self._way(other, one)
        there.back, back.back = back, there
        one.ends[other.me], other.ends[one.me] = there, back
        for place in (one, other):
            if place.linked_at is None:
                place.linked_at = self.wheel.now

    def _way(self, frm: Place, to: Place) -> End:
        return End(frm, to, latency_ns(frm.spot, to.spot))

    def _in_order(self, end: End, function: Callable[..., None], *arguments: Any) -> None:
        """Call it where the link leads, in order with its messages."""
        arrival = self.wheel.now_ns + end.latency_ns + self.jitter() * JITTER_NS
        end.last = max(end.last, int(arrival) // SLOT_NS)
        self.wheel.put(end.last, (function, arguments, 0, CALL))

    def _later(self, frm: Place, to: Place, function: Callable[..., None], *arguments: Any) -> None:
        """Call it when a message without a link would be there."""
        self.wheel.call((latency_ns(frm.spot, to.spot) + self.jitter() * JITTER_NS) / 1e9, function, *arguments)
