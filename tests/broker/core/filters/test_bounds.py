"""Sorted bounds against a list: blocks and groups that split and join, and equal bounds in many blocks."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from ingeborg.broker.core.filters.bounds import Bounds

VALUES = (float("-inf"), -2.0, 0.0, 0.5, 1.0, 3.0, 1e300, float("inf"))


@settings(max_examples=40)
@given(st.integers(0, 2**32), st.integers(2, 5), st.integers(2, 4), st.booleans())
def test_it_finds_what_a_list_finds(seed: int, leaf: int, group: int, is_crowded: bool) -> None:
    random = Random(seed)
    bounds, plain = Bounds(leaf, group), dict[int, float]()
    empty_bytes = bounds.bytes
    for step in range(400):
        # It grows at first, and shrinks again.
        number = random.randrange(200)
        is_add = random.randrange(400) >= step
        value = random.choice(VALUES) if is_crowded else random.uniform(-4, 4)
        if number in plain and not is_add:
            bounds.remove(plain.pop(number), number)
        elif number not in plain and is_add:
            bounds.add(value, number)
            plain[number] = value
        value = random.choice(VALUES) if is_crowded else random.uniform(-4, 4)
        assert set(bounds.at_most(value)) == {each for each, bound in plain.items() if bound <= value}
    for value in (*VALUES, -1.0, 0.7, 2.0):
        assert set(bounds.at_most(value)) == {each for each, bound in plain.items() if bound <= value}
    assert len(bounds) == len(plain)
    for number, value in plain.items():
        bounds.remove(value, number)
    assert len(bounds) == 0
    assert bounds.bytes == empty_bytes


def test_ascending_descending_and_equal_bounds_fill_blocks_alike() -> None:
    for values in (range(2_000), range(2_000, 0, -1), [7] * 2_000):
        bounds = Bounds(16, 8)
        for number, value in enumerate(values):
            bounds.add(float(value), number)
        assert len(bounds.at_most(1_000.0)) == sum(value <= 1_000 for value in values)
        assert max(len(leaves) for leaves in bounds._groups) <= 8
        assert max(len(leaf.values) for leaves in bounds._groups for leaf in leaves) <= 16
        for number, value in enumerate(values):
            bounds.remove(float(value), number)
            if number % 50 == 0:
                left = [each for each in list(values)[number + 1 :] if each <= 1_000]
                assert len(bounds.at_most(1_000.0)) == len(left)
        assert bounds._groups == []
