"""Scales, ticks and paths."""

from __future__ import annotations

import itertools
import math
import re
import xml.etree.ElementTree as ElementTree
from html import unescape
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingeborg.bench.report.plots import (
    COLOURS,
    NARROW,
    SEEN,
    WIDE,
    Cross,
    Frame,
    Plot,
    Series,
    doubling_axis,
    legend,
    linear,
    logarithmic,
    nines,
    number,
    percentile_axis,
    seconds_axis,
    stack,
    stacked,
    svg,
    way,
    width_of,
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


def draw(points: list[tuple[float, float | None]], **more: Any) -> tuple[str, str]:
    series = [Series("a <line>", points, 0)]
    return drawings(Plot("T <&>", "D", series, seconds_axis(0, 10), linear(10, str), **more))


def drawings(plot: Plot, wide: Frame = WIDE, narrow: Frame = NARROW) -> tuple[str, str]:
    """Return the wide and the narrow drawing."""
    first, second = re.findall(r"<svg.*?</svg>", svg(plot, wide, narrow, "id"))
    assert 'class="wide"' in first
    assert 'class="narrow"' in second
    return first, second


def line_in(text: str) -> str:
    """Return the path of the first series."""
    found = re.search(r'class="line s0" d="([^"]*)"', text)
    assert found is not None
    return found[1]


def places(path: str) -> list[tuple[float, float]]:
    """Return the points of a path of `M` and `l`."""
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
    rounded = [(round(x, 1), round(y, 1)) for x, y in points]
    assert distance(rounded[0], turns[0], turns[0]) < 0.01 > distance(rounded[-1], turns[-1], turns[-1])
    for point in rounded:
        assert min(distance(point, *ends) for ends in itertools.pairwise(turns)) <= SEEN + 0.01


def distance(point: tuple[float, float], start: tuple[float, float], end: tuple[float, float]) -> float:
    """Return the distance from a point to a straight line."""
    along, of = complex(*end) - complex(*start), complex(*point) - complex(*start)
    share = (of * along.conjugate()).real / abs(along) ** 2 if along else 0.0
    return abs(of - min(1.0, max(0.0, share)) * along)


def test_a_straight_stretch_is_one_step_and_what_leads_to_it_stays() -> None:
    assert way([(0, 5), (1, 5), (2, 5.04), (3, 5), (4, 7.5), (5, 7.5)]) == "M0 5l3 0 1 2.5 1 0"
    assert way([(0, 0), (1, 10), (2, 20.3), (3, 30), (4, 0)]) == "M0 0l3 30 1-30"
    assert way([(0.5, 5), (10.25, 4.5)]) == "M.5 5l9.7-.5"


def test_a_peak_that_can_be_seen_stays() -> None:
    points = [(float(x), 0.0) for x in range(100)]
    points[70] = (70.0, 0.6)
    assert (70.0, 0.6) in places(way(points))
    points[70] = (70.0, 0.4)
    assert places(way(points)) == [(0.0, 0.0), (99.0, 0.0)]


def test_a_missing_value_is_a_gap_and_a_lone_value_a_dot() -> None:
    text, _ = draw([(0, 1), (1, 2), (2, None), (3, 4), (4, None), (5, 5), (6, 7)])
    path = line_in(text)
    assert path.count("M") == 2
    assert dots(text, "dot s0") == 1


def dots(text: str, css: str) -> int:
    """Count the steps of no length in the paths of a class."""
    return sum(path.count("h0") for path in re.findall(f'class="{css}" d="([^"]*)"', text))


def test_it_is_well_formed_says_what_it_shows_and_stays_inside() -> None:
    texts = draw([(0, -5), (5, 100), (20, 3)], bands=[(1, 9, "<band>")], limits=[(5, "<goal>")])
    roots = [ElementTree.fromstring(text) for text in texts]
    assert roots[0].findtext("title") == "T <&>"
    assert roots[0].findtext("desc") == "D"
    for root, frame in zip(roots, (WIDE, NARROW), strict=True):
        assert root.attrib["aria-labelledby"] == "id-t id-d"
        assert "<goal>" in [node.text for node in root.findall("text")]
        assert root.attrib["viewBox"] == f"0 0 {frame.width} {frame.height}"
    line = places(line_in(texts[0]))
    assert len(line) == 3
    for x, y in line:
        assert WIDE.left <= x <= WIDE.width - WIDE.right
        assert 0 <= y <= WIDE.height


def test_the_narrow_drawing_shows_the_wide_ones_lines_in_its_own_place() -> None:
    points: list[tuple[float, float | None]] = [(0, 0), (3, 10), (10, 4)]
    wide, narrow = draw(points)
    use = re.search(r'<use href="#id-l" transform="matrix\(([^)]*)\)"/>', narrow)
    assert use is not None
    assert '<g id="id-l">' in wide
    by_x, zero, also_zero, by_y, x0, y0 = map(float, use[1].split())
    assert zero == also_zero == 0.0
    floor = NARROW.height - NARROW.bottom
    inner = NARROW.width - NARROW.left - NARROW.right, floor - NARROW.top
    for (x, y), (at, value) in zip(places(line_in(wide)), points, strict=True):
        assert value is not None
        assert x * by_x + x0 == pytest.approx(NARROW.left + at / 10 * inner[0], abs=0.15)
        assert y * by_y + y0 == pytest.approx(floor - value / 10 * inner[1], abs=0.15)


def test_where_the_axes_reach_differently_far_the_narrow_drawing_has_lines_of_its_own() -> None:
    plot = Plot("T", "D", [Series("a", [(0, 0), (3, 7), (11, 0)], 0)], linear(11, str), linear(10, str))
    wide, narrow = drawings(plot)
    assert "<use" not in narrow
    assert line_in(wide) != line_in(narrow)


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
    text, _ = drawings(Plot("T", "D", [series], doubling_axis(1, 8), linear(10, str)))
    assert (dots(text, "dot s0"), dots(text, "hole")) == (3, 1)


def test_crosses_at_one_place_stand_above_each_other_and_say_why() -> None:
    crosses = [Cross(4, 1, "a <failed>"), Cross(4, 2, "b failed")]
    plot = Plot("T", "D", [], doubling_axis(1, 8), linear(10, str), crosses=crosses)
    _, text = drawings(plot)
    places = re.findall(r'class="cross s\d" d="M([\d.]+) ([\d.]+)', text)
    assert places[0][0] == places[1][0]
    assert float(places[0][1]) - float(places[1][1]) == 13
    assert "a &lt;failed&gt;" in text


def test_in_a_stack_the_first_names_the_bands_and_the_last_the_axis() -> None:
    plot = Plot("T", "D", [], seconds_axis(0, 10), linear(10, str), bands=[(1, 9, "a band")])
    texts = [
        drawings(plot, stacked(WIDE, first, last), stacked(NARROW, first, last))[0]
        for first, last in ((True, False), (False, False), (False, True))
    ]
    assert ["a band" in text for text in texts] == [True, False, False]
    assert ["10 s" in text for text in texts] == [False, False, True]


def labels_in(text: str, css: str) -> dict[str, tuple[float, float, float, float]]:
    """Return the labels of a class, each with the room that is reserved for it."""
    found = re.findall(f'<text class="{css}" x="([^"]*)" y="([^"]*)">([^<]*)', text)
    return {said: (float(x), float(y) - 11, float(x) + width_of(unescape(said)), float(y) + 3) for x, y, said in found}


def test_steps_hold_each_value_until_the_next_point() -> None:
    steps = Series("a", [(0, 1), (4, 3), (6, None), (8, 2), (10, 5)], 0, steps=True)
    text, _ = drawings(Plot("T", "D", [steps], linear(10, str), linear(10, str)))
    width, height = WIDE.width - WIDE.left - WIDE.right, WIDE.height - WIDE.top - WIDE.bottom
    seen = [
        (round((x - WIDE.left) / width * 10, 1), round((WIDE.height - WIDE.bottom - y) / height * 10, 1))
        for x, y in places(line_in(text))
    ]
    assert seen == [(0, 1), (4, 1), (4, 3), (6, 3), (8, 2), (10, 2), (10, 5)]


def test_a_scatter_has_dots_in_any_order_and_no_line() -> None:
    scatter = Series("a", [(5, 1), (1, 3)], 0, joined=False)
    plot = Plot("T", "D", [scatter], linear(10, str), linear(10, str))
    assert legend(plot) == [("a", "s0 points")]
    text, _ = drawings(plot)
    assert dots(text, "dot s0") == 2
    assert 'class="line' not in text


def test_labels_of_points_touch_neither_each_other_nor_a_point_and_stay_inside() -> None:
    points: list[tuple[float, float | None]] = [(number / 2, number / 2) for number in range(21)]
    named = [f"algorithm {number}" for number in range(20)] + ["<last>"]
    series = Series("a", points, 0, joined=False, labels=named)
    for text, frame in zip(
        drawings(Plot("T", "D", [series], linear(10, str), linear(10, str))), (WIDE, NARROW), strict=True
    ):
        found = labels_in(text, "label")
        assert len(found) >= (19 if frame is WIDE else 8)
        assert "&lt;last&gt;" in found, "the point in the corner has its label, too"
        for one, other in itertools.combinations(found.values(), 2):
            assert one[0] >= other[2] or other[0] >= one[2] or one[1] >= other[3] or other[1] >= one[3]
        for left, top, right, bottom in found.values():
            assert frame.left <= left
            assert right <= frame.width
            assert 0 <= top < bottom <= frame.height - frame.bottom


def test_each_point_needs_its_label() -> None:
    with pytest.raises(ValueError, match="a has 1 labels for 2 points: give each point a text, which may be empty"):
        Series("a", [(0, 1), (1, 2)], 0, labels=["x"])


@pytest.mark.parametrize("limit", [10.0, 9.9, 0.1])
def test_the_name_of_a_limit_is_never_cut_off(limit: float) -> None:
    plot = Plot("T", "D", [], seconds_axis(0, 10), linear(10, str), limits=[(limit, "goal"), (limit, "other")])
    for text in drawings(plot, stacked(WIDE, first=False, last=False), stacked(NARROW, first=False, last=False)):
        found = labels_in(text, "limitname")
        assert len(set(found.values())) == 2, "two names do not lie on each other"
        for _, top, _, bottom in found.values():
            assert top >= 0
            assert bottom <= 120


def test_the_name_of_a_limit_covers_no_point_if_it_can() -> None:
    crowd = Series("a", [(7 + number / 100, 5.2) for number in range(300)], 0)
    plot = Plot("T", "D", [crowd], linear(10, str), linear(10, str), limits=[(5, "goal")])
    (_, top, _, _) = labels_in(drawings(plot)[0], "limitname")["goal"]
    middle = WIDE.top + (WIDE.height - WIDE.top - WIDE.bottom) / 2
    assert top >= middle, "the crowd is above the line, so the name is below"


def test_a_value_of_0_on_a_log_axis_is_a_mark_and_no_point() -> None:
    series = Series("a", [(1, 10), (2, 0), (3, 20), (4, 30)], 0, dots=True)
    plot = Plot("T", "D", [series], linear(5, str), logarithmic([10, 30], str))
    for text in drawings(plot):
        assert text.count('class="below s0"') == 1
    wide = drawings(plot)[0]
    assert dots(wide, "dot s0") == 3
    assert all(y < WIDE.height - WIDE.bottom for _, y in places(line_in(wide))), "the line does not go to the axis"
    said = "0 or less, for which the log axis has no place"
    assert legend(plot) == [("a", "s0"), (said, "mark")]
    assert legend(Plot("T", "D", [series], linear(5, str), linear(30, str))) == [("a", "s0")]


def test_a_legend_names_the_lines_that_can_be_seen() -> None:
    rising: list[tuple[float, float | None]] = [(0, 1), (5, 5), (10, 9)]
    lines = [
        Series("below", rising, 0),
        Series("empty", [(0, None)], 1),
        Series("dashed", [(0, 9), (5, 5), (10, 1)], 2, dashed=True),
        Series("nearly", [(x, y and y + 0.03) for x, y in rising], 3),
        Series("top", rising, 4),
        Series("apart", [(0, 1), (5, 6), (10, 9)], 5),
    ]
    plot = Plot("T", "D", lines, linear(10, str), linear(10, str))
    assert [name for name, _ in legend(plot)] == ["dashed", "below, nearly and top (one line)", "apart"]
    dashed = [lines[0], Series("dashed", rising, 1, dashed=True)]
    assert [name for name, _ in legend(Plot("T", "D", dashed, linear(10, str), linear(10, str)))] == ["below", "dashed"]


def test_long_labels_of_the_y_axis_have_room() -> None:
    plot = Plot("T", "D", [], linear(10, str), linear(1, lambda value: f"{value:g} of all groups"))
    for text in drawings(plot):
        assert text.count(" of all groups") == 6
        for x, said in re.findall(r'<text x="([\d.]+)" y="[\d.]+">([^<]* of all groups)', text):
            assert float(x) >= width_of(said)


def test_the_plots_of_a_stack_have_the_same_room_on_the_left() -> None:
    short = Plot("T", "D", [], seconds_axis(0, 10), linear(10, str))
    long = Plot("T", "D", [], seconds_axis(0, 10), linear(1, lambda value: f"{value:g} of all groups"))
    starts = [set(re.findall('<path class="axis" d="M([0-9.]+) ', text)) for text in stack([short, long], "id")]
    assert starts[0] == starts[1]
    assert min(map(float, starts[0])) > WIDE.left


@pytest.mark.parametrize("high", [1, 3, 7, 12, 24, 110, 1_000])
def test_an_axis_of_counts_has_whole_ticks(high: int) -> None:
    for wanted in range(3, 11):
        values = [value for value, _ in linear(high, "{:.0f}".format, whole=True)(wanted).ticks]
        assert all(value.is_integer() for value in values)
        assert len(values) <= wanted + 2
