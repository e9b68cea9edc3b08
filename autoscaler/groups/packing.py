"""Assigns items to consumers so that few consumers are needed and little load moves.

Owns: the twelve algorithms of the paper (arXiv 2402.06085), and how an algorithm runs. Must never: read a clock, draw a
random number, or know what an item or a bin represents.

Every algorithm gets the current bin of each item, and assigns a bin to each item. A bin is over its capacity only if it
holds a single item that is larger than the capacity. Ties are deterministic. Among items of equal size, the item with
the lower number comes first. Among equally good bins, the bin with the lower number comes first. So the same instance
gives the same packing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from typing import Final

from .bins import BEST, FIRST, WORST, Bins
from .instance import NOWHERE, Instance, by_size

#: An algorithm yields after this many items.
SLICE: Final = 64

#: Next fit: only the bin that was opened last is open.
NEXT: Final = "next"

#: Sort keys for consumers in the paper's own algorithms (table II): their total load, or their largest item.
CUMULATIVE: Final = "cumulative"
GREATEST: Final = "greatest"

Work = Generator[None, None, list[int]]
"""A running algorithm. It yields periodically so that other work can proceed, and returns the bin of each item."""

Algorithm = Callable[[Instance], Work]
"""The interface of a packing algorithm, which is a generator function with an instance as its argument.

Args:
    instance: item sizes and bin capacities in bytes per second, and the current bin of each item. Do not change it.

Yields:
    ``None``, at least once every ``SLICE`` items, or after a comparable amount of work.

