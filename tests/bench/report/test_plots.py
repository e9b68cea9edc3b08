"""Scales, ticks and paths."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingeborg.bench.report.plots import (
    COLOURS,
    NARROW,
    WIDE,
    Cross,
    Frame,
    Plot,
    Series,
    doubling_axis,
    linear,
    logarithmic,
    nines,
    number,
    percentile_axis,
    seconds_axis,
    stacked,
    svg,
    way,
)


@given(st.floats(1e-6, 1e12), st.integers(2, 12))
def test_a_linear_scale_holds_its_values_and_has_about_as_many_ticks_as_wanted(high: float, wanted: int) -> None:
    scale = linear(high, str)(wanted)
    assert scale.low == 0
    assert scale.high >= high * 0.999999
    assert 2 <= len(scale.ticks) <= wanted + 2
    assert scale.ticks[-1][0] == pytest.approx(scale.high)


@given(st.lists(st.integers(-10, 10**12), max_size=20), st.integers(3, 8))
def test_a_log_scale_holds_its_positive_values(values: list[int], wanted: int) -> None:
    scale = logarithmic(values, str)(wanted)
    assert 0 < scale.low < scale.high
    assert scale.ticks
    for value in values:
        share = scale.share(value)
        assert 0 <= share <= 1
        if value > 0:
            assert scale.low * 0.999 <= value <= scale.high * 1.001
        else:
            assert share == 0


@pytest.mark.parametrize(("high", "last"), [(24, "20 s"), (300, "5 min"), (90_000, "24 h")])
def test_time_ticks_are_round(high: float, last: str) -> None:
    ticks = seconds_axis(0, high)(6).ticks
    assert ticks[0][0] == 0
    assert len(ticks) <= 8
    assert last in [text for _, text in ticks]


def test_the_percentile_axis_ends_where_the_values_can_tell() -> None:
    assert nines(0.99) == pytest.approx(2)
    assert percentile_axis(5_000)(5).high == pytest.approx(math.log10(5_000))
    assert [text for _, text in percentile_axis(5_000)(5).ticks] == ["0 %", "50 %", "90 %", "99 %", "99.9 %"]
    assert percentile_axis(10**9)(5).ticks[-1][1] == "99.999 %"


def draw(points: list[tuple[float, float | None]], frame: Frame = WIDE, **more: Any) -> str:
    series = [Series("a <line>", points, 0)]
    plot = Plot("T <&>", "D", series, seconds_axis(0, 10), linear(10, str), **more)
    return svg(plot, frame, "id", "wide")


def line_in(text: str) -> str:
    """The path of the first series."""
    found = re.search(r'class="line s0" d="([^"]*)"', text)
    assert found is not None
    return found[1]


def places(path: str) -> list[tuple[float, float]]:
    """Where the points of a path of `M` and `l` lie."""
    found: list[tuple[float, float]] = []
    for letter, data in re.findall(r"([Ml])([^Ml]*)", path):
        numbers = [float(text) for text in re.findall(r"-?(?:\d+(?:\.\d+)?|\.\d+)", data)]
        for x, y in zip(numbers[::2], numbers[1::2], strict=True):
            before_x, before_y = found[-1] if letter == "l" else (0.0, 0.0)
            found.append((before_x + x, before_y + y))
    return found


@pytest.mark.parametrize(
    ("value", "text"),
    [(66.0, "66"), (120.04, "120"), (0.5, ".5"), (-0.5, "-.5"), (-0.04, "0"), (10.0, "10"), (-7.26, "-7.3"), (0, "0")],
)
def test_a_coordinate_has_no_character_that_says_nothing(value: float, text: str) -> None:
    assert number(value) == text


@given(st.lists(st.floats(-100, 2000), min_size=2, max_size=400), st.data())
def test_a_way_goes_through_its_points_to_a_tenth_and_does_not_drift(xs: list[float], data: st.DataObject) -> None:
    heights = st.sampled_from([0.0, 0.04, 7.5]) | st.floats(-100, 2000)
    points = [(x, data.draw(heights)) for x in sorted(xs)]
    turns = places(way(points))
    assert len(turns) <= len(points)
    # Each point is where the line turns, or between two turns at one height.
    before = after = 0
    for x, y in points:
        x, y = round(x, 1), round(y, 1)
        while after < len(turns) - 1 and not near(turns[after], x, y) and turns[after][0] < x + 0.01:
            before, after = after, after + 1
        level = abs(turns[before][1] - y) < 0.01 > abs(turns[after][1] - y)
        between = turns[before][0] - 0.01 <= x <= turns[after][0] + 0.01
        assert near(turns[after], x, y) or (level and between)


def near(place: tuple[float, float], x: float, y: float) -> bool:
    """The same to the digits that are drawn."""
    return abs(place[0] - x) < 0.01 > abs(place[1] - y)


def test_a_level_stretch_is_one_step_and_what_leads_to_it_stays() -> None:
    assert way([(0, 5), (1, 5), (2, 5.04), (3, 5), (4, 7.5), (5, 7.5)]) == "M0 5l3 0 1 2.5 1 0"
    assert way([(0.5, 5), (10.25, 4.5)]) == "M.5 5l9.7-.5"


def test_a_missing_value_is_a_gap_and_a_lone_value_a_dot() -> None:
    text = draw([(0, 1), (1, 2), (2, None), (3, 4), (4, None), (5, 5), (6, 6)])
    path = line_in(text)
    assert path.count("M") == 2
    assert text.count("<circle") == 1


@pytest.mark.parametrize("frame", [WIDE, NARROW])
def test_it_is_well_formed_says_what_it_shows_and_stays_inside(frame: Frame) -> None:
    text = draw([(0, -5), (5, 100), (20, 3)], frame, bands=[(1, 9, "<band>")], limits=[(5, "<goal>")])
    root = ElementTree.fromstring(text)
    assert root.findtext("title") == "T <&>"
    assert root.findtext("desc") == "D"
    assert "<goal>" in [node.text for node in root.findall("text")]
    assert len(places(line_in(text))) == 3
    for x, y in places(line_in(text)):
        assert 0 <= x <= frame.width
        assert 0 <= y <= frame.height


@given(st.integers(0, 21), st.integers(0, 21), st.integers(3, 12))
def test_a_doubling_axis_has_a_tick_for_every_power_of_two_and_names_the_last(
    first: int, doublings: int, wanted: int
) -> None:
    scale = doubling_axis(2**first, 2 ** (first + doublings))(wanted)
    assert [value for value, _ in scale.ticks] == [2.0 ** (first + n) for n in range(max(1, doublings) + 1)]
    named = [text for _, text in scale.ticks if text]
    assert len(named) <= wanted
    assert named[-1] == f"{2 ** (first + max(1, doublings)):,}"
    assert scale.share(2**first) == 0


def test_more_lines_than_colours_differ_in_pattern() -> None:
    series = [Series(str(colour), [(0, 1)], colour) for colour in range(4 * COLOURS)]
    assert len({one.css for one in series}) == 4 * COLOURS


def test_points_are_dots_and_doubtful_ones_rings() -> None:
    series = Series("a", [(1, 1), (2, None), (4, 3), (8, 2)], 0, dots=True, hollow=frozenset({4}))
    text = svg(Plot("T", "D", [series], doubling_axis(1, 8), linear(10, str)), WIDE, "id", "wide")
    assert (text.count('class="dot '), text.count('class="ring ')) == (2, 1)


def test_crosses_at_one_place_stand_above_each_other_and_say_why() -> None:
    crosses = [Cross(4, 1, "a <failed>"), Cross(4, 2, "b failed")]
    plot = Plot("T", "D", [], doubling_axis(1, 8), linear(10, str), crosses=crosses)
    text = svg(plot, NARROW, "id", "narrow")
    places = re.findall(r'class="cross s\d" d="M([\d.]+) ([\d.]+)', text)
    assert places[0][0] == places[1][0]
    assert float(places[0][1]) - float(places[1][1]) == 13
    assert "a &lt;failed&gt;" in text


def test_in_a_stack_the_first_names_the_bands_and_the_last_the_axis() -> None:
    texts = [
        draw([(0, 1), (9, 2)], stacked(WIDE, first, last), bands=[(1, 9, "a band")])
        for first, last in ((True, False), (False, False), (False, True))
    ]
    assert ["a band" in text for text in texts] == [True, False, False]
    assert ["10 s" in text for text in texts] == [False, False, True]
