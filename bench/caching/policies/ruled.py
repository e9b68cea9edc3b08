"""A rule of admission with eviction by LRU, because the document does not say what to evict.

Owns: the single call of the rule for each entry that requests admission.
"""

from __future__ import annotations

from ingeborg.bench.caching.policies.rules import Rule
from ingeborg.broker.core.caches.lru import Lru
from ingeborg.broker.core.caches.policy import Entry, Policy


class Ruled(Policy):
    """LRU among the entries that the rule admits."""

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self._lru = Lru()

    def admit(self, entry: Entry) -> bool:
        """Ask the rule about the entry's utility."""
        return self._rule.admits(entry.utility) and self._lru.admit(entry)

    def used(self, entry: Entry) -> None:
        """Behave as LRU."""
        self._lru.used(entry)

    def victim(self) -> Entry:
        """Behave as LRU."""
        return self._lru.victim()

    def forget(self, entry: Entry) -> None:
        """Behave as LRU."""
        self._lru.forget(entry)
