"""SIEVE: a hand moves over the entries from the oldest to the newest. It evicts the first entry that has not been used
since the hand last passed the entry.

Owns: the row, the hand, and the marks. Must never: move an entry when it is used, because moves would make the policy
expensive.

Zhang, Yang, Yue, Vigfusson, Rashmi: "SIEVE is Simpler than LRU" (NSDI 2024), algorithm 1. The paper removes the victim
before it adds the new entry. Here the new entry is added first, so the hand skips the newest entry.
"""

from __future__ import annotations

from typing import Final

from .policy import Entry, Policy
from .row import Row

#: An entry's mark: whether it was used since the hand last passed it.
_NEW: Final = 0
_VISITED: Final = 1


class Sieve(Policy):
    """The SIEVE policy. Each operation takes constant time. Finding a victim takes constant time on average, because
    each step of the hand removes a mark that a use has set."""

    def __init__(self) -> None:
        self._row = Row()
        self._hand: Entry | None = None  # None if it is at the oldest entry

    def admit(self, entry: Entry) -> bool:
        """Admit any entry."""
        entry.mark = _NEW
        self._row.append(entry)
        return True

    def used(self, entry: Entry) -> None:
        """Mark the entry: the hand will spare it once."""
        entry.mark = _VISITED

    def victim(self) -> Entry:
        """Evict the first entry, starting at the hand, that was not used since the hand last passed it."""
        row = self._row
        newest = row.newest
        assert newest is not None
        entry = self._hand
        if entry is None or entry is newest:
            entry = row.oldest
        assert entry is not None
        while entry.mark == _VISITED and entry is not newest:
            entry.mark = _NEW
            entry = entry.newer
            assert entry is not None
            if entry is newest:
                entry = row.oldest
                assert entry is not None
        self._hand = None if entry.newer is newest else entry.newer
        row.remove(entry)
        return entry

    def forget(self, entry: Entry) -> None:
        """Remove the entry from the row. If the hand points to the entry, move the hand on."""
        if entry is self._hand:
            self._hand = entry.newer
        self._row.remove(entry)
