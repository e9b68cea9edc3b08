"""A figure next to its goal, and the version of the measured code."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Coroutine, Iterable
from importlib.metadata import version
from typing import Any, NamedTuple

import uvloop

from ingeborg import form
from ingeborg.bench.errors import BenchError


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


def command(
    doc: str | None, measure: Callable[[Any], Coroutine[Any, Any, Iterable[Check]]], option: str, default: float
) -> None:
    """Run a benchmark that has one option with a number, and print its checks.

    Args:
        doc: the module's documentation, whose first line is the description.
        measure: takes the option's value. A ``BenchError`` ends the program with exit code 1.
        option: the option's name.
        default: the option's default, which has the option's type.
    """
    parser = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
    parser.add_argument(f"--{option}", type=type(default), default=default)
    options = parser.parse_args()
    print(measured(), flush=True)
    try:
        show(uvloop.run(measure(getattr(options, option))))
    except BenchError as error:
        parser.exit(1, f"{error}\n")


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
