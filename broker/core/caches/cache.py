"""A cache of entries, which are indexed by key. A policy chooses the entries that stay.

Owns: the limit on bytes, and the counters of admitted, refused and removed entries. Must never: choose the entry to
remove.
"""

from __future__ import annotations

from typing import Any, Final

from .policy import Entry, Policy

#: The names of the counters in ``Counts``.
COUNTED: Final = ("hits", "misses", "admitted", "refused", "too_large", "evicted", "passed_over", "dropped")


class Counts:
    """Counts since the start of the cache.

    ``admitted``: entries added to the cache. ``refused``: entries that the policy did not admit. ``too_large``: entries
    larger than the whole cache. ``evicted``: entries removed to make room for others. ``passed_over``: new entries that
    the policy evicted immediately. ``dropped``: entries removed for any other reason.
    """

    __slots__ = ("admitted", "dropped", "evicted", "hits", "misses", "passed_over", "refused", "too_large")

    def __init__(self) -> None:
        self.hits = 0
        self.misses = 0
        self.admitted = 0
        self.refused = 0
        self.too_large = 0
        self.evicted = 0
        self.passed_over = 0
        self.dropped = 0


class Cache:
    """A cache. ``bytes_max``: maximum bytes of all entries together; ``None`` if there is no limit."""

    __slots__ = ("_entries", "_policy", "bytes", "bytes_max", "counts")

    def __init__(self, policy: Policy, bytes_max: int | None) -> None:
        self._policy = policy
        self._entries: dict[Any, Entry] = {}
        self.bytes_max = bytes_max
        self.bytes = 0
        self.counts = Counts()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def get(self, key: Any) -> Entry | None:
        """Return the entry and count a hit, or return ``None`` and count a miss."""
        entry = self._entries.get(key)
        if entry is None:
            self.counts.misses += 1
            return None
        self.counts.hits += 1
        self._policy.used(entry)
        return entry

    def put(self, entry: Entry) -> bool:
        """Add an entry whose key the cache does not have, and evict entries until all fit. Return whether the new entry
        stays."""
        assert entry.key not in self._entries
        counts, room = self.counts, self.bytes_max
        if room is not None and entry.size > room:
            counts.too_large += 1
            return False
        if not self._policy.admit(entry):
            counts.refused += 1
            return False
        counts.admitted += 1
        self._entries[entry.key] = entry
        self.bytes += entry.size
        if room is None:
            return True
        stays = True
        while self.bytes > room:
            victim = self._policy.victim()
            self._remove(victim)
            if victim is entry:
                counts.passed_over += 1
                stays = False
            else:
                counts.evicted += 1
        return stays

    def drop(self, key: Any) -> bool:
        """Remove an entry for a reason other than a lack of room. Return whether the cache had it."""
        entry = self._entries.get(key)
        if entry is None:
            return False
        self._policy.forget(entry)
        self._remove(entry)
        self.counts.dropped += 1
        return True

    def _remove(self, entry: Entry) -> None:
        del self._entries[entry.key]
        self.bytes -= entry.size
