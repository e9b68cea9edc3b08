"""SIEVE: a hand goes over the entries from the oldest to the newest, and takes the first that nobody has asked for.

Owns: the row, the hand, and the marks. Must never: move an entry that was asked for; that is why it is cheap.

Zhang, Yang, Yue, Vigfusson, Rashmi: "SIEVE is Simpler than LRU" (NSDI 2024), algorithm 1. There a victim is found
before the new entry comes in, here afterwards. So the hand passes over the newest entry as if it were not there yet.
"""

from __future__ import annotations

from typing import Final

from .policy import Entry, Policy
from .row import Row

#: An entry's mark: has anybody asked for it since the hand came by?
_NEW: Final = 0
_VISITED: Final = 1


class Sieve(Policy):
    """Each operation takes constant time; that of a victim does on average: each step of the hand takes a mark away
    that a use has made."""

    def __init__(self) -> None:
        self._row = Row()
        self._hand: Entry | None = None  # None: at the oldest

    def admit(self, entry: Entry) -> bool:
        """Any may come in."""
        entry.mark = _NEW
        self._row.append(entry)
        return True

    def used(self, entry: Entry) -> None:
        """The hand will spare it, once."""
        entry.mark = _VISITED

    def victim(self) -> Entry:
        """The first from the hand on that nobody has asked for since the hand last came by."""
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
        """It leaves the row; the hand goes on if it is there."""
        if entry is self._hand:
            self._hand = entry.newer
        self._row.remove(entry)
