"""The conjunctions that constrain the same paths in the same way: the forward table of one shape.

Owns: tuple of equality values -> the numbers that have it, with what is left of each. Must never: know filters' texts,
or who has subscribed.

``equal``: the paths that have one value to equal; ``others``: those with any other condition. The values at ``equal``
are the bitmap of "Content-based publish/subscribe with bitmaps": looked up whole, there is no wildcard in it. One value
is its own key, and several strings are joined to one, which is smaller than a tuple. Of a bucket with up to ``TRIED``
conjunctions each is tried; a larger one has columns (``bucket``), and keeps them until it is empty.
"""

from __future__ import annotations

from itertools import product
from typing import Any, Final

from .bounds import GROUP, LEAF
from .bucket import PACKED, Bucket, packed, try_packed, unpacked, without_packed
from .held import Gathered, held_bytes, with_number, without_number
from .pattern import Attributes, Conjunction, Path, holds, scalar_key
from .table import Table

#: Of so many each is tried.
TRIED: Final = 64

_SHAPE_BYTES: Final = 700


class Shape:
    """``is_bound``: an attribute is needed at each of ``others`` (none of their conditions is ``ABSENT``). ``tried``:
    as above, for tests; ``leaf``, ``group``: see ``Bounds``."""

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
        self.home: Path | None = None  # where the index keeps it: one of the paths that it needs
        self._tried = tried
        self._leaf = leaf
        self._group = group
        self._buckets = Table()
        self.bytes = _SHAPE_BYTES

    def __len__(self) -> int:
        return len(self._buckets)

    def add(self, key: Any, rest: Conjunction, number: Any) -> None:
        """One more conjunction: the values at ``equal``, and what it asks of ``others``, in their order."""
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
        """The conjunction that was added with just these."""
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
        """The numbers of the conjunctions that hold."""
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
        else:  # long arrays: no more work than there are buckets
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
        """The bucket with one more: ``Held`` where nothing is left to ask. Else it is packed, a tuple of number, rest,
        number, rest, … or a ``Bucket``."""
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
    """The key of values at several paths, or at none: a string that no other strings have, or the tuple itself."""
    for value in values:
        if type(value) is not str:
            return values
    return "".join([f"{len(value)}:{value}" for value in values])


def parted(key: str) -> list[str]:
    """The values that were joined to this key."""
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