Returns:
    The bin number of each item, indexed by item number (the generator's return value). Every item gets a bin. A bin
    exceeds its capacity only if it holds a single item that is larger than the capacity. The same instance gives the
    same list.

Raises:
    Nothing, because ``Instance`` has checked its values.
"""


def pack(algorithm: Algorithm, instance: Instance) -> list[int]:
    """Run the algorithm without pauses.

    Args:
        algorithm: see ``Algorithm``.
        instance: the problem; sizes and capacities in bytes per second.

    Returns:
        The bin number of each item, indexed by item number.

    Raises:
        Exception: any exception of the algorithm; the algorithms here raise none for a valid ``Instance``.
    """
    work = algorithm(instance)
    while True:
        try:
            next(work)
        except StopIteration as done:
            where: list[int] = done.value
            return where


def any_fit(instance: Instance, fit: str, decreasing: bool) -> Work:
    """Pack with next, first, best or worst fit (section II-B), in the order of item numbers or of decreasing sizes.
    Open new bins as the paper does (section VI-A)."""
    sizes, former = instance.sizes, instance.former
    bins = Bins(instance, row=fit in (BEST, WORST), tree=fit == FIRST)
    where = [NOWHERE] * len(sizes)
    last = NOWHERE
    order = by_size(sizes) if decreasing else list(range(len(sizes)))
    yield
    for count, item in enumerate(order, 1):
        size = sizes[item]
        bin = last if fit == NEXT else bins.find(fit, size)
        if bin == NOWHERE or bins.room[bin] < size:
            bin = bins.open(former[item], size)
        bins.put(bin, size)
        where[item] = last = bin
        if count % SLICE == 0:
            yield
    return where


def modified(instance: Instance, fit: str, order: str, open_fit: str) -> Work:
    """Pack with the paper's algorithm 1 (section IV-B). The algorithm visits the consumers one by one, the largest
    first. ``order`` says how to measure a consumer (table II). First, the consumer's items go into bins that are
    already open, the smallest item first. ``open_fit`` chooses the bin. Then the remaining items stay with the consumer
    as long as they fit, the largest item first. At the end, the algorithm places the items that still have no bin.
    ``fit`` chooses the bin."""
    sizes, former = instance.sizes, instance.former
    bins = Bins(instance)
    where = [NOWHERE] * len(sizes)
    items_of: dict[int, list[int]] = {}
    loose: list[int] = []
    descending = by_size(sizes)
    yield
    for item in descending:
        if former[item] == NOWHERE:
            loose.append(item)
        else:
            items_of.setdefault(former[item], []).append(item)
    yield
    rank = {
        bin: math.fsum(sizes[item] for item in items) if order == CUMULATIVE else sizes[items[0]]
        for bin, items in items_of.items()
    }
    yield
    steps = 0
    for bin in sorted(items_of, key=lambda bin: (-rank[bin], bin)):
        items = items_of[bin]
        while items:
            steps += 1
            if steps % SLICE == 0:
                yield
            target = bins.find(open_fit, sizes[items[-1]])
            if target == NOWHERE:
                break
            item = items.pop()
            bins.put(target, sizes[item])
            where[item] = target
        kept = 0
        if items and instance.suits(bin, sizes[items[0]]):
            bins.start(bin)
            while kept < len(items) and (not kept or sizes[items[kept]] <= bins.room[bin]):
                bins.put(bin, sizes[items[kept]])
                where[items[kept]] = bin
                kept += 1
                steps += 1
                if steps % SLICE == 0:
                    yield
        loose += items[kept:]
    yield
    loose.sort()
    loose.sort(key=sizes.__getitem__, reverse=True)
    for count, item in enumerate(loose, 1):
        target = bins.find(fit, sizes[item])
        if target == NOWHERE:
            target = bins.open(former[item], sizes[item])
        bins.put(target, sizes[item])
        where[item] = target
        if count % SLICE == 0:
            yield
    return where


def next_fit(instance: Instance) -> Work:
    """Pack with NF, next fit: only the last bin is open."""
    return any_fit(instance, NEXT, False)


def first_fit(instance: Instance) -> Work:
    """Pack with FF, first fit."""
    return any_fit(instance, FIRST, False)


def best_fit(instance: Instance) -> Work:
    """Pack with BF, best fit."""
    return any_fit(instance, BEST, False)


def worst_fit(instance: Instance) -> Work:
    """Pack with WF, worst fit."""
    return any_fit(instance, WORST, False)


def next_fit_decreasing(instance: Instance) -> Work:
    """Pack with NFD, next fit decreasing."""
    return any_fit(instance, NEXT, True)


def first_fit_decreasing(instance: Instance) -> Work:
    """Pack with FFD, first fit decreasing."""
    return any_fit(instance, FIRST, True)


def best_fit_decreasing(instance: Instance) -> Work:
    """Pack with BFD, best fit decreasing."""
    return any_fit(instance, BEST, True)


def worst_fit_decreasing(instance: Instance) -> Work:
    """Pack with WFD, worst fit decreasing."""
    return any_fit(instance, WORST, True)


def modified_worst_fit(instance: Instance) -> Work:
    """Pack with MWF, modified worst fit."""
    return modified(instance, WORST, CUMULATIVE, WORST)


def modified_best_fit(instance: Instance) -> Work:
    """Pack with MBF, modified best fit."""
    return modified(instance, BEST, CUMULATIVE, BEST)


def modified_worst_fit_partition(instance: Instance) -> Work:
    """Pack with MWFP, modified worst fit partition."""
    return modified(instance, WORST, GREATEST, WORST)


def modified_best_fit_partition(instance: Instance) -> Work:
    """Pack with MBFP, modified best fit partition."""
    return modified(instance, BEST, GREATEST, BEST)


DOCUMENT: Final[dict[str, Algorithm]] = {
    "NF": next_fit,
    "FF": first_fit,
    "BF": best_fit,
    "WF": worst_fit,
    "NFD": next_fit_decreasing,
    "FFD": first_fit_decreasing,
    "BFD": best_fit_decreasing,
    "WFD": worst_fit_decreasing,
    "MWF": modified_worst_fit,
    "MBF": modified_best_fit,
    "MWFP": modified_worst_fit_partition,
    "MBFP": modified_best_fit_partition,
}
"""The paper's twelve algorithms, by their names in the paper."""
