"""Belady's policy evicts the entry whose next request is latest, possibly the newcomer.

Owns: only the order. Must never: be presented as a policy for a broker, because it has to know the future.

For entries of one size, no policy has more hits (Belady, 1966). In this implementation, the newcomer itself can be the
victim. It then never enters the cache. With entries of different sizes, Belady's policy is not optimal, and no fast
optimal policy is known. `bound.py` has an upper bound instead.
"""

from __future__ import annotations

from collections.abc import Sequence

from ingeborg.broker.core.caches.policy import Entry, Policy
from ingeborg.broker.core.caches.ranks import Ranks


class Belady(Policy):
    """The policy. ``following`` has, for each event, the index of its record's next request. The caller sets ``at``,
    the index of the current event."""

    def __init__(self, following: Sequence[int]) -> None:
        self._following = following
        self._ranks = Ranks()
        self.at = 0

    def admit(self, entry: Entry) -> bool:
        """Admit any entry, even an entry that is evicted immediately."""
        self._ranks.add(entry, -self._following[self.at])
        return True

    def used(self, entry: Entry) -> None:
        """Rank the entry by its next request."""
        self._ranks.change(entry, -self._following[self.at])

    def victim(self) -> Entry:
        """Return the entry with the latest next request."""
        return self._ranks.least()

    def forget(self, entry: Entry) -> None:
        """Remove the entry from the ranking."""
        self._ranks.remove(entry)
