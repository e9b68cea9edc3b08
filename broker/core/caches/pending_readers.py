"""The policy *pending readers* keeps the entries that the most subscribers have yet to read, relative to the size of
each entry. `bench caching` calls this policy `owed`.

Owns: an entry's worth. Must never: guess future reads (an entry's utility says how many subscribers have yet to read
it).

The idea comes from GreedyDual-Size (Cao and Irani, USITS 1997). An entry's cost is the number of subscribers that have
yet to read it. These reads are still to come, so each byte of the entry saves ``utility / size`` reads. Whether to use
GreedyDual's inflation, which lets entries age, depends on whether subscribers come back. If all subscribers come back,
an entry with ten pending readers gets ten more reads, however old it is. If some subscribers never come back, the
entries that wait for these subscribers would stay forever. `bench caching` compares both variants with each other, and
with the maximum number of hits that a policy can reach without knowing the order of the readers.
"""

from __future__ import annotations

from typing import Final

from .policy import Entry, Policy
from .ranks import Ranks

#: The worth of an entry without pending readers, which is less than the worth of any other entry.
_NOTHING: Final = -1.0


class PendingReaders(Policy):
    """Keeps the entries with the most pending readers per byte. Choosing a victim or recording a use takes a number of
    steps that is logarithmic in the number of entries. ``ages``: whether entries lose worth relative to later
    entries."""

    def __init__(self, ages: bool = False) -> None:
        self._ranks = Ranks()
        self._ages = ages
        self._inflation = 0.0

    def admit(self, entry: Entry) -> bool:
        """Admit any entry. If it is worth less than all others, it is the next victim."""
        self._ranks.add(entry, self._worth(entry))
        return True

    def used(self, entry: Entry) -> None:
        """Count one of the entry's pending readers as served."""
        if entry.utility > 0:
            entry.utility -= 1
            self._ranks.change(entry, self._worth(entry))

    def victim(self) -> Entry:
        """Evict the entry with the fewest pending readers relative to its size. Entries without pending readers go
        first."""
        entry = self._ranks.least()
        if self._ages and entry.worth > self._inflation:
            self._inflation = entry.worth
        return entry

    def forget(self, entry: Entry) -> None:
        """Remove the entry from the ranks."""
        self._ranks.remove(entry)

    def _worth(self, entry: Entry) -> float:
        return self._inflation + entry.utility / entry.size if entry.utility else _NOTHING
