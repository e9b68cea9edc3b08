"""One figure beside its goal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Check(NamedTuple):
    """``figure``: what is measured; ``goal``, ``measured``: in words, with their units; ``met``: whether it was."""

    figure: str
    goal: str
    measured: str
    met: bool


def show(checks: Iterable[Check]) -> None:
    """A line each."""
    for check in checks:
        print(f"{check.figure}: {check.measured} (goal: {check.goal}): {'met' if check.met else 'not met'}")
