"""The state of a connection whose client recovers missed messages, and of each attempt to send these messages. SPEC
section 8.10, ADR 36.

Owns: the records of sessions and attempts. Must never: act. ``replaying`` and ``attempts`` change these records.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ..connections.hub import NO_FLOOR, Connection, Receiver
from ..desk import Job
from ..filters.pattern import Conjunction
from ..links.requests import KeptRow


class Source:
    """One home's share of a recovery. ``number`` identifies the home's answer in requests for its next page. It is 0 if
    the answer is complete."""

    __slots__ = ("asked", "number", "page", "rows")

    def __init__(self, rows: deque[KeptRow], number: int) -> None:
        self.rows = rows
        self.page = len(rows)  # the number of rows in the latest page
        self.number = number
        self.asked = False  # whether the next page has been requested


class Attempt:
    """One attempt to replay the messages retained since a stamp. After a failure it restarts, and ``retries`` counts
    the restarts.

    ``topics`` are the topics to replay, or ``None`` for all topics of the client. If ``latest`` is not 0, the attempt
    replays only this many messages of each topic. ``done`` is a callback with two arguments: whether the attempt has
    completed, and whether there was a gap.
    """

    __slots__ = (
        "after",
        "asked",
        "covered",
        "done",
        "gap_slots",
        "gap_topics",
        "has_gap",
        "is_over",
        "job",
        "latest",
        "names",
        "parked",
        "patterns",
        "pushed",
        "retries",
        "session",
        "since",
        "sources",
        "topics",
        "until",
        "wanted",
        "watermark",
    )

    def __init__(
        self,
        session: ReplaySession,
        since: int,
        topics: list[str] | None = None,
        latest: int = 0,
        done: Callable[[bool, bool], None] | None = None,
    ) -> None:
        self.session = session
        self.since = since
        self.wanted = topics
        self.latest = latest
        self.done = done
        self.until = 0.0  # when the attempt gives up; 0 if it continues as long as the connection exists
        self.retries = 0
        self.after = 0.0  # when the attempt may start again
        self.is_over = False
        self.pushed: set[tuple[str, int]] = set()  # for a command: all messages sent, also before restarts
        # A restart resets the following attributes:
        self.topics: list[str] | None = None
        self.asked = 0  # the number of homes that have not answered
        self.covered = bytearray()  # one bit for each slot that the answers cover
        self.sources: dict[str, Source] = {}
        self.watermark = -1  # the cluster's watermark at the start, or a home's watermark if that is smaller
        self.gap_topics: list[str] = []
        self.gap_slots: list[int] = []
        self.has_gap = False
        #: The client's filters, indexed by topic. ``None`` for a topic of which the client gets all messages.
        self.patterns: dict[str, list[Conjunction] | None] = {}
        self.names: list[str] = []  # the topics whose filters are being read from the store
        self.job: Job | None = None
        self.parked = False

    @property
    def stands_for_one(self) -> bool:
        """Return whether this is only a placeholder for an attempt that begins when the subscription is stored."""
        return self.wanted == [] and self.done is None and self.since == 0

    def still(self, retries: int) -> bool:
        """Return whether the attempt continues, and has had no further restart since it had ``retries``."""
        return not self.is_over and self.retries == retries

    def next_rows(self, rows_max: int, bytes_max: int) -> list[KeptRow]:
        """Remove and return the next rows in the order of their stamps, until there are ``rows_max`` rows or
        ``bytes_max`` bytes. Stop early at a home whose next row is unknown."""
        rows: list[KeptRow] = []
        size = 0
        sources = [source for source in self.sources.values() if source.rows]
        while sources and len(rows) < rows_max and size < bytes_max:
            first = sources[0]
            for source in sources:
                if source.rows[0][4] < first.rows[0][4]:
                    first = source
            row = first.rows.popleft()
            size += len(row[0]) + len(row[1])
            rows.append(row)
            if not first.rows:
                if first.number > 0:
                    break
                sources.remove(first)
        return rows

    def brings_after(self, stamp: int) -> bool:
        """Return whether every row that a home can still send has a greater stamp than ``stamp``."""
        for source in self.sources.values():
            if source.rows:
                if source.rows[0][4] <= stamp:
                    return False
            elif source.number > 0:
                return False  # the next page of this home is unknown
        return True


class ReplaySession:
    """A connection whose client recovers (``stays`` is true), or only gets the retained messages that a `subscribe`
    requested (``stays`` is false).

    While there are ``attempts``, the session holds back new messages for its clients and sends them after the attempts.
    """

    __slots__ = (
        "attempts",
        "client",
        "connection",
        "ended",
        "ends_untold",
        "gap_any",
        "held",
        "held_bytes",
        "is_unknown",
        "listened",
        "missed",
        "overflowed",
        "owed",
        "receiver",
        "sent",
        "settled",
        "since",
        "stays",
        "told",
        "waits",
    )

    def __init__(self, client: str, connection: Connection, stays: bool) -> None:
        self.client = client
        self.connection = connection
        self.stays = stays
        self.receiver: Receiver | None = None  # this session's receiver on the connection
        self.waits = False  # true until its `listen` has succeeded
        self.missed = False  # whether it has missed messages while it waited
        self.listened = False  # whether one of its `listen` commands has succeeded
        self.since = 0  # while there are attempts: everything up to this stamp has been sent
        self.attempts: deque[Attempt] = deque()
        self.held: deque[tuple[str, int, bytes]] = deque()
        self.held_bytes = 0
        self.overflowed = False  # whether held messages have been dropped
        self.sent: set[tuple[str, int]] = set()  # messages that attempts have sent and that may also be in ``held``
        self.settled = 0  # messages with stamps up to this one were dispatched before any message was held
        self.owed = 0  # the number of positions that it still has to get
        self.told = -1  # the stamp of the last position sent
        self.ended = False
        self.gap_any = False
        self.is_unknown = False  # whether this cluster does not know the client's position
        self.ends_untold = False  # whether a recovery has completed, but the client was not notified yet

    @property
    def is_here(self) -> bool:
        """Return whether the session's client still listens on its connection."""
        if self.ended or self.connection.closed:
            return False
        return not self.stays or self.client in self.connection.clients

    @property
    def onward(self) -> Receiver | None:
        """Return the receiver to which the session passes messages, or ``None`` if it passes them to the outbox."""
        return None if self.receiver is None else self.receiver.onward

    @property
    def floor(self) -> int:
        """Return the greatest stamp that the client's position may have. Messages with greater stamps may be held back
        by the client's bounds (SPEC section 2.8)."""
        onward = self.onward
        return NO_FLOOR if onward is None else onward.floor()

    @property
    def holds(self) -> bool:
        """Return whether new messages must wait."""
        return self.waits or bool(self.attempts)
