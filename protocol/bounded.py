"""A map with a maximum size. When it is full, a new entry evicts the entry that was added longest ago.

Owns: the order of the entries, and their maximum number. Must never: judge the value of an entry, or read a clock.
Callers that store expiry times have to check the times themselves.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class BoundedMap(Generic[K, V]):
    """A map of at most ``entries_max`` entries. Each operation takes constant time."""

    def __init__(self, entries_max: int) -> None:
        if entries_max < 1:
            raise ValueError(f"a map of at most {entries_max} entries holds nothing")
        self._entries_max = entries_max
        # A plain dict would take longer and longer to find its first entry after removals from its front.
        self._entries: OrderedDict[K, V] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    def get(self, key: K) -> V | None:
        """Return the key's value, and leave its age unchanged."""
        return self._entries.get(key)

    def put(self, key: K, value: V) -> bool:
        """Store the value as the newest entry. Returns whether this evicted the oldest entry, so that the caller can
        count evictions."""
        self._entries[key] = value
        self._entries.move_to_end(key)
        if len(self._entries) <= self._entries_max:
            return False
        self._entries.popitem(last=False)
        return True

    def discard(self, key: K) -> None:
        """Remove the key, if it exists."""
        self._entries.pop(key, None)
