"""Mend: a packing is kept, but for what has to change; and what few moves can save is saved.

Owns: the product's own algorithm, beside the document's twelve. Must never: move an item that may stay, for more than
``price``.

1. Everything stays where it is.
2. A bin over its capacity gives up what suffices, as little as possible.
3. What has no bin is placed, the greatest first: where it fits best; else in place of something lighter, which moves
   on; else in a new bin.
4. As long as more bins are used than the lower bound, one of the lightest is emptied into the others, if what has to
   move for that is at most ``price`` capacities.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Generator
from typing import Final

from .bins import Bins
from .instance import NOWHERE, ROUNDING, Instance, lower_bound
from .packing import SLICE, Work

#: For one bin less so much may move, in capacities.
PRICE: Final = 1.0

#: Of a bin over its capacity so many items, the smallest, and so many of their sums are looked at.
GIVEN_UP_OF: Final = 12
SUMS_MAX: Final = 128

#: So many bins, those with most room, may give up something lighter for something that has no bin; of each so many
#: items are looked at, the lightest that make room enough.
EJECT_FROM: Final = 64
EJECT_OF: Final = 8

#: So many bins, the lightest, are tried for one that can be emptied.
EMPTY_OF: Final = 8

#: So many items stay where they are before others go on.
STAY_SLICE: Final = 512

Move = tuple[int, int, int]
"""An item, from where, to where."""


class _Packing:
    """As it is while it is mended."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.sizes = instance.sizes
        self.bins = Bins(instance)
        #: (size, item) of each bin, ascending.
        self.items: dict[int, list[tuple[float, int]]] = {}
        self.load: dict[int, float] = {}
        self.where = [NOWHERE] * len(instance.sizes)

    def stay(self, items: list[int]) -> None:
        """These where they have been, the lightest first."""
        former = self.instance.former
        for item in items:
            bin, size = former[item], self.sizes[item]
            if bin not in self.items:
                self.items[bin] = []
                self.load[bin] = 0.0
            self.items[bin].append((size, item))
            self.load[bin] += size
            self.where[item] = bin

    def lightest(self) -> list[int]:
        """The bins that are tried for one to empty, that with the least load first."""
        if self.instance.capacities:
            return heapq.nsmallest(EMPTY_OF, self.items, key=lambda bin: (self.load[bin], bin))
        return [bin for _, bin in self.bins.row[: -EMPTY_OF - 1 : -1]]

    def open(self, size: float) -> int:
        """A new bin, for an item of this size."""
        bin = self.bins.open(NOWHERE, size)
        self.items[bin] = []
        self.load[bin] = 0.0
        return bin

    def put(self, item: int, bin: int) -> None:
        """It has no bin; it goes into this one."""
        size = self.sizes[item]
        self.bins.put(bin, size)
        insort(self.items[bin], (size, item))
        self.load[bin] += size
        self.where[item] = bin

    def take(self, item: int) -> None:
        """Out of its bin."""
        bin, size = self.where[item], self.sizes[item]
        self.bins.put(bin, -size)
        items = self.items[bin]
        del items[bisect_left(items, (size, item))]
        self.load[bin] -= size
        self.where[item] = NOWHERE

    def move(self, item: int, bin: int) -> None:
        """From its bin to this one."""
        self.take(item)
        self.put(item, bin)

    def cost(self, item: int, bin: int) -> float:
        """What moves more, if it goes there: an item that comes home costs less than nothing."""
        former = self.instance.former[item]
        if former == NOWHERE:
            return 0.0
        size = self.sizes[item]
        return (size if bin != former else 0.0) - (size if self.where[item] != former else 0.0)

    def best(self, size: float, but: int, nor: int = NOWHERE) -> int:
        """The bin with least room of those that have enough, without these two; or ``NOWHERE``."""
        row = self.bins.row
        for index in range(bisect_left(row, (size, NOWHERE)), len(row)):
            bin = row[index][1]
            if bin != but and bin != nor:
                return bin
        return NOWHERE

    def eject(self, size: float, but: int, budget: float) -> list[int]:
        """``[bin, item, target]``: the bin has room for the size once the item, a lighter one, has gone to the target;
        the one that costs least, and at most the budget. Empty: there is none."""
        found: list[int] = []
        row = self.bins.row
        for index in range(len(row) - 1, max(-1, len(row) - 1 - EJECT_FROM), -1):
            room, bin = row[index]
            if bin == but:
                continue
            items = self.items[bin]
            enough = bisect_left(items, (size - room, NOWHERE))
            for each, item in items[enough : enough + EJECT_OF]:
                if each >= size:
                    break
                if room + each < size:  # by rounding
                    continue
                target = self.best(each, but, bin)
                if target == NOWHERE:
                    break  # nor for heavier ones
                cost = self.cost(item, target)
                if cost < budget or (cost == budget and (not found or item < found[1])):
                    found = [bin, item, target]
                    budget = cost
        return found

    def empty(self, bin: int, budget: float) -> Generator[None, None, bool]:
        """Move everything out of the bin and close it, if that costs at most the budget; or leave all as it was."""
        moves: list[Move] = []
        items = self.items[bin]
        while items:
            size, item = items[-1]
            target = self.best(size, bin)
            if target == NOWHERE:
                ejected = self.eject(size, bin, budget - self.cost(item, NOWHERE))
                if not ejected:
                    break
                target = ejected[0]
                budget -= self.cost(ejected[1], ejected[2])
                moves.append((ejected[1], target, ejected[2]))
                self.move(ejected[1], ejected[2])
                yield
            budget -= self.cost(item, target)
            if budget < 0.0:
                break
            moves.append((item, bin, target))
            self.move(item, target)
            if len(moves) % SLICE == 0:
                yield
        if not items:
            self.bins.close(bin)
            del self.items[bin], self.load[bin]
            return True
        for count, (item, source, _) in enumerate(reversed(moves), 1):
            self.move(item, source)
            if count % SLICE == 0:
                yield
        return False


