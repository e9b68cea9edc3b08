"""Intervals, and the forms of figures."""

from __future__ import annotations

import random

import pytest

from ingeborg.bench.experiments.figures import (
    T95,
    columns,
    interval,
    percent,
    rounded,
    rows_of,
    spread,
    together,
    with_interval,
)
from ingeborg.bench.text.blocks import FAILS, HOLDS, PARTLY


def test_an_interval_is_the_mean_and_students_half_width() -> None:
    # 2.776 times 1.5811 divided by the root of 5, as in any textbook's table.
    mean, half = interval([1.0, 2.0, 3.0, 4.0, 5.0])
    assert mean == 3.0
    assert half == pytest.approx(1.963, abs=1e-3)
    assert interval([4.0]) == (4.0, 0.0)
    assert rounded(spread([1.0, 2.0, 3.0]), 3) == [2.0, 2.484, 1.0, 3.0]


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


def test_a_table_has_each_name_once_and_gives_its_rows_back() -> None:
    table = columns([{"a": 1}, {"a": 2, "b": 3}])
    assert table == {"names": ["a", "b"], "rows": [[1, None], [2, 3]]}
    assert rows_of(table) == [{"a": 1, "b": None}, {"a": 2, "b": 3}]
    assert rows_of(None) == rows_of(columns([])) == []


def test_an_unknown_interval_is_not_shown() -> None:
    assert [percent([0.118, half]) for half in (0.0, 0.0123)] == ["11.8%", "11.8% ± 1.2"]
    assert [with_interval([2.0, half], "{:.1f}".format) for half in (0.0, 0.25)] == ["2.0", "2.0 ± 0.2"]


def test_cases_together_hold_all_in_part_or_not_at_all() -> None:
    each: tuple[list[bool], ...] = ([True, True], [True, False], [False], [])
    assert [together(verdicts) for verdicts in each] == [HOLDS, PARTLY, FAILS, FAILS]
