"""A rule of what comes in, and behind it LRU: the document says nothing of what goes.

Owns: that the rule is asked once for each entry that wants to come in.
"""

from __future__ import annotations

from ingeborg.bench.caching.policies.rules import Rule
from ingeborg.broker.core.caches.lru import Lru
from ingeborg.broker.core.caches.policy import Entry, Policy


class Ruled(Policy):
    """LRU of what the rule admits."""

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self._lru = Lru()

    def admit(self, entry: Entry) -> bool:
        """By its utility."""
        return self._rule.admits(entry.utility) and self._lru.admit(entry)

    def used(self, entry: Entry) -> None:
        """As LRU."""
        self._lru.used(entry)

    def victim(self) -> Entry:
        """As LRU."""
        return self._lru.victim()

    def forget(self, entry: Entry) -> None:
        """As LRU."""
        self._lru.forget(entry)
