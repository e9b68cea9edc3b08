"""A map with a limit: what was put in longest ago makes room.

Owns: the order of the entries, and how many there are at most. Must never: decide what an entry is worth, or read a
clock: who keeps expiries in it looks at them by itself.
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
        # Not a plain dict: one that is emptied from its front has to look for its first entry ever longer.
        self._entries: OrderedDict[K, V] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    def get(self, key: K) -> V | None:
        """The key's value, which stays as old as it is."""
        return self._entries.get(key)

    def put(self, key: K, value: V) -> bool:
        """The key has this value and is the newest. Returns whether the oldest had to go, for the caller to count."""
        self._entries[key] = value
        self._entries.move_to_end(key)
        if len(self._entries) <= self._entries_max:
            return False
        self._entries.popitem(last=False)
        return True

    def discard(self, key: K) -> None:
        """Take the key out, if it is there."""
        self._entries.pop(key, None)