def mend(instance: Instance, price: float = PRICE) -> Work:
    """The packing, mended. Takes as long as there is to do: an instance that has not changed costs one look at it."""
    sizes, former = instance.sizes, instance.former
    packing = _Packing(instance)
    loose = [item for item, bin in enumerate(former) if bin == NOWHERE]
    staying = [item for item, bin in enumerate(former) if bin != NOWHERE]
    staying.sort(key=sizes.__getitem__)
    yield
    for place in range(0, len(staying), STAY_SLICE):
        packing.stay(staying[place : place + STAY_SLICE])
        yield
    for count, (bin, load) in enumerate(packing.load.items(), 1):
        packing.bins.start(bin, load)
        if count % SLICE == 0:
            yield
    for bin in sorted(packing.items):
        if packing.bins.room[bin] < -ROUNDING * instance.capacity_of(bin) and len(packing.items[bin]) > 1:
            for item in _given_up(packing, bin):
                packing.take(item)
                loose.append(item)
            yield
    budget = price * instance.capacity
    loose.sort()
    loose.sort(key=sizes.__getitem__, reverse=True)
    for item in loose:
        size = sizes[item]
        target = packing.bins.best(size)
        if target == NOWHERE:
            ejected = packing.eject(size, NOWHERE, budget)
            if ejected:
                target = ejected[0]
                packing.move(ejected[1], ejected[2])
            else:
                target = packing.open(size)
        packing.put(item, target)
        yield
    fewest = lower_bound(instance)
    yield
    saved = True
    while saved and len(packing.items) > fewest:
        saved = False
        for bin in packing.lightest():
            saved = yield from packing.empty(bin, budget)
            yield
            if saved:
                break
    return packing.where


def _given_up(packing: _Packing, bin: int) -> list[int]:
    """Items of a bin that is over its capacity; without them it is not, or has a single item, the greatest. The least
    load of three choices: all but the greatest; again and again the smallest that suffices for what is left, or else
    the greatest; and the best of the sums of small ones that are looked at."""
    excess = -packing.bins.room[bin]
    ascending = packing.items[bin]
    chosen = [item for _, item in ascending[:-1]]
    least = sum(size for size, _ in ascending[:-1])
    left = list(ascending)
    taken: list[int] = []
    load = 0.0
    while load < excess and len(left) > 1:
        size, item = left.pop(min(bisect_left(left, (excess - load, NOWHERE)), len(left) - 1))
        taken.append(item)
        load += size
    if excess <= load < least:
        chosen, least = taken, load
    sums: dict[float, list[int]] = {0.0: []}
    for size, item in ascending[:GIVEN_UP_OF]:
        for total, items in list(sums.items()):
            more = total + size
            if more >= least or len(items) + 1 == len(ascending):
                continue
            if more >= excess:
                least, chosen = more, [*items, item]
            elif more not in sums and len(sums) < SUMS_MAX:
                sums[more] = [*items, item]
    return chosen
