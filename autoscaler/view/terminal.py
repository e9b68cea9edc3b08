"""Shows a group on a terminal. Each member has a bar, which is divided into the member's queues. The module refreshes
the display in place.

Owns: colours, columns, and which columns a narrow terminal omits. Must never: compute a figure, or send a control
character in a name to the terminal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console, ConsoleOptions, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ..effects import Bar, Picture
from . import words

#: Two alternating shades, which show the border between queues.
_SHADES = ("cyan", "blue")
#: Largest and smallest number of cells of a full bar. More cells would not show more detail, and fewer cells would show
#: too little.
_CELLS_MAX = 40
_CELLS_MIN = 8
#: Minimum number of characters of a name. The display shows the end of a pod's name, because the end is unique.
_NAME_MIN = 10


class Terminal:
    """The display of a group on a terminal, as a context manager. ``group``: the group's name."""

    def __init__(self, group: str, console: Console) -> None:
        self._group = group
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> Terminal:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, picture: Picture) -> None:
        """Show the group's current state."""
        self._live.update(drawn(self._group, picture), refresh=True)


def drawn(group: str, picture: Picture) -> RenderableType:
    """Return the display of a group, which adapts to the terminal's width. Problems are shown above the bars, because a
    small terminal cuts off the bottom."""
    return _Drawing(group, picture)


class _Drawing:
    def __init__(self, group: str, picture: Picture) -> None:
        self._group = group
        self._picture = picture

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        yield Text(f"{self._group} · {words.heading(self._picture)}", style="bold")
        for line in words.troubles(self._picture):
            yield Text(f"! {_printable(line)}", style="bold red")
        if self._picture.bars:
            yield _table(self._picture.bars, options.max_width)


def _table(bars: Sequence[Bar], width: int) -> Table:
    numbers = [str(bar.number) for bar in bars]
    names = [_printable(bar.name) for bar in bars]
    shares = [f"{bar.load / bar.capacity:.0%}" for bar in bars]
    states = ["leaving" if bar.is_leaving else "" if bar.is_ready else "joining" for bar in bars]
    loads = [words.bytes_per_s(bar.load) for bar in bars]
    counts = [words.queues(len(bar.shares)) for bar in bars]

    room = width - _width(numbers) - _width(shares) - _width(states)
    behind = []
    for texts in (loads, counts):
        if room - _width(texts) >= _NAME_MIN + 2 + round(_CELLS_MIN * words.OVER):
            room -= _width(texts)
            behind.append(texts)
    name = min(max(map(len, names)), max(_NAME_MIN, room - 2 - round(_CELLS_MAX * words.OVER)))
    # One space follows the name, and another space follows the bar.
    cells = min(_CELLS_MAX, max(_CELLS_MIN, int((room - name - 2) / words.OVER)))

    table = Table(box=None, show_header=False, padding=(0, 1, 0, 0), pad_edge=False)
    for at, bar in enumerate(bars):
        table.add_row(
            Text(numbers[at], justify="right", no_wrap=True),
            # Show the end of a long name, because the names of pods differ at the end.
            Text(names[at] if len(names[at]) <= name else f"…{names[at][1 - name :]}", no_wrap=True),
            _bar(bar, cells),
            Text(shares[at], style="bold red" if bar.load > bar.capacity else "", justify="right", no_wrap=True),
            *(Text(texts[at], justify="right", no_wrap=True) for texts in behind),
            Text(states[at], style="yellow", no_wrap=True),
        )
    return table


def _width(texts: Sequence[str]) -> int:
    """Return the width of a column, including the space after it."""
    return max(map(len, texts)) + 1


def _printable(text: str) -> str:
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)


def _bar(bar: Bar, cells: int) -> Text:
    found = Text(no_wrap=True)
    length = 0
    for number, piece in enumerate(words.pieces(bar, cells)):
        style = "yellow" if piece.is_moving else _SHADES[number % 2]
        found.append("█" * piece.cells, style)
        length += piece.cells
    if length < cells:
        found.append("·" * (cells - length), "dim")
    found.append("│" if length <= cells else "")
    return found
