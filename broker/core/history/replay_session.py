"""A connection whose client recovers what it has missed, and one recovery of it. SPEC section 8.10, ADR 36.

Owns: what is known of each. Must never: act; ``replaying`` moves them along.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ..connections.hub import Connection
from ..desk import Job
from ..filters.pattern import Conjunction
from ..links.requests import KeptRow


class Source:
    """A home's part of a recovery. ``number``: to fetch the rest with; 0: there is none."""

    __slots__ = ("asked", "number", "page", "rows")

    def __init__(self, rows: deque[KeptRow], number: int) -> None:
        self.rows = rows
        self.page = len(rows)  # of them were in the last page
        self.number = number
        self.asked = False  # for the next page


class Attempt:
    """One attempt to replay what is kept: everything since a stamp. A failure on the way begins it anew (``retries``).

    ``topics``: of which; ``None``: of all that the client has. ``latest``: so many of each of these instead. ``done``:
    is told whether it has come to its end, and whether there was a gap.
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
        self.until = 0.0  # it goes on; 0: as long as the connection is there
        self.retries = 0
        self.after = 0.0  # it is begun anew then
        self.is_over = False
        self.pushed: set[tuple[str, int]] = set()  # of a command's: what has been sent, before it was begun anew, too
        # Since it was begun, or begun anew:
        self.topics: list[str] | None = None
        self.asked = 0  # homes that have not answered
        self.covered = bytearray()  # slots that they have answered for
        self.sources: dict[str, Source] = {}
        self.watermark = -1  # the least of the homes', and of all endpoints' when it was begun
        self.gap_topics: list[str] = []
        self.gap_slots: list[int] = []
        self.has_gap = False
        #: Of topics at which the client has filters, these; of others None: all is for it.
        self.patterns: dict[str, list[Conjunction] | None] = {}
        self.names: list[str] = []  # topics that the store is being asked for
        self.job: Job | None = None
        self.parked = False

    @property
    def stands_for_one(self) -> bool:
        """It keeps the place of one that comes when its subscription has been written."""
        return self.wanted == [] and self.done is None and self.since == 0

    def next_rows(self, rows_max: int, bytes_max: int) -> list[KeptRow]:
        """The next rows by their stamps: so many, or of so many bytes, one at least; and none behind one that is not
        known yet."""
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
        """Has every row that a home can still bring a greater stamp?"""
        for source in self.sources.values():
            if source.rows:
                if source.rows[0][4] <= stamp:
                    return False
            elif source.number > 0:
                return False  # its next page is not known
        return True


class ReplaySession:
    """A connection on which a client listens that recovers, or that asks for retained messages just now (not
    ``stays``).

    While there are ``attempts``, what comes for its clients is *held* behind them."""

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
        self.waits = False  # its `listen` has not succeeded yet
        self.missed = False  # something, while it waited
        self.listened = False  # one has
        self.since = 0  # all up to this stamp has been sent, while there are attempts
        self.attempts: deque[Attempt] = deque()
        self.held: deque[tuple[str, int, bytes]] = deque()
        self.held_bytes = 0
        self.overflowed = False  # some of what was held has been let go of
        self.sent: set[tuple[str, int]] = set()  # by the attempts, of what may be among the held, too
        self.settled = 0  # what has a stamp up to this had ended before anything was held
        self.owed = 0  # tellings of positions that it has still to get
        self.told = -1  # the stamp of the last one
        self.ended = False
        self.gap_any = False
        self.is_unknown = False  # it recovers from a position that is not of this cluster's present life
        self.ends_untold = False  # a recovery has come to its end, and its client has to be told so

    @property
    def is_here(self) -> bool:
        """Does its client listen on its connection still?"""
        if self.ended or self.connection.closed:
            return False
        return not self.stays or self.client in self.connection.clients

    @property
    def holds(self) -> bool:
        """What comes for it waits."""
        return self.waits or bool(self.attempts)
