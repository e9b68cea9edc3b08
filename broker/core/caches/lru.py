"""LRU: what was not asked for the longest goes.

Owns: the order in which entries were last asked for. Must never: look at an entry's size or utility.
"""

from __future__ import annotations

from .policy import Entry, Policy
from .row import Row


class Lru(Policy):
    """Least recently used. Each operation takes constant time."""

    def __init__(self) -> None:
        self._row = Row()

    def admit(self, entry: Entry) -> bool:
        """Any may come in."""
        self._row.append(entry)
        return True

    def used(self, entry: Entry) -> None:
        """It is the newest."""
        self._row.remove(entry)
        self._row.append(entry)

    def victim(self) -> Entry:
        """The oldest."""
        entry = self._row.oldest
        assert entry is not None
        self._row.remove(entry)
        return entry

    def forget(self, entry: Entry) -> None:
        """It leaves the row."""
        self._row.remove(entry)
