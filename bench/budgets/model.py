"""A figure next to its goal, and the version of the measured code."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import version
from typing import NamedTuple

from ingeborg import form


class Check(NamedTuple):
    """A figure with its goal. ``figure`` is its name, ``goal`` and ``measured`` are texts with units, and ``met`` says
    whether the goal is met."""

    figure: str
    goal: str
    measured: str
    met: bool


def measured() -> str:
    """Return the version and the form of the measured code. This process starts endpoints and generators from its own
    installation and with its own `INGEBORG_PURE`, so they have the same version and form."""
    return f"ingeborg {version('ingeborg')}, {form.name()} (endpoints and generators)"


def show(checks: Iterable[Check]) -> None:
    """Print a line for each check."""
    for check in checks:
        print(f"{check.figure}: {check.measured} (goal: {check.goal}): {'met' if check.met else 'not met'}")


def table(checks: Iterable[Check]) -> str:
    """Return a Markdown table of the checks, with columns as wide as their content."""
    rows: list[tuple[str, ...]] = [("figure", "goal", "measured", "met")]
    rows += [(check.figure, check.goal, check.measured, "yes" if check.met else "no") for check in checks]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rows.insert(1, tuple("-" * width for width in widths))
    lines = [" | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return "".join(f"| {line} |\n" for line in lines)
