"""Describes a group in words and bars, for the terminal and the page.

Owns: units, headings, and the division of a bar into queues. Must never: draw.
"""

from __future__ import annotations

from typing import NamedTuple

from ..effects import Bar, Picture
from ..owners import OWNED

#: Maximum length of a bar, as a multiple of a full bar. The bar of an overloaded member is longer than a full bar.
OVER = 1.25


class Piece(NamedTuple):
    """A part of a bar, which shows one queue or several small queues. ``cells``: the length of the part. ``is_moving``:
    at least one of these queues is between two owners."""

    cells: int
    queues: int
    is_moving: bool


def bytes_per_s(value: float) -> str:
    """Format a speed with its unit. For example, 1,000 bytes per second is 1 kB/s."""
    return f"{amount(value)}/s"


def amount(value: float) -> str:
    """Format a number of bytes with a unit, and with three digits at most."""
    for unit in ("B", "kB", "MB", "GB"):
        if value < 999.5:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.3g} TB"


def queues(count: int) -> str:
    """Format a number of queues."""
    return f"{count:,} queue" if count == 1 else f"{count:,} queues"


def heading(picture: Picture) -> str:
    """Return one line about the whole group."""
    ready = sum(bar.is_ready for bar in picture.bars)
    words = [
        picture.state,
        f"{ready} of {picture.wanted} members",
        queues(picture.queues),
        f"{bytes_per_s(picture.bytes_per_s)} incoming",
        f"{amount(picture.stock)} not read yet",
    ]
    if picture.unowned:
        words.append(f"{picture.unowned:,} without an owner")
    if picture.moving:
        words.append(f"{picture.moving:,} moving")
    return " · ".join(words)


def troubles(picture: Picture) -> list[str]:
    """Return the problems that need an operator, one line each."""
    found = []
    if picture.is_stale:
        found.append("no measurements arrive: is a monitor running?")
    if picture.missing:
        found.append(f"there is no topic {', '.join(picture.missing)}")
    if picture.is_capped:
        found.append("the group needs more members than members_max")
    if picture.hot:
        found.append(f"too large for one member: {', '.join(str(queue) for queue in picture.hot[:5])}")
    for bar in picture.bars:
        problems = [share for share in bar.shares if share.problem]
        if problems:
            more = f" (and {len(problems) - 1:,} more)" if len(problems) > 1 else ""
            found.append(f"{bar.name} does not read {problems[0].queue}{more}: {problems[0].problem}")
    return found


def pieces(bar: Bar, cells: int) -> list[Piece]:
    """Return the pieces of a bar, the largest queue first. The bar of a member at its capacity has ``cells`` cells.
    Queues that are too small for a cell of their own share a cell."""
    found: list[Piece] = []
    filled, small, most = 0.0, 0, round(cells * OVER)
    drawn, is_moving = 0, False
    for share in bar.shares:
        is_moving |= share.state != OWNED
        filled += share.bytes_per_s / bar.capacity * cells
        end = min(round(filled), most)
        if end > drawn:
            found.append(Piece(end - drawn, small + 1, is_moving))
            drawn, small, is_moving = end, 0, False
        else:
            small += 1
    if small and found:
        last = found[-1]
        found[-1] = Piece(last.cells, last.queues + small, last.is_moving or is_moving)
    return found
