"""Verdicts: how figures with intervals confirm or refute a sentence.

Owns: the rules for all verdicts. Must never: choose figures, or do I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations, pairwise
from typing import Final

from ingeborg.bench.caching.found import Json, Rate
from ingeborg.bench.text.blocks import FAILS, HOLDS, NOISE, Verdict

SLIGHT: Final = 0.05
"""A smaller relative difference of two latencies, or of two hit rates of a sweep, does not matter."""

RUNS_MIN: Final = 3
"""With fewer runs, an interval is not meaningful."""


def over(verdicts: Iterable[str]) -> str:
    """Combine the verdicts for several numbers of records. The sentence fails if it fails for at least one number, and
    holds if it holds for every number."""
    each = list(verdicts)
    return FAILS if FAILS in each else NOISE if NOISE in each or not each else HOLDS


def sign(difference: Rate | None) -> str:
    """Return whether the first of two values is greater than the second. ``difference`` is the first minus the
    second."""
    if difference is None:
        return NOISE
    mean, half = difference
    return HOLDS if mean - half > 0 else FAILS if mean + half < 0 else NOISE


def above(one: Json, other: Json, what: str) -> str:
    """Return whether the first value is greater. Both values need several runs, and their intervals must not
    overlap."""
    if min(one["runs"], other["runs"]) < RUNS_MIN:
        return NOISE
    (mean, half), (second, width) = one[what], other[what]
    return sign((mean - second, half + width))


def slower(one: Json, other: Json) -> str:
    """Return whether the first latency is higher. Only the time for the database can depend on the strategy: for its
    reads, and for its writes, which can wait for reads. A difference is noise in three cases: the database explains
    less than half of the difference, the difference is below ``SLIGHT``, or both latencies have several runs and their
    intervals overlap."""
    mean, second = one["latency_ms"][0], other["latency_ms"][0]
    database_ms, other_ms = (row["database_ms"] + row["writing_ms"] for row in (one, other))
    if abs(database_ms - other_ms) < abs(mean - second) / 2:
        return NOISE
    if min(one["runs"], other["runs"]) >= RUNS_MIN and above(one, other, "latency_ms") == NOISE:
        return NOISE
    ratio = mean / second
    return HOLDS if ratio > 1 + SLIGHT else NOISE if ratio >= 1 - SLIGHT else FAILS


def falls(rates: Sequence[Rate]) -> str:
    """Return whether each value is less than the previous value, or whether all values are about equal. The values do
    not fall if any value certainly exceeds an earlier value. This means that their intervals do not overlap."""
    values = [mean for mean, _ in rates]
    if not values or max(values) - min(values) <= SLIGHT * max(values):
        return NOISE
    if any(sign((later[0] - earlier[0], later[1] + earlier[1])) == HOLDS for earlier, later in combinations(rates, 2)):
        return FAILS
    return HOLDS if all(earlier > later for earlier, later in pairwise(values)) else NOISE


def by_verdict(verdicts: Iterable[Verdict], reading: Callable[[str], str]) -> list[Verdict]:
    """Group rooms with equal verdicts. ``reading`` returns the name of an interpretation for the listed rooms."""
    groups: dict[str, list[Verdict]] = {}
    for one in verdicts:
        groups.setdefault(one.verdict, []).append(one)
    return [
        Verdict(
            reading(", ".join(one.reading for one in those)),
            verdict,
            "; ".join(f"{one.reading} {one.found}" if len(those) > 1 else one.found for one in those if one.found),
        )
        for verdict, those in groups.items()
    ]


def one_seed(rows: Iterable[Json | None]) -> str:
    """Return a note for a verdict if one of its rows has only one seed, so that the interval is unknown."""
    return " (one seed)" if any(row is not None and row["seeds"] == 1 for row in rows) else ""


def room(share: float | None) -> str:
    """Return the name of this room on a page."""
    return "unbounded" if share is None else f"{share:.0%}"


def ms(value: float | None) -> str:
    """Format a time in milliseconds."""
    if value is None:
        return "–"
    return f"{1e3 * value:,.0f} µs" if value < 1 else f"{value:,.1f} ms"


def of_runs(row: Json, what: str, text: Callable[[float], str]) -> str:
    """Format a figure, with half the width of its interval if there are several runs."""
    mean, half = row[what]
    return text(mean) if row["runs"] < RUNS_MIN else f"{text(mean)} ± {text(half)}"


def points(rate: Rate) -> str:
    """Format a difference of two rates in percentage points."""
    mean, half = rate
    return f"{100 * mean:+.1f} ± {100 * half:.1f}" if half else f"{100 * mean:+.1f}"
