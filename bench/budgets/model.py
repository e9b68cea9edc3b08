"""One figure beside its goal, and what it is a figure of."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import version
from typing import NamedTuple

from ingeborg import form


class Check(NamedTuple):
    """``figure``: what is measured; ``goal``, ``measured``: in words, with their units; ``met``: whether it was."""

    figure: str
    goal: str
    measured: str
    met: bool


def measured() -> str:
    """What the figures are of: the version, and the form of its code. Endpoints and generators are started by this very
    process, of the same installation and with the same `INGEBORG_PURE`, and so have both in common with it."""
    return f"ingeborg {version('ingeborg')}, {form.name()} (endpoints and generators)"


def show(checks: Iterable[Check]) -> None:
    """A line each."""
    for check in checks:
        print(f"{check.figure}: {check.measured} (goal: {check.goal}): {'met' if check.met else 'not met'}")


def table(checks: Iterable[Check]) -> str:
    """A Markdown table of them, its columns as wide as what is in them."""
    rows: list[tuple[str, ...]] = [("figure", "goal", "measured", "met")]
    rows += [(check.figure, check.goal, check.measured, "yes" if check.met else "no") for check in checks]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rows.insert(1, tuple("-" * width for width in widths))
    lines = [" | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return "".join(f"| {line} |\n" for line in lines)
