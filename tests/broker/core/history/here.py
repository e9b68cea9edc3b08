"""One endpoint's parts of history at a fake desk, with real state around them: for tests that drive these parts alone.

Owns: short words for events, and for the frames that its clients get. Must never: answer for a peer or the store,
except that clients have no filters.
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
    """An endpoint that has joined. ``peers`` are linked and have history, and each has sent its watermark: 0."""

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
        """Have the client listen and recover from this position, or from now on. Returns its connection, and the other
        fields of the reply."""
        connection = self.begins(client, codec)
        return connection, self.part.listened(connection, client, recover)

    def begins(self, client: str = "anna", codec: Codec = MESSAGES) -> Connection:
        """Begin the client's ``listen``; the store is writing it."""
        connection = self.client("listen", codec)
        self.hub.bind(client, connection)
        self.part.listens(connection, client)
        return connection

    def session(self, connection: Connection) -> ReplaySession:
        """Return the connection's session."""
        return self.part.replay_sessions[connection]

    def comes(self, connection: Connection, topic: str, number: int, payload: bytes = b"1") -> None:
        """Deliver a message of the endpoint ``o`` to a client of this connection."""
        self.brings(Message(topic, payload, "o", number, self.desk.now), connection)

    def brings(self, message: Message, *connections: Connection) -> None:
        """Deliver this message to a client of each of these connections."""
        for connection in connections:
            if connection.receiver is None:
                self.sending.push(connection, message.frame_for(connection.codec))
            else:
                client = min(connection.clients, default="ann")
                connection.receiver.take(client, message, False)

    def has_topics(self, *topics: str) -> None:
        """Answer, as the store, with the topics of the client that recovers."""
        (call,) = self.stored("topics")
        call.end((list(topics), None))

    def goes_on(self) -> None:
        """Let time pass until failed work begins again; do everything that can be done."""
        self.desk.now += 3.0
        self.attempts.tick()
        self.work()

    def turn(self) -> None:
        """End the turn."""
        self.part.flush()

    def work(self) -> None:
        """Do everything that can be done."""
        self.turn()
        self.desk.work()
        while self.has_no_filters() or self.attempts.over or self.watermarks.advances:
            self.turn()
            self.desk.work()

    def has_no_filters(self) -> bool:
        """Answer, as the store, that clients have subscriptions without filters to the topics in its calls. Returns
        whether there were calls."""
        stored = self.desk.stored
        asked = [call for call in stored if call.operation == "subscriptions_of"]
        stored[:] = [call for call in stored if call not in asked]
        for call in asked:
            call.end([[Subscription(topic, client)] for client, topic in call.arguments[0]])
        return bool(asked)

    def said(self, connection: Connection) -> list[str]:
        """Return what the connection has been written since the last call: ``t 7`` a message by its number, ``t 7
        kept``, ``at 5`` a position, ``recovered at 5``, ``gap t``, ``gap 12`` (a slot), ``gap any``."""
        self.work()
        return [short(frame) for frame in self.heard(connection)]


def short(frame: dict[str, Any]) -> str:
    """Shorten a frame as ``Here.said`` describes."""
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
    """Return a peer's answer, as it comes over a link. ``rows``: topic, number, stamp."""
    kept = [(topic, b"1", "o", name, stamp) for topic, name, stamp in rows]
    return HistoryPage(number, kept, gaps or [], floors or [], slots, watermark)
