"""GDSF: what was asked for most often since it came in, for its size, stays, and ages.

Owns: the number of an entry's uses, and the inflation. Must never: remember the uses of an entry that has gone.

Cherkasova: "Improving WWW Proxies Performance with Greedy-Dual-Size-Frequency Caching Policy" (HP Laboratories, 1998).
What an entry is worth is counted from what the last victim was worth. So what is not used any more goes in the end,
however often it was used.
"""

from __future__ import annotations

from ingeborg.broker.core.caches.policy import Entry, Policy
from ingeborg.broker.core.caches.ranks import Ranks


class Gdsf(Policy):
    """An entry's coming is its first use. Keys are whole numbers."""

    def __init__(self) -> None:
        self._ranks = Ranks()
        self._uses: dict[int, int] = {}
        self._inflation = 0.0

    def admit(self, entry: Entry) -> bool:
        """Any may come in."""
        self._uses[entry.key] = 1
        self._ranks.add(entry, self._inflation + 1 / entry.size)
        return True

    def used(self, entry: Entry) -> None:
        """Once more."""
        self._uses[entry.key] += 1
        self._ranks.change(entry, self._inflation + self._uses[entry.key] / entry.size)

    def victim(self) -> Entry:
        """The least; all that come later are worth more by that much."""
        entry = self._ranks.least()
        del self._uses[entry.key]
        self._inflation = entry.worth
        return entry

    def forget(self, entry: Entry) -> None:
        """It is not ranked any more."""
        self._ranks.remove(entry)
        del self._uses[entry.key]
