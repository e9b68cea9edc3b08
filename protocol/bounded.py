"""A map with a limit: the entry that was added longest ago makes room for a new one.

Owns: the order of the entries, and their maximum. Must never: decide what an entry is worth, or read a clock: a caller
that keeps expiries in it checks them.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class BoundedMap(Generic[K, V]):
    """At most ``entries_max`` entries; each operation takes constant time."""

    def __init__(self, entries_max: int) -> None:
        if entries_max < 1:
            raise ValueError(f"a map of at most {entries_max} entries holds nothing")
        self._entries_max = entries_max
        # Not a plain dict: after removals from its front it searches longer and longer for its first entry.
        self._entries: OrderedDict[K, V] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    def get(self, key: K) -> V | None:
        """Return the key's value, and leave its age unchanged."""
        return self._entries.get(key)

    def put(self, key: K, value: V) -> bool:
        """Put the value in as the newest entry. Returns whether the oldest had to go, for the caller to count."""
        self._entries[key] = value
        self._entries.move_to_end(key)
        if len(self._entries) <= self._entries_max:
            return False
        self._entries.popitem(last=False)
        return True

    def discard(self, key: K) -> None:
        """Remove the key, if it exists."""
        self._entries.pop(key, None)
