"""The scores over a stream, and their intervals."""

from __future__ import annotations

import math
import random

import pytest

from ingeborg.bench.packing.scores import T95, front, interval, spread, staircase


def test_an_interval_is_the_mean_and_students_half_width() -> None:
    # 2.776 times 1.5811 divided by the root of 5, as in any textbook's table.
    mean, half = interval([1.0, 2.0, 3.0, 4.0, 5.0])
    assert mean == 3.0
    assert half == pytest.approx(1.963, abs=1e-3)
    assert interval([4.0]) == (4.0, 0.0)


def test_about_one_interval_in_twenty_misses_the_mean() -> None:
    numbers = random.Random(1)
    missed = 0
    for _ in range(4_000):
        mean, half = interval([numbers.gauss(7.0, 2.0) for _ in range(10)])
        missed += abs(mean - 7.0) > half
    assert 160 <= missed <= 240


def test_the_table_falls_to_the_normal_distributions_value() -> None:
    values = [T95[degrees] for degrees in range(1, 31)]
    assert values == sorted(values, reverse=True)
    assert values[-1] > 1.96


def test_who_is_on_the_front_is_beaten_by_nobody() -> None:
    points = {"a": (0.0, 9.0), "b": (3.0, 3.0), "c": (3.0, 4.0), "d": (9.0, 0.0), "e": (4.0, 4.0), "f": (3.0, 3.0)}
    assert front(points) == ["a", "b", "d", "f"]
    assert front({"a": (math.inf, 1.0)}) == ["a"]


def test_the_line_of_a_front_goes_right_and_then_down() -> None:
    points = {"a": (0.0, 9.0), "b": (3.0, 3.0), "c": (3.0, 4.0), "d": (9.0, 0.0)}
    assert staircase(points) == [(0.0, 9.0), (3.0, 9.0), (3.0, 3.0), (9.0, 3.0), (9.0, 0.0)]
    assert staircase({"a": (1.0, 2.0)}) == [(1.0, 2.0)]


def test_a_spread_has_the_interval_and_the_ends() -> None:
    assert spread([1.0, 2.0, 3.0]) == (*interval([1.0, 2.0, 3.0]), 1.0, 3.0)
