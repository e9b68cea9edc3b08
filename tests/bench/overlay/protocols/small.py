"""A world of a few nodes in which any event can happen next, and a naive judge of the deliveries.

Owns: links as queues, whose relative order is drawn; the deliveries of every node, in order; the nodes that can lack a
message. Must never: know a protocol, or reuse anything of the simulator's, because it is the second opinion.

A link comes and goes at each end separately. Messages under way at its end are lost, and an end that does not know yet
keeps sending into nothing. Timers go off whenever the draw says so, however early, because no result can depend on
time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any, NamedTuple

from ingeborg.bench.overlay.chance import Drawn
from ingeborg.broker.core.overlay.node import Desk, Node, Peer, Wire

Hold = Callable[[Peer, Peer, Wire], bool]
"""Decides for a message from one node to another: must it wait?"""

STEPS_MAX = 20_000
"""Limit of events in one world, where some thousand suffice. A world that takes more does not end."""

Mid = tuple[Peer, int]
Make = Callable[[Desk, Peer, Sequence[Peer]], Node]
"""Makes the node at this desk, with these neighbours from the start."""


class EndlessError(AssertionError):
    """The world never runs out of work."""


class Sent(NamedTuple):
    """A message, or (``wire`` None) the link's coming up (``size`` 1) or going down (0)."""

    wire: Wire | None
    size: int
    session: int


class Timer(NamedTuple):
    due: float
    serial: int
    node: Peer
    what: Any


class SmallDesk(Desk):
    """One node's desk."""

    def __init__(self, world: World, me: Peer) -> None:
        super().__init__(Drawn(world.random))
        self.world = world
        self.me = me

    def send(self, peer: Peer, wire: Wire, control_bytes: int, payload_bytes: int = 0) -> None:
        assert control_bytes > 0
        self.world.send(self.me, peer, wire, payload_bytes)

    def after(self, seconds: float, what: Any) -> None:
        self.world.serial += 1
        self.world.timers.append(Timer(self.now + seconds, self.world.serial, self.me, what))

    def deliver(self, root: Peer, number: int, hops: int) -> None:
        self.world.judge.delivered(self.me, (root, number), hops)

    def dial(self, peer: Peer) -> None:
        self.world.link(self.me, peer)

    def hang_up(self, peer: Peer) -> None:
        self.world.hang_up(self.me, peer)

    def contacts(self) -> list[Peer]:
        raise AssertionError("nobody here asks a registry")


class Judge:
    """The deliveries at each node, and the messages that must precede them. ``founders``: nodes that existed from the
    start, and so must get everything."""

    def __init__(self, founders: Iterable[Peer]) -> None:
        self.founders = list(founders)
        self.order: dict[Peer, list[Mid]] = {node: [] for node in self.founders}
        self.past: dict[Mid, frozenset[Mid]] = {}
        self.hops: dict[tuple[Peer, Mid], int] = {}

    def delivered(self, node: Peer, mid: Mid, hops: int) -> None:
        order = self.order.setdefault(node, [])
        if node == mid[0] and mid not in self.past:
            self.past[mid] = frozenset(order)
        assert mid in self.past, "a message that nobody has sent"
        order.append(mid)
        self.hops[node, mid] = hops
        assert (hops == 0) == (node == mid[0]) or mid in order[:-1]

    def doubles(self) -> list[tuple[Peer, Mid]]:
        """Return the nodes that have delivered a message more than once."""
        return [
            (node, mid)
            for node, order in self.order.items()
            for mid in sorted(set(order), key=str)
            if order.count(mid) > 1
        ]

    def disorder(self) -> list[tuple[Peer, Mid, Mid]]:
        """Return the nodes that have delivered the second message without the first, which the second's root had when
        it sent it. (A node that has joined need not have earlier messages, but then it must not get them later.)"""
        found = []
        for node, order in self.order.items():
            before: set[Mid] = set()
            for mid in order:
                wanted = self.past[mid] - before
                if node not in self.founders:
                    wanted &= set(order)
                found += [(node, each, mid) for each in sorted(wanted, key=str)]
                before.add(mid)
        return found

    def lacking(self, nodes: Iterable[Peer], roots: Iterable[Peer] | None = None) -> list[tuple[Peer, Mid]]:
        """Return the messages that nodes lack, from these roots or from all."""
        of = None if roots is None else set(roots)
        return [
            (node, mid)
            for node in nodes
            for mid in self.past
            if (of is None or mid[0] in of) and mid not in self.order[node]
        ]


