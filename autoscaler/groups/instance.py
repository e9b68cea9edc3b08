"""The problem that is solved each time a group's load is looked at, and what a solution costs.

Owns: the instance, the load of bins, what moves, the fewest bins that can do, and the names of bins. Must never: decide
where an item goes.

An item is a number from 0 on and has a size, in bytes a second; a bin is a consumer, which has a number, too, and a
capacity in the same unit (arXiv 2402.06085, "the document" in this package, section III).
"""

from __future__ import annotations

import math
from typing import Final

#: The bin of an item that has none.
NOWHERE: Final = -1

#: Of a capacity: sums of sizes are not exact, and a bin that is exactly full is not over.
ROUNDING: Final = 1e-9


class Instance:
    """One instance of the problem. ``sizes``: of the items. ``former``: the bin of each so far, or ``NOWHERE``.
    ``capacity``: of every bin that is not in ``capacities``."""

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
            raise ValueError(f"{len(sizes)} items have sizes, and {len(self.former)} a former bin: give one for each")
        for size in sizes:
            if not 0.0 <= size < math.inf:
                raise ValueError(f"{size!r} is no size of an item: 0 or more, and finite")
        for each in (capacity, *self.capacities.values()):
            if not 0.0 < each < math.inf:
                raise ValueError(f"{each!r} is no capacity: more than 0, and finite")
        for bin in (*self.former, *self.capacities):
            if bin < NOWHERE or (bin == NOWHERE and bin in self.capacities):
                raise ValueError(f"{bin} is no bin: 0 or more")

        self.widest = max(capacity, *self.capacities.values()) if self.capacities else capacity

    def capacity_of(self, bin: int) -> float:
        """Of this bin."""
        return self.capacities.get(bin, self.capacity)

    def suits(self, bin: int, size: float) -> bool:
        """Has the bin room for an item of this size, if for nothing else? True for one that no bin has room for."""
        return size <= self.capacity_of(bin) or size > self.widest


def by_size(sizes: list[float]) -> list[int]:
    """The items, the greatest first."""
    return sorted(range(len(sizes)), key=sizes.__getitem__, reverse=True)  # which keeps the order of equal ones


def loads(instance: Instance, where: list[int]) -> dict[int, float]:
    """What each bin that is used gets, in bytes a second."""
    found: dict[int, list[float]] = {}
    for item, bin in enumerate(where):
        found.setdefault(bin, []).append(instance.sizes[item])
    return {bin: math.fsum(sizes) for bin, sizes in found.items()}


def moved(instance: Instance, where: list[int]) -> list[int]:
    """The items that go from one bin to another: those whose column of equation 9 has a 1 and a -1. One that arrives,
    or departs, does not."""
    former = instance.former
    return [item for item, bin in enumerate(where) if former[item] != NOWHERE != bin and bin != former[item]]


def rscore(instance: Instance, where: list[int]) -> float:
    """What moves, in capacities (equation 11): the seconds of work that a consumer has for each second of the pause."""
    return math.fsum(instance.sizes[item] for item in moved(instance, where)) / instance.capacity


def lower_bound(instance: Instance) -> int:
    """Fewer bins will not do: the bound L2 of Martello and Toth (Knapsack Problems, 1990, section 8.3). Of unequal
    capacities with the greatest of them for all."""
    capacity = instance.widest
    sizes = sorted((min(size / capacity, 1.0) for size in instance.sizes if size > 0.0), reverse=True)
    if not sizes:
        return 1 if instance.sizes else 0
    sums = [0.0]
    for size in sizes:
        sums.append(sums[-1] + size)
    # Descending sizes: those over a half come first, and no two of them share a bin.
    halves = 0
    while halves < len(sizes) and sizes[halves] > 0.5:
        halves += 1
    bound = max(halves, math.ceil(sums[-1] - ROUNDING * len(sizes)))
    # Items smaller than `least` are left out. Those over 1 - least are alone then; what the others over a half leave
    # free is filled with the smaller ones, as if these were liquid.
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
    """The same packing with other numbers of bins: each bin gets that of the former bin with which it has most in
    common, the greatest common load first. What is packed together stays so; less of it moves."""
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
    """Have the two bins the same capacity?"""
    return instance.capacity_of(one) == instance.capacity_of(other)
