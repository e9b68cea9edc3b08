"""One endpoint's parts of history at a fake desk, with real state around them: for tests that drive these parts alone.

Owns: short words for what comes, and for what its clients are sent. Must never: answer for a peer or the store, except
that clients have no filters.
"""

from __future__ import annotations

from typing import Any

from ingeborg.broker.core.codec import MESSAGES, Codec
from ingeborg.broker.core.connections.hub import Connection
from ingeborg.broker.core.entries import Entry
from ingeborg.broker.core.history.positions import Positions
from ingeborg.broker.core.history.rounds import ALL_SLOTS
from ingeborg.broker.core.limits import Limits
from ingeborg.broker.core.links.calls import Call
from ingeborg.broker.core.links.requests import MarkRequest, MissedPage, Request
from ingeborg.broker.core.message import Message
from ingeborg.broker.core.model import Settings, Subscription
from ingeborg.protocol.hashes import slot_of

from ..surroundings import Surroundings, command

LINE = "m"
KEPT_S = 600.0
LIMITS = Limits(history_bytes=1 << 24)
IN_MEMORY = Settings(history="memory")


class Here(Surroundings):
    """It has joined, ``peers`` are linked and have history, and each has told its mark: 0."""

    def __init__(self, *peers: str, limits: Limits = LIMITS, settings: Settings = IN_MEMORY) -> None:
        super().__init__(*peers, settings=settings)
        self.part = self.recovering(limits, settings)
        history = self.history
        self.log, self.clock, self.marks, self.missed = history.log, history.clock, history.marks, history.missed
        self.rounds, self.journal, self.state = history.rounds, history.journal, history.state
        self.positions = next(part for part in history.parts if isinstance(part, Positions))
        self.marks.joined()
        self.missed.joined()
        self.marks.tick()
        self.take_asked()
        for incarnation in peers:
            self.told(incarnation, 0)
        self._names = 0

    # What is kept here

    def keep(self, topic: str, stamp: int = 0, payload: bytes = b"1", expires_s: float = KEPT_S) -> Entry:
        """A message of the topic has been accepted, kept, and has ended. ``stamp``: 0: the clock's next one."""
        if not stamp:
            stamp = self.clock.stamp()
            self.clock.close(stamp)
        self.clock.see(stamp)
        self._names += 1
        entry = Entry(topic, payload, "o", self._names, stamp, self.desk.now + expires_s)
        self.log.add(slot_of(topic), entry, self.desk.now)
        return entry

    # Peers

    def told(
        self,
        incarnation: str,
        mark: int,
        clock: int | None = None,
        again: list[str] | None = [],  # noqa: B006
        count: int = 0,
    ) -> None:
        """The peer tells its mark. ``count``: of endpoints that take part, as it sees it; 0: as this one does."""
        count = count or len(self.members.view()) + 1
        request = MarkRequest(mark, mark if clock is None else clock, [LINE], again, count)
        self.marks.mark_told(incarnation, 1, request)

    def take_asked(self, kind: type[Request] | None = None) -> list[Call]:
        """What peers were asked since the last look; all has to be of this kind."""
        asked = self.desk.asked[:]
        self.desk.asked.clear()
        assert kind is None or {type(call.request) for call in asked} <= {kind}
        return asked

    # Clients

    def listens(
        self, client: str = "anna", recover: str | bool = True, codec: Codec = MESSAGES
    ) -> tuple[Connection, dict[str, Any]]:
        """It listens, and recovers; its connection, and what the reply says beside."""
        connection = self.begins(client, recover, codec)
        return connection, self.part.listened(connection, client, "" if recover is True else str(recover))

    def begins(self, client: str = "anna", recover: str | bool = True, codec: Codec = MESSAGES) -> Connection:
        """Its ``listen`` has begun, and is being written."""
        connection = self.client("listen", codec)
        self.hub.bind(client, connection)
        self.part.listens(connection, command("listen", client, recover=recover))
        return connection

    def comes(self, connection: Connection, topic: str, number: int, payload: bytes = b"1") -> None:
        """A message of the endpoint ``o`` for a client of this connection."""
        self.brings(Message(topic, payload, "o", number, self.desk.now), connection)

    def brings(self, message: Message, *connections: Connection) -> None:
        """This message for a client of each of these connections."""
        for connection in connections:
            if connection.follower is None:
                self.sending.push(connection, message.frame_for(connection.codec))
            else:
                self.part.take(connection, message)

    def has_topics(self, *topics: str) -> None:
        """The store says what the client that recovers has subscribed to."""
        (call,) = self.stored("topics")
        call.end((list(topics), None))

    def goes_on(self) -> None:
        """Time passes, up to where what has failed is begun anew; and all that can be done is."""
        self.desk.now += 3.0
        self.rounds.tick()
        self.work()

    def work(self) -> None:
        """All that can be done is."""
        self.desk.work()
        while self.has_no_filters():
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


def at(stamp: int) -> str:
    """A position."""
    return f"{LINE}.{stamp:x}"


def answer(
    *rows: tuple[str, int, int],
    number: int = 0,
    gaps: list[str] | None = None,
    floors: list[int] | None = None,
    slots: bytes = ALL_SLOTS,
    mark: int = 0,
) -> MissedPage:
    """A peer's, as it comes over a link. ``rows``: topic, number, stamp."""
    kept = [(topic, b"1", "o", name, stamp) for topic, name, stamp in rows]
    return MissedPage(number, kept, gaps or [], floors or [], slots, mark)