class World:
    """``names``: its nodes; ``built``: pairs with a link from the start."""

    def __init__(
        self, make: Make, names: Sequence[Peer], built: Iterable[tuple[Peer, Peer]], random: Random | None = None
    ) -> None:
        self.random = random or Random(0)
        self.make = make
        self.judge = Judge(names)
        self.timers: list[Timer] = []
        self.serial = 0
        self.steps = 0
        self.sessions: dict[frozenset[Peer], int] = {}  # living links, as the network sees them
        self.ends: dict[tuple[Peer, Peer], int] = {}  # living links, as the first of the two sees them
        self.ways: dict[tuple[Peer, Peer], deque[Sent]] = {}
        self.sent: list[tuple[Peer, Peer, Wire]] = []
        self.desks: dict[Peer, SmallDesk] = {}
        self.nodes: dict[Peer, Node] = {}
        built = list(built)
        for one, other in built:
            self.serial += 1
            self.sessions[frozenset((one, other))] = self.serial
            self.ends[one, other] = self.ends[other, one] = self.serial
        for name in names:
            neighbours = [pair[1 - pair.index(name)] for pair in built if name in pair]
            self.add(name, neighbours)

    def add(self, name: Peer, neighbours: Sequence[Peer] = ()) -> Node:
        """Add a node."""
        self.desks[name] = SmallDesk(self, name)
        node = self.nodes[name] = self.make(self.desks[name], name, neighbours)
        self.judge.order.setdefault(name, [])
        return node

    # Faults

    def link(self, one: Peer, other: Peer) -> None:
        """Open a link; each end learns of it in its turn."""
        pair = frozenset((one, other))
        if pair in self.sessions or one not in self.nodes or other not in self.nodes:
            return
        self.serial += 1
        self.sessions[pair] = self.serial
        for way in ((one, other), (other, one)):
            self._way(way).append(Sent(None, 1, self.serial))

    def cut(self, one: Peer, other: Peer) -> None:
        """End a link: messages under way are lost; each end learns of it in its turn."""
        session = self.sessions.pop(frozenset((one, other)), None)
        if session is not None:
            self._end((one, other), session)
            self._end((other, one), session)

    def hang_up(self, one: Peer, other: Peer) -> None:
        """Let the first end the link; it gets no report."""
        session = self.ends.pop((one, other), None)
        if session is not None and self.sessions.get(frozenset((one, other))) == session:
            del self.sessions[frozenset((one, other))]
            self._end((one, other), session)
        way = self._way((other, one))
        self.ways[other, one] = deque(each for each in way if each.session != session)

    def _end(self, way: tuple[Peer, Peer], session: int) -> None:
        """Report the end at the far side, unless that side never learned that the link is up."""
        queue = self._way(way)
        told_of_up = not any(each.wire is None and each.size == 1 and each.session == session for each in queue)
        kept = [each for each in queue if each.session != session]
        if told_of_up:
            kept.append(Sent(None, 0, session))
        self.ways[way] = deque(kept)

    def crash(self, name: Peer) -> None:
        """Remove the node, with its links."""
        for pair in [pair for pair in self.sessions if name in pair]:
            self.cut(*pair)
        del self.nodes[name]
        self.timers = [timer for timer in self.timers if timer.node != name]
        for way in [way for way in self.ways if way[1] == name]:
            del self.ways[way]

    def broadcast(self, name: Peer, payload_bytes: int = 100) -> Mid:
        """Make it broadcast; return the message's id."""
        before = len(self.judge.past)
        self.nodes[name].broadcast(payload_bytes)
        assert len(self.judge.past) == before + 1
        return list(self.judge.past)[-1]

    def send(self, frm: Peer, to: Peer, wire: Wire, size: int) -> None:
        session = self.ends.get((frm, to))
        if session is None:
            return
        self.sent.append((frm, to, wire))
        if self.sessions.get(frozenset((frm, to))) == session:
            self._way((frm, to)).append(Sent(wire, size, session))

    # Next events

    def busy(self) -> list[tuple[Peer, Peer]]:
        """Return the non-empty ways."""
        return [way for way, queue in self.ways.items() if queue]

    def pass_on(self, frm: Peer, to: Peer) -> Wire | None:
        """Deliver the next item on this way."""
        wire, size, session = self._way((frm, to)).popleft()
        self._count()
        node = self.nodes[to]
        if wire is not None:
            if self.ends.get((to, frm)) == session:
                node.received(frm, wire, size)
        elif size == 1:
            self.ends[to, frm] = session
            node.up(frm, False)
        elif self.ends.get((to, frm)) == session:
            del self.ends[to, frm]
            node.down(frm)
        return wire

    def fire(self, timer: Timer | None = None) -> None:
        """Fire this timer, or the one that is due first."""
        timer = timer or min(self.timers, key=lambda each: each[:2])
        self.timers.remove(timer)
        self._count()
        for desk in self.desks.values():
            desk.now = max(desk.now, timer.due)
        self.nodes[timer.node].due(timer.what)

    def step(self) -> bool:
        """Do any event. False: there is none."""
        busy = self.busy()
        if self.timers and (not busy or self.random.random() < 0.02):
            self.fire()
        elif busy:
            self.pass_on(*self.random.choice(busy))
        else:
            return False
        return True

    def flow(self, hold: Hold | None = None) -> None:
        """Deliver everything under way without firing a timer. ``hold``: keeps back a message, and everything behind it
        on its way."""
        while busy := [way for way in self.busy() if hold is None or not self._held(way, hold)]:
            self.pass_on(*self.random.choice(busy))

    def _held(self, way: tuple[Peer, Peer], hold: Hold) -> bool:
        wire = self.ways[way][0].wire
        return wire is not None and hold(*way, wire)

    def settle(self) -> None:
        """Run until no work is left; fire a timer if nothing is under way. Raises EndlessError."""
        self.flow()
        while self.timers:
            self.fire()
            self.flow()

    def _count(self) -> None:
        self.steps += 1
        if self.steps > STEPS_MAX:
            raise EndlessError(f"more than {STEPS_MAX} steps")

    def _way(self, way: tuple[Peer, Peer]) -> deque[Sent]:
        return self.ways.setdefault(way, deque())


