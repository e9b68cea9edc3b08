"""The surroundings of a part that a test drives alone: the lowest assemblies of an endpoint, at a fake desk.

Owns: the endpoint's place in the cluster, its clients' connections, and the frames written to them. Must never: make a
part above these; the test does, and drives it.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import orjson
import ormsgpack

from ingeborg.broker.core.cluster.assembly import Cluster
from ingeborg.broker.core.codec import MESSAGES, Codec
from ingeborg.broker.core.connections.hub import Connection
from ingeborg.broker.core.connections.large import TOPICS_PER_PART, Topics
from ingeborg.broker.core.connections.outbox import Outbox
from ingeborg.broker.core.effects import Close
from ingeborg.broker.core.limits import SIZES, Limits, Sizes
from ingeborg.broker.core.model import NO_INTRODUCTION, NO_SETTINGS, Endpoint, Settings, Shape
from ingeborg.broker.core.outgoing.assembly import Outgoing
from ingeborg.broker.core.topics.assembly import Topics as Subscriptions
from ingeborg.protocol.hashes import slot_of
from ingeborg.protocol.messages import Command, check

from .fake_desk import FakeDesk, Stored

GRACE_S = 60.0


def peer(incarnation: str) -> Endpoint:
    """Return another endpoint, whose name is its incarnation as well."""
    return Endpoint(incarnation, incarnation, f"ws://{incarnation}", 1)


def command(name: str, client: str = "anna", **fields: Any) -> Command:
    """Return a command in the form in which it comes from a client."""
    return check({"command": name, "client_id": client, **fields}, 1 << 20)


class Surroundings:
    """The endpoint ``ME`` and its surroundings. The peers are linked, and have welcomed it, if it has ``joined``.
    ``settings``: the cluster's. ``shape``: the store's."""

    def __init__(
        self,
        *peers: str,
        joined: bool = True,
        settings: Settings = NO_SETTINGS,
        unix_s: float = 0.0,
        limits: Limits | None = None,
        sizes: Sizes = SIZES,
        shape: Shape | None = None,
    ) -> None:
        self.desk = fake = FakeDesk(unix_s=unix_s, limits=limits, sizes=sizes, shape=shape)
        self.base = fake.base
        self.cluster = Cluster(self.base, settings)
        self.members = self.cluster.members
        for incarnation in peers:
            self.members.connected(peer(incarnation), fake.now, NO_INTRODUCTION._replace(settings=settings))
        if joined:
            self.join()
        self.outgoing = outgoing = Outgoing(self.base, None)
        self.hub, self.memory = outgoing.hub, outgoing.memory
        self.sending, self.replies = outgoing.sending, outgoing.replies
        self._numbers = 0
        self._written: defaultdict[Connection, list[bytes]] = defaultdict(list)

    def make_topics(self, *presence: str) -> Subscriptions:
        """Make the parts of topics."""
        return Subscriptions(self.base, self.cluster, self.outgoing, self.members, presence)

    def join(self) -> None:
        """Let every peer welcome this endpoint."""
        self.members.registry([peer.endpoint for peer in self.members.peers.values()], self.desk.now, self.desk.now)
        for incarnation in self.members.view():
            self.members.welcomed_by(incarnation, self.members.round)
        assert self.members.joined

    def lose_lease(self) -> None:
        """Let the lease lapse: others may act as homes of this endpoint's slots from now on."""
        assert self.members.lapsed(self.desk.now)

    def topics_at(self, home: str, count: int) -> list[str]:
        """Return this many topics whose home is this incarnation."""
        names: list[str] = []
        number = 0
        while len(names) < count:
            number += 1
            if self.members.table[slot_of(f"t{number}")] == home:
                names.append(f"t{number}")
        return names

    # Clients

    def client(self, kind: str = "subscribe", codec: Codec = MESSAGES) -> Connection:
        """Return a client's connection, with commands of this kind under way."""
        self._numbers += 1
        connection = Connection(self._numbers, Outbox(1 << 20), codec)
        connection.kind = kind
        connection.tally = self.replies.tally(kind)
        return connection

    def heard(self, connection: Connection) -> list[Any]:
        """Return the replies that the connection has been written since the last call."""
        for to, frames in self.sending.write():
            self._written[to] += frames
        return [orjson.loads(frame) for frame in self._written.pop(connection, [])]

    def results(self, connection: Connection) -> list[str]:
        """Return these replies as ``ok`` or the code of the error, with the id of the command, if it had one."""
        return [
            " ".join(map(str, [reply.get("error", "ok"), *([reply["id"]] if "id" in reply else [])]))
            for reply in self.heard(connection)
        ]

    def closes(self) -> list[tuple[int, int]]:
        """Return the connections closed since the last call: their numbers, and the codes."""
        acts = self.desk.acts
        closes = [(act.connection.number, act.code.code) for act in acts if isinstance(act, Close)]
        self.desk.acts[:] = [act for act in acts if not isinstance(act, Close)]
        return closes

    # The store

    def stored(self, *operations: str) -> list[Stored]:
        """Return the calls of the store since the last call. They must be these."""
        calls = self.desk.stored[:]
        self.desk.stored.clear()
        assert [call.operation for call in calls] == list(operations)
        return calls


def packed(topics: list[str]) -> Topics:
    """Return a long list of topics, in the form that the reader of large frames returns."""
    starts = range(0, len(topics), TOPICS_PER_PART)
    return Topics([ormsgpack.packb(topics[start : start + TOPICS_PER_PART]) for start in starts], len(topics))
