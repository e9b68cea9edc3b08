"""Sets of numbers, each in the form that is least for it: one number, a tuple of a few, or a bitmap.

Owns: which form a set takes. Must never: know what the numbers are.

Most of an index's sets have one member. A number takes the room of itself, and it is the same object in all places.
"""

from __future__ import annotations

from typing import Any, Final

from pyroaring import BitMap

#: A bitmap of so many takes no more than a tuple of them.
FEW: Final = 32

#: What a bitmap takes with its first container, and each further number in it.
BITMAP_BYTES: Final = 260
MEMBER_BYTES: Final = 3

Held = Any
"""``None`` (the empty set), an ``int``, a tuple of them, or a ``BitMap``. mypyc would make a new object of an ``int``
each time that it stores one, and 32 bytes a place are much: hence ``Any``."""


def with_number(held: Held, number: Any) -> Held:
    """The set with this number, which it does not have yet. A bitmap is the same one."""
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
    """The set without this number, which it has."""
    if type(held) is tuple:
        left = tuple([each for each in held if each != number])
        return left if len(left) > 1 else left[0]
    if type(held) is BitMap:
        held.discard(number)
        return held if len(held) > FEW // 2 else tuple(held)
    return None


def held_bytes(held: Held) -> int:
    """An estimate of its memory, without that of the numbers."""
    if type(held) is tuple:
        return 40 + 8 * len(held)
    if type(held) is BitMap:
        return BITMAP_BYTES + MEMBER_BYTES * len(held)
    return 0


def numbers_of(held: Held) -> list[int]:
    """Its numbers."""
    if held is None:
        return []
    if type(held) is int:
        return [held]
    return list(held)


def united(bitmaps: list[BitMap]) -> BitMap:
    """The union, at once: a copy of a large one takes longer than a union of many. Of one bitmap: itself."""
    if len(bitmaps) == 1:
        return bitmaps[0]
    return BitMap.union(*bitmaps) if bitmaps else BitMap()


class Gathered:
    """A union in the making: of numbers, and of bitmaps that belong to others and stay as they are."""

    def __init__(self) -> None:
        self.single: list[int] = []
        self.bitmaps: list[BitMap] = []

    def add(self, held: Held) -> None:
        """All of these, too."""
        if held is None:
            return
        if type(held) is tuple:
            self.single.extend(held)
        elif type(held) is BitMap:
            self.bitmaps.append(held)
        else:
            self.single.append(held)

    def bitmap(self) -> BitMap:
        """The union; perhaps a bitmap that somebody else has, which must not be altered."""
        if self.single:
            return united([*self.bitmaps, BitMap(self.single, optimize=False)])
        return united(self.bitmaps)
