"""Belady's policy: what is asked for latest from now goes, or what has just come.

Owns: nothing but the order. Must never: be taken for one that a broker could have: it knows what comes.

Of entries of one size none has more hits (Belady, 1966; with a newcomer among the candidates it need not even come in).
Of entries of different sizes that is not so, and no fast policy is known that none beats: `bound.py` has a bound.
"""

from __future__ import annotations

from collections.abc import Sequence

from ingeborg.broker.core.caches.policy import Entry, Policy
from ingeborg.broker.core.caches.ranks import Ranks


class Belady(Policy):
    """``following``: at each event, when what it is about is asked for next. ``at``: the event that is under way, for
    the caller to set."""

    def __init__(self, following: Sequence[int]) -> None:
        self._following = following
        self._ranks = Ranks()
        self.at = 0

    def admit(self, entry: Entry) -> bool:
        """It may come in, and go at once."""
        self._ranks.add(entry, -self._following[self.at])
        return True

    def used(self, entry: Entry) -> None:
        """It will be again later."""
        self._ranks.change(entry, -self._following[self.at])

    def victim(self) -> Entry:
        """The one that is asked for latest."""
        return self._ranks.least()

    def forget(self, entry: Entry) -> None:
        """It is not ranked any more."""
        self._ranks.remove(entry)
