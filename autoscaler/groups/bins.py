"""The bins of a packing in progress, indexed by their room.

Owns: the open bins, and a search in logarithmic time for a bin that has room for an item. Must never: know the contents
of a bin.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from typing import Final

from .instance import NOWHERE, Instance

#: How to choose among the open bins (the paper, section II-B).
FIRST: Final = "first"
BEST: Final = "best"
WORST: Final = "worst"


class Bins:
    """The bins of one packing. ``row``: whether to build the index that ``best`` and ``worst`` need. ``tree``: whether
    to build the index that ``first`` needs."""

    def __init__(self, instance: Instance, *, row: bool = True, tree: bool = False) -> None:
        self._instance = instance
        self.room: dict[int, float] = {}
        self._has_row = row
        #: The pairs (room, bin) of all open bins, in ascending order.
        self.row: list[tuple[float, int]] = []
        self._lowest = 0  # all bins with lower numbers are open
        # A tree over all bins, in the order of their numbers. Each node holds the largest room of the bins below it.
        self._leaves = 1
        self._tree: list[float] = []
        if tree:
            bins = len(instance.sizes) + 1 + max(max(instance.former, default=0), max(instance.capacities, default=0))
            while self._leaves <= bins:
                self._leaves *= 2
            self._tree = [-math.inf] * (2 * self._leaves)

    def __len__(self) -> int:
        return len(self.room)

    def find(self, fit: str, size: float) -> int:
        """Return an open bin with room for the size, or ``NOWHERE``."""
        if fit == BEST:
            return self.best(size)
        if fit == WORST:
            return self.worst(size)
        return self.first(size)

    def best(self, size: float) -> int:
        """Return the open bin with the least room that is enough for the size, or ``NOWHERE``."""
        row = self.row
        index = bisect_left(row, (size, NOWHERE))
        return row[index][1] if index < len(row) else NOWHERE

    def worst(self, size: float) -> int:
        """Return the open bin with the most room if that is enough for the size, or else ``NOWHERE``."""
        row = self.row
        if not row or row[-1][0] < size:
            return NOWHERE
        return row[bisect_left(row, (row[-1][0], NOWHERE))][1]

    def first(self, size: float) -> int:
        """Return the open bin with the lowest number that has room for the size, or ``NOWHERE``."""
        tree = self._tree
        if tree[1] < size:
            return NOWHERE
        node = 1
        while node < self._leaves:
            node *= 2
            if tree[node] < size:
                node += 1
        return node - self._leaves

    def open(self, former: int, size: float) -> int:
        """Open a bin for an item of this size, and return the bin's number. It is the item's former bin if that is
        large enough and not open yet, or else the lowest-numbered bin that is large enough (the paper, equations 12 to
        14)."""
        bin = former
        if former == NOWHERE or former in self.room or not self._instance.suits(former, size):
            bin = self._lowest_for(size)
        self.start(bin)
        return bin

    def _lowest_for(self, size: float) -> int:
        instance, room = self._instance, self.room
        while self._lowest in room:
            self._lowest += 1
        bin = self._lowest
        if instance.suits(bin, size):
            return bin
        if size > instance.capacity:  # only some bins in ``capacities`` have room for the item
            wide = [bin for bin, each in instance.capacities.items() if size <= each and bin not in room]
            return min(wide, default=bin)
        while bin in room or not instance.suits(bin, size):
            bin += 1
        return bin

    def start(self, bin: int, load: float = 0.0) -> None:
        """Open this bin, which already contains a load."""
        self._set(bin, self._instance.capacity_of(bin) - load)

    def put(self, bin: int, size: float) -> None:
        """Put an item of this size into the bin. A negative size removes an item."""
        room = self.room[bin]
        if self._has_row:
            row = self.row
            del row[bisect_left(row, (room, bin))]
        self._set(bin, room - size)

    def close(self, bin: int) -> None:
        """Close the bin, so that no later search finds it."""
        self.put(bin, math.inf)
        del self.room[bin]
        if self._has_row:
            del self.row[bisect_left(self.row, (-math.inf, bin))]
        self._lowest = min(self._lowest, bin)

    def _set(self, bin: int, room: float) -> None:
        self.room[bin] = room
        if self._has_row:
            insort(self.row, (room, bin))
        if not self._tree:
            return
        tree, node = self._tree, self._leaves + bin
        tree[node] = room
        while node > 1:
            node //= 2
            left, right = tree[2 * node], tree[2 * node + 1]
            most = left if left > right else right
            if tree[node] == most:
                break
            tree[node] = most
