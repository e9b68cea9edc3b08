"""Packing: which consumer reads which items, so that few consumers are needed, and little has to move.

Owns: the twelve algorithms of the document (arXiv 2402.06085), and how an algorithm is run. Must never: read a clock,
draw a number, or know what an item or a bin stands for.

Every algorithm gets where the items have been so far, and gives each a bin, so that no bin is over its capacity, except
by one item that is greater than that alone. Where sizes are equal the item with the lower number comes first, and where
bins fit equally well the bin with the lower number: the same instance gives the same packing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from typing import Final

from .bins import BEST, FIRST, WORST, Bins
from .instance import NOWHERE, Instance, by_size

#: An algorithm lets others go on after so many items.
SLICE: Final = 64

#: Next fit: only the bin that was opened last is open.
NEXT: Final = "next"

#: By what the document's own algorithms sort consumers (table II): what they read in all, or their greatest item.
CUMULATIVE: Final = "cumulative"
GREATEST: Final = "greatest"

Work = Generator[None, None, list[int]]
"""An algorithm at work: lets others go on now and then, and returns the bin of each item."""

Algorithm = Callable[[Instance], Work]


def pack(algorithm: Algorithm, instance: Instance) -> list[int]:
    """The bin of each item, all at once."""
    work = algorithm(instance)
    while True:
        try:
            next(work)
        except StopIteration as done:
            where: list[int] = done.value
            return where


def any_fit(instance: Instance, fit: str, decreasing: bool) -> Work:
    """Next, first, best and worst fit (section II-B) with the document's choice of a new bin (section VI-A), in the
    order of the items' numbers or of decreasing sizes."""
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
    """Algorithm 1 (section IV-B). The consumers one after the other, the greatest first (``order``, table II): their
    items go into bins that are open (``open_fit``), the smallest first; what is left stays, the greatest first, as far
    as it fits. What does not is placed last (``fit``)."""
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
    """NF: only the last bin is open."""
    return any_fit(instance, NEXT, False)


def first_fit(instance: Instance) -> Work:
    """FF."""
    return any_fit(instance, FIRST, False)


def best_fit(instance: Instance) -> Work:
    """BF."""
    return any_fit(instance, BEST, False)


def worst_fit(instance: Instance) -> Work:
    """WF."""
    return any_fit(instance, WORST, False)


def next_fit_decreasing(instance: Instance) -> Work:
    """NFD."""
    return any_fit(instance, NEXT, True)


def first_fit_decreasing(instance: Instance) -> Work:
    """FFD."""
    return any_fit(instance, FIRST, True)


def best_fit_decreasing(instance: Instance) -> Work:
    """BFD."""
    return any_fit(instance, BEST, True)


def worst_fit_decreasing(instance: Instance) -> Work:
    """WFD."""
    return any_fit(instance, WORST, True)


def modified_worst_fit(instance: Instance) -> Work:
    """MWF."""
    return modified(instance, WORST, CUMULATIVE, WORST)


def modified_best_fit(instance: Instance) -> Work:
    """MBF."""
    return modified(instance, BEST, CUMULATIVE, BEST)


def modified_worst_fit_partition(instance: Instance) -> Work:
    """MWFP."""
    return modified(instance, WORST, GREATEST, WORST)


def modified_best_fit_partition(instance: Instance) -> Work:
    """MBFP."""
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
"""The document's twelve, by the names that it gives them."""
