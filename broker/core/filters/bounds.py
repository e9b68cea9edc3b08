"""Keeps the lower bounds of a great many filters sorted, and finds the bounds that are at most a given number.

Owns: the bounds of one kind in one column of a bucket. Must never: move more than one block of bounds in a call.

Each bound belongs to the number of a conjunction. The bounds form sorted blocks of a few hundred bounds each, and the
blocks form groups, all in ascending order. Each group stores the union of its own numbers and the numbers of all groups
before it, as a bitmap. So an answer consists of one such union, the bitmaps of at most ``GROUP`` blocks, and a part of
one block. A new bound goes into its block, and into the unions of its group and of all later groups. With a million
bounds, a new bound goes into about forty unions. Upper bounds are stored as lower bounds of the negative number:
instead of ``x <= high``, a bound is ``-high <= -x``.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from typing import Final

from pyroaring import BitMap

from .held import united

#: Maximum number of bounds in a block. Making a bitmap of a part of a block takes 10 us.
LEAF: Final = 1_024

#: Maximum number of blocks in a group. Adding a block's bitmap to a union takes 1 us.
GROUP: Final = 32

#: Bytes of a block without its bounds (but with the containers of its bitmap), and bytes of one bound in the arrays and
#: the bitmap.
_LEAF_BYTES: Final = 400
_BOUND_BYTES: Final = 15


class _Leaf:
    """A block. ``whole``: a bitmap of its numbers; ``None`` if there is only one block."""

    def __init__(self, values: array[float], numbers: array[int], whole: BitMap | None) -> None:
        self.values = values
        self.numbers = numbers
        self.whole = whole


class Bounds:
    """One kind of bounds. ``leaf``, ``group``: as ``LEAF`` and ``GROUP``; only tests pass other values (2 and more)."""

    def __init__(self, leaf: int = LEAF, group: int = GROUP) -> None:
        self._leaf_max = leaf
        self._group_max = group
        self._count = 0
        self._leaves = 0
        self._groups: list[list[_Leaf]] = []
        self._firsts: array[float] = array("d")  # each group's first bound, or a lower value
        self._unions: list[BitMap] = []  # for each group except the last: the union of its numbers and all earlier ones
        self._unions_bytes = 0

    def __len__(self) -> int:
        return self._count

    @property
    def bytes(self) -> int:
        """An estimate of its memory."""
        return 300 + self._leaves * _LEAF_BYTES + self._count * _BOUND_BYTES + self._unions_bytes

    def at_most(self, value: float) -> BitMap:
        """Return the numbers whose bound is at most this value. The bitmap may still be in use here, so do not alter
        it."""
        at = bisect_right(self._firsts, value) - 1
        if at < 0:
            return BitMap()
        parts = [self._unions[at - 1]] if at else []
        for leaf in self._groups[at]:
            values = leaf.values
            if values[0] > value:
                break
            if leaf.whole is not None and values[len(values) - 1] <= value:
                parts.append(leaf.whole)
            else:
                parts.append(BitMap(leaf.numbers[: bisect_right(values, value)], optimize=False))
        return united(parts)

    def add(self, value: float, number: int) -> None:
        """Add the bound of a number that has none here."""
        self._count += 1
        groups, firsts = self._groups, self._firsts
        if not groups:
            groups.append([_Leaf(array("d", (value,)), array("I", (number,)), None)])
            firsts.append(value)
            self._leaves = 1
            return
        at = max(0, bisect_right(firsts, value) - 1)
        if value < firsts[at]:
            firsts[at] = value
        leaves = groups[at]
        place = max(0, _after(leaves, value) - 1)
        leaf = leaves[place]
        where = bisect_right(leaf.values, value)
        leaf.values.insert(where, value)
        leaf.numbers.insert(where, number)
        if leaf.whole is not None:
            leaf.whole.add(number)
        unions = self._unions
        for index in range(at, len(unions)):
            unions[index].add(number)
        if len(leaf.values) > self._leaf_max:
            self._split_leaf(at, place)

    def remove(self, value: float, number: int) -> None:
        """Remove the number's bound, which is ``value``."""
        at = max(0, bisect_right(self._firsts, value) - 1)
        place = _after(self._groups[at], value) - 1
        where = -1
        while where < 0:  # equal bounds can fill several blocks
            if place < 0:
                at -= 1
                place = len(self._groups[at]) - 1
            where = _found(self._groups[at][place], value, number)
            place -= 1
        place += 1
        self._count -= 1
        leaf = self._groups[at][place]
        del leaf.values[where]
        del leaf.numbers[where]
        if leaf.whole is not None:
            leaf.whole.discard(number)
        unions = self._unions
        for index in range(at, len(unions)):
            unions[index].discard(number)
        if 4 * len(leaf.values) < self._leaf_max:
            self._shrink(at, place)

    def _split_leaf(self, at: int, place: int) -> None:
        leaves = self._groups[at]
        leaf = leaves[place]
        half = len(leaf.values) // 2
        left, right = leaf.numbers[:half], leaf.numbers[half:]
        leaves[place] = _Leaf(leaf.values[:half], left, BitMap(left, optimize=False))
        leaves.insert(place + 1, _Leaf(leaf.values[half:], right, BitMap(right, optimize=False)))
        self._leaves += 1
        if len(leaves) > self._group_max:
            middle = len(leaves) // 2
            self._groups[at : at + 1] = [leaves[:middle], leaves[middle:]]
            self._firsts.insert(at + 1, leaves[middle].values[0])
            parts = [self._unions[at - 1]] if at else []
            parts.extend([each.whole for each in leaves[:middle] if each.whole is not None])
            self._unions.insert(at, united(parts) if len(parts) > 1 else parts[0].copy())
        self._measure()

    def _shrink(self, at: int, place: int) -> None:
        """Join a nearly empty block with its neighbour, and a group of few blocks with the next group."""
        leaves = self._groups[at]
        leaf = leaves[place]
        other = place - 1 if place else place + 1
        if not leaf.values:
            del leaves[place]
            self._leaves -= 1
        elif other < len(leaves) and 2 * (len(leaf.values) + len(leaves[other].values)) <= self._leaf_max:
            first, second = leaves[min(place, other)], leaves[max(place, other)]
            first.values.extend(second.values)
            first.numbers.extend(second.numbers)
            assert first.whole is not None
            assert second.whole is not None
            first.whole |= second.whole
            del leaves[max(place, other)]
            self._leaves -= 1
        else:
            return
        groups = self._groups
        if not leaves:
            del groups[at]
            del self._firsts[at]
            if self._unions:
                del self._unions[min(at, len(self._unions) - 1)]
        elif at + 1 < len(groups) and 2 * (len(leaves) + len(groups[at + 1])) <= self._group_max:
            leaves.extend(groups[at + 1])
            del groups[at + 1]
            del self._firsts[at + 1]
            del self._unions[at]
        self._measure()

    def _measure(self) -> None:
        self._unions_bytes = sum([200 + union.__sizeof__() for union in self._unions])


def _after(leaves: list[_Leaf], value: float) -> int:
    """Count the blocks whose first bound is at most this value."""
    low, high = 0, len(leaves)
    while low < high:
        middle = (low + high) // 2
        if leaves[middle].values[0] <= value:
            low = middle + 1
        else:
            high = middle
    return low


def _found(leaf: _Leaf, value: float, number: int) -> int:
    """Return the position of the number's bound in the block, or a negative number if the block does not have it."""
    if leaf.whole is not None and number not in leaf.whole:
        return -1
    low = bisect_left(leaf.values, value)
    return leaf.numbers.index(number, low, bisect_right(leaf.values, value, low))
