"""Which retained message goes when there is no more room. ADR 37.

Owns: the order in which messages came, and what the old ones are worth. Must never: take a message out; the log does.

The youngest, a tenth of all bytes, stay whatever they are worth: a client that loses its connection for a moment is
owed nothing, and comes back with a position that is a little older. A message that takes more than that alone is never
young: it would push out all others before anybody knew what it is worth. Of the *old* ones a topic's first goes before
its others, since a position before what went has a gap at that topic; of all topics that one whose first message is
owed to fewest subscribers for its size. A topic loses worth with time beside new ones: there are clients that never
come back.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from ..caches.pending_readers import PendingReaders
from ..caches.policy import Entry as Rank
from ..entries import Entry, TopicLog

#: The part of all bytes that is young: one in so many.
YOUNG_PART: Final = 10

#: So many become old with each that comes, at the most, once half of the room is taken: so all that are to be old are
#: when it is full, and each step is short.
AGED_AT_ONCE: Final = 16


class Room:
    """One log's. ``bytes_max``: of all in it."""

    def __init__(self, bytes_max: int) -> None:
        self._young_max = bytes_max // YOUNG_PART
        self._young = 0  # bytes
        self._row: deque[Entry] = deque()  # the young ones as they came, and such as are gone
        self._policy = PendingReaders(ages=True)
        self._ranked = 0  # topics in it

    @property
    def waiting(self) -> int:
        """How many are in the row."""
        return len(self._row)

    def put(self, entry: Entry, size: int) -> bool:
        """It has come. True: it is old at once."""
        if size > self._young_max:
            entry.is_old = True
            return True
        row = self._row
        while row and row[0].gone:
            row.popleft()
        row.append(entry)
        self._young += size
        return False

    def taken(self, log: TopicLog, entry: Entry, size: int, was_first: bool) -> None:
        """It has been taken out of its topic."""
        if not entry.is_old:
            self._young -= size
        if was_first:  # a young one, too: the next may be a large one, which is never young
            self.first_changed(log)

    def first_changed(self, log: TopicLog) -> None:
        """The topic has another first entry, or none any more."""
        if log.rank is not None:
            self._policy.forget(log.rank)
            log.rank = None
            self._ranked -= 1
        if log.entries:
            self._rank(log, log.entries[0])

    def served(self, log: TopicLog, entry: Entry) -> None:
        """A subscriber that has not had it gets it now."""
        if entry.pending_readers:
            entry.pending_readers -= 1
            if log.rank is not None and log.entries[0] is entry:
                self._policy.used(log.rank)

    def next_aged(self) -> Entry | None:
        """The one that becomes old now. ``None``: there is no need to."""
        row = self._row
        while row and self._young > self._young_max:
            entry = row.popleft()
            if not entry.gone:
                return self._age(entry)
        return None

    def first_aged(self) -> Entry:
        """The oldest young one becomes old, for want of others; there is one."""
        while True:
            entry = self._row.popleft()
            if not entry.gone:
                return self._age(entry)

    def _age(self, entry: Entry) -> Entry:
        self._young -= entry.size
        entry.is_old = True
        return entry

    def aged(self, log: TopicLog, entry: Entry) -> None:
        """That one's topic may be one of those that are ranked now."""
        if log.entries[0] is entry:
            self._rank(log, entry)

    def _rank(self, log: TopicLog, first: Entry) -> None:
        if first.is_old:
            log.rank = Rank(log, first.size, first.pending_readers)
            self._policy.admit(log.rank)
            self._ranked += 1

    def victim(self) -> TopicLog | None:
        """The topic whose first entry goes now. ``None``: no topic's first entry is old."""
        if not self._ranked:
            return None
        log: TopicLog = self._policy.victim().key
        log.rank = None
        self._ranked -= 1
        return log

    def tidy(self, entries: int) -> None:
        """Let go of those that are gone, where they are many."""
        if len(self._row) > 2 * entries + 1_000:
            self._row = deque(entry for entry in self._row if not entry.gone)
