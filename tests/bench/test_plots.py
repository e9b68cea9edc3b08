"""Scales, ticks and paths."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.plots import NARROW, WIDE, Plot, Series, linear, logarithmic, nines, percentile_axis, seconds_axis, svg


@given(st.floats(1e-6, 1e12), st.integers(2, 12))
def test_a_linear_scale_holds_its_values_and_has_about_as_many_ticks_as_wanted(high, wanted):
    scale = linear(high, str)(wanted)
    assert scale.low == 0
    assert scale.high >= high * 0.999999
    assert 2 <= len(scale.ticks) <= wanted + 2
    assert scale.ticks[-1][0] == pytest.approx(scale.high)


@given(st.lists(st.integers(-10, 10**12), max_size=20), st.integers(3, 8))
def test_a_log_scale_holds_its_positive_values(values, wanted):
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
def test_time_ticks_are_round(high, last):
    ticks = seconds_axis(0, high)(6).ticks
    assert ticks[0][0] == 0
    assert len(ticks) <= 8
    assert last in [text for _, text in ticks]


def test_the_percentile_axis_ends_where_the_values_can_tell():
    assert nines(0.99) == pytest.approx(2)
    assert percentile_axis(5_000)(5).high == pytest.approx(math.log10(5_000))
    assert [text for _, text in percentile_axis(5_000)(5).ticks] == ["0 %", "50 %", "90 %", "99 %", "99.9 %"]
    assert percentile_axis(10**9)(5).ticks[-1][1] == "99.999 %"


def draw(points, frame=WIDE, **more):
    series = [Series("a <line>", points, 0)]
    plot = Plot("T <&>", "D", series, seconds_axis(0, 10), linear(10, str), **more)
    return svg(plot, frame, "id", "wide")


def test_a_missing_value_is_a_gap_and_a_lone_value_a_dot():
    text = draw([(0, 1), (1, 2), (2, None), (3, 4), (4, None), (5, 5), (6, 6)])
    path = re.search(r'class="line s0" d="([^"]*)"', text)[1]
    assert path.count("M") == 2
    assert text.count("<circle") == 1


@pytest.mark.parametrize("frame", [WIDE, NARROW])
def test_it_is_well_formed_says_what_it_shows_and_stays_inside(frame):
    text = draw([(0, -5), (5, 100), (20, 3)], frame, bands=[(1, 9, "<band>")], limits=[(5, "<goal>")])
    root = ElementTree.fromstring(text)
    assert root.find("title").text == "T <&>"
    assert root.find("desc").text == "D"
    assert "<goal>" in [node.text for node in root.findall("text")]
    numbers = re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", re.search(r'class="line s0" d="([^"]*)"', text)[1])
    for x, y in numbers:
        assert 0 <= float(x) <= frame.width
        assert 0 <= float(y) <= frame.height
