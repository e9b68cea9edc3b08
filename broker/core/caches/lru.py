"""LRU: evicts the entry whose last use is the oldest.

Owns: the order of the entries' last uses. Must never: consider an entry's size or utility.
"""

from __future__ import annotations

from .policy import Entry, Policy
from .row import Row


class Lru(Policy):
    """Least recently used. Each operation takes constant time."""

    def __init__(self) -> None:
        self._row = Row()

    def admit(self, entry: Entry) -> bool:
        """Admit any entry."""
        self._row.append(entry)
        return True

    def used(self, entry: Entry) -> None:
        """Make the entry the newest."""
        self._row.remove(entry)
        self._row.append(entry)

    def victim(self) -> Entry:
        """Remove and return the oldest entry."""
        entry = self._row.oldest
        assert entry is not None
        self._row.remove(entry)
        return entry

    def forget(self, entry: Entry) -> None:
        """Remove the entry from the row."""
        self._row.remove(entry)
