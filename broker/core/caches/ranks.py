"""Entries by what they are worth: the least of them is found at once.

Owns: the heap, and that it stays small. Must never: know what makes an entry worth more.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final

from .policy import Entry

#: An entry's mark: it is not ranked.
_OUT: Final = -1

#: The heap may hold as many items that are over as entries, and these besides: of few entries it would be made anew all
#: the time.
SPARE: Final = 64


class Ranks:
    """Each operation takes a number of steps like the logarithm of the number of entries, on average: what an entry was
    worth before stays in the heap until it comes up, or until such items are more than the entries."""

    __slots__ = ("_count", "_heap", "_number")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Entry]] = []
        self._number = 0  # the newest item's
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def items(self) -> int:
        """In the heap, those that are over included."""
        return len(self._heap)

    def add(self, entry: Entry, worth: float) -> None:
        """It was not ranked."""
        self._count += 1
        self._push(entry, worth)

    def change(self, entry: Entry, worth: float) -> None:
        """It is worth this now. Among equals it is the newest."""
        self._push(entry, worth)
        self._tidy()

    def _push(self, entry: Entry, worth: float) -> None:
        self._number += 1
        entry.worth = worth
        entry.mark = self._number
        heappush(self._heap, (worth, self._number, entry))

    def remove(self, entry: Entry) -> None:
        """It is not ranked any more."""
        entry.mark = _OUT
        self._count -= 1
        self._tidy()

    def _tidy(self) -> None:
        if len(self._heap) > 2 * self._count + SPARE:
            self._heap = [item for item in self._heap if item[2].mark == item[1]]
            heapify(self._heap)

    def least(self) -> Entry:
        """Take out the one that is worth least; of equals, the one that has been worth that for longest."""
        while True:
            _, number, entry = heappop(self._heap)
            if entry.mark == number:
                self.remove(entry)
                return entry
