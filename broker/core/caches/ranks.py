"""Ranks entries by their worth, and quickly finds the entry with the least worth.

Owns: the heap. Must never: know where an entry's worth comes from, or postpone work to a later clean-up, because the
clean-up would take longer.
"""

from __future__ import annotations

from .policy import Entry


class Ranks:
    """A binary heap in which each entry knows its place (``mark``), so that any entry can move or leave. Each operation
    takes a number of steps logarithmic in the number of entries."""

    __slots__ = ("_heap", "_number")

    def __init__(self) -> None:
        self._heap: list[Entry] = []
        self._number = 0  # the newest entry's count

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, entry: Entry, worth: float) -> None:
        """Add an entry that has no rank yet."""
        self._heap.append(entry)
        self._value(entry, worth)
        self._up(entry, len(self._heap) - 1)

    def change(self, entry: Entry, worth: float) -> None:
        """Set the entry's worth. It becomes the newest of all entries with this worth."""
        self._value(entry, worth)
        self._settle(entry, entry.mark)

    def remove(self, entry: Entry) -> None:
        """Remove an entry."""
        last = self._heap.pop()
        if last is not entry:
            self._settle(last, entry.mark)

    def least(self) -> Entry:
        """Remove and return the entry with the least worth. If several entries share this worth, choose the entry that
        got it first."""
        entry = self._heap[0]
        self.remove(entry)
        return entry

    def _value(self, entry: Entry, worth: float) -> None:
        self._number += 1
        entry.worth = worth
        entry.since = self._number

    def _settle(self, entry: Entry, place: int) -> None:
        """Put the entry at this place in the heap, then move it up or down as far as necessary."""
        heap = self._heap
        if place and _before(entry, heap[(place - 1) >> 1]):
            self._up(entry, place)
        else:
            self._down(entry, place)

    def _up(self, entry: Entry, place: int) -> None:
        heap = self._heap
        while place:
            above = (place - 1) >> 1
            other = heap[above]
            if not _before(entry, other):
                break
            heap[place] = other
            other.mark = place
            place = above
        heap[place] = entry
        entry.mark = place

    def _down(self, entry: Entry, place: int) -> None:
        heap = self._heap
        end = len(heap)
        while True:
            below = 2 * place + 1
            if below >= end:
                break
            other = heap[below]
            if below + 1 < end and _before(heap[below + 1], other):
                below += 1
                other = heap[below]
            if not _before(other, entry):
                break
            heap[place] = other
            other.mark = place
            place = below
        heap[place] = entry
        entry.mark = place


def _before(one: Entry, other: Entry) -> bool:
    """Return whether ``one`` is worth less than ``other``, or got the same worth earlier."""
    return one.worth < other.worth or (one.worth == other.worth and one.since < other.since)
