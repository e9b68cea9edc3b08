"""The simulator: nodes of a protocol, the links between them, and their faults.

Owns: links with their order, losses and ends; crashes, cuts and late joins; the registry; and the counts of traffic
over the links. Must never: depend on a protocol (the caller passes a function that makes a node), or judge a delivery
(``record`` does).

All random numbers come from two generators made from the seed, one for the network and one for the nodes. So two
protocols see the same network until their behaviour differs. The code never iterates over a set, or over a dict whose
order could depend on a hash.

**Links.** Each end of a link has an ``End``, which leads to the other end. A message waits for the interface of its
sender's host. Then the latency passes, and the message waits for the interface of its receiver's host. It never
overtakes another message on its link. Headers of TCP and IP are left out, because they cost all protocols the same.

**Ends of links.** If a node hangs up, its sent messages still arrive, and then the other end gets a report that the
link is down. The node itself gets no report. If a process crashes, its sent messages still arrive, and its neighbours
get a report ``DETECT_S`` later. In a cut, all messages under way are lost, and both ends get a report ``DETECT_S``
later.
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
"""Seconds until heartbeats detect a neighbour's crash, or a cut. The kernel of a running host would report a crash
immediately, so this is the worse case."""

UNREACHABLE_S: Final = 1.0
"""Seconds after which a dial across a cut fails. (If only the process has crashed, its host refuses the dial within a
round trip.)"""

CONTACTS: Final = 3
"""Number of nodes in an answer of the registry. There is more than one, because a node can crash before it is
dialled."""

EVENTS_MAX: Final = 2_000_000_000
"""Maximum number of events in a run. The longest cell of the plan has about 60 million events. So a protocol that
reaches this limit counts as endless."""


class EndlessError(BenchError):
    """Raised if a run has more events than its limit."""


Make = Callable[[Desk, int], Node]
"""A function that makes the node with this number at this desk."""


class End:
    """One direction of a link, from one node to another. ``open``: whether the receiver still accepts messages."""

    __slots__ = ("back", "desk", "frm", "held", "into", "last", "latency_ns", "open", "out", "received", "to")

    def __init__(self, frm: Place, to: Place, latency: int) -> None:
        self.frm = frm.me
        self.to = to.me
        self.desk = to
        self.received: Callable[[Peer, Wire, int], None] = to.node.received
        self.latency_ns = latency
        # Messages within a host pass no interface.
        other_host = frm.spot.host != to.spot.host
        self.out: Interface | None = frm.interface if other_host else None
        self.into: Interface | None = to.interface if other_host else None
        self.open = True
        self.last = 0
        """The slot in which the latest message arrives."""
        self.held = 0
        """The number of messages that wait for the receiver's interface."""
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
        """The slot in which the node's first link opened."""
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
    """A world that begins with nodes 0 to ``nodes`` - 1, without links. ``record``: receives every delivery.

    ``messages``, ``payload_bytes``, ``control_bytes``: the numbers of messages and bytes sent so far. ``under_way``:
    number of messages with a payload that have not arrived yet. ``lost``: number of messages that arrived at a closed
    end. ``registry_reads``: number of calls of ``Desk.contacts``. ``tap``: a function that is called for every sent
    message, with the message's bytes without the payload. ``events_max``: the number of events after which the run
    counts as endless.
    """

    def __init__(
        self, nodes: int, make: Make, seed: int, record: Record | None = None, events_max: int = EVENTS_MAX
    ) -> None:
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
        self.events_max = events_max
        self.tap: Callable[[Wire, int], None] | None = None
        for _ in range(nodes):
            self.add()

    # Time

    @property
    def now_s(self) -> float:
        """Return the time since the world's beginning."""
        return self.wheel.now * SLOT_S

    def at(self, seconds: float, function: Callable[..., None], *arguments: Any) -> None:
        """Call the function at this time since the world's beginning."""
        self.wheel.put(round(seconds * SLOTS_PER_S), (function, arguments, 0, CALL))

    def run(self, until_s: float) -> None:
        """Run all events before this time since the world's beginning. Raises EndlessError if the run does not
        end."""
        wheel = self.wheel
        due = wheel.slots
        until = round(until_s * SLOTS_PER_S)
        while wheel.now < until:
            batch = due.get(wheel.now)
            if batch is not None:
                self._slot(batch, wheel.now * SLOT_NS)
                del due[wheel.now]
                if self.events > self.events_max:
                    raise EndlessError(f"the run has more than {self.events_max:,} events: this protocol does not end")
            wheel.now += 1
            wheel.now_ns = wheel.now * SLOT_NS

    def _slot(self, batch: list[Any], now_ns: int) -> None:
        """Run a slot. Events that are added to it meanwhile run last."""
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
        """Add a node without links, and return its number."""
        me = len(self.places)
        place = Place(self, me, self.sites.spot(me))
        place.now = self.now_s
        place.node = self._make(place, me)
        self.places.append(place)
        return me

    def node(self, number: int) -> Node:
        """Set the time of the node with this number, and return the node, so that the simulator can call it."""
        place = self.places[number]
        place.now = self.now_s
        return place.node

    def broadcast(self, root: int, payload_bytes: int) -> None:
        """Let this node broadcast a message, unless the node has crashed."""
        if self.places[root].alive:
            self.node(root).broadcast(payload_bytes)

    def contacts(self, asking: int) -> list[int]:
        """Return some living nodes other than the asking node, as the registry does, and count the call."""
        self.registry_reads += 1
        living = [place.me for place in self.places if place.alive and place.me != asking]
        return self._chance.sample(living, min(CONTACTS, len(living)))

    def crash(self, number: int) -> None:
        """Stop a node. Its sent messages still arrive."""
        place = self.places[number]
        place.alive = False
        for end in place.ends.values():
            end.back.open = False
            self.wheel.call(DETECT_S, self._found_down, end.back)
        place.ends.clear()
        place.dialling.clear()

    # Links

    def connect(self, neighbours: Sequence[Sequence[int]]) -> None:
        """Open all links of a built, symmetrical overlay, and then report each link to both its ends. The node with the
        lower number counts as the node that dialled."""
        for one, others in enumerate(neighbours):
            for other in others:
                if one < other:
                    self._link(self.places[one], self.places[other])
        for one, others in enumerate(neighbours):
            node = self.node(one)
            for other in others:
                node.up(other, one < other)

    def dial(self, place: Place, to: Place) -> None:
        """Request a link, unless one exists or a request is under way."""
        if to is place or to.me in place.ends or to.me in place.dialling:
            return
        place.dialling[to.me] = None
        self._later(place, to, self._asked, place, to)

    def _asked(self, place: Place, to: Place) -> None:
        """Handle the arrival of a link request. If both nodes have requested the link, the first request to arrive
        makes it."""
        if to.me not in place.dialling:
            return
        if self._severed(place.me, to.me):
            self.wheel.call(UNREACHABLE_S, self._refused, place, to)
            return
        if not to.alive:
            self._later(to, place, self._refused, place, to)
            return
        old = to.ends.get(place.me)
        if old is not None:  # the end of the old link is still under way, or not detected yet
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
        """Handle the arrival of the answer to a link request. It arrives before all messages over the link."""
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
        """End a link. Messages to this end are lost, but messages that it has sent still arrive."""
        end = place.ends.pop(peer, None)
        if end is not None:
            end.back.open = False
            self._in_order(end, self._ended, end)

    def _ended(self, end: End) -> None:
        """Handle the end of a link after its last message. Messages that wait for the receiver's interface arrive
        before the report."""
        if end.held and end.into is not None:
            self.wheel.put(int(end.into.in_free_ns) // SLOT_NS, (self._ended, (end,), 0, CALL))
        elif end.open:
            self._told_down(end.back)

    def sever(self, one: int, other: int) -> None:
        """Break the link between two nodes, if there is one. Messages under way are lost."""
        end = self.places[one].ends.get(other)
        if end is not None:
            end.open = end.back.open = False
            self.wheel.call(DETECT_S, self._found_down, end)
            self.wheel.call(DETECT_S, self._found_down, end.back)

    def cut(self, side: Callable[[int], object]) -> None:
        """Stop all traffic between nodes on different sides of a cut."""
        self._side = side
        for place in self.places:
            for peer in [peer for peer in place.ends if self._severed(place.me, cast(int, peer))]:
                end = place.ends[peer]
                end.open = end.back.open = False
                # Report both directions, because the answer to a dial can still be under way to the other end.
                self.wheel.call(DETECT_S, self._found_down, end)
                self.wheel.call(DETECT_S, self._found_down, end.back)

    def heal(self) -> None:
        """End the cut, which must have lasted for at least ``DETECT_S``. Broken links stay broken."""
        self._side = None

    def _severed(self, one: int, other: int) -> bool:
        return self._side is not None and self._side(one) != self._side(other)

    def _found_down(self, end: End) -> None:
        """Handle the moment at which a node detects that the link of this sending end is broken."""
        end.open = end.back.open = False
        self._told_down(end)

    def _told_down(self, end: End) -> None:
        """Tell the node at the sending end that the link has closed, unless the node already knows."""
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
        """Call the function at the link's other end, after all messages sent over the link so far."""
        arrival = self.wheel.now_ns + end.latency_ns + self.jitter() * JITTER_NS
        end.last = max(end.last, int(arrival) // SLOT_NS)
        self.wheel.put(end.last, (function, arguments, 0, CALL))

    def _later(self, frm: Place, to: Place, function: Callable[..., None], *arguments: Any) -> None:
        """Call the function at the time when a message would arrive if it were sent without a link."""
        self.wheel.call((latency_ns(frm.spot, to.spot) + self.jitter() * JITTER_NS) / 1e9, function, *arguments)
