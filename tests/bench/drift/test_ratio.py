"""The ratio of a row of pairs, and its bounds."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingeborg.bench.drift.ratio import ratio, student

COSTS = st.floats(0.1, 1_000)


@pytest.mark.parametrize(
    ("freedom", "table"), [(3, 3.182), (5, 2.571), (9, 2.262), (29, 2.045), (100, 1.984), (10**6, 1.960)]
)
def test_students_quantile_is_that_of_the_tables(freedom: int, table: float) -> None:
    assert student(freedom) == pytest.approx(table, rel=0.01)


@given(st.lists(COSTS, min_size=3, max_size=40), st.floats(0.5, 2.0))
def test_what_is_always_dearer_by_the_same_part_is_so_without_doubt(costs: list[float], part: float) -> None:
    found = ratio([(cost, cost * part) for cost in costs])
    assert found == pytest.approx((part, part, part))


@given(st.lists(st.tuples(COSTS, COSTS), min_size=3, max_size=40))
def test_seen_from_the_other_side_it_is_the_inverse(pairs: list[tuple[float, float]]) -> None:
    there, back = ratio(pairs), ratio([(second, first) for first, second in pairs])
    assert there.low <= there.mean <= there.high
    assert (1 / back.mean, 1 / back.high, 1 / back.low) == pytest.approx(there)


def test_the_true_ratio_is_between_the_bounds_nineteen_times_of_twenty() -> None:
    draw = random.Random(7)
    within = 0
    for _ in range(1_000):
        pairs = []
        for _ in range(12):
            machine = draw.uniform(5.0, 20.0)  # a disturbance affects both
            pairs.append((machine * draw.lognormvariate(0, 0.05), 1.1 * machine * draw.lognormvariate(0, 0.05)))
        found = ratio(pairs)
        within += found.low <= 1.1 <= found.high
    assert within == pytest.approx(950, abs=25)


def test_more_pairs_narrow_the_bounds() -> None:
    few = [(1.0, 1.0 + number % 3 / 10) for number in range(6)]
    assert math.log(ratio(few * 16).high / ratio(few * 16).low) < math.log(ratio(few).high / ratio(few).low) / 3.5


def test_two_pairs_are_too_few() -> None:
    with pytest.raises(ValueError, match="2 pairs are too few"):
        ratio([(1.0, 1.0)] * 2)
