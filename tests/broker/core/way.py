"""The parts of a message's way, put together at a fake desk: no router, no link, no store.

Owns: how the parts are given to one another, as the router does it, and short words for who is where. Must never: carry
an effect out. A test drives one part of these, and looks at what that part asked the desk for.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ingeborg.broker.core.history.parts import HistoryParts
from ingeborg.broker.core.messages.lookup import LookupHome

from ingeborg.broker.core.cluster.copies import Copies
from ingeborg.broker.core.cluster.homes import Homes
from ingeborg.broker.core.cluster.membership import Membership
from ingeborg.broker.core.cluster.standby import Standbys
from ingeborg.broker.core.cluster.underway import UnderWay
from ingeborg.broker.core.codec import MESSAGES, Codec
from ingeborg.broker.core.connections.hub import Connection, Hub
from ingeborg.broker.core.connections.outbox import Outbox
from ingeborg.broker.core.dedup.dedup import Dedup
from ingeborg.broker.core.dedup.inflight import InFlight
from ingeborg.broker.core.dedup.names import Names
from ingeborg.broker.core.dedup.repeats import Repeats
from ingeborg.broker.core.desk import Desk
from ingeborg.broker.core.dispatch import Handover
from ingeborg.broker.core.limits import SIZES, Limits, Sizes
from ingeborg.broker.core.links.calls import Call
from ingeborg.broker.core.links.link import Link
from ingeborg.broker.core.message import Message
from ingeborg.broker.core.messages.delivery import Delivery
from ingeborg.broker.core.messages.fanout import Fanout
from ingeborg.broker.core.messages.home import Home
from ingeborg.broker.core.messages.origin import Origin
from ingeborg.broker.core.messages.outcomes import Outcomes
from ingeborg.broker.core.messages.sharing import Sharing
from ingeborg.broker.core.model import NO_SETTINGS, Endpoint, FilterPage, Location, Settings
from ingeborg.broker.core.outgoing.memory import Memory
from ingeborg.broker.core.outgoing.replies import Replies
from ingeborg.broker.core.outgoing.sending import Sending
from ingeborg.broker.core.replication.guard import Guard
from ingeborg.broker.core.replication.handover import KeyHandover, SeenPayloads
from ingeborg.broker.core.replication.kept import KeptMessages
from ingeborg.broker.core.topics.filtering import Filtering
from ingeborg.broker.core.topics.locations import Locations, Whereabouts
from ingeborg.broker.core.topics.moved import MovedAway
from ingeborg.broker.core.topics.routes import Routes
from ingeborg.protocol.hashes import slot_of
from ingeborg.protocol.messages import Command, notification

from .fake_desk import FakeDesk, Stored

ME = Endpoint("me", "m", "ws://me", 0)
ANN = Endpoint("ann", "a", "ws://ann", 1)
BOB = Endpoint("bob", "b", "ws://bob", 1)

DEDUP_TTL_S = 60.0
NO_LIMITS = Limits()


def joined(desk: Desk, *peers: Endpoint, settings: Settings = NO_SETTINGS) -> Membership:
    """An endpoint's membership, after all these peers have let it in. ``settings``: of the cluster."""
    members = Membership(ME, desk.now, settings=settings)
    members.heartbeat_written(desk.now)
    members.registry(peers, desk.now, desk.now)
    for peer in peers:
        members.welcomed_by(peer.incarnation, members.round)
    assert members.joined
    return members


def topics_at(homes: Homes, incarnation: str, count: int = 1) -> list[str]:
    """So many topics whose home is the endpoint of this incarnation."""
    found = (f"t{number}" for number in range(100_000))
    found_here = (topic for topic in found if homes.table[slot_of(topic)] == incarnation)
    return [next(found_here) for _ in range(count)]


def topic_at(homes: Homes, incarnation: str) -> str:
    """A topic whose home is the endpoint of this incarnation."""
    return topics_at(homes, incarnation)[0]


def topic_moving(before: Homes, old: str, after: Homes, new: str) -> str:
    """A topic that has another home by the second table than by the first."""
    return next(topic for topic in topics_at(before, old, 200) if after.table[slot_of(topic)] == new)


