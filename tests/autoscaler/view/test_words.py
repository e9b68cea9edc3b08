"""Words and bars of a group."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingeborg.autoscaler.view import words

from .pictures import PICTURE, bar


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1_000, "1 kB"),
        (12_345, "12.3 kB"),
        (999_600, "1 MB"),
        (2.5e9, "2.5 GB"),
        (3e13, "30 TB"),
    ],
)
def test_amounts_have_three_digits_and_a_unit(value: float, text: str) -> None:
    assert words.amount(value) == text


def test_a_line_of_the_whole() -> None:
    assert words.heading(PICTURE) == (
        "managing · 3 of 4 members · 12 queues · 196 kB/s incoming · 1.23 MB not read yet · 1 without an owner · "
        "2 moving"
    )


def test_one_is_no_plural() -> None:
    assert (words.queues(0), words.queues(1), words.queues(1_000)) == ("0 queues", "1 queue", "1,000 queues")


def test_a_line_for_each_trouble() -> None:
    assert words.troubles(PICTURE) == [
        "no measurements arrive: is a monitor running?",
        "there is no topic refunds",
        "the group needs more members than members_max",
        "too large for one member: orders/20",
        "billing-host-000002 does not read orders/20: sink: no room",
    ]


def test_a_bar_is_filled_by_its_queues_and_small_ones_share_a_cell() -> None:
    pieces = words.pieces(bar(1, 50_000.0, 25_000.0, 100.0, 100.0), 40)
    assert [piece.cells for piece in pieces] == [20, 10]
    assert sum(piece.queues for piece in pieces) == 4
    assert words.pieces(bar(1), 40) == []


def test_a_part_of_a_bar_is_moving_where_one_of_its_queues_is() -> None:
    assert [piece.is_moving for piece in words.pieces(bar(1, 50_000.0, 25_000.0), 40)] == [False, True]
    assert [piece.is_moving for piece in words.pieces(bar(1, 50_000.0, 25_000.0, 100.0), 40)] == [False, True]


@given(st.lists(st.floats(0.0, 80_000.0), max_size=40), st.integers(10, 200))
def test_a_bar_is_as_long_as_its_load_and_not_longer_than_it_may_be(sizes: list[float], cells: int) -> None:
    pieces = words.pieces(bar(1, *sorted(sizes, reverse=True)), cells)
    length = sum(piece.cells for piece in pieces)
    assert length <= round(cells * words.OVER)
    assert abs(length - min(sum(sizes) / 100_000.0 * cells, round(cells * words.OVER))) <= 1.0
    assert all(piece.cells > 0 for piece in pieces)
