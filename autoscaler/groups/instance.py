"""The packing problem at one moment, and the cost of a solution.

Owns: the instance, the load of each bin, the moved items, the lower bound on the number of bins, and renumbering bins.
Must never: decide where an item goes.

An item has a number, from 0 on, and a size in bytes per second. A bin represents a consumer. A bin also has a number,
and a capacity in bytes per second (arXiv 2402.06085, section III; this package calls it "the paper").
"""

from __future__ import annotations

import math
from typing import Final

#: The bin number of an item that is in no bin.
NOWHERE: Final = -1

#: Tolerance, as a fraction of a capacity. Without it, a bin that is exactly full could seem to be over its capacity,
#: because sums of floats are not exact.
ROUNDING: Final = 1e-9


class Instance:
    """One instance of the packing problem.

    Args:
        sizes: size of each item in bytes per second, indexed by item number; finite and not negative.
        former: current bin of each item, indexed by item number, or ``NOWHERE``; must have the length of ``sizes``.
        capacity: capacity in bytes per second of every bin that ``capacities`` does not list; finite and positive.
        capacities: capacity in bytes per second, indexed by bin number, of each bin with another capacity.

    Raises:
        ValueError: lengths differ, a size or capacity is out of range, or a bin number is negative.
    """

    __slots__ = ("capacities", "capacity", "former", "sizes", "widest")

    def __init__(
        self,
        sizes: list[float],
        former: list[int] | None = None,
        capacity: float = 1.0,
        capacities: dict[int, float] | None = None,
    ) -> None:
        self.sizes = sizes
        self.former = [NOWHERE] * len(sizes) if former is None else former
        self.capacity = capacity
        self.capacities: dict[int, float] = {} if capacities is None else capacities
        if len(self.former) != len(sizes):
            raise ValueError(
                f"{len(sizes)} items have sizes, but {len(self.former)} have a former bin: give one for each"
            )
        for size in sizes:
            if not 0.0 <= size < math.inf:
                raise ValueError(f"{size!r} is not a size: give a finite number of at least 0")
        for each in (capacity, *self.capacities.values()):
            if not 0.0 < each < math.inf:
                raise ValueError(f"{each!r} is not a capacity: give a finite number above 0")
        for bin in (*self.former, *self.capacities):
            if bin < NOWHERE or (bin == NOWHERE and bin in self.capacities):
                raise ValueError(f"{bin} is not a bin: give a number of at least 0")

        self.widest = max(capacity, *self.capacities.values()) if self.capacities else capacity

    def capacity_of(self, bin: int) -> float:
        """Return the capacity of this bin, in bytes per second."""
        return self.capacities.get(bin, self.capacity)

    def suits(self, bin: int, size: float) -> bool:
        """Return whether this bin, when it is empty, has room for an item of this size. Return True if the item is too
        large for every bin."""
        return size <= self.capacity_of(bin) or size > self.widest


def by_size(sizes: list[float]) -> list[int]:
    """Return the item numbers, the largest item first; equal sizes keep their order."""
    return sorted(range(len(sizes)), key=sizes.__getitem__, reverse=True)


def loads(instance: Instance, where: list[int]) -> dict[int, float]:
    """Return the load of each used bin, in bytes per second."""
    found: dict[int, list[float]] = {}
    for item, bin in enumerate(where):
        found.setdefault(bin, []).append(instance.sizes[item])
    return {bin: math.fsum(sizes) for bin, sizes in found.items()}


def moved(instance: Instance, where: list[int]) -> list[int]:
    """Return the items that move from one bin to another. In the paper's equation 9, the column of such an item has a 1
    and a -1. Items that arrive or depart do not count."""
    former = instance.former
    return [item for item, bin in enumerate(where) if former[item] != NOWHERE != bin and bin != former[item]]


def rscore(instance: Instance, where: list[int]) -> float:
    """Return the total size of the moved items, as a multiple of a bin's capacity (equation 11). If nobody reads these
    items for a second, a consumer needs this many seconds to catch up."""
    return math.fsum(instance.sizes[item] for item in moved(instance, where)) / instance.capacity


def lower_bound(instance: Instance) -> int:
    """Return a lower bound on the number of bins: L2 by Martello and Toth (Knapsack Problems, 1990, section 8.3). If
    capacities differ, the function uses the largest capacity for all bins."""
    capacity = instance.widest
    sizes = sorted((min(size / capacity, 1.0) for size in instance.sizes if size > 0.0), reverse=True)
    if not sizes:
        return 1 if instance.sizes else 0
    sums = [0.0]
    for size in sizes:
        sums.append(sums[-1] + size)
    # The sizes are in descending order, so items larger than half a bin come first. No two such items share a bin.
    halves = 0
    while halves < len(sizes) and sizes[halves] > 0.5:
        halves += 1
    bound = max(halves, math.ceil(sums[-1] - ROUNDING * len(sizes)))
    # Leave out items smaller than `least`. Then each item larger than 1 - least is alone in its bin. The other items
    # larger than half a bin leave some space in their bins. Fill this space with the smaller items, as if these were
    # liquid.
    alone = halves
    for index in range(halves, len(sizes)):
        least = sizes[index]
        while alone and sizes[alone - 1] + least <= 1.0 + ROUNDING:
            alone -= 1
        liquid = sums[index + 1] - sums[halves]
        free = (halves - alone) - (sums[halves] - sums[alone])
        bound = max(bound, halves + math.ceil(liquid - free - ROUNDING * len(sizes)))
    return bound


def relabel(instance: Instance, where: list[int]) -> list[int]:
    """Renumber the bins of a packing so that less load moves. Each bin gets the number of the former bin with which it
    shares the most load. Pairs of bins that share more load come first. Items that shared a bin still share a bin."""
    together: dict[tuple[int, int], float] = {}
    for item, bin in enumerate(where):
        former = instance.former[item]
        if former != NOWHERE:
            together[bin, former] = together.get((bin, former), 0.0) + instance.sizes[item]
    names: dict[int, int] = {}
    taken: set[int] = set()
    for _, bin, former in sorted((-common, bin, former) for (bin, former), common in together.items()):
        if bin not in names and former not in taken and _alike(instance, bin, former):
            names[bin] = former
            taken.add(former)
    others = sorted(set(where) - names.keys())
    for bin in others:
        if bin not in taken:
            names[bin] = bin
            taken.add(bin)
    for bin in others:
        if bin not in names:
            name = 0
            while name in taken or not _alike(instance, bin, name):
                name += 1
            names[bin] = name
            taken.add(name)
    return [names[bin] for bin in where]


def _alike(instance: Instance, one: int, other: int) -> bool:
    """Return whether the two bins have the same capacity."""
    return instance.capacity_of(one) == instance.capacity_of(other)