def sent(world: World, kind: int) -> list[tuple[Peer, Peer]]:
    """Return the ways of the messages of this kind that were sent."""
    return [(frm, to) for frm, to, wire in world.sent if wire[0] == kind]


def cost_in_grafts(make: Make, kind: int) -> int:
    """Return how many messages of the kind GRAFT four broadcasts over a full mesh cost."""
    world = World(make, range(6), [*ring(6), *chords(6)], Random(2))
    for _ in range(4):
        world.broadcast(0)
        world.settle()
    return len(sent(world, kind))


def ring(nodes: int) -> list[tuple[Peer, Peer]]:
    """Return the links of a circle."""
    return [(each, (each + 1) % nodes) for each in range(nodes)]


def chords(nodes: int) -> list[tuple[Peer, Peer]]:
    """Return all other pairs: each is a link that can come and go."""
    return [(one, other) for one in range(nodes) for other in range(one + 2, nodes) if (one, other) != (0, nodes - 1)]


def wander(world: World, pairs: Sequence[tuple[Peer, Peer]], senders: Sequence[Peer], rounds: int) -> None:
    """Let anything happen: messages arrive, timers go off, some nodes broadcast, links between these pairs come and
    go."""
    random = world.random
    for _ in range(rounds):
        drawn = random.random()
        if drawn < 0.05:
            world.broadcast(random.choice(senders))
        elif drawn < 0.09 and pairs:
            pair = random.choice(pairs)
            if frozenset(pair) in world.sessions:
                world.cut(*pair)
            else:
                world.link(*pair)
        else:
            world.step()
