"""A column: holds at most one condition of each conjunction, all on one path, and finds the conditions that an
attribute meets.

Owns: a column of a bucket, with a structure for each kind of condition. Must never: examine any other path.

Each kind of condition with a word (equal, prefix, suffix, anything-but) has a table that maps a word to the numbers of
its conjunctions. Prefixes and suffixes need one lookup for each length in use. A range with one infinite end has one
bound. Any other range has two bounds, whose answers are combined by AND. Therefore a number can have only one condition
in a column. For `anything-but`, the answer is all numbers with such a condition, without those whose condition excludes
the value.
"""

from __future__ import annotations

from math import inf, nextafter
from typing import Any, Final

from pyroaring import BitMap

from .bounds import GROUP, LEAF, Bounds
from .held import Gathered, Held, held_bytes, with_number, without_number
from .pattern import (
    ABSENT,
    EQUALS,
    EXISTS,
    NOT_IN,
    NOT_PREFIX,
    NOT_SUFFIX,
    NUMBER,
    PREFIX,
    SUFFIX,
    Condition,
    Range,
    scalar_key,
)
from .table import Table

#: The roles of a bound: it is the only bound of a range, or one of two bounds.
_LOW: Final = 0
_HIGH: Final = 1
_LOW_OF_BOTH: Final = 2
_HIGH_OF_BOTH: Final = 3

_COLUMN_BYTES: Final = 900


def closed(wanted: Range) -> tuple[float, float]:
    """Return the least and the greatest double in a range. Both can be infinite."""
    low = nextafter(wanted.low, inf) if wanted.low_open else wanted.low
    high = nextafter(wanted.high, -inf) if wanted.high_open else wanted.high
    return low, high


def is_number(value: Any) -> bool:
    """Return whether the scalar is a number. True and false are not numbers."""
    return type(value) is int or type(value) is float


