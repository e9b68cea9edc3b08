"""What stands around a part that is driven alone: real state, put together as the router does it, at a fake desk.

Owns: the state that parts share, and what clients have been written. Must never: make a part, or hand on from one to
another; the test does.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import orjson
import ormsgpack
from ingeborg.broker.core.history.parts import HistoryParts

from ingeborg.broker.core.clients.keepalive import Keepalive
from ingeborg.broker.core.cluster.copies import Copies
from ingeborg.broker.core.cluster.membership import Membership
from ingeborg.broker.core.cluster.standby import Standbys
from ingeborg.broker.core.cluster.underway import UnderWay
from ingeborg.broker.core.codec import MESSAGES, Codec
from ingeborg.broker.core.connections.hub import Connection, Hub
from ingeborg.broker.core.connections.large import TOPICS_PER_PART, Topics
from ingeborg.broker.core.connections.outbox import Outbox
from ingeborg.broker.core.dedup.dedup import Dedup
from ingeborg.broker.core.dedup.names import Names
from ingeborg.broker.core.effects import Close
from ingeborg.broker.core.history.recovering import Recovering
from ingeborg.broker.core.limits import Limits
from ingeborg.broker.core.messages.delivery import Delivery
from ingeborg.broker.core.model import NO_INTRODUCTION, NO_SETTINGS, Endpoint, Settings
from ingeborg.broker.core.outgoing.memory import Memory
from ingeborg.broker.core.outgoing.replies import Replies
from ingeborg.broker.core.outgoing.sending import Sending
from ingeborg.broker.core.replication.guard import Guard
from ingeborg.broker.core.replication.kept import KeptMessages
from ingeborg.broker.core.topics.filtering import Filtering
from ingeborg.broker.core.topics.locations import Locations
from ingeborg.broker.core.topics.moved import MovedAway
from ingeborg.broker.core.topics.routes import Routes
from ingeborg.broker.core.topics.sweeping import Sweeping
from ingeborg.protocol.hashes import slot_of
from ingeborg.protocol.messages import Command, check

from .fake_desk import FakeDesk, Stored

ME = Endpoint("me", "m", "ws://me", 0)
GRACE_S = 60.0
NO_HISTORY = Limits()


def peer(incarnation: str) -> Endpoint:
    """Another endpoint, whose name is its incarnation as well."""
    return Endpoint(incarnation, incarnation, f"ws://{incarnation}", 1)


def command(name: str, client: str = "anna", **fields: Any) -> Command:
    """A command as it comes from a client."""
    return check({"command": name, "client_id": client, **fields}, 1 << 20)


class Surroundings:
    """This endpoint is ``ME``; the peers are linked, and have welcomed it, if it has ``joined``.
    ``settings``: of the cluster."""

    def __init__(self, *peers: str, joined: bool = True, settings: Settings = NO_SETTINGS) -> None:
        self.desk = fake = FakeDesk()
        desk = fake.real
        self.members = Membership(ME, desk.now, settings=settings)
        for incarnation in peers:
            self.members.connected(peer(incarnation), desk.now, NO_INTRODUCTION._replace(settings=settings))
        if joined:
            self.join()
        self.hub = Hub()
        self.locations = Locations(1_000)
        self.moved_away = MovedAway()
        self.memory = Memory(1 << 62, lambda: 1 << 62)
        self.sending = Sending(desk, self.memory)
        self.replies = Replies(self.sending, self.memory, fake.counters)
        self.keepalive = Keepalive(desk, self.sending, 25.0, 0.0)
        self._numbers = 0
        self._written: defaultdict[Connection, list[bytes]] = defaultdict(list)

    def sweeping(
        self, routes: Routes, writes: UnderWay, filtering: Filtering, *, reads_memory: bool = True
    ) -> Sweeping:
        """The part that ends subscriptions."""
        parts = (self.members, self.hub, routes, filtering, self.locations, writes, self.keepalive)
        return Sweeping(self.desk.real, *parts, reads_memory)

    def recovering(
        self, limits: Limits = NO_HISTORY, settings: Settings = NO_SETTINGS, *, has_journal: bool = True
    ) -> Recovering:
        """The part that recovers clients; by default nothing is kept. ``has_journal``: the store has one."""
        desk = self.desk.real
        self.history = history = HistoryParts(desk, self.members, limits, settings, has_journal)
        copies = Copies(desk, self.members, [])
        standbys = Standbys(desk, self.members, copies, settings.standby)
        history.keep(copies, standbys, Guard(KeptMessages(desk, Dedup(60.0, 1_000), Names()), standbys))
        delivery = Delivery(desk, self.hub, self.sending, self.moved_away, {}, self.desk.counters)
        return history.recover(self.hub, delivery, self.sending, self.memory, self.replies)

    def join(self) -> None:
        """Every peer has welcomed this endpoint."""
        self.members.registry([peer.endpoint for peer in self.members.peers.values()], self.desk.now, self.desk.now)
        for incarnation in self.members.view():
            self.members.welcomed_by(incarnation, self.members.round)
        assert self.members.joined

    def lose_lease(self) -> None:
        """No peer has confirmed anything: others may act as homes of this endpoint's slots from here on."""
        assert self.members.lapsed(self.desk.now)

    def topics(self, home: str, count: int) -> list[str]:
        """So many topics whose home is this incarnation."""
        names: list[str] = []
        number = 0
        while len(names) < count:
            number += 1
            if self.members.table[slot_of(f"t{number}")] == home:
                names.append(f"t{number}")
        return names

    # Clients

    def client(self, kind: str = "subscribe", codec: Codec = MESSAGES) -> Connection:
        """A client's connection, with commands of this kind under way."""
        self._numbers += 1
        connection = Connection(self._numbers, Outbox(1 << 20), codec)
        connection.kind = kind
        connection.tally = self.replies.tally(kind)
        return connection

    def heard(self, connection: Connection) -> list[Any]:
        """The replies that the connection has been written since the last look."""
        for to, frames in self.sending.write():
            self._written[to] += frames
        return [orjson.loads(frame) for frame in self._written.pop(connection, [])]

    def results(self, connection: Connection) -> list[str]:
        """Of these: ``ok``, or the code of the error; and the id of the command, if it had one."""
        return [
            " ".join(map(str, [reply.get("error", "ok"), *([reply["id"]] if "id" in reply else [])]))
            for reply in self.heard(connection)
        ]

    def closes(self) -> list[tuple[int, int]]:
        """Which connections were closed since the last look: their numbers, and the codes."""
        acts = self.desk.acts
        closes = [(act.connection.number, act.code.code) for act in acts if isinstance(act, Close)]
        self.desk.acts[:] = [act for act in acts if not isinstance(act, Close)]
        return closes

    # The store

    def stored(self, *operations: str) -> list[Stored]:
        """The calls of the store since the last look. They have to be these."""
        calls = self.desk.stored[:]
        self.desk.stored.clear()
        assert [call.operation for call in calls] == list(operations)
        return calls


def packed(topics: list[str]) -> Topics:
    """A long list of topics, as it comes back from the reader of large frames."""
    starts = range(0, len(topics), TOPICS_PER_PART)
    return Topics([ormsgpack.packb(topics[start : start + TOPICS_PER_PART]) for start in starts], len(topics))
