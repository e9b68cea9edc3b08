"""A cache: entries by their keys, as many as there is room for, and a policy that says which.

Owns: the room, and the counters: every entry that does not come in, or goes, is counted by its reason. Must never:
choose what goes.
"""

from __future__ import annotations

from typing import Any, Final

from .policy import Entry, Policy

#: What is counted, by the names of the attributes of ``Counts``.
COUNTED: Final = ("hits", "misses", "admitted", "refused", "too_large", "evicted", "passed_over", "dropped")


class Counts:
    """Since the cache was made. Of entries: ``admitted``; those that did not come in, as the policy ``refused`` them,
    or as they were ``too_large`` for the whole room; those that went: ``evicted`` for others, ``passed_over`` for want
    of room when they had just come, ``dropped`` for another reason."""

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
    """``bytes_max``: of all entries together; ``None``: there is no limit."""

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
        """Ask for an entry: a hit or a miss."""
        entry = self._entries.get(key)
        if entry is None:
            self.counts.misses += 1
            return None
        self.counts.hits += 1
        self._policy.used(entry)
        return entry

    def put(self, entry: Entry) -> bool:
        """An entry whose key is not in wants to come in. Returns whether it is in when others have made room."""
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
        """It goes for another reason than want of room. Returns whether it was in."""
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
