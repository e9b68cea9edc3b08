"""Pending readers: what most subscribers have not had yet, for its size, stays. `bench caching` calls it `owed`.

Owns: what an entry is worth. Must never: guess what will be asked for; it is known who has not had a message.

The idea is GreedyDual-Size (Cao and Irani, USITS 1997), with the subscribers that have not had an entry for its cost:
those are the reads that are still to come, so a byte of it saves ``utility / size`` of them. GreedyDual's inflation,
which lets entries age, is a matter of trust. Where all subscribers come back, an entry that ten have not had is read
ten times more, however old it is. Where some never do, what only they have not had would stay for ever. `bench caching`
has both beside each other, and beside the most hits that a policy can have that does not know who comes first.
"""

from __future__ import annotations

from typing import Final

from .policy import Entry, Policy
from .ranks import Ranks

#: What an entry is worth that has no pending readers: less than any other.
_NOTHING: Final = -1.0


class PendingReaders(Policy):
    """A victim, and a use, take a number of steps like the logarithm of the number of entries. ``ages``: an entry is
    worth less beside those that come later."""

    def __init__(self, ages: bool = False) -> None:
        self._ranks = Ranks()
        self._ages = ages
        self._inflation = 0.0

    def admit(self, entry: Entry) -> bool:
        """Any may come in. One that is worth less than all others is the next victim."""
        self._ranks.add(entry, self._worth(entry))
        return True

    def used(self, entry: Entry) -> None:
        """One of its pending readers has had it."""
        if entry.utility > 0:
            entry.utility -= 1
            self._ranks.change(entry, self._worth(entry))

    def victim(self) -> Entry:
        """The one with the fewest pending readers for its size. One without any goes before all others."""
        entry = self._ranks.least()
        if self._ages and entry.worth > self._inflation:
            self._inflation = entry.worth
        return entry

    def forget(self, entry: Entry) -> None:
        """It is worth nothing any more."""
        self._ranks.remove(entry)

    def _worth(self, entry: Entry) -> float:
        return self._inflation + entry.utility / entry.size if entry.utility else _NOTHING
