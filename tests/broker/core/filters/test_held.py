"""Sets of numbers in three forms: with each number added or removed they equal a set."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from ingeborg.broker.core.filters.held import FEW, Gathered, Held, held_bytes, numbers_of, with_number, without_number


@given(st.lists(st.integers(0, 2 * FEW), max_size=200))
def test_it_holds_what_a_set_holds(numbers: list[int]) -> None:
    held: Held = None
    plain: set[int] = set()
    for number in numbers:
        held = without_number(held, number) if number in plain else with_number(held, number)
        plain ^= {number}
        assert sorted(numbers_of(held)) == sorted(plain)
        assert (held is None) is (not plain)
        assert held_bytes(held) >= 0


def test_few_are_a_tuple_and_many_a_bitmap() -> None:
    held: Held = None
    for number in range(FEW + 1):
        held = with_number(held, number)
        assert type(held) is (int if not number else tuple if number < FEW else BitMap)


@given(st.lists(st.sets(st.integers(0, 100)), max_size=4), st.sets(st.integers(0, 100)))
def test_a_union_leaves_its_bitmaps_as_they_are(several: list[set[int]], single: set[int]) -> None:
    gathered = Gathered()
    bitmaps = [BitMap(each) for each in several]
    for bitmap in bitmaps:
        gathered.add(bitmap)
    gathered.add(tuple(single))
    assert set(gathered.bitmap()) == single.union(*several)
    assert [set(bitmap) for bitmap in bitmaps] == several
