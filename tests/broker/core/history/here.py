"""One endpoint's parts of history at a fake desk, with real state around them: for tests that drive these parts alone.

Owns: short words for what comes, and for what its clients are sent. Must never: answer for a peer or the store, except
that clients have no filters.
"""

from __future__ import annotations

from typing import Any

from ingeborg.broker.core.clients.assembly import Clients
from ingeborg.broker.core.codec import MESSAGES, Codec
from ingeborg.broker.core.connections.hub import Connection
from ingeborg.broker.core.history.assembly import HistoryParts
from ingeborg.broker.core.history.attempts import ALL_SLOTS
from ingeborg.broker.core.history.replay_session import ReplaySession
from ingeborg.broker.core.links.requests import HistoryPage
from ingeborg.broker.core.message import Message
from ingeborg.broker.core.model import Subscription

from ..retained.here import Keeper


class Here(Keeper):
    """It has joined, ``peers`` are linked and have history, and each has told its watermark: 0."""

    def __init__(self, *peers: str, **options: Any) -> None:
        super().__init__(*peers, **options)
        base, cluster, outgoing = self.base, self.cluster, self.outgoing
        self.topics = self.make_topics()
        self.clients = Clients(base, cluster, outgoing, self.topics, 25.0, self.members)
        history = HistoryParts(base, cluster, outgoing, self.topics, self.retained, self.clients)
        self.part, self.admitting = history.replaying, history.admitting
        self.history_server, self.attempts, self.positions = history.history_server, history.attempts, history.positions
        self.history_server.joined()

    # Clients

    def listens(
        self, client: str = "anna", recover: str = "", codec: Codec = MESSAGES
    ) -> tuple[Connection, dict[str, Any]]:
        """It listens, and recovers since this position, or from now on; its connection, and what the reply says
        beside."""
        connection = self.begins(client, codec)
        return connection, self.part.listened(connection, client, recover)

    def begins(self, client: str = "anna", codec: Codec = MESSAGES) -> Connection:
        """Its ``listen`` has begun, and is being written."""
        connection = self.client("listen", codec)
        self.hub.bind(client, connection)
        self.part.listens(connection, client)
        return connection

    def session(self, connection: Connection) -> ReplaySession:
        """The connection's."""
        return self.part.replay_sessions[connection]

    def comes(self, connection: Connection, topic: str, number: int, payload: bytes = b"1") -> None:
        """A message of the endpoint ``o`` for a client of this connection."""
        self.brings(Message(topic, payload, "o", number, self.desk.now), connection)

    def brings(self, message: Message, *connections: Connection) -> None:
        """This message for a client of each of these connections."""
        for connection in connections:
            if connection.receiver is None:
                self.sending.push(connection, message.frame_for(connection.codec))
            else:
                connection.receiver.take(message)

    def has_topics(self, *topics: str) -> None:
        """The store says what the client that recovers has subscribed to."""
        (call,) = self.stored("topics")
        call.end((list(topics), None))

    def goes_on(self) -> None:
        """Time passes, up to where what has failed is begun anew; and all that can be done is."""
        self.desk.now += 3.0
        self.attempts.tick()
        self.work()

    def turn(self) -> None:
        """The turn ends."""
        self.part.flush()

    def work(self) -> None:
        """All that can be done is."""
        self.turn()
        self.desk.work()
        while self.has_no_filters() or self.attempts.over or self.watermarks.advances:
            self.turn()
            self.desk.work()

    def has_no_filters(self) -> bool:
        """The store says that clients have subscriptions without filters to the topics that it has been asked about.
        Were there any?"""
        stored = self.desk.stored
        asked = [call for call in stored if call.operation == "subscriptions_of"]
        stored[:] = [call for call in stored if call not in asked]
        for call in asked:
            call.end([[Subscription(topic, client)] for client, topic in call.arguments[0]])
        return bool(asked)

    def said(self, connection: Connection) -> list[str]:
        """What the connection has been written since the last look: ``t 7`` a message by its number, ``t 7 kept``,
        ``at 5`` a position, ``recovered at 5``, ``gap t``, ``gap 12`` (a slot), ``gap any``."""
        self.work()
        return [short(frame) for frame in self.heard(connection)]


def short(frame: dict[str, Any]) -> str:
    """See ``Here.said``."""
    if "position" in frame:
        stamp = int(frame["position"].rpartition(".")[2], 16)
        return f"recovered at {stamp}" if frame.get("recovered") else f"at {stamp}"
    if "gap" in frame:
        gap = frame["gap"]
        return f"gap {'any' if gap is None else ' '.join(map(str, gap.get('topics', gap.get('slots'))))}"
    words = [frame["key"], frame["mid"].rpartition(".")[2] if "mid" in frame else "", "kept" if "kept" in frame else ""]
    return " ".join(word for word in words if word)


def answer(
    *rows: tuple[str, int, int],
    number: int = 0,
    gaps: list[str] | None = None,
    floors: list[int] | None = None,
    slots: bytes = ALL_SLOTS,
    watermark: int = 0,
) -> HistoryPage:
    """A peer's, as it comes over a link. ``rows``: topic, number, stamp."""
    kept = [(topic, b"1", "o", name, stamp) for topic, name, stamp in rows]
    return HistoryPage(number, kept, gaps or [], floors or [], slots, watermark)
