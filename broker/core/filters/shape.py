"""The forward table of one shape: the conjunctions that constrain the same paths in the same way.

Owns: the numbers and the other conditions of all conjunctions, by their equality values. Must never: know the text of a
filter, or its subscribers.

``equal``: the paths at which one certain value is required. ``others``: the paths with any other condition. The values
at ``equal`` correspond to the bitmap of "Content-based publish/subscribe with bitmaps": one lookup finds all of these
values together, and none is a wildcard. If there is only one value, this value is the key of the lookup. Several
strings are joined to one string, which is smaller than a tuple. The conjunctions with the same key form a bucket. In a
bucket of up to ``TRIED`` conjunctions, a match tries each conjunction. A larger bucket has columns (``bucket``), and
keeps the columns until it is empty.
"""

from __future__ import annotations

from itertools import product
from typing import Any, Final

from .bounds import GROUP, LEAF
from .bucket import PACKED, Bucket, packed, try_packed, unpacked, without_packed
from .held import Gathered, held_bytes, with_number, without_number
from .pattern import Attributes, Conjunction, Path, holds, scalar_key
from .table import Table

#: Maximum number of conjunctions that a match tries one by one.
TRIED: Final = 64

_SHAPE_BYTES: Final = 700


class Shape:
    """A shape. ``tried``: as ``TRIED``; only tests pass another value. ``leaf``, ``group``: see ``Bounds``."""

    def __init__(
        self,
        equal: tuple[Path, ...],
        others: tuple[Path, ...],
        tried: int = TRIED,
        leaf: int = LEAF,
        group: int = GROUP,
    ) -> None:
        self.equal = equal
        self.others = others
        self.home: Path | None = None  # the needed path under which the index files the shape; None if it needs no path
        self._tried = tried
        self._leaf = leaf
        self._group = group
        self._buckets = Table()
        self.bytes = _SHAPE_BYTES

    def __len__(self) -> int:
        return len(self._buckets)

    def add(self, key: Any, rest: Conjunction, number: Any) -> None:
        """Add a conjunction: its values at ``equal``, and its conditions on ``others``, in the order of these paths."""
        buckets = self._buckets
        held = buckets.get(key)
        before = buckets.bytes + _bytes_of(held)
        now = self._with(held, rest, number)
        if now is not held:
            buckets.put(key, now)
        self.bytes += buckets.bytes + _bytes_of(now) - before
        if held is None:
            self.bytes += _key_bytes(key)

    def remove(self, key: Any, rest: Conjunction, number: Any) -> None:
        """Remove the conjunction that has exactly these values and conditions."""
        buckets = self._buckets
        held = buckets.get(key)
        before = buckets.bytes + _bytes_of(held)
        now = self._without(held, rest, number)
        if now is None:
            buckets.pop(key)
            self.bytes -= _key_bytes(key)
        elif now is not held:
            buckets.put(key, now)
        self.bytes += buckets.bytes + _bytes_of(now) - before

    def gather(self, attributes: Attributes, found: Gathered) -> None:
        """Gather the numbers of the conjunctions that hold."""
        equal = self.equal
        if len(equal) == 1:
            values = attributes.get(equal[0])
            if values is None:
                return
            if len(values) == 1:
                self._try(scalar_key(values[0]), attributes, found)
                return
            for key in dict.fromkeys([scalar_key(value) for value in values]):
                self._try(key, attributes, found)
            return
        keys: list[list[Any]] = []
        combinations = 1
        for path in equal:
            values = attributes.get(path)
            if values is None:
                return
            keys.append([scalar_key(values[0])] if len(values) == 1 else list({scalar_key(value) for value in values}))
            combinations *= len(keys[len(keys) - 1])
        if combinations == 1:
            self._try(joined(tuple([each[0] for each in keys])), attributes, found)
        elif combinations <= len(self._buckets):
            for one in product(*keys):
                self._try(joined(one), attributes, found)
        else:  # the payload has long arrays, so limit the work by the number of buckets
            those = [frozenset(each) for each in keys]
            for key in self._buckets.all_keys():
                parts: Any = key if type(key) is tuple else parted(key)
                if len([True for value, of in zip(parts, those, strict=True) if value in of]) == len(those):
                    self._try(key, attributes, found)

    def _try(self, key: Any, attributes: Attributes, found: Gathered) -> None:
        held = self._buckets.get(key)
        if held is None:
            return
        if not self.others:
            found.add(held)
        elif type(held) is bytes:
            try_packed(held, attributes.get(self.others[0]), found.single)
        elif isinstance(held, Bucket):
            found.add(held.matching(attributes))
        else:
            for at in range(0, len(held), 2):
                if holds(held[at + 1], attributes):
                    found.single.append(held[at])

    def _with(self, held: Any, rest: Conjunction, number: Any) -> Any:
        """Return the bucket with one more conjunction. A bucket of conjunctions without other conditions is ``Held``.
        Any other bucket is packed bytes, a tuple (number, rest, number, rest, …) or a ``Bucket``."""
        if not rest:
            return with_number(held, number)
        if isinstance(held, Bucket):
            held.add(rest, number)
            return held
        if held is None or type(held) is bytes:
            one = packed(rest, number)
            if one is not None and (held is None or len(held) < self._tried * PACKED.size):
                return one if held is None else held + one
        few: list[Any] = []
        if type(held) is bytes:
            for each in unpacked(held, self.others[0]):
                few.extend(each)
        elif held is not None:
            few.extend(held)
        few.append(number)
        few.append(rest)
        if len(few) <= 2 * self._tried:
            return tuple(few)
        bucket = Bucket(self.others, self._leaf, self._group)
        for at in range(0, len(few), 2):
            bucket.add(few[at + 1], few[at])
        return bucket

    def _without(self, held: Any, rest: Conjunction, number: Any) -> Any:
        if not rest:
            return without_number(held, number)
        if isinstance(held, Bucket):
            held.remove(rest, number)
            return held if len(held) else None
        if type(held) is bytes:
            return without_packed(held, number) or None
        at = 0
        while held[at] != number:
            at += 2
        return held[:at] + held[at + 2 :] or None


def joined(values: tuple[Any, ...]) -> Any:
    """Return the key for the values at several paths, or at none. If all values are strings, it is a string that is
    unique to these values. Otherwise it is the tuple itself."""
    for value in values:
        if type(value) is not str:
            return values
    return "".join([f"{len(value)}:{value}" for value in values])


def parted(key: str) -> list[str]:
    """Return the values that ``joined`` made this key from."""
    values: list[str] = []
    at = 0
    while at < len(key):
        start = key.index(":", at) + 1
        at = start + int(key[at : start - 1])
        values.append(key[start:at])
    return values


def _bytes_of(held: Any) -> int:
    if type(held) is bytes:
        return 40 + len(held)
    if isinstance(held, Bucket):
        return held.bytes
    if type(held) is tuple and len(held) > 1 and type(held[1]) is tuple:
        return 40 + 200 * len(held)
    return held_bytes(held)


def _key_bytes(key: Any) -> int:
    if type(key) is tuple:
        return 48 + 8 * len(key) + sum([_key_bytes(each) for each in key])
    return 56 + len(key) if type(key) is str else 32