class Column:
    """A column. ``leaf``, ``group``: see ``Bounds``."""

    def __init__(self, leaf: int = LEAF, group: int = GROUP) -> None:
        self._leaf = leaf
        self._group = group
        self._count = 0
        self._bounds: dict[int, Bounds] = {}
        self._words: dict[int, Table] = {}  # indexed by kind
        self._lengths: dict[int, dict[int, int]] = {}  # kind -> length of a word -> number of words with this length
        self._all: dict[int, BitMap] = {}  # kind -> all its numbers, if it needs no word or excludes words
        self.bytes = _COLUMN_BYTES

    def __len__(self) -> int:
        return self._count

    def add(self, condition: Condition, number: Any) -> None:
        """Add the condition of a number that has none here."""
        self._count += 1
        kind, value = condition.kind, condition.value
        if kind == NUMBER:
            low, high = closed(value)
            if high == inf:
                self._bound(_LOW, low, number, True)
            elif low == -inf:
                self._bound(_HIGH, -high, number, True)
            else:
                self._bound(_LOW_OF_BOTH, low, number, True)
                self._bound(_HIGH_OF_BOTH, -high, number, True)
            return
        if kind >= NOT_IN:
            every = self._all.get(kind)
            if every is None:
                every = self._all[kind] = BitMap()
            every.add(number)
            self.bytes += 3
        if kind == NOT_IN:
            for each in value:
                self._put(kind, each, number)
        elif kind != EXISTS and kind != ABSENT:
            self._put(kind, value, number)

    def remove(self, condition: Condition, number: Any) -> None:
        """Remove the condition that was added under this number. ``condition`` must be that condition."""
        self._count -= 1
        kind, value = condition.kind, condition.value
        if kind == NUMBER:
            low, high = closed(value)
            if high == inf:
                self._bound(_LOW, low, number, False)
            elif low == -inf:
                self._bound(_HIGH, -high, number, False)
            else:
                self._bound(_LOW_OF_BOTH, low, number, False)
                self._bound(_HIGH_OF_BOTH, -high, number, False)
            return
        if kind >= NOT_IN:
            self._all[kind].discard(number)
            self.bytes -= 3
        if kind == NOT_IN:
            for each in value:
                self._take(kind, each, number)
        elif kind != EXISTS and kind != ABSENT:
            self._take(kind, value, number)

    def gather(self, values: list[Any] | None, found: Gathered) -> None:
        """Gather the numbers whose condition is met by any of these values. ``values`` is ``None`` if the payload has
        no such attribute."""
        every = self._all
        if values is None:
            found.add(every.get(ABSENT))
            return
        found.add(every.get(EXISTS))
        if self._bounds:
            self._ranges([float(value) for value in values if is_number(value)], found)
        words = self._words
        if not words:
            return
        equal = words.get(EQUALS)
        if equal is not None:
            for value in values:
                found.add(equal.get(scalar_key(value)))
        for kind in (PREFIX, SUFFIX):
            if kind in words:
                for value in values:
                    self._affixed(kind, value, found)
        for kind in (NOT_IN, NOT_PREFIX, NOT_SUFFIX):
            if kind in words:
                found.add(every[kind] - self._excluded(kind, values))

    def _bound(self, role: int, value: float, number: Any, is_new: bool) -> None:
        bounds = self._bounds.get(role)
        if bounds is None:
            bounds = self._bounds[role] = Bounds(self._leaf, self._group)
        before = bounds.bytes if len(bounds) else 0
        if is_new:
            bounds.add(value, number)
        else:
            bounds.remove(value, number)
        if len(bounds):
            self.bytes += bounds.bytes - before
        else:
            del self._bounds[role]
            self.bytes -= before

    def _ranges(self, values: list[float], found: Gathered) -> None:
        if not values:
            return
        bounds = self._bounds
        low = bounds.get(_LOW)
        if low is not None:
            found.add(low.at_most(max(values)))
        high = bounds.get(_HIGH)
        if high is not None:
            found.add(high.at_most(-min(values)))
        low, high = bounds.get(_LOW_OF_BOTH), bounds.get(_HIGH_OF_BOTH)
        if low is not None and high is not None:
            for value in values if len(values) == 1 else sorted(set(values)):
                found.add(low.at_most(value) & high.at_most(-value))

    def _put(self, kind: int, word: Any, number: Any) -> None:
        table = self._words.get(kind)
        if table is None:
            table = self._words[kind] = Table()
            if kind != EQUALS and kind != NOT_IN:
                self._lengths[kind] = {}
        held: Held = table.get(word)
        before = table.bytes + held_bytes(held)
        now = with_number(held, number)
        if now is not held:
            table.put(word, now)
        self.bytes += table.bytes + held_bytes(now) - before
        if held is None:
            self.bytes += _word_bytes(word)
            if kind != EQUALS and kind != NOT_IN:
                lengths = self._lengths[kind]
                lengths[len(word)] = lengths.get(len(word), 0) + 1

    def _take(self, kind: int, word: Any, number: Any) -> None:
        table = self._words[kind]
        held: Held = table.get(word)
        before = table.bytes + held_bytes(held)
        now = without_number(held, number)
        if now is None:
            table.pop(word)
            self.bytes -= _word_bytes(word)
            if kind != EQUALS and kind != NOT_IN:
                lengths = self._lengths[kind]
                lengths[len(word)] -= 1
                if not lengths[len(word)]:
                    del lengths[len(word)]
        elif now is not held:
            table.put(word, now)
        self.bytes += table.bytes + held_bytes(now) - before

    def _affixed(self, kind: int, value: Any, found: Gathered) -> None:
        """Gather the numbers whose prefix or suffix the value has. ``kind`` is a prefix, a suffix, an excluded prefix
        or an excluded suffix."""
        if type(value) is not str:
            return
        table = self._words[kind]
        size = len(value)
        is_prefix = kind in (PREFIX, NOT_PREFIX)
        for length in self._lengths[kind]:
            if length <= size:
                found.add(table.get(value[:length] if is_prefix else value[size - length :]))

    def _excluded(self, kind: int, values: list[Any]) -> BitMap:
        """Return the numbers whose conditions exclude all of the values."""
        table = self._words[kind]
        excluded: BitMap | None = None
        for value in values:
            of_one = Gathered()
            if kind == NOT_IN:
                of_one.add(table.get(scalar_key(value)))
            else:
                self._affixed(kind, value, of_one)
            those = of_one.bitmap()
            excluded = those if excluded is None else excluded & those
            if not excluded:
                break
        assert excluded is not None
        return excluded


def _word_bytes(word: Any) -> int:
    return 56 + len(word) if type(word) is str else 32
