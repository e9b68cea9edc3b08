"""The instance, the cost of a solution, the bound, and the numbers of bins."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingeborg.autoscaler.groups.instance import (
    NOWHERE,
    Instance,
    by_size,
    loads,
    lower_bound,
    moved,
    relabel,
    rscore,
)
from ingeborg.autoscaler.groups.packing import DOCUMENT, pack

from .drawn import BINS, CAPACITY, fewest_bins, in_bins, instances, over

names = st.sampled_from(sorted(DOCUMENT))


def test_three_items_of_a_hundred_bytes_a_second_that_move_cost_three_capacities() -> None:
    instance = Instance([100.0] * 3, [0, 1, 2], 100.0)
    assert rscore(instance, [1, 2, 0]) == 3.0
    pause_s = 2.0
    assert pause_s * rscore(instance, [1, 2, 0]) == 6.0  # seconds of work for one consumer


def test_what_stays_and_what_arrives_and_what_departs_costs_nothing() -> None:
    instance = Instance([5.0, 7.0, 11.0, 13.0], [0, NOWHERE, 1, 2], 10.0)
    where = [0, 0, NOWHERE, 1]
    assert moved(instance, where) == [3]
    assert rscore(instance, where) == 1.3
    assert rscore(instance, instance.former) == 0.0


def test_an_item_of_no_size_moves_and_costs_nothing() -> None:
    instance = Instance([0.0, 1.0], [0, 1])
    assert moved(instance, [1, 1]) == [0]
    assert rscore(instance, [1, 1]) == 0.0


@given(instances(), st.data())
def test_the_cost_is_the_sum_of_what_has_one_bin_before_and_another_after(
    instance: Instance, data: st.DataObject
) -> None:
    where = [data.draw(st.integers(NOWHERE, BINS)) for _ in instance.sizes]
    pairs = list(zip(instance.sizes, instance.former, where, strict=True))
    total = sum(size for size, before, after in pairs if before >= 0 and after >= 0 and before != after)
    assert rscore(instance, where) == pytest.approx(total / CAPACITY)


def test_without_former_bins_everything_arrives() -> None:
    instance = Instance([1.0, 2.0])
    assert instance.former == [NOWHERE, NOWHERE]
    assert moved(instance, [4, 5]) == []


def test_the_load_of_a_bin_is_the_exact_sum_of_its_items() -> None:
    assert loads(Instance([0.1] * 10 + [3.0]), [4] * 10 + [2]) == {4: 1.0, 2: 3.0}
    assert loads(Instance([]), []) == {}


def test_a_bin_has_the_capacity_that_is_given_for_it_or_else_that_of_all() -> None:
    instance = Instance([1.0], None, 4.0, {2: 9.0, 3: 1.0})
    assert [instance.capacity_of(bin) for bin in range(5)] == [4.0, 4.0, 9.0, 1.0, 4.0]
    assert instance.widest == 9.0
    assert [instance.suits(bin, 5.0) for bin in range(4)] == [False, False, True, False]
    assert [instance.suits(bin, 9.5) for bin in range(4)] == [True] * 4  # no bin has room for it: any bin may get it


@given(instances())
def test_the_greatest_item_is_first_and_of_equal_ones_the_lowest_number(instance: Instance) -> None:
    order = by_size(instance.sizes)
    assert sorted(order) == list(range(len(instance.sizes)))
    pairs = [(-instance.sizes[item], item) for item in order]
    assert pairs == sorted(pairs)


@pytest.mark.parametrize(
    ("sizes", "former", "capacity", "capacities", "words"),
    [
        ([1.0, 2.0], [0], 1.0, None, "2 items have sizes, but 1 have a former bin: give one for each"),
        ([], [0], 1.0, None, "0 items have sizes, but 1 have a former bin: give one for each"),
        ([-1.0], [0], 1.0, None, "-1.0 is not a size: give a finite number of at least 0"),
        ([math.inf], [0], 1.0, None, "inf is not a size: give a finite number of at least 0"),
        ([math.nan], [0], 1.0, None, "nan is not a size: give a finite number of at least 0"),
        ([1.0], [0], 0.0, None, "0.0 is not a capacity: give a finite number above 0"),
        ([1.0], [0], math.inf, None, "inf is not a capacity: give a finite number above 0"),
        ([1.0], [0], math.nan, None, "nan is not a capacity: give a finite number above 0"),
        ([1.0], [0], 1.0, {3: -2.0}, "-2.0 is not a capacity: give a finite number above 0"),
        ([1.0], [-2], 1.0, None, "-2 is not a bin: give a number of at least 0"),
        ([1.0], [0], 1.0, {NOWHERE: 1.0}, "-1 is not a bin: give a number of at least 0"),
    ],
)
def test_what_is_no_instance_is_refused_with_what_is_asked_for(
    sizes: list[float], former: list[int], capacity: float, capacities: dict[int, float] | None, words: str
) -> None:
    with pytest.raises(ValueError, match="^" + words):
        Instance(sizes, former, capacity, capacities)


# ------------------------------------------------------------------------------------------------------------ the bound


@given(st.lists(st.integers(0, 20), max_size=7), st.sampled_from([4, 8, 16]))
def test_the_bound_is_at_most_the_fewest_bins_that_do(sizes: list[int], capacity: int) -> None:
    instance = Instance([float(size) for size in sizes], None, float(capacity))
    assert lower_bound(instance) <= fewest_bins(instance.sizes, instance.capacity)


def test_two_items_that_just_fill_a_bin_need_one() -> None:
    # 9 of 11 and 2 of 11: through rounding, 1 minus the first is less than the second.
    more = [
        (size, capacity)
        for capacity in range(2, 60)
        for size in range(1, capacity)
        if lower_bound(Instance([float(size), float(capacity - size)], None, float(capacity))) != 1
    ]
    assert more == []


@given(st.lists(st.integers(0, 16), max_size=30))
def test_the_bound_is_at_least_the_load_and_the_items_over_a_half(sizes: list[int]) -> None:
    bound = lower_bound(Instance([float(size) for size in sizes], None, 16.0))
    assert bound >= -(-sum(sizes) // 16)
    assert bound >= sum(1 for size in sizes if size > 8)


@given(instances(sizes=st.integers(0, CAPACITY), arrivals=False), names)
def test_no_algorithm_needs_fewer_bins_than_the_bound(instance: Instance, name: str) -> None:
    assert lower_bound(instance) <= len(set(pack(DOCUMENT[name], instance)))


def test_the_bound_knows_what_the_load_does_not_say() -> None:
    # Three items of size 6 are alone in bins of 10. Each leaves room for one of size 4, and the instance has five such
    # items.
    assert lower_bound(Instance([6.0] * 3 + [4.0] * 5, None, 10.0)) == 4
    # The load would fit into two bins, but no item of size 7 shares a bin with one of size 4 or 7.
    assert lower_bound(Instance([7.0, 7.0, 4.0], None, 10.0)) == 3


def test_an_item_that_is_greater_than_a_bin_counts_as_one_bin() -> None:
    assert lower_bound(Instance([500.0, 20.0], None, 10.0)) == 2


def test_with_unequal_capacities_the_bound_is_that_of_the_greatest() -> None:
    assert lower_bound(Instance([4.0] * 5, None, 4.0)) == 5
    assert lower_bound(Instance([4.0] * 5, None, 4.0, {7: 20.0})) == 1


def test_no_items_need_no_bin_and_items_of_no_size_need_one() -> None:
    assert lower_bound(Instance([])) == 0
    assert lower_bound(Instance([0.0, 0.0])) == 1


# ------------------------------------------------------------------------------------------------------ names of bins


@given(instances(unequal=True), names)
def test_other_names_keep_together_what_is_together_and_apart_what_is_not(instance: Instance, name: str) -> None:
    where = pack(DOCUMENT[name], instance)
    named = relabel(instance, where)
    assert sorted(in_bins(named).values()) == sorted(in_bins(where).values())
    assert all(bin >= 0 for bin in named)


@given(instances(unequal=True), names)
def test_a_bin_gets_the_name_of_one_with_the_same_capacity(instance: Instance, name: str) -> None:
    where = pack(DOCUMENT[name], instance)
    named = relabel(instance, where)
    for before, after in zip(where, named, strict=True):
        assert instance.capacity_of(before) == instance.capacity_of(after)
    assert len(over(instance, named)) == len(over(instance, where))


@given(instances(arrivals=False, sizes=st.integers(1, CAPACITY)), st.permutations(range(BINS + 1)))
def test_a_packing_that_has_only_other_names_gets_the_former_ones_again(instance: Instance, mixed: list[int]) -> None:
    assert relabel(instance, [mixed[bin] for bin in instance.former]) == instance.former


@given(instances(), names)
def test_names_leave_at_least_half_of_what_the_best_names_would_leave(instance: Instance, name: str) -> None:
    where = pack(DOCUMENT[name], instance)
    stays = _stays(instance, relabel(instance, where))
    assert 2 * stays >= _stays(instance, where)


def test_the_greatest_common_load_decides_on_the_name_even_where_more_moves_by_that() -> None:
    instance = Instance([3.0, 4.0, 2.0], [0, 1, 1], 10.0)
    assert relabel(instance, [0, 0, 1]) == [1, 1, 0]
    assert (rscore(instance, [0, 0, 1]), rscore(instance, [1, 1, 0])) == (0.4, 0.5)


def test_a_bin_of_arrivals_keeps_its_name_or_gets_the_lowest_that_is_free() -> None:
    instance = Instance([1.0, 2.0, 3.0], [4, NOWHERE, NOWHERE], 9.0)
    assert relabel(instance, [2, 4, 7]) == [4, 0, 7]
    narrow = Instance([3.0, 1.0], [2, NOWHERE], 10.0, {0: 4.0})
    assert relabel(narrow, [1, 2]) == [2, 1]  # bin 0 is free, but has another capacity
    assert relabel(instance, []) == []


def _stays(instance: Instance, where: list[int]) -> float:
    return sum(
        size for size, before, after in zip(instance.sizes, instance.former, where, strict=True) if before == after
    )
