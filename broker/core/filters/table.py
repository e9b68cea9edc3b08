"""A dictionary for a million keys whose growth no caller notices: many small ones, of which one is split at a time.

Owns: the keys of one such table and where each of them lies. Must never: move more than one small dictionary in a call.

A dictionary of Python's that doubles moves all that it holds, 20 ms at a million. This is linear hashing (W. Litwin,
"Linear hashing: a new tool for file and table addressing", VLDB 1980) over dictionaries of ``SMALL`` keys or so.
"""

from __future__ import annotations

from typing import Any, Final

#: Keys in one of them on the average. Splitting one of at most twice as many takes 0.1 ms, and several tables may have
#: to split one at the same time.
SMALL: Final = 256

#: What one dictionary takes besides its keys.
_EMPTY_BYTES: Final = 130


class Table:
    """``key_bytes``: what a key's place takes (a dictionary of strings alone is smaller), for the estimate.
    ``small``: as above, for tests."""

    def __init__(self, key_bytes: int = 46, small: int = SMALL) -> None:
        self._small = small
        self._key_bytes = key_bytes
        self._count = 0
        self._parts: list[dict[Any, Any]] = [{}]
        self._level = 1  # the highest power of two that is not above the number of parts

    def __len__(self) -> int:
        return self._count

    @property
    def bytes(self) -> int:
        """An estimate of its memory, without that of keys and values."""
        return len(self._parts) * _EMPTY_BYTES + self._count * self._key_bytes

    def get(self, key: Any) -> Any:
        """What is held there, or ``None``."""
        return self._parts[self._place(key)].get(key)

    def put(self, key: Any, value: Any) -> None:
        """Hold it there, in place of what was. ``value``: not ``None``."""
        part = self._parts[self._place(key)]
        before = len(part)
        part[key] = value
        if len(part) != before:
            self._count += 1
            if self._count > self._small * len(self._parts):
                self._split()

    def pop(self, key: Any) -> Any:
        """Take out what is held there, and give it; ``None``: nothing was."""
        at = self._place(key)
        value = self._parts[at].pop(key, None)
        if value is not None:
            self._count -= 1
            if not self._parts[at]:
                self._parts[at] = {}  # one that had many keeps the room for them
            if len(self._parts) > 1 and 4 * self._count < self._small * len(self._parts):
                self._join()
        return value

    def all_keys(self) -> list[Any]:
        """All of them: for small tables, and for those whose contents are what is wanted."""
        return [key for part in self._parts for key in part]

    def _place(self, key: Any) -> int:
        parts = len(self._parts)
        if parts == 1:
            return 0
        # A small integer's hash is itself, and a dictionary's own places are by the lowest bits: a tuple's hash mixes.
        place: int = (hash((key, 0)) >> 24) & (2 * self._level - 1)
        return place if place < parts else place - self._level

    def _split(self) -> None:
        parts, level = self._parts, self._level
        at = len(parts) - level
        divided = parts[at]
        parts.append({})
        stay: dict[Any, Any] = {}
        go: dict[Any, Any] = {}
        mask = 2 * level - 1
        for key, value in divided.items():
            if (hash((key, 0)) >> 24) & mask == at:
                stay[key] = value
            else:
                go[key] = value
        parts[at] = stay
        parts[-1] = go
        if len(parts) == 2 * level:
            self._level = 2 * level

    def _join(self) -> None:
        parts = self._parts
        if len(parts) == self._level:
            self._level //= 2
        last = parts.pop()
        at = len(parts) - self._level
        parts[at] = {**parts[at], **last}
