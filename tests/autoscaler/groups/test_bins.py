"""The open bins, compared with a naive model: a dictionary searched from the lowest bin on."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from ingeborg.autoscaler.groups.bins import BEST, FIRST, WORST, Bins
from ingeborg.autoscaler.groups.instance import NOWHERE, Instance

CAPACITIES = {0: 4.0, 2: 9.0, 5: 20.0}
sizes = st.integers(0, 25).map(float)
fits = st.sampled_from([FIRST, BEST, WORST])


def naive(room: dict[int, float], fit: str, size: float) -> int:
    """Search one bin after the other, and take the first among equally good ones."""
    chosen = NOWHERE
    for bin in sorted(room):
        if room[bin] < size:
            continue
        if (
            chosen == NOWHERE
            or (fit == BEST and room[bin] < room[chosen])
            or (fit == WORST and room[bin] > room[chosen])
        ):
            chosen = bin
    return chosen


class BesideADictionary(RuleBasedStateMachine):
    """Draw operations that put sizes into bins and take them out, as an algorithm does."""

    def __init__(self) -> None:
        super().__init__()
        self.bins = Bins(Instance([1.0] * 60, [7] * 60, 10.0, CAPACITIES), tree=True)
        self.room: dict[int, float] = {}
        self.inside: list[tuple[int, float]] = []

    @rule(fit=fits, size=sizes)
    def find_and_put(self, fit: str, size: float) -> None:
        bin = self.bins.find(fit, size)
        assert bin == naive(self.room, fit, size)
        if bin != NOWHERE:
            self.bins.put(bin, size)
            self.room[bin] -= size
            self.inside.append((bin, size))

    @rule(former=st.integers(NOWHERE, 7), size=sizes)
    def open(self, former: int, size: float) -> None:
        if len(self.room) == 50:
            return
        bin = self.bins.open(former, size)
        assert bin not in self.room
        self.room[bin] = CAPACITIES.get(bin, 10.0)
        free = [each for each in range(80) if each not in self.room or each == bin]
        enough = [each for each in free if size <= CAPACITIES.get(each, 10.0)]
        if former in free and (former in enough or size > 20.0):
            assert bin == former
        elif enough:
            assert bin == enough[0]
        else:
            assert bin == free[0]

    @rule(data=st.data())
    def take_out(self, data: st.DataObject) -> None:
        if self.inside:
            bin, size = self.inside.pop(data.draw(st.integers(0, len(self.inside) - 1)))
            self.bins.put(bin, -size)
            self.room[bin] += size

    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        if self.room:
            bin = data.draw(st.sampled_from(sorted(self.room)))
            self.bins.close(bin)
            del self.room[bin]
            self.inside = [(where, size) for where, size in self.inside if where != bin]

    @rule(size=sizes)
    def look(self, size: float) -> None:
        assert (self.bins.room, len(self.bins)) == (self.room, len(self.room))
        assert self.bins.row == sorted((room, bin) for bin, room in self.room.items())
        for fit in (FIRST, BEST, WORST):
            assert self.bins.find(fit, size) == naive(self.room, fit, size)


TestBesideADictionary = BesideADictionary.TestCase
TestBesideADictionary.settings = settings(max_examples=50, stateful_step_count=40)


def test_a_bin_that_is_exactly_full_has_room_for_what_has_no_size() -> None:
    bins = Bins(Instance([3.0, 0.0], capacity=3.0), tree=True)
    bins.start(0)
    bins.put(0, 3.0)
    assert [bins.find(fit, 0.0) for fit in (FIRST, BEST, WORST)] == [0, 0, 0]
    assert [bins.find(fit, 1e-6) for fit in (FIRST, BEST, WORST)] == [NOWHERE] * 3


def test_the_new_bin_is_the_former_one_as_long_as_that_is_not_open() -> None:
    bins = Bins(Instance([1.0] * 4, [3, 3, 3, 3], 1.0))
    assert [bins.open(3, 1.0), bins.open(3, 1.0), bins.open(NOWHERE, 1.0), bins.open(3, 1.0)] == [3, 0, 1, 2]


def test_the_new_bin_of_a_great_item_is_one_that_is_wide_enough() -> None:
    bins = Bins(Instance([9.0] * 4, [0] * 4, 4.0, {3: 9.0, 6: 10.0}))
    assert [bins.open(0, 9.0), bins.open(0, 9.0)] == [3, 6]
    assert bins.open(0, 9.0) == 0  # no other bin is wide enough
    assert Bins(Instance([11.0], [2], 4.0, {3: 9.0})).open(2, 11.0) == 2  # too large for every bin: it stays


def test_the_new_bin_of_a_small_item_is_not_one_that_is_too_narrow() -> None:
    bins = Bins(Instance([3.0] * 3, [1] * 3, 4.0, {0: 1.0, 1: 2.0}))
    assert [bins.open(1, 3.0), bins.open(1, 3.0), bins.open(1, 2.0), bins.open(NOWHERE, 1.0)] == [2, 3, 1, 0]


def test_a_bin_that_is_closed_is_not_found_and_the_next_that_is_opened() -> None:
    bins = Bins(Instance([1.0] * 3))
    assert [bins.open(NOWHERE, 1.0) for _ in range(3)] == [0, 1, 2]
    bins.close(1)
    assert (len(bins), bins.row) == (2, [(1.0, 0), (1.0, 2)])
    bins.put(0, 1.0)
    assert (bins.best(1.0), bins.worst(1.0)) == (2, 2)
    assert bins.open(NOWHERE, 1.0) == 1


@pytest.mark.parametrize("fit", [FIRST, BEST, WORST])
def test_where_bins_have_equal_room_the_lowest_is_found(fit: str) -> None:
    bins = Bins(Instance([1.0] * 9), tree=True)
    for bin in (5, 2, 8):
        bins.start(bin)
    assert bins.find(fit, 1.0) == 2
