"""What is left of very many conjunctions with the same equality values: a column for each condition of each path.

Owns: the columns of a large bucket, and the packed form of a small one. Must never: hold a number twice.

A number's second condition on a path is in the path's second column, and so on: the path is satisfied where any column
is, all are where every path is. Of a small bucket each is tried: in ``try_packed`` as two doubles beside its number,
else by ``pattern.holds``.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, Final

from pyroaring import BitMap

from .bounds import GROUP, LEAF
from .column import Column, closed, is_number
from .held import Gathered
from .pattern import NUMBER, Attributes, Condition, Conjunction, Path, Range

#: A number, and the least and the greatest double of its range.
PACKED: Final = Struct("<Idd")

_BUCKET_BYTES: Final = 300


class Bucket:
    """``paths``: those that its conjunctions have conditions on, each of them on all. ``leaf``, ``group``: see
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
        """One more, with what it asks of ``paths``, in their order."""
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
        """The number, which was added with just this."""
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
        """Those of which every path has what they ask for. Perhaps a bitmap of the bucket's own: not to be altered."""
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
    """The small form of what is one range on one path; ``None``: it is something else."""
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
    """The numbers of a small bucket, each with what it asks of the path."""
    found: list[tuple[int, Conjunction]] = []
    for number, low, high in PACKED.iter_unpack(data):
        found.append((number, ((path, (Condition(NUMBER, Range(low, False, high, False)),)),)))
    return found


def try_packed(data: bytes, values: list[Any] | None, found: list[int]) -> None:
    """Append the numbers of a small bucket whose range any of the values is in."""
    for value in values or ():
        if is_number(value):
            number = float(value)
            found.extend([each for each, low, high in PACKED.iter_unpack(data) if low <= number <= high])


def without_packed(data: bytes, number: int) -> bytes:
    """The small bucket without this number, which it has."""
    size = PACKED.size
    for at in range(0, len(data), size):
        if PACKED.unpack_from(data, at)[0] == number:
            return data[:at] + data[at + size :]
    raise AssertionError(number)
