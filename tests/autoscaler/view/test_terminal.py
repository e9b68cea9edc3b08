"""Bars on a terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from ingeborg.autoscaler.effects import Picture
from ingeborg.autoscaler.view.terminal import Terminal, drawn

from .pictures import PICTURE, bar


def lines(picture: Picture, width: int) -> list[str]:
    """Return the output on a terminal with this number of columns."""
    out = io.StringIO()
    Console(file=out, width=width, force_terminal=False).print(drawn("billing", picture))
    return out.getvalue().splitlines()


@pytest.mark.parametrize("width", [40, 60, 80, 100, 200])
def test_each_member_has_its_bar_and_each_trouble_its_line(width: int) -> None:
    found = lines(PICTURE, width)
    said = " ".join(" ".join(found).split())
    assert said.startswith("billing · managing · 3 of 4 members")
    assert "there is no topic refunds" in said
    assert all(len(line) <= width for line in found)
    rows = found[-4:]
    for row, number, share, state in zip(
        rows, "1234", ("70%", "125%", "0%", "0%"), (*"  ", "leaving", "joining"), strict=True
    ):
        assert row.startswith(number)
        assert share in row
        assert state in row


@pytest.mark.parametrize("width", [40, 60, 80, 100, 200])
def test_bars_are_as_long_as_their_load_however_narrow_the_terminal_is(width: int) -> None:
    half, full, over = lines(PICTURE._replace(bars=(bar(1, 50e3), bar(2, 100e3), bar(3, 300e3))), width)[-3:]
    cells = full.count("█")
    assert 8 <= cells <= 40
    assert abs(half.count("█") - cells / 2) <= 0.5
    assert half.count("·") == cells - half.count("█")
    assert over.count("█") == round(1.25 * cells)
    assert half.index("│") == full.index("│")
    assert "…" not in half.partition("█")[2]


def test_of_a_long_name_the_end_is_shown() -> None:
    [found] = lines(PICTURE._replace(bars=(bar(1, 50e3)._replace(name="x" * 200 + "-7k2"),)), 80)[-1:]
    assert "-7k2 █" in found
    assert "…x" in found


def test_what_there_is_no_room_for_is_left_out() -> None:
    assert "queue" in lines(PICTURE, 80)[-1]
    assert "queue" not in lines(PICTURE, 40)[-1]
    assert "kB/s" not in lines(PICTURE, 40)[-4]


def test_a_name_steers_no_terminal() -> None:
    evil = bar(1, 50e3, problem="\x1b[2J")._replace(name="\x1b]0;mine\x07")
    assert not any("\x1b" in line or "\x07" in line for line in lines(PICTURE._replace(bars=(evil,)), 100))


def test_without_members_there_is_a_line_of_the_whole() -> None:
    [only] = lines(Picture("synchronizing", 1, 0, None, (), 0, 0, 0, 0.0, 0.0, (), (), False, False), 100)
    assert only == "billing · synchronizing · 0 of 0 members · 0 queues · 0 B/s incoming · 0 B not read yet"


def test_it_is_drawn_in_place_and_taken_away() -> None:
    out = io.StringIO()
    with Terminal("billing", Console(file=out, width=120, force_terminal=True)) as terminal:
        terminal.show(PICTURE)
        terminal.show(PICTURE)
    assert "billing-host-000001" in out.getvalue()
