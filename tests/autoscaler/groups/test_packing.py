"""The document's algorithms, compared with naive ones: lists, searched from front to back, after its pseudocode."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingeborg.autoscaler.groups.instance import NOWHERE, Instance, lower_bound, moved
from ingeborg.autoscaler.groups.packing import DOCUMENT, SLICE, pack

from .drawn import CAPACITY, in_bins, inexact, instances, pauses, valid

every = pytest.mark.parametrize("name", sorted(DOCUMENT))

ANY_FIT = {
    "NF": ("next", False),
    "FF": ("first", False),
    "BF": ("best", False),
    "WF": ("worst", False),
    "NFD": ("next", True),
    "FFD": ("first", True),
    "BFD": ("best", True),
    "WFD": ("worst", True),
}
#: Table II: the fit, and the sort key of the bins.
MODIFIED: dict[str, tuple[str, Callable[[list[float]], float]]] = {
    "MWF": ("worst", sum),
    "MBF": ("best", sum),
    "MWFP": ("worst", max),
    "MBFP": ("best", max),
}


class Naive:
    """Consumers in use, and their items, as plain lists."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.used: list[int] = []  # as they were created
        self.where = [NOWHERE] * len(instance.sizes)

    def capacity(self, bin: int) -> float:
        return self.instance.capacities.get(bin, self.instance.capacity)

    def room(self, bin: int) -> float:
        return self.capacity(bin) - sum(
            size for size, mine in zip(self.instance.sizes, self.where, strict=True) if mine == bin
        )

    def suits(self, bin: int, item: int) -> bool:
        """Return whether the consumer is wide enough, or no consumer is."""
        size = self.instance.sizes[item]
        capacities = [self.instance.capacity, *self.instance.capacities.values()]
        return size <= self.capacity(bin) or all(size > each for each in capacities)

    def assign_open(self, item: int, fit: str) -> bool:
        """Put the item into a consumer in use, or return False."""
        size = self.instance.sizes[item]
        opened = self.used[-1:] if fit == "next" else sorted(self.used)
        enough = [bin for bin in opened if size <= self.room(bin)]
        if not enough:
            return False
        if fit == "best":
            enough.sort(key=lambda bin: self.room(bin))
        if fit == "worst":
            enough.sort(key=lambda bin: -self.room(bin))
        self.where[item] = enough[0]
        return True

    def assign(self, item: int, fit: str) -> None:
        """Put the item into a consumer in use, or else into a new one: equation 14."""
        if self.assign_open(item, fit):
            return
        lowest_first = [bin for bin in range(100) if bin not in self.used]
        candidates = [self.instance.former[item], *lowest_first, lowest_first[0]]
        new = [bin for bin in candidates if bin in lowest_first and self.suits(bin, item)]
        bin = new[0] if new else lowest_first[0]
        self.used.append(bin)
        self.where[item] = bin


def naive_any_fit(instance: Instance, fit: str, decreasing: bool) -> list[int]:
    naive = Naive(instance)
    items = list(range(len(instance.sizes)))
    if decreasing:
        items.sort(key=lambda item: -instance.sizes[item])
    for item in items:
        naive.assign(item, fit)
    return naive.where


def naive_modified(instance: Instance, fit: str, order: Callable[[list[float]], float]) -> list[int]:
    """Run algorithm 1, line by line. With unequal capacities, it does not create a consumer that is too narrow for its
    largest remaining item."""
    sizes = instance.sizes
    naive = Naive(instance)
    unassigned = [item for item, bin in enumerate(instance.former) if bin == NOWHERE]
    current = in_bins(instance.former)
    current.pop(NOWHERE, None)
    for consumer in sorted(current, key=lambda bin: (-order([sizes[item] for item in current[bin]]), bin)):
        partitions = sorted(current[consumer], key=lambda item: (-sizes[item], item))
        for item in reversed(list(partitions)):
            if not naive.assign_open(item, fit):
                break
            partitions.remove(item)
        if not partitions:
            continue
        if naive.suits(consumer, partitions[0]):
            naive.used.append(consumer)
            for item in list(partitions):
                # The first one always fits: a partition larger than every consumer has one alone.
                if consumer in naive.where and sizes[item] > naive.room(consumer):
                    break
                naive.where[item] = consumer
                partitions.remove(item)
        unassigned.extend(partitions)
    for item in sorted(unassigned, key=lambda item: (-sizes[item], item)):
        naive.assign(item, fit)
    return naive.where


