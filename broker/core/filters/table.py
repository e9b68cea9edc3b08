"""A dictionary for a million keys that grows without a pause. It consists of many small dictionaries, and splits one
dictionary at a time.

Owns: the keys of one such table and the place of each key. Must never: move more than one small dictionary in a call.

When a Python dictionary doubles, it moves all its keys, which takes 20 ms with a million keys. This module uses linear
hashing (W. Litwin, "Linear hashing: a new tool for file and table addressing", VLDB 1980) over dictionaries of about
``SMALL`` keys.
"""

from __future__ import annotations

from typing import Any, Final

#: The average number of keys in a small dictionary. A dictionary to be split has at most twice as many keys, so
#: splitting it takes 0.1 ms. Several tables may each split a dictionary in the same call.
SMALL: Final = 256

#: Bytes of one dictionary without its keys.
_EMPTY_BYTES: Final = 130


class Table:
    """A table. ``key_bytes``: the memory that the table needs for each key, for the estimate in ``bytes``; it is
    smaller if all keys are strings. ``small``: as ``SMALL``; only tests pass another value."""

    def __init__(self, key_bytes: int = 46, small: int = SMALL) -> None:
        self._small = small
        self._key_bytes = key_bytes
        self._count = 0
        self._parts: list[dict[Any, Any]] = [{}]
        self._level = 1  # the highest power of two up to the number of parts

    def __len__(self) -> int:
        return self._count

    @property
    def bytes(self) -> int:
        """An estimate of its memory, without the keys and values."""
        return len(self._parts) * _EMPTY_BYTES + self._count * self._key_bytes

    def get(self, key: Any) -> Any:
        """Return the key's value, or ``None``."""
        return self._parts[self._place(key)].get(key)

    def put(self, key: Any, value: Any) -> None:
        """Set the key's value, which must not be ``None``."""
        part = self._parts[self._place(key)]
        before = len(part)
        part[key] = value
        if len(part) != before:
            self._count += 1
            if self._count > self._small * len(self._parts):
                self._split()

    def pop(self, key: Any) -> Any:
        """Remove the key and return its value, or ``None`` if the table did not have it."""
        at = self._place(key)
        value = self._parts[at].pop(key, None)
        if value is not None:
            self._count -= 1
            if not self._parts[at]:
                self._parts[at] = {}  # an emptied dictionary would keep its memory
            if len(self._parts) > 1 and 4 * self._count < self._small * len(self._parts):
                self._join()
        return value

    def all_keys(self) -> list[Any]:
        """Return all keys. Use this only for small tables, or if all keys are needed."""
        return [key for part in self._parts for key in part]

    def _place(self, key: Any) -> int:
        parts = len(self._parts)
        if parts == 1:
            return 0
        # Use the hash of a tuple, which mixes the bits. A small integer is its own hash, and the small dictionaries use
        # its lowest bits already.
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
