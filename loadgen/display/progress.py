"""The display of a run: on a terminal, a few lines that change in place. Otherwise, one line per second.

Owns: wording and layout. Must never: compute a figure (the ``Snapshot`` contains all figures), or slow the generator
down. The display has no asyncio task. It skips updates that come too often.

On a terminal, the library rich draws the display, and lasting lines (``say``, ``ended``) scroll away above it. Without
a terminal, or if the user turns escape codes off (``NO_COLOR``, ``TERM=dumb``), this module prints only plain lines. It
replaces unprintable characters, because texts can come from the system under load.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import NamedTuple, TextIO

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

#: Seconds between two drawings. People cannot read faster, and each drawing takes one to two milliseconds of CPU time.
_DRAWN_EVERY_S = 0.25
#: Seconds between two lines. It is less than 1, so that a caller that calls about once a second gets a line each time.
_LINE_EVERY_S = 0.9


class Snapshot(NamedTuple):
    """The state of a run. The rates are those of the last second or so.

    ``offered_per_s``: the schedule's rate, or ``None`` if the schedule has no fixed rate. ``phase_left_s``: the
    remaining time of the phase, or ``None`` if it is unknown. ``done``, ``of``: how many connections or subscriptions
    exist, and how many the phase makes. Both are ``None`` in phases that make neither connections nor subscriptions.
    The latencies are ``None`` before the first delivery. ``behind``: expected deliveries that have not arrived yet.
    ``silent_s``: how long nothing has arrived although messages were due, or ``None`` if messages arrive.
    ``generator_cores``: how many cores the generator's busiest process uses. The greatest value for a Python process is
    1.0. ``server_cores``: how many cores all servers together use, or ``None`` if they are not on this machine.
    """

    phase: str
    phase_elapsed_s: float
    phase_left_s: float | None
    done: int | None
    of: int | None
    offered_per_s: float | None
    in_per_s: float
    out_per_s: float
    p50_ns: float | None
    p99_ns: float | None
    behind: int
    errors: int
    silent_s: float | None
    generator_cores: float | None
    server_cores: float | None


class Progress:
    """A display on ``out``, and a context manager. ``close()`` restores the terminal. ``clock`` returns monotonic
    seconds."""

    def __init__(
        self,
        out: TextIO,
        *,
        clock: Callable[[], float] = time.monotonic,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self._out = out
        self._clock = clock
        self._shown_at = -float("inf")
        self._phase: str | None = None
        self._live: Live | None = None
        if _is_terminal(out, environ):
            self._console = Console(file=out, force_terminal=True, highlight=False, emoji=False)
            self._live = Live(
                console=self._console,
                auto_refresh=False,
                transient=True,
                # Other output to the terminal appears above the display. Output to files does not change.
                redirect_stdout=sys.stdout.isatty(),
                redirect_stderr=sys.stderr.isatty(),
            )

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def update(self, snapshot: Snapshot) -> None:
        """Show a state. Callers may call this as often as they like. A new phase appears immediately."""
        now = self._clock()
        every_s = _LINE_EVERY_S if self._live is None else _DRAWN_EVERY_S
        if snapshot.phase == self._phase and now - self._shown_at < every_s:
            return
        self._shown_at, self._phase = now, snapshot.phase
        if self._live is None:
            print(_line(snapshot), file=self._out, flush=True)
            return
        self._console.size = _size(self._out)  # the window may have a new size
        self._live.update(_display(snapshot))
        self._live.start()
        self._live.refresh()

    def say(self, text: str) -> None:
        """Print lasting text: one line, or several lines such as a table."""
        for line in text.split("\n"):
            self._keep(Text(printable(line)))

    def ended(self, phase: str, text: str) -> None:
        """Print a lasting line about a phase that has ended."""
        line = Text(f"{printable(phase):<12} ", style="bold")
        self._keep(line.append(printable(text), style="not bold"))
        self._phase = None

    def close(self) -> None:
        """Remove the display and give the cursor back. ``say`` still works. Idempotent."""
        if self._live is not None:
            self._live.stop()

    def _keep(self, line: Text) -> None:
        if self._live is None:
            print(line.plain.rstrip(), file=self._out, flush=True)
        else:
            self._console.size = _size(self._out)
            self._console.print(line, soft_wrap=True)  # only the terminal wraps, so users can copy the line


def table(rows: Sequence[tuple[str, str]], title: str | None = None) -> str:
    """Return names and values as two columns, in plain text without escape codes or a final line end."""
    width = max((cell_len(name) for name, _ in rows), default=0)
    lines = [] if title is None else [title]
    lines += [f"{name}{' ' * (width - cell_len(name))}  {value}".rstrip() for name, value in rows]
    return "\n".join(lines)


def _is_terminal(out: TextIO, environ: Mapping[str, str]) -> bool:
    return (
        out.isatty() and not environ.get("NO_COLOR") and environ.get("TERM", "dumb").lower() not in ("dumb", "unknown")
    )


def _size(out: TextIO) -> tuple[int, int]:
    """Return the columns and lines of the terminal ``out``. Rich would measure the standard streams instead."""
    try:
        size = os.get_terminal_size(out.fileno())
    except OSError:  # the operating system does not treat it as a terminal
        size = shutil.get_terminal_size()
    return size.columns or 80, size.lines or 25  # pseudo-terminals without a size report 0


# -- a snapshot as one line, and as a display ----------------------------------------------------------------------


def _line(seen: Snapshot) -> str:
    parts = [f"{printable(seen.phase):<12} {_duration(seen.phase_elapsed_s):>6}", *_times(seen)]
    parts += [f"{name} {value}" for name, value in (*_traffic(seen), *_latency(seen), *_trouble(seen), *_cpu(seen))]
    return "  ".join(parts)


def _display(seen: Snapshot) -> RenderableType:
    head = Table.grid(padding=(0, 2), expand=True)
    head.add_column(no_wrap=True)
    head.add_column(ratio=1)
    head.add_column(no_wrap=True, justify="right")
    share = _share_done(seen)
    bar: RenderableType = "" if share is None else ProgressBar(total=1.0, completed=share)
    times = "  ".join((_duration(seen.phase_elapsed_s), *_times(seen)))
    head.add_row(Text(printable(seen.phase), style="bold cyan"), bar, Text(times))

    figures = Table.grid(padding=(0, 2))
    figures.add_column(no_wrap=True, min_width=7, style="dim")
    figures.add_column(no_wrap=True, overflow="ellipsis")
    figures.add_row("rate", _figures(_traffic(seen)))
    figures.add_row("latency", _figures(_latency(seen)))
    figures.add_row("trouble", _figures(_trouble(seen), "bold red" if seen.errors or seen.silent_s else ""))
    figures.add_row("cores", _figures(_cpu(seen)))
    return Group(head, figures)


def _figures(named: Iterator[tuple[str, str]], style: str = "") -> Text:
    text = Text(style=style)
    for name, value in named:
        text.append(f"{name} ", style="dim").append(value).append("  ")
    text.rstrip()
    return text if text.plain else Text("-", style="dim")


def _times(seen: Snapshot) -> Iterator[str]:
    if seen.done is not None:
        yield f"{seen.done:,}" if seen.of is None else f"{seen.done:,} of {seen.of:,}"
    if seen.phase_left_s is not None:
        yield f"{_duration(seen.phase_left_s)} left"


def _traffic(seen: Snapshot) -> Iterator[tuple[str, str]]:
    if seen.offered_per_s is not None:
        yield "offered", f"{seen.offered_per_s:,.0f}/s"
    yield "in", f"{seen.in_per_s:,.0f}/s"
    yield "out", f"{seen.out_per_s:,.0f}/s"


def _latency(seen: Snapshot) -> Iterator[tuple[str, str]]:
    yield "p50", _milliseconds(seen.p50_ns)
    yield "p99", _milliseconds(seen.p99_ns)


def _trouble(seen: Snapshot) -> Iterator[tuple[str, str]]:
    yield "behind", f"{seen.behind:,}"
    yield "errors", f"{seen.errors:,}"
    if seen.silent_s is not None:
        yield "nothing arrived for", _duration(seen.silent_s)


def _cpu(seen: Snapshot) -> Iterator[tuple[str, str]]:
    if seen.generator_cores is not None:
        yield "generator", f"{seen.generator_cores:.2f}"
    if seen.server_cores is not None:
        yield "servers", f"{seen.server_cores:.2f}"


def _share_done(seen: Snapshot) -> float | None:
    """Return how much of the phase is done, from 0 to 1. The phase's amount decides, or else its time. Return ``None``
    if neither the amount nor the time is known."""
    if seen.done is not None and seen.of:
        return min(max(seen.done / seen.of, 0.0), 1.0)
    if seen.phase_left_s is None:
        return None
    left_s, elapsed_s = max(seen.phase_left_s, 0.0), max(seen.phase_elapsed_s, 0.0)
    return elapsed_s / (elapsed_s + left_s) if elapsed_s + left_s else 1.0


def _duration(seconds: float) -> str:
    whole = max(round(seconds), 0)
    if whole < 100:
        return f"{whole} s"
    minutes, whole = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{whole:02}" if hours else f"{minutes}:{whole:02}"


def _milliseconds(ns: float | None) -> str:
    if ns is None:
        return "-"
    ms = ns / 1e6
    return f"{ms:,.0f} ms" if ms >= 100 else f"{ms:.1f} ms" if ms >= 10 else f"{ms:.2f} ms"


def printable(text: str) -> str:
    """Replace unprintable characters, because the text can come from the system under load."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
