"""Chooses the retained messages to drop when the log has no more room. ADR 37.

Owns: the order in which messages arrived, and the rank of the old messages. Must never: remove a message from the log.
The log does this.

The *young* messages stay regardless of their rank. These are the latest messages, up to a tenth of all bytes. A client
that loses its connection for a moment does not count as missing messages yet. It returns with a slightly older
position, so it still needs the latest messages. A message larger than that tenth is never young, because it would push
out all other young messages before its rank is known. All other messages are *old*. Within a topic the log drops the
oldest message first. A dropped message causes a gap for all positions before it, so the oldest message affects the
fewest positions. Among the topics, the log first drops a message of the topic whose first message is still needed by
the fewest subscribers, relative to the message's size. A topic's rank falls over time relative to new topics, because
some clients never return.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from ..caches.pending_readers import PendingReaders
from ..caches.policy import Entry as Rank
from ..entries import Entry, TopicLog

#: The bytes of young messages are at most the log's limit divided by this number.
YOUNG_PART: Final = 10

#: The largest number of messages that become old with each new message, beginning when the log is half full. All
#: messages that must be old are therefore old before the log is full, and each step is short.
AGED_AT_ONCE: Final = 16


class Room:
    """The room of one log. ``bytes_max`` is the limit for the bytes of the whole log."""

    def __init__(self, bytes_max: int) -> None:
        self._young_max = bytes_max // YOUNG_PART
        self._young = 0  # bytes of young entries
        self._row: deque[Entry] = deque()  # the young entries in order, and some entries that the log no longer has
        self._policy = PendingReaders(ages=True)
        self._ranked = 0  # the number of topics in ``_policy``

    @property
    def waiting(self) -> int:
        """Return the number of entries in the queue of young entries."""
        return len(self._row)

    def put(self, entry: Entry, size: int) -> bool:
        """Add a new entry. Return true if it counts as old immediately."""
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
        """Handle the removal of an entry from its topic."""
        if not entry.is_old:
            self._young -= size
        if was_first:  # even if the entry was young, because the next entry can be old (if it is large)
            self.first_changed(log)

    def first_changed(self, log: TopicLog) -> None:
        """Rank the topic again, because its first entry has changed or is gone."""
        if log.rank is not None:
            self._policy.forget(log.rank)
            log.rank = None
            self._ranked -= 1
        if log.entries:
            self._rank(log, log.entries[0])

    def served(self, log: TopicLog, entry: Entry) -> None:
        """Record that a subscriber that did not have the entry gets it now."""
        if entry.pending_readers:
            entry.pending_readers -= 1
            if log.rank is not None and log.entries[0] is entry:
                self._policy.used(log.rank)

    def next_aged(self) -> Entry | None:
        """If the young entries take more bytes than they may, make the oldest young entry old and return it. Otherwise
        return ``None``."""
        row = self._row
        while row and self._young > self._young_max:
            entry = row.popleft()
            if not entry.gone:
                return self._age(entry)
        return None

    def first_aged(self) -> Entry:
        """Make the oldest young entry old and return it. The caller knows that there is a young entry."""
        while True:
            entry = self._row.popleft()
            if not entry.gone:
                return self._age(entry)

    def _age(self, entry: Entry) -> Entry:
        self._young -= entry.size
        entry.is_old = True
        return entry

    def aged(self, log: TopicLog, entry: Entry) -> None:
        """Rank the topic of an entry that has become old, if the entry is the topic's first entry."""
        if log.entries[0] is entry:
            self._rank(log, entry)

    def _rank(self, log: TopicLog, first: Entry) -> None:
        if first.is_old:
            log.rank = Rank(log, first.size, first.pending_readers)
            self._policy.admit(log.rank)
            self._ranked += 1

    def victim(self) -> TopicLog | None:
        """Return the topic whose first entry the log should drop next, or ``None`` if no topic's first entry is old."""
        if not self._ranked:
            return None
        log: TopicLog = self._policy.victim().key
        log.rank = None
        self._ranked -= 1
        return log

    def tidy(self, entries: int) -> None:
        """Remove the entries that the log no longer has from the queue of young entries, if there are many."""
        if len(self._row) > 2 * entries + 1_000:
            self._row = deque(entry for entry in self._row if not entry.gone)
