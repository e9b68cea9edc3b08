"""A row of entries, from the oldest to the newest, linked through the entries themselves.

Owns: both ends of the row, and the entries' links. Must never: decide which entry to evict.
"""

from __future__ import annotations

from .policy import Entry


class Row:
    """A doubly linked row. Each operation takes constant time. An entry is in one row at a time."""

    __slots__ = ("newest", "oldest")

    def __init__(self) -> None:
        self.newest: Entry | None = None
        self.oldest: Entry | None = None

    def append(self, entry: Entry) -> None:
        """Append an entry that is in no row; it becomes the newest."""
        last = self.newest
        entry.older = last
        entry.newer = None
        if last is None:
            self.oldest = entry
        else:
            last.newer = entry
        self.newest = entry

    def remove(self, entry: Entry) -> None:
        """Remove an entry that is in this row."""
        older, newer = entry.older, entry.newer
        if older is None:
            self.oldest = newer
        else:
            older.newer = newer
        if newer is None:
            self.newest = older
        else:
            newer.older = older
        entry.older = entry.newer = None
