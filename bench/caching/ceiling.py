"""The average number of hits if memory has, at each moment, the best records that an online policy could choose.

Owns: that figure. Must never: be used unless all absences have the same exponential distribution.

Under this condition, no policy can know which subscriber comes back first. All subscribers that still need a record
have the same probability of reading it in the next moment. A byte of a record saves ``owed / size`` of these reads, so
the best memory holds the records with the greatest ratios, and a part of the next record. An online policy that could
insert any record at any moment would reach this number of hits on average. No policy exceeds this average, but in a
single stream a policy can have a few more hits by luck.
"""

from __future__ import annotations

from array import array

from ingeborg.bench.caching.reads import Stream


def hits(stream: Stream, bytes_max: int) -> float:
    """Return the number of hits with this room."""
    levels = _Levels(stream)
    sizes, owed = stream.sizes, array("l", stream.readers)
    found = 0.0
    for event in stream.events:
        if event >= 0:
            levels.add(owed[event], sizes[event], sizes[event])
            continue
        record = ~event
        size, left = sizes[record], owed[record]
        found += levels.share(left, size, bytes_max)
        levels.add(left, size, -size)
        owed[record] = left - 1
        if left > 1:
            levels.add(left - 1, size, size)
    return found


class _Levels:
    """The bytes of all records, sorted by the worth of a byte, with the greatest worth first. They are stored as a tree
    of sums (Fenwick, 1994)."""

    def __init__(self, stream: Stream) -> None:
        pairs = {
            (owed, size)
            for size, readers in set(zip(stream.sizes, stream.readers, strict=True))
            for owed in range(1, readers + 1)
        }
        order = sorted(pairs, key=lambda pair: (-pair[0] / pair[1], pair))
        self._places = {pair: place for place, pair in enumerate(order, 1)}
        self._bytes = [0] * (len(order) + 1)
        self._sums = [0] * (len(order) + 1)

    def add(self, owed: int, size: int, change: int) -> None:
        place = self._places[owed, size]
        self._bytes[place] += change
        sums = self._sums
        while place < len(sums):
            sums[place] += change
            place += place & -place

    def share(self, owed: int, size: int, bytes_max: int) -> float:
        """Among the records with this worth, return the share that the best memory of this size holds."""
        place = self._places[owed, size]
        here, above = self._bytes[place], 0
        place -= 1
        while place:
            above += self._sums[place]
            place -= place & -place
        return min(1.0, max(0.0, (bytes_max - above) / here))
