"""Chooses the retained message to drop when there is no more room. ADR 37.

Owns: the order in which messages arrived, and the rank of the old ones. Must never: take a message out; the log does.

The youngest messages, a tenth of all bytes, stay with any rank: a client that loses its connection for a moment does
not count as missing messages yet, and returns with a slightly older position. A message larger than that tenth is never
young, since it would push out all others before its rank is known. Among the *old* ones, a topic's first message goes
before its others, because a position before the dropped one has a gap at that topic in any case. Among the topics, the
log first drops from the one whose first message is still needed by the fewest subscribers, relative to its size. Over
time a topic's rank falls relative to new ones, since some clients never return.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from ..caches.pending_readers import PendingReaders
from ..caches.policy import Entry as Rank
from ..entries import Entry, TopicLog

#: The young part of all bytes: one in this many.
YOUNG_PART: Final = 10

#: Maximum number of messages that become old with each new one, once half of the room is taken. So when the room is
#: full, all messages that must be old are old, and each step is short.
AGED_AT_ONCE: Final = 16


class Room:
    """One log's room. ``bytes_max``: for everything in it."""

    def __init__(self, bytes_max: int) -> None:
        self._young_max = bytes_max // YOUNG_PART
        self._young = 0  # bytes of young entries
        self._row: deque[Entry] = deque()  # the young entries in order, and some that are gone
        self._policy = PendingReaders(ages=True)
        self._ranked = 0  # topics in it

    @property
    def waiting(self) -> int:
        """Return the number of entries in the row."""
        return len(self._row)

    def put(self, entry: Entry, size: int) -> bool:
        """Add a new entry. Returns true if it is old at once."""
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
        """Note that an entry has been taken out of its topic."""
        if not entry.is_old:
            self._young -= size
        if was_first:  # even a young entry: the next can be a large one, which is never young
            self.first_changed(log)

    def first_changed(self, log: TopicLog) -> None:
        """Rank the topic again: it has another first entry, or none."""
        if log.rank is not None:
            self._policy.forget(log.rank)
            log.rank = None
            self._ranked -= 1
        if log.entries:
            self._rank(log, log.entries[0])

    def served(self, log: TopicLog, entry: Entry) -> None:
        """Note that a subscriber that lacks the entry gets it now."""
        if entry.pending_readers:
            entry.pending_readers -= 1
            if log.rank is not None and log.entries[0] is entry:
                self._policy.used(log.rank)

    def next_aged(self) -> Entry | None:
        """Age and return the next entry that must become old. ``None``: none has to."""
        row = self._row
        while row and self._young > self._young_max:
            entry = row.popleft()
            if not entry.gone:
                return self._age(entry)
        return None

    def first_aged(self) -> Entry:
        """Age and return the oldest young entry, if no old one is left. There is one."""
        while True:
            entry = self._row.popleft()
            if not entry.gone:
                return self._age(entry)

    def _age(self, entry: Entry) -> Entry:
        self._young -= entry.size
        entry.is_old = True
        return entry

    def aged(self, log: TopicLog, entry: Entry) -> None:
        """Rank the topic of an entry that has become old, if it is the topic's first."""
        if log.entries[0] is entry:
            self._rank(log, entry)

    def _rank(self, log: TopicLog, first: Entry) -> None:
        if first.is_old:
            log.rank = Rank(log, first.size, first.pending_readers)
            self._policy.admit(log.rank)
            self._ranked += 1

    def victim(self) -> TopicLog | None:
        """Return the topic whose first entry to drop next. ``None``: no topic's first entry is old."""
        if not self._ranked:
            return None
        log: TopicLog = self._policy.victim().key
        log.rank = None
        self._ranked -= 1
        return log

    def tidy(self, entries: int) -> None:
        """Drop the entries that are gone from the row, if they are many."""
        if len(self._row) > 2 * entries + 1_000:
            self._row = deque(entry for entry in self._row if not entry.gone)
