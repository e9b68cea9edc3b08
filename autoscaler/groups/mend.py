"""The algorithm ``mend`` keeps a packing except where it must change, and frees a bin if a few moves can empty it.

Owns: the project's own algorithm, which is used in addition to the paper's twelve algorithms. Must never: move items
that could stay, if that costs more than ``price``.

1. By default every item stays where it is.
2. A bin over its capacity gives up items until it is within its capacity. It gives up as little load as possible.
3. The algorithm places the items without a bin, the largest first. An item goes into the bin where it fits best. If it
   fits into no bin, it takes the place of a lighter item, which moves to another bin. If that is not possible either,
   the item goes into a new bin.
4. While the number of used bins is above the lower bound, the algorithm empties one of the lightest bins into the
   others, if that moves at most ``price`` times the capacity of a bin.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Generator
from typing import Final

from .bins import Bins
from .instance import NOWHERE, ROUNDING, Instance, lower_bound
from .packing import SLICE, Work

#: Default of ``price``: the load that may move to save one bin, as a multiple of a bin's capacity.
PRICE: Final = 1.0

#: For a bin over its capacity, the search considers this many of its smallest items, and this many of their sums.
GIVEN_UP_OF: Final = 12
SUMS_MAX: Final = 128

#: To make room for an item without a bin, a bin may give up a lighter item. The search considers this many bins, those
#: with the most room. In each bin it considers this many items, the lightest that free enough room.
EJECT_FROM: Final = 64
EJECT_OF: Final = 8

#: Number of bins that the algorithm tries to empty, beginning with the lightest.
EMPTY_OF: Final = 8

#: The algorithm yields after it has kept this many items in place.
STAY_SLICE: Final = 512

Move = tuple[int, int, int]
"""(item, source bin, target bin)."""


class _Packing:
    """The packing in progress."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.sizes = instance.sizes
        self.bins = Bins(instance)
        #: The (size, item) pairs of each bin, in ascending order.
        self.items: dict[int, list[tuple[float, int]]] = {}
        self.load: dict[int, float] = {}
        self.where = [NOWHERE] * len(instance.sizes)

    def stay(self, items: list[int]) -> None:
        """Keep these items in their former bins. The items must be in the order of their sizes, the lightest first."""
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
        """Return the bins that the algorithm should try to empty. The bin with the least load is first."""
        if self.instance.capacities:
            return heapq.nsmallest(EMPTY_OF, self.items, key=lambda bin: (self.load[bin], bin))
        return [bin for _, bin in self.bins.row[: -EMPTY_OF - 1 : -1]]

    def open(self, size: float) -> int:
        """Open a new bin for an item of this size."""
        bin = self.bins.open(NOWHERE, size)
        self.items[bin] = []
        self.load[bin] = 0.0
        return bin

    def put(self, item: int, bin: int) -> None:
        """Put an item that is in no bin into this bin."""
        size = self.sizes[item]
        self.bins.put(bin, size)
        insort(self.items[bin], (size, item))
        self.load[bin] += size
        self.where[item] = bin

    def take(self, item: int) -> None:
        """Take the item out of its bin."""
        bin, size = self.where[item], self.sizes[item]
        self.bins.put(bin, -size)
        items = self.items[bin]
        del items[bisect_left(items, (size, item))]
        self.load[bin] -= size
        self.where[item] = NOWHERE

    def move(self, item: int, bin: int) -> None:
        """Move the item from its bin to this one."""
        self.take(item)
        self.put(item, bin)

    def cost(self, item: int, bin: int) -> float:
        """Return how much more load moves if the item goes into ``bin``. The cost is negative if the item returns to
        its former bin."""
        former = self.instance.former[item]
        if former == NOWHERE:
            return 0.0
        size = self.sizes[item]
        return (size if bin != former else 0.0) - (size if self.where[item] != former else 0.0)

    def best(self, size: float, but: int, nor: int = NOWHERE) -> int:
        """Return the bin with the least room that is enough for ``size``, or ``NOWHERE``. The bins ``but`` and ``nor``
        are excluded."""
        row = self.bins.row
        for index in range(bisect_left(row, (size, NOWHERE)), len(row)):
            bin = row[index][1]
            if bin != but and bin != nor:
                return bin
        return NOWHERE

    def eject(self, size: float, but: int, budget: float) -> list[int]:
        """Find the cheapest way, within the budget, to make room for ``size`` by moving one lighter item. Return
        ``[bin, item, target]``, or an empty list if there is no such item. When the item has moved to the bin
        ``target``, ``bin`` has room for ``size``."""
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
                if room + each < size:  # rounding
                    continue
                target = self.best(each, but, bin)
                if target == NOWHERE:
                    break  # heavier items fail as well
                cost = self.cost(item, target)
                if cost < budget or (cost == budget and (not found or item < found[1])):
                    found = [bin, item, target]
                    budget = cost
        return found

    def empty(self, bin: int, budget: float) -> Generator[None, None, bool]:
        """Move everything out of the bin and close it if that costs at most the budget; otherwise change nothing."""
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
    """Mend the current packing. The running time depends on the number of changes. If nothing has changed, the
    algorithm makes one pass over the items.

    Args:
        instance: the problem; sizes and capacities in bytes per second.
        price: the maximum load that may move to save one bin, in units of a bin's capacity.

    Returns:
        A running algorithm, which returns the bin number of each item; see ``packing.Algorithm``.
    """
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
    """Return the items that a bin over its capacity gives up. Without these items, the bin is within its capacity, or
    holds only its largest item. The function compares three choices, and returns the choice with the least load. The
    first choice is all items except the largest. The second choice repeatedly takes the smallest item that covers the
    remaining excess, or the largest item if none covers it. The third choice is the best sum of small items that the
    search finds."""
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
