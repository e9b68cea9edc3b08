"""Numbers as people read them."""

from __future__ import annotations

import pytest

from ingeborg.bench.text import figures


@pytest.mark.parametrize(
    ("value_ns", "text"),
    [
        (None, "–"),
        (0, "0 ns"),
        (850, "850 ns"),
        (999.4, "999 ns"),
        (1_554_853, "1.55 ms"),
        (97_318_252, "97.3 ms"),
        (999_700, "1.00 ms"),
        (9_996_000, "10.0 ms"),
        (123_042_458, "123 ms"),
        (-2_500_000, "-2.50 ms"),
        (2_000_000_000, "2.00 s"),
        (119_000_000_000, "119 s"),
        (200_000_000_000, "3 min 20 s"),
    ],
)
def test_duration(value_ns: float | None, text: str) -> None:
    assert figures.duration(value_ns) == text


def test_counts_rates_and_sizes() -> None:
    assert figures.count(1_234_567) == "1,234,567"
    assert figures.count(None) == "–"
    assert figures.rate(1533.75) == "1,534/s"
    assert figures.rate(2.346) == "2.35/s"
    assert figures.rate(0) == "0/s"
    assert figures.size(72_400_000) == "72.4 MB"
    assert figures.size(12) == "12 B"
    assert figures.percent_of_core(0.384) == "38 %"


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [
        (96, 100, "96.0 %"),
        (1, 1, "100 %"),
        (0, 5, "0 %"),
        (99_999, 100_000, "> 99.9 %"),
        (1, 100_000, "< 0.1 %"),
        (1, 0, "–"),
    ],
)
def test_a_share_is_not_rounded_to_all_or_nothing(part: int, whole: int, text: str) -> None:
    assert figures.share(part, whole) == text


def test_axis_texts_have_no_idle_digits() -> None:
    assert [figures.tick(text) for text in ("10.0 ms", "1.00 s", "2.50 ms", "100 ms", "0 ns")] == [
        "10 ms",
        "1 s",
        "2.5 ms",
        "100 ms",
        "0 ns",
    ]


def test_ratios_settings_and_small_numbers() -> None:
    assert [figures.ratio(value) for value in (None, 1.837, 142.4, 0.0791, 0.25)] == [
        "–",
        "× 1.84",
        "× 142",
        "× 0.079",
        "× 0.25",
    ]
    assert [figures.number(value) for value in (None, 0, 1.5)] == ["–", "0", "1.50"]
    assert [figures.plain(value) for value in (1000, 0.05, 200_000.0)] == ["1,000", "0.05", "200,000"]
    assert figures.micros(28.04) == "28.0 µs"
    assert figures.micros(1500) == "1.50 ms"
    assert figures.size_rate(1_200_000) == "1.20 MB/s"
