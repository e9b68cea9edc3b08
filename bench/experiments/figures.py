"""Figures over several seeds or runs: means with intervals, tables in a digest, and their texts.

Owns: these forms, which all evaluations share. Must never: know what a figure measures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

from ingeborg.bench.text.blocks import FAILS, HOLDS, PARTLY

#: Student's t for a two-sided 95 % confidence interval, by degrees of freedom. For more degrees, use 1.96.
T95 = {
    1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262, 10: 2.228,
    11: 2.201, 12: 2.179, 13: 2.160, 14: 2.145, 15: 2.131, 16: 2.120, 17: 2.110, 18: 2.101, 19: 2.093, 20: 2.086,
    21: 2.080, 22: 2.074, 23: 2.069, 24: 2.064, 25: 2.060, 26: 2.056, 27: 2.052, 28: 2.048, 29: 2.045, 30: 2.042,
}  # fmt: skip


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean, and half the width of its 95 % confidence interval. For a single value, the width is unknown and
    returned as 0."""
    if len(values) < 2:
        return fmean(values), 0.0
    return fmean(values), T95.get(len(values) - 1, 1.96) * stdev(values) / len(values) ** 0.5


def spread(values: Sequence[float]) -> tuple[float, float, float, float]:
    """Return the mean, half the width of its 95 % confidence interval, the least value and the greatest value."""
    return (*interval(values), min(values), max(values))


def rounded(values: Iterable[float], digits: int = 5) -> list[float]:
    """Round all values."""
    return [round(value, digits) for value in values]


def columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the rows as a table that has the names of the columns only once."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    return {"names": names, "rows": [[row.get(name) for name in names] for row in rows]}


def rows_of(table: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Return the rows of such a table, or no rows if there is no table."""
    return [dict(zip(table["names"], values, strict=True)) for values in table["rows"]] if table else []


def with_interval(values: Sequence[float], text: Callable[[float], str]) -> str:
    """Format a mean with its interval, if the interval is known."""
    return text(values[0]) + (f" ± {text(values[1])}" if values[1] else "")


def percent(values: Sequence[float], digits: int = 1) -> str:
    """Format a mean share with its interval."""
    return f"{values[0]:.{digits}%}" + (f" ± {100 * values[1]:.{digits}f}" if values[1] else "")


def verdict(is_so: bool, otherwise: str = FAILS) -> str:
    """Return the verdict on a sentence that is true or false."""
    return HOLDS if is_so else otherwise


def together(each: Iterable[bool]) -> str:
    """Combine the verdicts of several cases, of which there has to be at least one."""
    known = list(each)
    return HOLDS if known and all(known) else PARTLY if any(known) else FAILS
