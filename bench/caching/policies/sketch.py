"""Estimate how often a key was requested recently, with a count-min sketch that sometimes halves its counters.

Owns: the counters. Must never: return less than the true number, unless a counter is full or the sketch has halved its
counters.

Einziger, Friedman, Manes: "TinyLFU" (ACM Transactions on Storage, 2017), section 3. Cormode and Muthukrishnan (2005)
for the sketch.
"""

from __future__ import annotations

from typing import Final

#: Number of rows. A key has a counter in each row, and the lowest of these counters is the estimate.
ROWS: Final = 4

#: Counters have four bits (section 3.4.1).
FULL: Final = 15

#: Odd numbers of 64 bits, one for each row. The upper bits of a key times such a number are well mixed (Knuth,
#: multiplicative hashing).
_FACTORS: Final = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93)
_BITS: Final = 64
_MASK: Final = (1 << _BITS) - 1


class Sketch:
    """The sketch. ``width`` is the number of counters in a row, which is rounded up to a power of two. ``sample`` is
    the number of requests between two halvings."""

    def __init__(self, width: int, sample: int) -> None:
        bits = max(4, (width - 1).bit_length())
        self._shift = _BITS - bits
        self._rows = [bytearray(1 << bits) for _ in range(ROWS)]
        self._sample = sample
        self._count = 0

    def add(self, key: int) -> None:
        """Count a request for the key."""
        shift = self._shift
        mixed = _mixed(key)
        for row, factor in zip(self._rows, _FACTORS, strict=True):
            at = (mixed * factor & _MASK) >> shift
            if row[at] < FULL:
                row[at] += 1
        self._count += 1
        if self._count >= self._sample:
            self._count //= 2
            self._rows = [bytearray(count >> 1 for count in row) for row in self._rows]

    def often(self, key: int) -> int:
        """Return the estimated number of requests."""
        shift = self._shift
        mixed = _mixed(key)
        least = FULL
        for row, factor in zip(self._rows, _FACTORS, strict=True):
            least = min(least, row[(mixed * factor & _MASK) >> shift])
        return least


def _mixed(key: int) -> int:
    """Spread the key's bits over all 64 bits, so that consecutive keys do not have consecutive counters in every
    row."""
    key = (key ^ key >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    return key ^ key >> 27
