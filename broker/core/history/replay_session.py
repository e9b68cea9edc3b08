"""A connection whose client recovers missed messages, and one such recovery. SPEC section 8.10, ADR 36.

Owns: the state of each. Must never: act; ``replaying`` moves them along.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ..connections.hub import NO_FLOOR, Connection, Receiver
from ..desk import Job
from ..filters.pattern import Conjunction
from ..links.requests import KeptRow


class Source:
    """One home's share of a recovery. ``number``: fetches the rest; 0: complete."""

    __slots__ = ("asked", "number", "page", "rows")

    def __init__(self, rows: deque[KeptRow], number: int) -> None:
        self.rows = rows
        self.page = len(rows)  # rows in the last page
        self.number = number
        self.asked = False  # the next page has been requested


class Attempt:
    """One attempt to replay retained messages: everything since a stamp. A failure restarts it (``retries``).

    ``topics``: the topics to replay; ``None``: all of the client's. ``latest``: replay only this many of each topic.
    ``done``: learns whether the attempt has completed, and whether there was a gap.
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
        self.until = 0.0  # when it gives up; 0: as long as the connection lives
        self.retries = 0
        self.after = 0.0  # when it restarts
        self.is_over = False
        self.pushed: set[tuple[str, int]] = set()  # for a command: what has been sent, before restarts as well
        # Since the last start:
        self.topics: list[str] | None = None
        self.asked = 0  # homes that have not answered
        self.covered = bytearray()  # slots that the answers cover
        self.sources: dict[str, Source] = {}
        self.watermark = -1  # the least of the homes', and of all endpoints' at the start
        self.gap_topics: list[str] = []
        self.gap_slots: list[int] = []
        self.has_gap = False
        #: The client's filters, by topic; ``None``: it takes all messages.
        self.patterns: dict[str, list[Conjunction] | None] = {}
        self.names: list[str] = []  # topics whose question to the store is under way
        self.job: Job | None = None
        self.parked = False

    @property
    def stands_for_one(self) -> bool:
        """Return whether it only holds the place of an attempt that begins once the subscription is stored."""
        return self.wanted == [] and self.done is None and self.since == 0

    def next_rows(self, rows_max: int, bytes_max: int) -> list[KeptRow]:
        """Take the next rows by their stamps, up to ``rows_max`` rows or ``bytes_max`` bytes, but at least one. Stops
        at a home whose next row is unknown."""
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
        """Will every later row from any home have a greater stamp?"""
        for source in self.sources.values():
            if source.rows:
                if source.rows[0][4] <= stamp:
                    return False
            elif source.number > 0:
                return False  # its next page is unknown
        return True


class ReplaySession:
    """A connection of a client that recovers, or that is just getting the retained messages it asked for (not
    ``stays``).

    While there are ``attempts``, new messages for its clients are *held* behind them.
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
        self.waits = False  # its `listen` has not succeeded yet
        self.missed = False  # it has missed messages while it waited
        self.listened = False  # one `listen` has succeeded
        self.since = 0  # everything up to this stamp has been sent, while there are attempts
        self.attempts: deque[Attempt] = deque()
        self.held: deque[tuple[str, int, bytes]] = deque()
        self.held_bytes = 0
        self.overflowed = False  # some held messages have been dropped
        self.sent: set[tuple[str, int]] = set()  # messages that attempts have sent, and that can also be among the held
        self.settled = 0  # messages with stamps up to this one were finished before any message was held
        self.owed = 0  # positions that it is still to get
        self.told = -1  # the stamp of the last position sent
        self.ended = False
        self.gap_any = False
        self.is_unknown = False  # it recovers from a position of an earlier life of the cluster
        self.ends_untold = False  # a recovery has completed, and its client is still to learn it

    @property
    def is_here(self) -> bool:
        """Does its client still listen on its connection?"""
        if self.ended or self.connection.closed:
            return False
        return not self.stays or self.client in self.connection.clients

    @property
    def onward(self) -> Receiver | None:
        """Return the receiver that takes the messages passed by the session; ``None``: the outbox takes them."""
        return None if self.receiver is None else self.receiver.onward

    @property
    def floor(self) -> int:
        """Return the greatest stamp that its position may have: bounds may hold later messages."""
        onward = self.onward
        return NO_FLOOR if onward is None else onward.floor()

    @property
    def holds(self) -> bool:
        """Must new messages wait?"""
        return self.waits or bool(self.attempts)