@every
@settings(max_examples=60)
@given(instance=st.one_of(instances(), instances(unequal=True), inexact()))
def test_every_item_has_one_bin_and_no_bin_is_over_its_capacity(name: str, instance: Instance) -> None:
    valid(instance, pack(DOCUMENT[name], instance))


@pytest.mark.parametrize("name", sorted(ANY_FIT))
@settings(max_examples=60)
@given(instance=st.one_of(instances(), instances(unequal=True)))
def test_any_fit_packs_as_the_naive_one_does(name: str, instance: Instance) -> None:
    assert pack(DOCUMENT[name], instance) == naive_any_fit(instance, *ANY_FIT[name])


@pytest.mark.parametrize("name", sorted(MODIFIED))
@settings(max_examples=60)
@given(instance=st.one_of(instances(), instances(unequal=True)))
def test_modified_any_fit_packs_as_the_documents_pseudocode_says(name: str, instance: Instance) -> None:
    assert pack(DOCUMENT[name], instance) == naive_modified(instance, *MODIFIED[name])


def test_all_twelve_are_tested() -> None:
    assert set(ANY_FIT) | set(MODIFIED) == set(DOCUMENT)
    assert len(DOCUMENT) == 12


@given(st.sampled_from(sorted(DOCUMENT)), instances(unequal=True))
def test_the_same_instance_gives_the_same_packing_and_is_left_as_it_was(name: str, instance: Instance) -> None:
    before = (list(instance.sizes), list(instance.former), dict(instance.capacities))
    assert pack(DOCUMENT[name], instance) == pack(DOCUMENT[name], instance)
    assert (instance.sizes, instance.former, instance.capacities) == before


@every
def test_no_items_need_no_bins(name: str) -> None:
    assert pack(DOCUMENT[name], Instance([])) == []


@every
def test_an_algorithm_lets_others_go_on_and_gives_what_it_gives_all_at_once(name: str) -> None:
    items = 3 * SLICE + 1
    instance = Instance([float(item % 7 + 4) for item in range(items)], list(range(items)), 10.0)
    count, where = pauses(DOCUMENT[name](instance))
    assert count >= 3
    assert where == pack(DOCUMENT[name], instance)


@given(st.sampled_from(sorted(DOCUMENT)), st.lists(st.integers(1, CAPACITY), max_size=14))
def test_without_former_bins_the_lowest_numbers_are_used(name: str, sizes: list[int]) -> None:
    packed = pack(DOCUMENT[name], Instance([float(size) for size in sizes], None, float(CAPACITY)))
    assert set(packed) == set(range(len(set(packed))))


@given(st.sampled_from(sorted(set(ANY_FIT) - {"FF", "FFD"})), instances())
def test_former_bins_change_the_names_of_bins_and_not_their_number(name: str, instance: Instance) -> None:
    arriving = Instance(instance.sizes, None, instance.capacity)
    assert len(set(pack(DOCUMENT[name], instance))) == len(set(pack(DOCUMENT[name], arriving)))


@pytest.mark.parametrize(
    ("name", "sizes", "former", "bins", "arriving"),
    [
        ("FF", [2.0, 9.0, 1.0, 8.0], [1, 0, 0, 0], 2, 3),
        ("FFD", [2.0, 7.0, 3.0, 6.0, 2.0], [3, 2, 3, 2, 3], 3, 2),
    ],
)
def test_first_fit_takes_the_lowest_number_so_former_bins_change_the_number_of_bins(
    name: str, sizes: list[float], former: list[int], bins: int, arriving: int
) -> None:
    # Section VI-A says that they do not. That holds if first fit takes the bin that was opened first, see
    # bench/packing/readings.py.
    assert len(set(pack(DOCUMENT[name], Instance(sizes, former, 10.0)))) == bins
    assert len(set(pack(DOCUMENT[name], Instance(sizes, None, 10.0)))) == arriving


