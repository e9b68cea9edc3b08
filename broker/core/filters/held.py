"""Sets of numbers, each in its smallest form: one number, a tuple of a few numbers, or a bitmap.

Owns: the form of a set. Must never: know the meaning of the numbers.

Most of an index's sets have one member. Such a set is the number itself. This needs no extra memory, because all places
with this number share the same object.
"""

from __future__ import annotations

from typing import Any, Final

from pyroaring import BitMap

#: From this size on, a bitmap takes no more memory than a tuple.
FEW: Final = 32

#: Bytes of a bitmap with its first container, and of each further number.
BITMAP_BYTES: Final = 260
MEMBER_BYTES: Final = 3

Held = Any
"""``None`` (the empty set), an ``int``, a tuple of several numbers, or a ``BitMap``. The type is ``Any``, because
otherwise mypyc would create a new object of 32 bytes each time that it stores an ``int``, which takes too much
memory."""


def with_number(held: Held, number: Any) -> Held:
    """Return the set with this number, which the set must not have yet. A bitmap changes in place."""
    if held is None:
        return number
    if type(held) is tuple:
        if len(held) < FEW:
            return (*held, number)
        return BitMap((*held, number))
    if type(held) is BitMap:
        held.add(number)
        return held
    return (held, number)


def without_number(held: Held, number: Any) -> Held:
    """Return the set without this number, which the set must have."""
    if type(held) is tuple:
        left = tuple([each for each in held if each != number])
        return left if len(left) > 1 else left[0]
    if type(held) is BitMap:
        held.discard(number)
        return held if len(held) > FEW // 2 else tuple(held)
    return None


def held_bytes(held: Held) -> int:
    """Estimate the set's memory, without the numbers."""
    if type(held) is tuple:
        return 40 + 8 * len(held)
    if type(held) is BitMap:
        return BITMAP_BYTES + MEMBER_BYTES * len(held)
    return 0


def numbers_of(held: Held) -> list[int]:
    """Return the set's numbers."""
    if held is None:
        return []
    if type(held) is int:
        return [held]
    return list(held)


def united(bitmaps: list[BitMap]) -> BitMap:
    """Return the union of the bitmaps. It is made in one step, because copying a large bitmap takes longer than uniting
    many bitmaps. A single bitmap is returned as it is."""
    if len(bitmaps) == 1:
        return bitmaps[0]
    return BitMap.union(*bitmaps) if bitmaps else BitMap()


class Gathered:
    """Collects numbers and bitmaps for a union. The bitmaps belong to other objects, and are not changed here."""

    def __init__(self) -> None:
        self.single: list[int] = []
        self.bitmaps: list[BitMap] = []

    def add(self, held: Held) -> None:
        """Add all numbers of this set."""
        if held is None:
            return
        if type(held) is tuple:
            self.single.extend(held)
        elif type(held) is BitMap:
            self.bitmaps.append(held)
        else:
            self.single.append(held)

    def bitmap(self) -> BitMap:
        """Return the union. The bitmap may belong to another object, so do not alter it."""
        if self.single:
            return united([*self.bitmaps, BitMap(self.single, optimize=False)])
        return united(self.bitmaps)
