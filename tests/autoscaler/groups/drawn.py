"""Instances as Hypothesis draws them, and what holds of every packing.

Owns: the strategies of instances, and the look at a packing that all tests of algorithms share. Must never: know
what an algorithm is to do.

Sizes and capacities are whole numbers: a float holds them and their sums exactly, so that a test and the code cannot
disagree by rounding. ``inexact`` draws others.
"""

from __future__ import annotations

import math
from collections.abc import Generator

from hypothesis import strategies as st

from ingeborg.autoscaler.groups.instance import NOWHERE, Instance
from ingeborg.autoscaler.groups.packing import DOCUMENT, Work, pack

#: A power of two: a float holds each share of it exactly.
CAPACITY = 16
#: Some are greater than the capacity, and many are equal.
SIZES = st.one_of(st.integers(0, CAPACITY), st.integers(0, CAPACITY // 3), st.integers(CAPACITY, CAPACITY + 8))
BINS = 5


@st.composite
def instances(
    draw: st.DrawFn,
    *,
    items: int = 14,
    sizes: st.SearchStrategy[int] = SIZES,
    arrivals: bool = True,
    unequal: bool = False,
) -> Instance:
    """Up to so many items. ``unequal``: some bins have capacities of their own, less or more than the others'."""
    count = draw(st.integers(0, items))
    former = st.integers(NOWHERE if arrivals else 0, BINS)
    capacities = st.dictionaries(st.integers(0, BINS + 2), st.integers(1, 2 * CAPACITY), max_size=4)
    return Instance(
        [float(draw(sizes)) for _ in range(count)],
        [draw(former) for _ in range(count)],
        float(CAPACITY),
        {bin: float(each) for bin, each in draw(capacities).items()} if unequal else None,
    )


@st.composite
def inexact(draw: st.DrawFn) -> Instance:
    """Sizes whose sums a float does not hold, and many that together are just a capacity."""
    parts = st.sampled_from([0.0, 0.1, 0.2, 0.3, 0.4, 0.7, 1 / 3, 2 / 3, 1.0, 1.3])
    sizes = draw(st.lists(parts, max_size=14))
    former = st.lists(st.integers(NOWHERE, BINS), min_size=len(sizes), max_size=len(sizes))
    return Instance(sizes, draw(former), 1.0)


@st.composite
def packed(draw: st.DrawFn, *, sizes: st.SearchStrategy[int] = SIZES) -> Instance:
    """Everything has a bin so far, and no bin is over its capacity but by a single item."""
    drawn = draw(instances(items=18, sizes=sizes))
    former = pack(DOCUMENT[draw(st.sampled_from(["NF", "WF", "MWF", "BFD"]))], drawn)
    return Instance(drawn.sizes, former, drawn.capacity)


def in_bins(where: list[int]) -> dict[int, list[int]]:
    """The items of each bin."""
    found: dict[int, list[int]] = {}
    for item, bin in enumerate(where):
        found.setdefault(bin, []).append(item)
    return found


def over(instance: Instance, where: list[int]) -> list[int]:
    """The bins that get more than their capacity."""
    return [
        bin
        for bin, items in in_bins(where).items()
        if math.fsum(instance.sizes[item] for item in items) > instance.capacity_of(bin) * (1 + 1e-9)
    ]


def valid(instance: Instance, where: list[int]) -> None:
    """Every item has one bin, and no bin is over its capacity unless one item alone is greater than that."""
    assert len(where) == len(instance.sizes)
    assert all(bin >= 0 for bin in where)
    for bin in over(instance, where):
        assert where.count(bin) == 1, (bin, where)


def pauses(work: Work) -> tuple[int, list[int]]:
    """How often it let others go on, and the packing."""
    where: list[int] = []

    def done() -> Generator[None, None, None]:
        where.extend((yield from work))

    return sum(1 for _ in done()), where


def fewest_bins(sizes: list[float], capacity: float) -> int:
    """So many bins are needed, of all ways to share out the items. One greater than the capacity has a bin alone."""
    fitting = [size for size in sizes if size <= capacity]
    best = len(fitting)

    def place(index: int, filled: list[float]) -> None:
        nonlocal best
        if index == len(fitting):
            best = min(best, len(filled))
            return
        for bin, load in enumerate(filled):
            if load + fitting[index] <= capacity:
                place(index + 1, [*filled[:bin], load + fitting[index], *filled[bin + 1 :]])
        place(index + 1, [*filled, fitting[index]])

    place(0, [])
    return best + len(sizes) - len(fitting)
