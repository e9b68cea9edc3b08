"""A group on a terminal: a bar for each member, filled by its queues, drawn anew in place.

Owns: colours and columns. Must never: compute a figure.
"""

from __future__ import annotations

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ..effects import Bar, Picture
from . import words

#: Two shades by turns: where one queue ends and the next begins.
_SHADES = ("cyan", "blue")
_CELLS = 40


class Terminal:
    """A display, as a context. ``group``: its name."""

    def __init__(self, group: str, console: Console) -> None:
        self._group = group
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> Terminal:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, picture: Picture) -> None:
        """The group as it is now."""
        self._live.update(drawn(self._group, picture), refresh=True)


def drawn(group: str, picture: Picture) -> RenderableType:
    """What is shown of it."""
    table = Table(box=None, show_header=False, padding=(0, 1, 0, 0))
    for bar in picture.bars:
        share = bar.load / bar.capacity
        state = "leaving" if bar.is_leaving else "" if bar.is_ready else "joining"
        table.add_row(
            Text(str(bar.number), justify="right"),
            Text(bar.name, overflow="ellipsis", no_wrap=True),
            _bar(bar),
            Text(f"{share:4.0%}", style="bold red" if share > 1 else ""),
            Text(words.bytes_per_s(bar.load), justify="right"),
            Text(f"{len(bar.shares):,} queues", justify="right"),
            Text(state, style="yellow"),
        )
    lines = [Text(f"! {line}", style="bold red") for line in words.troubles(picture)]
    return Group(Text(f"{group} · {words.heading(picture)}", style="bold"), table, *lines)


def _bar(bar: Bar) -> Text:
    found = Text()
    length = 0
    for number, piece in enumerate(words.pieces(bar, _CELLS)):
        style = "yellow" if piece.is_moving else _SHADES[number % 2]
        found.append("█" * piece.cells, style)
        length += piece.cells
    if length < _CELLS:
        found.append("·" * (_CELLS - length), "dim")
    found.append("│" if length <= _CELLS else "")
    return found
