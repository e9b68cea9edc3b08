"""A bucket: the remaining conditions of a great many conjunctions that have the same equality values.

Owns: the columns of a large bucket, and the packed form of a small bucket. Must never: hold a number twice.

Each conjunction has a number. Each path of a large bucket has several columns. The first column has the first condition
of each conjunction on the path, the second column has the second condition, and so on. A path holds if the condition in
any of its columns holds, and a conjunction holds if all its paths hold. In a small bucket, a match tries each
conjunction. If the bucket is packed, ``try_packed`` compares the value with two doubles. Otherwise ``pattern.holds``
decides.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, Final

from pyroaring import BitMap

from .bounds import GROUP, LEAF
from .column import Column, closed, is_number
from .held import Gathered
from .pattern import NUMBER, Attributes, Condition, Conjunction, Path, Range

#: A conjunction's number, and the least and the greatest double of its range.
PACKED: Final = Struct("<Idd")

_BUCKET_BYTES: Final = 300


class Bucket:
    """A large bucket. ``paths``: the paths on which all its conjunctions have conditions. ``leaf``, ``group``: see
    ``Bounds``."""

    def __init__(self, paths: tuple[Path, ...], leaf: int = LEAF, group: int = GROUP) -> None:
        self._paths = paths
        self._leaf = leaf
        self._group = group
        self._columns: list[list[Column]] = [[] for _ in paths]
        self._count = 0
        self.bytes = _BUCKET_BYTES

    def __len__(self) -> int:
        return self._count

    def add(self, rest: Conjunction, number: Any) -> None:
        """Add a conjunction. ``rest``: its conditions on the bucket's paths, in the order of these paths."""
        self._count += 1
        for columns, (_, conditions) in zip(self._columns, rest, strict=True):
            for at, condition in enumerate(conditions):
                if at == len(columns):
                    columns.append(Column(self._leaf, self._group))
                    self.bytes += columns[at].bytes
                column = columns[at]
                before = column.bytes
                column.add(condition, number)
                self.bytes += column.bytes - before

    def remove(self, rest: Conjunction, number: Any) -> None:
        """Remove the conjunction with this number. ``rest``: its conditions."""
        self._count -= 1
        for columns, (_, conditions) in zip(self._columns, rest, strict=True):
            for at, condition in enumerate(conditions):
                column = columns[at]
                before = column.bytes
                column.remove(condition, number)
                self.bytes += column.bytes - before
            while columns and not len(columns[len(columns) - 1]):
                self.bytes -= columns.pop().bytes

    def matching(self, attributes: Attributes) -> BitMap:
        """Return the numbers of the conjunctions that hold on every path. The bitmap may belong to the bucket, so do
        not alter it."""
        result: BitMap | None = None
        for path, columns in zip(self._paths, self._columns, strict=True):
            values = attributes.get(path)
            found = Gathered()
            for column in columns:
                column.gather(values, found)
            those = found.bitmap()
            result = those if result is None else result & those
            if not result:
                break
        assert result is not None
        return result


def packed(rest: Conjunction, number: int) -> bytes | None:
    """Return the packed form of a conjunction that is one range on one path. Return ``None`` for all other
    conjunctions."""
    if len(rest) != 1:
        return None
    conditions = rest[0][1]
    if len(conditions) != 1:
        return None
    condition = conditions[0]
    if condition.kind != NUMBER:
        return None
    low, high = closed(condition.value)
    return PACKED.pack(number, low, high)


def unpacked(data: bytes, path: Path) -> list[tuple[int, Conjunction]]:
    """Return the numbers of a small bucket, each with its condition on the path."""
    found: list[tuple[int, Conjunction]] = []
    for number, low, high in PACKED.iter_unpack(data):
        found.append((number, ((path, (Condition(NUMBER, Range(low, False, high, False)),)),)))
    return found


def try_packed(data: bytes, values: list[Any] | None, found: list[int]) -> None:
    """From a small bucket, append the numbers whose range contains any of the values."""
    for value in values or ():
        if is_number(value):
            number = float(value)
            found.extend([each for each, low, high in PACKED.iter_unpack(data) if low <= number <= high])


def without_packed(data: bytes, number: int) -> bytes:
    """Return the small bucket without this number, which it must have."""
    size = PACKED.size
    for at in range(0, len(data), size):
        if PACKED.unpack_from(data, at)[0] == number:
            return data[:at] + data[at + size :]
    raise AssertionError(number)
