"""What a person sees of a run: a line a second while it goes, a table at its end.

Owns: wording and layout. Must never: compute a figure that the tally does not have.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TextIO

from .tally import Latencies, Tally


class Progress:
    """Lines to ``out``: one that is written over on a terminal, else one under the other."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._terminal = out.isatty()
        self._open = False

    def line(self, phase: str, left_s: float | None, tally: Tally, in_rate: float, out_rate: float) -> None:
        """How it goes: rates since the last line, percentiles of the whole run so far."""
        left = "" if left_s is None else f"{max(left_s, 0):.0f} s left"
        self._write(
            f"{phase:<11} {left:>11}   in {in_rate:,.0f}/s   out {out_rate:,.0f}/s   "
            f"p50 {_ms(tally.latencies, 50)}   p99 {_ms(tally.latencies, 99)}"
        )

    def say(self, text: str) -> None:
        """A line that stays."""
        self._end()
        print(text, file=self._out, flush=True)

    def _write(self, text: str) -> None:
        if self._terminal:
            print(f"\r{text}\x1b[K", end="", file=self._out, flush=True)
            self._open = True
        else:
            print(text, file=self._out, flush=True)

    def _end(self) -> None:
        if self._open:
            print(file=self._out)
            self._open = False


def summary(tally: Tally, rows: Iterable[tuple[str, str]]) -> str:
    """The table at the end; ``rows`` come after the run's own figures."""
    counts = [
        ("news", f"{tally.news:,}"),
        ("reports sent", f"{tally.sent:,}"),
        ("deliveries expected", f"{tally.expected:,}"),
        ("delivered", f"{tally.delivered:,}"),
        ("lost", f"{tally.lost:,}"),
        ("delivered twice", f"{tally.duplicates:,}"),
        ("out of order", f"{tally.reordered:,}"),
        ("errors", ", ".join(f"{code} {count:,}" for code, count in sorted(tally.errors.items())) or "0"),
        ("latency p50", _ms(tally.latencies, 50)),
        ("latency p99", _ms(tally.latencies, 99)),
        ("latency max", f"{tally.latencies.max_ns / 1e6:.1f} ms" if tally.latencies.count else "-"),
    ]
    table = [*counts, *rows]
    width = max(len(name) for name, _ in table)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in table)


def _ms(latencies: Latencies, percent: float) -> str:
    value = latencies.percentile_ms(percent)
    return "-" if value is None else f"{value:.1f} ms"
