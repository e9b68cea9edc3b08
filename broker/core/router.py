"""Event in, effects out: one endpoint's decisions, whole, without a socket, a clock, a store or randomness in it.

Owns: the doors (every event is a method with its time), the tuple of parts, and the order of a turn. Must never: import
asyncio, wait, or ask what time it is. The shell (``broker.shell.driver``) and the simulator
(``tests.simulator``) run the same code.

What is to be done comes out of ``flush``, once per turn of the loop, so that everything of one turn leaves in one
batch. The parts do the rest; a part knows the desk and what it is given here, and no router.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from .clients.cut_off import CutOff
from .clients.keepalive import Keepalive
from .clients.leaving import Leaving
from .clients.listening import Listening
from .clients.revoking import Revoking
from .clients.sessions import Sessions
from .cluster.arriving import Arriving
from .cluster.copies import Copies
from .cluster.copying import Copying
from .cluster.homes import Homes
from .cluster.joining import Joining
from .cluster.membership import Membership
from .cluster.mesh import Mesh
from .cluster.slots import Held, SlotState
from .cluster.standby import Standbys
from .cluster.underway import UnderWay
from .connections.grants import Grant
from .connections.hub import Connection, Hub
from .connections.large import Large, Outcome
from .connections.outbox import PIECE_BYTES
from .counters import Counters
from .dedup.dedup import Dedup
from .dedup.inflight import InFlight
from .dedup.names import Names
from .dedup.repeats import Repeats
from .desk import Desk, Job
from .effects import Act
from .history.parts import HistoryParts
from .limits import PATIENCE, SIZES, Limits, Patience, Sizes
from .links.calls import Calls
from .message import Handover
from .messages.delivery import Delivery
from .messages.fanout import Fanout
from .messages.home import Home
from .messages.lookup import LookupHome
from .messages.origin import Origin
from .messages.outcomes import Outcomes
from .messages.recovery import Recovery
from .messages.sharing import Sharing
from .model import NO_INTRODUCTION, NO_SETTINGS, Endpoint, Introduction, Settings, Shape
from .operators.looks import looks
from .outgoing.memory import Memory
from .outgoing.replies import Replies
from .outgoing.sending import Sending
from .part import Part, bind
from .replication.guard import Guard
from .replication.handover import KeyHandover, SeenPayloads
from .replication.kept import KeptMessages
from .stores import StoreCalls
from .topics.filtering import Filtering
from .topics.locations import Locations, Whereabouts
from .topics.moved import MovedAway
from .topics.presence import Presence
from .topics.routes import Routes
from .topics.subscribing import Subscribing
from .topics.sweeping import Sweeping
from .topics.writing import Writing
from .turns import Turns


class Router(Turns):
    """One endpoint. ``now`` is always monotonic seconds; ``wrap`` makes a transport frame of a message's bytes."""

    def __init__(
        self,
        me: Endpoint,
        now: float,
        *,
        routing: str = "home",
        dedup_ttl_s: float = 60.0,
        limits: Limits | None = None,
        sizes: Sizes = SIZES,
        patience: Patience = PATIENCE,
        wrap: Callable[[bytes], bytes] = bytes,
        shape: Shape | None = None,
        figures: Callable[[], dict[str, Any]] = dict,
        resident: Callable[[], int] | None = None,
        alone_at_url: bool = True,
        ping_s: float = 25.0,
        unix_s: float = 0.0,
        states: Sequence[SlotState] = (),
        settings: Settings = NO_SETTINGS,
        grace_s: float = 60.0,
        presence: Sequence[str] = (),
    ) -> None:
        """``shape``: of the store. ``figures``: what this endpoint tells operators of itself (SPEC section 2.4).
        ``resident``: the memory of this process in bytes; ``None``: nobody knows, and what connections hold is believed
        as it is counted. ``alone_at_url``: see ``Joining``. ``ping_s``: between two pings of a connection. ``unix_s``:
        Unix time now. ``states``: what belongs to slots, beside the core's own. ``settings``: those of the cluster that
        it follows. ``grace_s``: what this endpoint is set to, see ``Membership``. ``presence``: see ``Presence``."""
        self.me, mine = me, me.incarnation
        self.limits = limits = limits or Limits()
        shape = shape or Shape()
        lookup, held_bytes = routing == "lookup", limits.held_bytes

        self.counters = counters = Counters()
        self.calls = calls = Calls()
        self.stores = StoreCalls(counters.counts)
        self._jobs: deque[Job] = deque()
        self._acts: list[Act] = []
        self._desk = desk = Desk(now, counters, calls, self.stores, self._jobs, self._acts)

        if lookup:
            settings = NO_SETTINGS
        self.members = members = Membership(me, now, patience, grace_s, settings)
        self.hub = hub = Hub()
        self.memory = memory = Memory(held_bytes, resident or (lambda: held_bytes + 1))
        self.inflight = inflight = InFlight(limits.inflight_messages, limits.inflight_bytes)
        most, choosy = limits.filter_bytes, shape.reads_memory
        self.routes = routes = Routes(limits.routes_topics, limits.routes_ids, filter_bytes_max=most, choosy=choosy)
        self.locations = locations = Locations(0 if lookup else limits.locations_clients)
        self.dedup: Dedup[Handover] = Dedup(dedup_ttl_s, limits.dedup_keys)
        self._writes = writes = UnderWay()
        handovers = UnderWay()
        self.filtering = filtering = Filtering(desk, routes)
        homes = Homes(mine, joined=True) if lookup else members
        repeats, moved_away = Repeats(dedup_ttl_s, sizes), MovedAway(sizes)
        whereabouts = Whereabouts(locations, members, counters.drops)

        self._sending = sending = Sending(desk, memory)
        self.replies = replies = Replies(sending, memory, counters, wrap)
        self.sessions = sessions = Sessions(desk, limits, sending, replies, memory, inflight, sizes)
        self._keepalive = keepalive = Keepalive(desk, sending, ping_s, unix_s)
        self.mesh = mesh = Mesh(desk, members, calls, inflight, counters.errors, sizes)

        # The stages of a message, the last one first: each is given the one that it hands on to.
        links = calls.links
        self._delivery = delivery = Delivery(desk, hub, sending, moved_away, links, counters, wrap, sizes)
        self._fanout = fanout = Fanout(desk, members, links, locations, whereabouts, delivery, not lookup, sizes)
        self.history = history = HistoryParts(desk, members, limits, settings, shape.journal)
        names, held = Names(), Held()
        seen, kept = SeenPayloads(desk, self.dedup, names), KeptMessages(desk, self.dedup, names)
        seen.at_standby = kept
        of_slots = [] if lookup else [seen, history.state, *states]
        self.copies = copies = Copies(desk, members, of_slots)
        self.copying = copying = Copying(desk, members, copies, of_slots, held, handovers)
        self.arriving = arriving = Arriving(desk, members, of_slots, held, copying)
        self.standbys = standbys = Standbys(desk, members, copies, settings.standby)
        self.guard = guard = Guard(kept, standbys)
        keeping = history.keep(copies, standbys, guard)
        recovering = history.recover(hub, delivery, sending, memory, replies, wrap)
        history.missed.routes = routes
        keys = KeyHandover(desk, members, self.dedup, repeats, handovers, copies, seen, sizes)
        self._outcomes = outcomes = Outcomes(desk, inflight)
        sharing = Sharing(desk, mine, homes, self.dedup, keys, copies, seen, guard, keeping, outcomes, sizes)
        self._home = home = (LookupHome if lookup else Home)(
            desk, mine, homes, routes, locations, whereabouts, outcomes, fanout, sharing, guard, filtering, sizes
        )
        self.revoking = revoking = Revoking(desk, members, sessions, sending, replies, keepalive, sizes)
        self.recovery = recovery = Recovery(desk, members, self.dedup, kept, outcomes, home.recover)
        recovery.inherit, recovery.concluded = keeping.inherit, keeping.concluded
        history.follow(keepalive)
        copies.unix_s = history.journal.unix_s
        self._origin = origin = Origin(
            desk, mine, homes, home, outcomes, repeats, inflight, replies, counters, keeping, dedup_ttl_s > 0
        )

        self.sweeping = sweeping = Sweeping(
            desk, members, hub, routes, filtering, locations, writes, keepalive, shape.reads_memory
        )
        self._writing = writing = Writing(desk, mine, homes, routes, links, writes, sweeping, filtering, sizes)
        if presence and not lookup:
            sweeping.presence = Presence(desk, mine, homes, home, outcomes, inflight, replies, origin.publish, presence)
        most = limits.subscriptions
        subscribing = Subscribing(desk, mine, homes, writing, lookup, replies, memory, shape, most, recovering, sizes)
        both = recovering, history.admitting
        listening = Listening(desk, members, homes, hub, locations, moved_away, replies, sending, memory, *both, sizes)
        cut_off = CutOff(desk, homes, members, hub, sending)

        # In the order in which they are told of ticks, of the ends of turns, and of what becomes of the cluster.
        parts: list[Part] = [origin, sweeping.presence] if sweeping.presence is not None else [origin]
        parts += [home, delivery, keys, copying, arriving, standbys, copies, recovery, revoking]
        self._looks = looks(desk, members, replies, figures, sizes)
        parts += [writing, subscribing, listening, keepalive, *self._looks, fanout]
        if not lookup:
            parts += [sweeping, cut_off]
        parts += history.parts
        followers = [part for part in parts if part.follows_the_cluster()]
        self.joining = joining = Joining(
            desk, members, mesh, self._writes, handovers, followers, self._idle, alone_at_url=alone_at_url
        )
        copying.peer_leaves, history.journal.informed = joining.peer_leaves, joining.join
        joining.linked = arriving.hand_on
        members.awaits = arriving.awaits
        joining.missed, joining.told_missed = arriving.missed, standbys.renew
        joining.first_copy, joining.greet = copies.first_to, history.marks.tell
        self._leaving = Leaving(desk, joining, copying, sessions, sending, inflight, sizes, patience)
        bound = bind([joining, mesh, *parts])
        sessions.bind(bound.commands)
        mesh.bind(bound.requests)
        self._ticks, self._flushes, self._closed = bound.ticks, bound.flushes, bound.closed
        self.frame_under_way = b""  # of a client; for the log, should it make the core fail

    # Clients

    def connected(
        self,
        number: int,
        now: float,
        grant: Grant | None = None,
        *,
        throttled: bool = False,
        piece_bytes: int = PIECE_BYTES,
    ) -> Connection:
        """A client has connected; ``number`` is the shell's, unique. ``grant``: what it may do (``None``: all).
        ``throttled``: its commands a second are limited. ``piece_bytes``: what it is written in one turn."""
        self._at(now)
        connection = self.sessions.connected(number, grant, throttled, piece_bytes)
        self._keepalive.connected(connection)
        return connection

    def disconnected(self, connection: Connection, now: float) -> None:
        """Its connection is gone."""
        self._at(now)
        if connection.closed:
            return
        self.sessions.disconnected(connection)
        self._keepalive.disconnected(connection)
        for closed in self._closed:
            closed(connection)

    def frame(self, connection: Connection, data: bytes | Large, now: float, is_text: bool = True) -> None:
        """A whole message came from a client; that a text is UTF-8 has been seen, unless it is large."""
        self._desk.now = now  # as `_at`, which every message would pay for
        if now >= self.members.holds_until and self.members.lapsed(now):
            self.joining.lease_lapsed()
        self.sessions.frame(connection, data, is_text)

    def frames(self, connection: Connection, messages: list[bytes], now: float, is_text: bool) -> None:
        """Several, that came one behind the other; ``frame_under_way`` is the one whose turn it is."""
        self._at(now)
        frame = self.sessions.frame
        for message in messages:
            self.frame_under_way = message
            frame(connection, message, is_text)

    def unread(self, connection: Connection, size: int, now: float) -> None:
        """``size`` bytes have come over the connection that are no whole message yet."""
        self._at(now)
        self.sessions.unread(connection, size)

    def read_wanted(self, number: int) -> bool:
        """Would the command of the large frame of this ``Read`` still be begun?"""
        return self.sessions.read_wanted(number)

    def read(self, number: int, outcome: Outcome | None, now: float) -> None:
        """What a large frame says; ``None``: it was not read, since it is not wanted any more."""
        self._at(now)
        self.sessions.read(number, outcome)

    def blocked(self, connection: Connection, unsent: int, now: float) -> None:
        """The connection's socket has enough for now: ``unsent`` bytes that the client does not take."""
        self._at(now)
        self._sending.blocked(connection, unsent)

    def drained(self, connection: Connection, now: float) -> None:
        """It takes more again."""
        self._at(now)
        self._sending.drained(connection)

    def rest(self, connection: Connection, now: float) -> list[bytes]:
        """Something is written to the connection's socket past its outbox: what comes before it."""
        self._at(now)
        return self._sending.rest(connection)

    def let_go(self, connection: Connection, now: float) -> None:
        """Its socket holds nothing any more: neither what has come, nor what was to go."""
        self._at(now)
        connection.unread = connection.unsent = 0
        self.memory.weigh(connection)

    def ponged(self, connection: Connection, now: float) -> None:
        """The client has answered a ping."""
        self._at(now)
        self._keepalive.ponged(connection)

    def written(self, now: float) -> None:
        """What the last turn had to write to clients has been given to their sockets."""
        self.counters.written(now)

    # Peers

    def link_up(self, endpoint: Endpoint, now: float, introduction: Introduction = NO_INTRODUCTION) -> bytes:
        """An authenticated connection to the peer is up, which has introduced itself so; the frame to send first."""
        self._at(now)
        first = self.mesh.link_up(endpoint)
        self.joining.link_up(endpoint, introduction)
        return first

    def link_down(self, incarnation: str, now: float) -> None:
        """The connection is gone."""
        self._at(now)
        self.mesh.link_down(incarnation)
        self.joining.link_down(incarnation)

    def link_frame(self, incarnation: str, data: bytes, now: float) -> None:
        """A frame came over the peer's link."""
        self._at(now)
        self.mesh.frame(incarnation, data)

    def dial_failed(self, incarnation: str, now: float) -> None:
        """No link came of a ``Dial``."""
        self._at(now)
        self.mesh.dial_failed(incarnation)

    # The store

    def stored(self, number: int, result: Any, error: Exception | None, now: float) -> None:
        """What came of a store call."""
        self._at(now)
        self.stores.ended(number, result, error, now)

    # Time

    def tick(self, now: float, unix_s: float = 0.0) -> None:
        """Call every 100 ms or so: time-outs, signs of life, expiry. ``unix_s``: Unix time, which tokens go by."""
        self._at(now)
        self.counters.observe()
        self.members.tick(now)
        self.calls.tick(now)
        self.stores.tick(now)
        for tick in self._ticks:
            tick()
        self._keepalive.expire(unix_s)
        self.sessions.tick()

    def leave(self, now: float, over_s: float) -> None:
        """Begin an orderly end: ``HandedOver``, the clients' closes over so many seconds, then ``Left``."""
        self._at(now)
        self._leaving.begin(over_s)

    def work(self, now: float) -> None:
        """One slice, of a few milliseconds at most, of what is too long for one turn."""
        self._at(now)
        if self._jobs:
            job = self._jobs.popleft()
            if not next(job, True):
                self._jobs.append(job)

    def _idle(self) -> bool:
        return not (self._jobs or self.stores or self._writes or self.calls or self.inflight.messages)