class Way:
    """One endpoint, as far as messages pass through it. ``peers``: those in its view. ``settings``: of the cluster."""

    def __init__(
        self,
        *peers: Endpoint,
        members: Membership | None = None,
        lookup: bool = False,
        sizes: Sizes = SIZES,
        routes: Routes | None = None,
        settings: Settings = NO_SETTINGS,
        limits: Limits = NO_LIMITS,
    ) -> None:
        self.desk = fake = FakeDesk()
        desk = fake.real
        self.members = members = members or joined(desk, *peers, settings=settings)
        self.homes: Homes = Homes(ME.incarnation, joined=True) if lookup else members
        self.hub = Hub()
        self.memory = memory = Memory(1 << 40, lambda: 0)
        self.inflight = InFlight(1_000, 1 << 20)
        self.routes = Routes(1_000, 100_000) if routes is None else routes
        self.locations = Locations(0 if lookup else 100_000)
        self.dedup: Dedup[Handover] = Dedup(DEDUP_TTL_S, 1_000)
        self.repeats = Repeats(DEDUP_TTL_S, sizes)
        self.handovers = UnderWay()
        self.moved_away = MovedAway(sizes)
        self.links: dict[str, Link] = {}
        whereabouts = Whereabouts(self.locations, members, desk.drops)
        self.sending = Sending(desk, memory)
        self.replies = Replies(self.sending, memory, fake.counters)
        self.delivery = Delivery(desk, self.hub, self.sending, self.moved_away, self.links, fake.counters, sizes)
        self.fanout = Fanout(desk, members, self.links, self.locations, whereabouts, self.delivery, not lookup, sizes)
        self.payloads = SeenPayloads(desk, self.dedup, Names())
        kept = self.payloads.at_standby = KeptMessages(desk, self.dedup, Names())
        self.copies = copies = Copies(desk, members, [self.payloads])
        self.standbys = Standbys(desk, members, copies, settings.standby)
        self.guard = Guard(kept, self.standbys)
        self.history = HistoryParts(desk, members, limits, settings, True)
        self.keeping = self.history.keep(copies, self.standbys, self.guard)
        self.keys = KeyHandover(desk, members, self.dedup, self.repeats, self.handovers, copies, self.payloads, sizes)
        self.outcomes = Outcomes(desk, self.inflight)
        self.sharing = Sharing(
            desk,
            ME.incarnation,
            self.homes,
            self.dedup,
            self.keys,
            copies,
            self.payloads,
            self.guard,
            self.keeping,
            self.outcomes,
            sizes,
        )
        self.filtering = Filtering(desk, self.routes)
        make_home = LookupHome if lookup else Home
        self.home = make_home(
            desk,
            ME.incarnation,
            self.homes,
            self.routes,
            self.locations,
            whereabouts,
            self.outcomes,
            self.fanout,
            self.sharing,
            self.guard,
            self.filtering,
            sizes,
        )
        self.origin = Origin(
            desk,
            ME.incarnation,
            self.homes,
            self.home,
            self.outcomes,
            self.repeats,
            self.inflight,
            self.replies,
            fake.counters,
            self.keeping,
            True,
        )
        self._connections = 0

    # Who is where

    def connection(self, codec: Codec = MESSAGES) -> Connection:
        """A client's connection to this endpoint."""
        self._connections += 1
        made = Connection(self._connections, Outbox(1 << 20), codec)
        made.kind = "publish"
        made.tally = self.replies.tally("publish")
        return made

    def listens(self, *clients: str, codec: Codec = MESSAGES) -> Connection:
        """These clients listen here, on one connection."""
        connection = self.connection(codec)
        for client in clients:
            self.hub.bind(client, connection)
            self.hub.bindings[client].location = at(ME)
            self.locations.learn(client, at(ME))
        return connection

    def listens_at(self, endpoint: Endpoint, *clients: str) -> None:
        """These clients are known to listen there."""
        for client in clients:
            self.locations.learn(client, at(endpoint))

    def subscribed(self, topic: str, *clients: str) -> None:
        """The topic's subscriber set is in the routing cache."""
        self.routes.filled(topic, self.routes.add(topic), set(clients))

    def lets_in(self, peer: Endpoint) -> None:
        """The peer joins: some slots are its own from here on. The parts have yet to be told."""
        self.members.connected(peer, self.desk.now, self.members.introduction)
        self.members.joined_by(peer.incarnation, 1, 1)

    def loses(self, peer: Endpoint) -> None:
        """The peer is gone. The parts have yet to be told."""
        self.members.left(peer.incarnation)

    # What comes, and what goes

    def has_subscribers(
        self,
        read: Stored,
        *clients: set[str] | tuple[str, ...],
        filters: Mapping[str, FilterPage] = MappingProxyType({}),
    ) -> None:
        """The store says who subscribes to the topics that it was asked about, and what filters these have."""
        read.end((list(clients), dict(filters)))

    def flush(self) -> list[Stored]:
        """The home's turn ends; what the store is asked then, since the last call of this kind."""
        self.home.flush()
        return self.take_stored()

    def take_stored(self) -> list[Stored]:
        """What the store was asked since the last call."""
        stored = self.desk.stored[:]
        self.desk.stored.clear()
        return stored

    def take_asked(self) -> list[Call]:
        """What peers were asked since the last call."""
        asked = self.desk.asked[:]
        self.desk.asked.clear()
        return asked

    def written(self, connection: Connection) -> list[bytes]:
        """What this connection is written now; other connections get theirs, too."""
        return [frame for to, frames in self.sending.write() if to is connection for frame in frames]


def at(endpoint: Endpoint, number: int = 1, online: bool = True) -> Location:
    """A client's location there."""
    return Location(number, endpoint.incarnation, online)


def publish(topic: str, payload: bytes = b'"news"', **fields: Any) -> Command:
    """A client's checked ``publish``, which asks for its acknowledgement."""
    return Command("publish", "paul", **{"topics": (topic,), "payload": payload, "ack": True, **fields})


def message(topic: str, payload: bytes = b'"news"', number: int = 1, received: float = 100.0) -> Message:
    """A message of a client at this endpoint."""
    return Message(topic, payload, ME.incarnation, number, received)


def note(topic: str, payload: bytes = b'"news"') -> bytes:
    """What a subscriber is written of it."""
    return notification(topic, payload)
