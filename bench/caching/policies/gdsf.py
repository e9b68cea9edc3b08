"""GDSF keeps the entries with the most requests since their admission, relative to their size. Entries age.

Owns: the number of an entry's uses, and the inflation. Must never: remember the uses of an evicted entry.

Cherkasova: "Improving WWW Proxies Performance with Greedy-Dual-Size-Frequency Caching Policy" (HP Laboratories, 1998).
An entry's value starts from the value of the last victim. So an entry that is no longer used is evicted eventually,
even if it was used often before.
"""

from __future__ import annotations

from ingeborg.broker.core.caches.policy import Entry, Policy
from ingeborg.broker.core.caches.ranks import Ranks


class Gdsf(Policy):
    """The policy. An entry's admission is its first use. Keys are whole numbers."""

    def __init__(self) -> None:
        self._ranks = Ranks()
        self._uses: dict[int, int] = {}
        self._inflation = 0.0

    def admit(self, entry: Entry) -> bool:
        """Admit any entry."""
        self._uses[entry.key] = 1
        self._ranks.add(entry, self._inflation + 1 / entry.size)
        return True

    def used(self, entry: Entry) -> None:
        """Count one more use."""
        self._uses[entry.key] += 1
        self._ranks.change(entry, self._inflation + self._uses[entry.key] / entry.size)

    def victim(self) -> Entry:
        """Return the least valuable entry. Later values start from the value of this entry."""
        entry = self._ranks.least()
        del self._uses[entry.key]
        self._inflation = entry.worth
        return entry

    def forget(self, entry: Entry) -> None:
        """Remove the entry from the ranking."""
        self._ranks.remove(entry)
        del self._uses[entry.key]
