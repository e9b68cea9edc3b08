"""Hypothesis strategies for instances, and invariants of every packing.

Owns: the strategies for instances, and the shared checks of a packing. Must never: know the purpose of an algorithm.

Sizes and capacities are whole numbers: a float holds them and their sums exactly, so that rounding cannot make a test
and the code disagree. ``inexact`` draws others.
"""

from __future__ import annotations

import math
from collections.abc import Generator

from hypothesis import strategies as st

from ingeborg.autoscaler.groups.instance import NOWHERE, Instance
from ingeborg.autoscaler.groups.packing import DOCUMENT, Work, pack

#: A power of two: a float holds each of its shares exactly.
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
    """Draw an instance with at most this many items. ``unequal``: some bins have other capacities, smaller or
    larger."""
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
    """Draw sizes whose sums a float does not hold exactly, many with a sum of exactly one capacity."""
    parts = st.sampled_from([0.0, 0.1, 0.2, 0.3, 0.4, 0.7, 1 / 3, 2 / 3, 1.0, 1.3])
    sizes = draw(st.lists(parts, max_size=14))
    former = st.lists(st.integers(NOWHERE, BINS), min_size=len(sizes), max_size=len(sizes))
    return Instance(sizes, draw(former), 1.0)


@st.composite
def packed(draw: st.DrawFn, *, sizes: st.SearchStrategy[int] = SIZES) -> Instance:
    """Draw an instance in which every item has a bin, and no bin is over its capacity except with a single item."""
    drawn = draw(instances(items=18, sizes=sizes))
    former = pack(DOCUMENT[draw(st.sampled_from(["NF", "WF", "MWF", "BFD"]))], drawn)
    return Instance(drawn.sizes, former, drawn.capacity)


def in_bins(where: list[int]) -> dict[int, list[int]]:
    """Return the items of each bin."""
    found: dict[int, list[int]] = {}
    for item, bin in enumerate(where):
        found.setdefault(bin, []).append(item)
    return found


def over(instance: Instance, where: list[int]) -> list[int]:
    """Return the bins with more than their capacity."""
    return [
        bin
        for bin, items in in_bins(where).items()
        if math.fsum(instance.sizes[item] for item in items) > instance.capacity_of(bin) * (1 + 1e-9)
    ]


def valid(instance: Instance, where: list[int]) -> None:
    """Check that every item has one bin, and that no bin is over its capacity unless a single item exceeds it."""
    assert len(where) == len(instance.sizes)
    assert all(bin >= 0 for bin in where)
    for bin in over(instance, where):
        assert where.count(bin) == 1, (bin, where)


def pauses(work: Work) -> tuple[int, list[int]]:
    """Return how often the algorithm yielded, and the packing."""
    where: list[int] = []

    def done() -> Generator[None, None, None]:
        where.extend((yield from work))

    return sum(1 for _ in done()), where


def fewest_bins(sizes: list[float], capacity: float) -> int:
    """Return the fewest bins over all assignments of the items. An item larger than the capacity has a bin alone."""
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
