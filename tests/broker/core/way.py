"""The parts on a message's way, put together at a fake desk: no router, no link, no store.

Owns: the choice of assemblies, and short words for the places of clients and peers. Must never: carry out an effect. A
test drives one of these parts, and reads that part's requests from the desk.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from ingeborg.broker.core.cluster.assembly import Cluster
from ingeborg.broker.core.cluster.homes import Homes
from ingeborg.broker.core.cluster.membership import Membership
from ingeborg.broker.core.codec import MESSAGES, Codec
from ingeborg.broker.core.connections.hub import Connection
from ingeborg.broker.core.connections.outbox import Outbox
from ingeborg.broker.core.limits import SIZES, Limits, Sizes
from ingeborg.broker.core.links.calls import Call
from ingeborg.broker.core.lookup.home import LookupHome
from ingeborg.broker.core.message import Message
from ingeborg.broker.core.messages.assembly import Messages
from ingeborg.broker.core.messages.home import Home
from ingeborg.broker.core.model import NO_SETTINGS, Endpoint, FilterPage, Location, Settings, Shape
from ingeborg.broker.core.outgoing.assembly import Outgoing
from ingeborg.broker.core.replication.assembly import Replication
from ingeborg.broker.core.retained.assembly import Retained
from ingeborg.broker.core.topics.assembly import Topics
from ingeborg.protocol.hashes import slot_of
from ingeborg.protocol.messages import Command, notification

from .fake_desk import ME, FakeDesk, Stored

ANN = Endpoint("ann", "a", "ws://ann", 1)
BOB = Endpoint("bob", "b", "ws://bob", 1)

DEDUP_TTL_S = 60.0


def let_in(members: Membership, now: float, *peers: Endpoint) -> None:
    """Let all these peers let the endpoint in."""
    members.heartbeat_written(now)
    members.registry(peers, now, now)
    for peer in peers:
        members.welcomed_by(peer.incarnation, members.round)
    assert members.joined


def topics_at(homes: Homes, incarnation: str, count: int = 1) -> list[str]:
    """Return this many topics whose home is the endpoint of this incarnation."""
    found = (f"t{number}" for number in range(100_000))
    found_here = (topic for topic in found if homes.table[slot_of(topic)] == incarnation)
    return [next(found_here) for _ in range(count)]


def topic_at(homes: Homes, incarnation: str) -> str:
    """Return a topic whose home is the endpoint of this incarnation."""
    return topics_at(homes, incarnation)[0]


def topic_moving(before: Homes, old: str, after: Homes, new: str) -> str:
    """Return a topic that has another home by the second table than by the first."""
    return next(topic for topic in topics_at(before, old, 200) if after.table[slot_of(topic)] == new)


class Way:
    """One endpoint, as far as messages pass through it. ``peers``: those in its view, if it has ``joined``.
    ``settings``: the cluster's. ``shape``: the store's. ``presence``: the beginnings of topics with presence."""

    def __init__(
        self,
        *peers: Endpoint,
        joined: bool = True,
        lookup: bool = False,
        sizes: Sizes = SIZES,
        settings: Settings = NO_SETTINGS,
        limits: Limits | None = None,
        shape: Shape | None = None,
        presence: Sequence[str] = (),
    ) -> None:
        self.desk = FakeDesk(limits=limits, sizes=sizes, shape=shape)
        self.base = base = self.desk.base
        self.cluster = cluster = Cluster(base, settings)
        self.members = cluster.members
        if joined:
            let_in(self.members, self.desk.now, *peers)
        self.homes: Homes = Homes(ME.incarnation, joined=True) if lookup else self.members
        self.outgoing = outgoing = Outgoing(base, None)
        self.hub, self.sending, self.replies = outgoing.hub, outgoing.sending, outgoing.replies
        self.replication = replication = Replication(base, cluster, DEDUP_TTL_S)
        self.dedup, self.origin_dedup, self.keys = replication.dedup, replication.origin_dedup, replication.keys
        self.topics = topics = Topics(base, cluster, outgoing, self.homes, presence, 0 if lookup else None)
        self.routes, self.locations, self.moved_away = topics.routes, topics.locations, topics.moved_away
        self.retained = retained = Retained(base, cluster, replication)
        kind = LookupHome if lookup else Home
        self.messages = Messages(base, cluster, outgoing, replication, topics, retained, self.homes, kind)
        self.delivery, self.fanout, self.outcomes = self.messages.delivery, self.messages.fanout, self.messages.outcomes
        self.home, self.origin = self.messages.home, self.messages.origin
        self.inflight, self.links = base.inflight, base.calls.links
        self._connections = 0

    # Places of clients and peers

    def connection(self, codec: Codec = MESSAGES) -> Connection:
        """Return a client's connection to this endpoint."""
        self._connections += 1
        made = Connection(self._connections, Outbox(1 << 20), codec)
        made.kind = "publish"
        made.tally = self.replies.tally("publish")
        return made

    def listens(self, *clients: str, codec: Codec = MESSAGES) -> Connection:
        """Let these clients listen here, on one connection."""
        connection = self.connection(codec)
        for client in clients:
            self.hub.bind(client, connection)
            self.hub.bindings[client].location = at(ME)
            self.locations.learn(client, at(ME))
        return connection

    def listens_at(self, endpoint: Endpoint, *clients: str) -> None:
        """Note that these clients listen there."""
        for client in clients:
            self.locations.learn(client, at(endpoint))

    def subscribed(self, topic: str, *clients: str) -> None:
        """Put the topic's subscriber set into the routing cache."""
        self.routes.filled(topic, self.routes.add(topic), set(clients))

    def lets_in(self, peer: Endpoint) -> None:
        """Let the peer join: some slots are its own from now on. The parts do not know yet."""
        self.members.connected(peer, self.desk.now, self.members.introduction)
        self.members.joined_by(peer.incarnation, 1, 1)

    def loses(self, peer: Endpoint) -> None:
        """Remove the peer. The parts do not know yet."""
        self.members.left(peer.incarnation)

    # Incoming and outgoing

    def has_subscribers(
        self,
        read: Stored,
        *clients: set[str] | tuple[str, ...],
        filters: Mapping[str, FilterPage] = MappingProxyType({}),
    ) -> None:
        """Answer, as the store, with the subscribers and filters of the topics in its calls."""
        read.end((list(clients), dict(filters)))

    def flush(self) -> list[Stored]:
        """End the home's turn; return the store calls since the last call of this kind."""
        self.home.take_back()
        self.home.flush()
        return self.take_stored()

    def take_stored(self) -> list[Stored]:
        """Return the store calls since the last call."""
        stored = self.desk.stored[:]
        self.desk.stored.clear()
        return stored

    def take_asked(self) -> list[Call]:
        """Return the requests to peers since the last call."""
        asked = self.desk.asked[:]
        self.desk.asked.clear()
        return asked

    def written(self, connection: Connection) -> list[bytes]:
        """Return the frames that this connection is now written; other connections get theirs, too."""
        return [frame for to, frames in self.sending.write() if to is connection for frame in frames]


def at(endpoint: Endpoint, number: int = 1, online: bool = True) -> Location:
    """Return a client's location there."""
    return Location(number, endpoint.incarnation, online)


def publish(topic: str, payload: bytes = b'"news"', **fields: Any) -> Command:
    """Return a client's checked ``publish``, which asks for its acknowledgement."""
    return Command("publish", "paul", **{"topics": (topic,), "payload": payload, "ack": True, **fields})


def message(topic: str, payload: bytes = b'"news"', number: int = 1, received: float = 100.0) -> Message:
    """Return a message of a client at this endpoint."""
    return Message(topic, payload, ME.incarnation, number, received)


def note(topic: str, payload: bytes = b'"news"') -> bytes:
    """Return the frame that a subscriber gets for the message."""
    return notification(topic, payload)
