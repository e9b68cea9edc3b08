"""Bars on a terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from ingeborg.broker.autoscaling.view.terminal import Terminal, drawn

from .pictures import PICTURE


@pytest.mark.parametrize("width", [60, 120])
def test_each_member_has_its_bar_and_each_trouble_its_line(width: int) -> None:
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    console.print(drawn("billing", PICTURE))
    said = console.file.getvalue()  # type: ignore[attr-defined]
    lines = said.splitlines()
    assert lines[0].startswith("billing · managing · 3 of 4 members")
    assert all(len(line) <= width for line in lines)
    assert said.count("█") > 20
    assert "125%" in said.replace(" ", "")
    assert "there is no topic refunds" in said


def test_it_is_drawn_in_place_and_taken_away() -> None:
    out = io.StringIO()
    with Terminal("billing", Console(file=out, width=120, force_terminal=True)) as terminal:
        terminal.show(PICTURE)
        terminal.show(PICTURE)
    assert "billing-host-000001" in out.getvalue()