@pytest.mark.parametrize("name", ["FF", "FFD"])
@given(instance=instances(), names=st.permutations(range(14)))
def test_first_fit_needs_as_many_bins_as_without_former_bins_if_their_names_ascend(
    name: str, instance: Instance, names: list[int]
) -> None:
    # Give each item a former bin that no other item opens first: its place in the order of packing.
    order = list(range(len(instance.sizes)))
    if name == "FFD":
        order.sort(key=lambda item: -instance.sizes[item])
    places = [0] * len(order)
    for place, item in enumerate(order):
        places[item] = place
    needed = [
        len(set(pack(DOCUMENT[name], Instance(instance.sizes, former, instance.capacity))))
        for former in (None, places, [names[place] for place in places])
    ]
    assert needed[0] == needed[1]
    # Any names need at most as many bins as the load forces upon first fit: no two bins are at most half full.
    assert max(needed) <= 2 * lower_bound(instance)


@every
def test_one_that_is_greater_than_every_capacity_is_alone(name: str) -> None:
    instance = Instance([30.0, 0.0, 1.0, 30.0], [2, 2, 2, NOWHERE], 10.0, {5: 12.0})
    where = pack(DOCUMENT[name], instance)
    assert where[0] == 2
    assert [where.count(where[item]) for item in (0, 3)] == [1, 1]


@every
def test_one_that_only_a_wide_bin_has_room_for_goes_there(name: str) -> None:
    assert pack(DOCUMENT[name], Instance([9.0], [0], 4.0, {3: 9.0})) == [3]
    assert pack(DOCUMENT[name], Instance([9.0], None, 4.0, {3: 9.0})) == [3]


@every
def test_items_of_no_size_share_one_bin(name: str) -> None:
    assert pack(DOCUMENT[name], Instance([0.0] * 5)) == [0] * 5
    assert pack(DOCUMENT[name], Instance([0.0] * 5, [3] * 5)) == [3] * 5


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("NF", [0, 0, 1, 2, 2]),
        ("FF", [0, 0, 1, 2, 0]),
        ("BF", [0, 0, 1, 2, 1]),
        ("WF", [0, 0, 1, 2, 2]),
        ("NFD", [1, 2, 0, 1, 2]),
        ("FFD", [1, 2, 0, 1, 0]),
        ("BFD", [1, 2, 0, 1, 0]),
        ("WFD", [1, 2, 0, 1, 2]),
    ],
)
def test_what_each_fit_does_with_five_items(name: str, expected: list[int]) -> None:
    assert pack(DOCUMENT[name], Instance([4.0, 3.0, 8.0, 6.0, 2.0], None, 10.0)) == expected


def test_a_modified_one_takes_the_smallest_away_first_and_keeps_the_greatest() -> None:
    # Bin 1 has the larger total and is first; then bin 0 gives away its smallest item, which fits, and keeps the rest.
    instance = Instance([4.0, 1.0, 2.0, 5.0, 3.0], [0, 0, 0, 1, 1], 10.0)
    for name in ("MWF", "MBF"):
        assert pack(DOCUMENT[name], instance) == [0, 1, 0, 1, 1]
        assert moved(instance, pack(DOCUMENT[name], instance)) == [1]


def test_the_sum_or_the_greatest_item_decides_which_bin_is_first() -> None:
    instance = Instance([6.0, 4.0, 4.0], [1, 0, 0], 10.0)
    assert pack(DOCUMENT["MWF"], instance) == [1, 0, 0]  # bin 0 is first, and has no room for 6
    assert pack(DOCUMENT["MWFP"], instance) == [1, 0, 1]  # bin 1 is first, and has room for one item of size 4
    assert [pack(DOCUMENT[name], instance) for name in ("MBF", "MBFP")] == [[1, 0, 0], [1, 0, 1]]


@pytest.mark.parametrize("name", sorted(MODIFIED))
def test_what_does_not_fit_its_bin_any_more_is_placed_last_and_may_need_a_new_bin(name: str) -> None:
    instance = Instance([8.0, 7.0, 9.0], [3, 3, 1], 10.0)
    assert pack(DOCUMENT[name], instance) == [3, 0, 1]


@pytest.mark.parametrize("name", ["FFD", "BFD"])
@given(instance=instances(sizes=st.integers(0, CAPACITY)))
def test_decreasing_fits_need_few_bins_more_than_the_load(name: str, instance: Instance) -> None:
    assert len(set(pack(DOCUMENT[name], instance))) <= 1.5 * lower_bound(instance) + 1
