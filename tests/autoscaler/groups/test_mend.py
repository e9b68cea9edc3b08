"""Mending a packing: items that must move do, few others move, and none moves twice."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ingeborg.autoscaler.groups.instance import NOWHERE, Instance, loads, lower_bound, moved, rscore
from ingeborg.autoscaler.groups.mend import GIVEN_UP_OF, PRICE, mend
from ingeborg.autoscaler.groups.packing import SLICE, pack

from .drawn import CAPACITY, in_bins, inexact, instances, over, packed, pauses, valid

#: At this price no item moves without need: neither to save a bin, nor to make room.
NOTHING = -math.inf

prices = st.sampled_from([0.0, 0.5, PRICE, 3.0])
fitting = st.one_of(st.integers(0, CAPACITY), st.integers(0, CAPACITY // 3))


def mended(instance: Instance, price: float = PRICE) -> list[int]:
    """Run the algorithm without pauses."""
    return pack(lambda each: mend(each, price), instance)


def again(instance: Instance, where: list[int]) -> Instance:
    """Return the same items in their current bins."""
    return Instance(instance.sizes, where, instance.capacity, instance.capacities)


def with_size(instance: Instance, items: list[int]) -> list[int]:
    return [item for item in items if instance.sizes[item] > 0.0]


def crowded(instance: Instance) -> set[int]:
    """Return the former bins that exceed their capacity and hold more than one item."""
    former = {bin: items for bin, items in in_bins(instance.former).items() if bin != NOWHERE}
    return {bin for bin in over(instance, instance.former) if bin in former and len(former[bin]) > 1}


# ---------------------------------------------------------------------------------------------------- a valid packing


@given(st.one_of(instances(), instances(unequal=True), inexact()), prices)
def test_every_item_has_one_bin_and_no_bin_is_over_its_capacity(instance: Instance, price: float) -> None:
    valid(instance, mended(instance, price))


@given(instances(unequal=True), prices)
def test_the_same_instance_gives_the_same_packing_and_is_left_as_it_was(instance: Instance, price: float) -> None:
    before = (list(instance.sizes), list(instance.former), dict(instance.capacities))
    assert mended(instance, price) == mended(instance, price)
    assert (instance.sizes, instance.former, instance.capacities) == before


def test_no_items_need_no_bins() -> None:
    assert mended(Instance([])) == []


def test_items_that_all_arrive_are_packed_tight() -> None:
    where = mended(Instance([6.0, 4.0, 7.0, 3.0, 5.0, 5.0], None, 10.0))
    assert sorted(in_bins(where).values()) == [[0, 1], [2, 3], [4, 5]]
    assert set(where) == {0, 1, 2}


def test_it_lets_others_go_on_and_gives_what_it_gives_all_at_once() -> None:
    items = 3 * SLICE
    instance = Instance([float(item % 7 + 4) for item in range(items)], [item // 2 for item in range(items)], 30.0)
    count, where = pauses(mend(instance))
    assert count > 3
    assert where == mended(instance)


# ---------------------------------------------------------------------------------------------------------- items that
# stay


@given(packed(sizes=fitting), prices)
def test_nothing_moves_where_no_bin_is_over_its_capacity_and_fewer_will_not_do(
    instance: Instance, price: float
) -> None:
    assume(len(set(instance.former)) == lower_bound(instance))
    assert mended(instance, price) == instance.former


@given(st.lists(st.lists(st.integers(1, 9), min_size=2, max_size=4), max_size=6), prices)
def test_nothing_moves_where_all_bins_are_full(parts: list[list[int]], price: float) -> None:
    sizes, former = [], []
    for bin, part in enumerate(parts):  # the last item fills the bin
        sizes += [float(size) for size in [*part, 64 - sum(part)]]
        former += [2 * bin] * (len(part) + 1)
    assert mended(Instance(sizes, former, 64.0), price) == former


@given(instances(unequal=True), prices)
def test_what_is_mended_moves_again_only_where_a_bin_is_saved(instance: Instance, price: float) -> None:
    where = mended(instance, price)
    second = mended(again(instance, where), price)
    assert second == where or len(set(second)) < len(set(where))


@given(instances(unequal=True))
def test_what_is_mended_for_nothing_stays(instance: Instance) -> None:
    where = mended(instance, 0.0)
    next_time = again(instance, where)
    assert with_size(next_time, moved(next_time, mended(next_time, 0.0))) == []


def test_a_bin_may_stay_over_its_capacity_by_one_item_alone() -> None:
    instance = Instance([15.0, 1.0], [3, 0], 10.0)
    assert mended(instance) == [3, 0]
    assert mended(Instance([15.0, 0.0], [3, 3], 10.0)) == [3, 0]


# --------------------------------------------------------------------------------------------------- items that must
# move


@given(st.lists(st.integers(0, 15), min_size=2, max_size=7), st.integers(1, 30))
def test_a_bin_over_its_capacity_gives_up_what_suffices_and_as_little_as_possible(
    sizes: list[int], capacity: int
) -> None:
    instance = Instance([float(size) for size in sizes], [4] * len(sizes), float(capacity))
    where = mended(instance, NOTHING)
    given_up = [
        sum(part)
        for length in range(len(sizes))
        for part in itertools.combinations(sizes, length)
        if sum(sizes) - sum(part) <= capacity or length == len(sizes) - 1
    ]
    assert sum(sizes[item] for item in moved(instance, where)) == min(given_up)


def test_of_many_items_a_greater_one_alone_may_be_the_least() -> None:
    sizes = [1.0] * (GIVEN_UP_OF + 1) + [20.0, 30.0, 17.0]
    capacity = sum(sizes) - 16.5
    instance = Instance([*sizes, capacity - 30.0], [0] * len(sizes) + [1], capacity)
    assert moved(instance, mended(instance)) == [len(sizes) - 1]


@given(st.integers(2, 60), st.integers(1, 60))
def test_however_much_a_bin_is_over_its_capacity_it_is_not_afterwards(items: int, capacity: int) -> None:
    instance = Instance([1.0] * items, [0] * items, float(capacity))
    where = mended(instance)
    valid(instance, where)
    assert len(moved(instance, where)) == max(0, items - capacity)
    assert len(set(where)) == -(-items // capacity)


@given(instances())
def test_at_no_price_at_all_only_bins_over_their_capacity_lose_items(instance: Instance) -> None:
    where = mended(instance, NOTHING)
    assert {instance.former[item] for item in moved(instance, where)} <= crowded(instance)


def test_of_many_small_items_a_bin_gives_up_what_suffices_to_within_one_of_them() -> None:
    sizes = [1.0] * 50 + [0.25] * 30
    where = mended(Instance(sizes, [0] * 80, 30.0), NOTHING)
    assert 27.5 <= sum(sizes[item] for item in range(80) if where[item] != 0) <= 28.5


def test_what_has_no_bin_goes_where_it_fits_best_the_greatest_first() -> None:
    assert mended(Instance([5.0, 6.0, 7.0, 3.0], [0, 1, 2, NOWHERE], 10.0)) == [0, 1, 2, 2]
    assert mended(Instance([6.0, 1.0, 3.0, 4.0], [0, 1, NOWHERE, NOWHERE], 10.0)) == [0, 1, 1, 0]


def test_what_fits_nowhere_gets_a_new_bin_with_the_lowest_number() -> None:
    assert mended(Instance([8.0, 8.0, 8.0], [1, 4, NOWHERE], 10.0)) == [1, 4, 0]


def test_a_lighter_item_makes_room_for_one_that_has_no_bin() -> None:
    instance = Instance([3.0, 6.0, 8.0], [0, 1, NOWHERE], 10.0)
    assert mended(instance, 0.3) == [1, 1, 0]
    assert mended(instance, 0.2) == [0, 1, 2]


# ------------------------------------------------------------------------------------------------- the price of a bin


@given(packed(), prices)
def test_where_nothing_has_to_move_each_bin_saved_costs_at_most_the_price(instance: Instance, price: float) -> None:
    where = mended(instance, price)
    saved = len(set(instance.former)) - len(set(where))
    assert saved >= 0
    assert rscore(instance, where) <= price * saved


@given(instances(), prices)
def test_beyond_what_has_to_move_an_item_without_bin_or_a_bin_saved_costs_at_most_the_price(
    instance: Instance, price: float
) -> None:
    least = mended(instance, NOTHING)
    where = mended(instance, price)
    loose = instance.former.count(NOWHERE) + len(moved(instance, least))
    # The algorithm cannot save more bins than existed at any time.
    saved = len(set(instance.former) - {NOWHERE}) + loose - len(set(where))
    assert rscore(instance, where) <= rscore(instance, least) + price * (loose + saved) + 1e-9


@given(instances(items=20))
def test_for_nothing_no_more_moves_than_has_to(instance: Instance) -> None:
    least = mended(instance, NOTHING)
    assert rscore(instance, mended(instance, 0.0)) <= rscore(instance, least) + 1e-9


@given(packed())
def test_for_nothing_nothing_with_a_size_moves_where_no_bin_is_over_its_capacity(instance: Instance) -> None:
    assert with_size(instance, moved(instance, mended(instance, 0.0))) == []


def test_an_item_of_no_size_moves_for_nothing_to_save_a_bin() -> None:
    assert mended(Instance([0.0, 5.0], [0, 1], 10.0), 0.0) == [1, 1]
    assert mended(Instance([0.0, 5.0], [0, 1], 10.0), NOTHING) == [0, 1]


@pytest.mark.parametrize(("price", "expected"), [(0.1, [0, 1, 2]), (0.2, [1, 1, 2]), (0.3, [1, 1, 1])])
def test_a_bin_is_emptied_where_its_load_is_at_most_the_price(price: float, expected: list[int]) -> None:
    assert mended(Instance([2.0, 4.0, 3.0], [0, 1, 2], 10.0), price) == expected


@pytest.mark.parametrize(("price", "expected"), [(0.5, [0, 1, 1, 2]), (0.6, [1, 1, 2, 2])])
def test_what_makes_room_for_the_items_of_an_emptied_bin_counts_too(price: float, expected: list[int]) -> None:
    # 4 fits nowhere unless 2 goes into the bin with 8.
    assert mended(Instance([4.0, 5.0, 2.0, 8.0], [0, 1, 1, 2], 10.0), price) == expected


@pytest.mark.parametrize(("price", "expected"), [(0.6, [0, 0, 1, 1, 2]), (0.7, [1, 1, 1, 2, 2])])
def test_what_has_made_room_for_one_item_leaves_less_for_the_next(price: float, expected: list[int]) -> None:
    # As above, and 1 must also move: 4 + 2 + 1.
    assert mended(Instance([4.0, 1.0, 5.0, 2.0, 8.0], [0, 0, 1, 1, 2], 10.0), price) == expected


@pytest.mark.parametrize("price", [PRICE, 10.0])
def test_a_bin_that_cannot_be_emptied_whole_keeps_everything(price: float) -> None:
    instance = Instance([4.0, 4.0, 4.0, 4.0, 3.0], [0, 0, 1, 1, 2], 10.0)
    assert lower_bound(instance) == 2 < len(set(instance.former))
    assert mended(instance, price) == instance.former


@given(instances(sizes=fitting), prices)
def test_a_new_bin_is_opened_only_where_no_other_could_take_what_is_in_it(instance: Instance, price: float) -> None:
    where = mended(instance, price)
    load = loads(instance, where)
    for new in load.keys() - set(instance.former):
        for other in load.keys() - {new}:
            if load[new] > 0.0 and load[other] > 0.0:
                assert load[new] + load[other] > instance.capacity


@given(instances(), prices)
def test_there_is_at_most_one_new_bin_for_each_item_that_has_none(instance: Instance, price: float) -> None:
    where = mended(instance, price)
    loose = instance.former.count(NOWHERE) + len(moved(instance, mended(instance, NOTHING)))
    assert len(set(where)) <= len(set(instance.former) - {NOWHERE}) + loose


@given(instances(arrivals=False, sizes=st.integers(1, 4)))
def test_with_small_items_and_a_high_price_few_bins_are_left(instance: Instance) -> None:
    assert len(set(mended(instance, 100.0))) <= lower_bound(instance) + 1
