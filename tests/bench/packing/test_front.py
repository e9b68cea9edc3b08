"""The front, and its line."""

from __future__ import annotations

import math

from ingeborg.bench.packing.front import front, staircase


def test_no_point_is_better_than_one_on_the_front() -> None:
    points = {"a": (0.0, 9.0), "b": (3.0, 3.0), "c": (3.0, 4.0), "d": (9.0, 0.0), "e": (4.0, 4.0), "f": (3.0, 3.0)}
    assert front(points) == ["a", "b", "d", "f"]
    assert front({"a": (math.inf, 1.0)}) == ["a"]


def test_the_line_of_a_front_goes_right_and_then_down() -> None:
    points = {"a": (0.0, 9.0), "b": (3.0, 3.0), "c": (3.0, 4.0), "d": (9.0, 0.0)}
    assert staircase(points) == [(0.0, 9.0), (3.0, 9.0), (3.0, 3.0), (9.0, 3.0), (9.0, 0.0)]
    assert staircase({"a": (1.0, 2.0)}) == [(1.0, 2.0)]
