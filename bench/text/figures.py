"""Formats numbers for people, with one unit, three significant digits, and separated thousands.

Owns the text of every figure in the report and the summaries, so that the same value has the same text everywhere.
"""

from __future__ import annotations

import re

NONE = "–"
"""The text for a missing figure. A figure of 0 has another text."""

_DURATIONS = ((1, "ns"), (1_000, "µs"), (1_000_000, "ms"), (1_000_000_000, "s"))
_SIZES = ((1, "B"), (1_000, "kB"), (1_000_000, "MB"), (1_000_000_000, "GB"), (1_000_000_000_000, "TB"))


def significant(value: float, digits: int = 3) -> str:
    """Return a number with three significant digits, or a longer number without decimals: 1.55, 97.3, 1,534."""
    for decimals in range(digits - 1, 0, -1):
        if abs(round(value, decimals)) < 10 ** (digits - decimals):
            return f"{value:.{decimals}f}"
    return f"{value:,.0f}"


def duration(value_ns: float | None) -> str:
    """Format nanoseconds: `850 ns`, `1.55 ms`, `2.10 s`, `3 min 20 s`."""
    if value_ns is None:
        return NONE
    if abs(value_ns) >= 120_000_000_000:
        minutes, rest = divmod(round(value_ns / 1_000_000_000), 60)
        return f"{minutes:,} min {rest} s"
    return _scaled(value_ns, _DURATIONS)


def seconds(value_s: float | None) -> str:
    """Format seconds as `duration` does."""
    return NONE if value_s is None else duration(value_s * 1_000_000_000) if value_s else "0 s"


def tick(text: str) -> str:
    """Shorten the text of a round number for an axis, such as `10.0 ms` to `10 ms`."""
    return re.sub(r"(\.\d*?)0+(?= )", r"\1", text).replace(". ", " ")


def size(value_bytes: float | None) -> str:
    """Format bytes with powers of ten: `72.4 MB`."""
    return NONE if value_bytes is None else _scaled(value_bytes, _SIZES)


def _scaled(value: float, units: tuple[tuple[int, str], ...]) -> str:
    factor, unit = units[0]
    for larger, name in units[1:]:
        # The text of 999.7 µs is 1.00 ms and not 1,000 µs.
        if abs(value) >= larger * 0.9995:
            factor, unit = larger, name
    number = f"{value:,.0f}" if factor == 1 else significant(value / factor)
    return f"{number} {unit}"


def count(value: float | None) -> str:
    """Format a whole number with separated thousands."""
    return NONE if value is None else f"{value:,.0f}"


def counted(value: float, one: str, many: str = "") -> str:
    """Format a number of things: `1 run`, `2 runs`, `1,000 deliveries`."""
    return f"{count(value)} {one if value == 1 else many or f'{one}s'}"


def rate(value_per_s: float | None) -> str:
    """Format a rate: `1,534/s`, `2.35/s`."""
    return NONE if value_per_s is None else f"{significant(value_per_s) if value_per_s else 0}/s"


def size_rate(value_bytes_per_s: float | None) -> str:
    """Format a rate of bytes: `1.20 MB/s`."""
    return NONE if value_bytes_per_s is None else f"{size(value_bytes_per_s)}/s"


def micros(value_us: float | None) -> str:
    """Format microseconds as `duration` does."""
    return NONE if value_us is None else duration(value_us * 1000)


def ratio(value: float | None) -> str:
    """Format a multiple of the baseline: `× 1.84`."""
    if value is None:
        return NONE
    return f"× {significant(value) if abs(value) >= 0.1 else f'{value:.2g}'}"


def number(value: float | None) -> str:
    """Format a small number that is not a count: `1.55`, `0`."""
    return NONE if value is None else significant(value) if value else "0"


def plain(value: float) -> str:
    """Format a setting as it was given: `1,000`, `0.05`."""
    return f"{value:,.10g}"


def share(part: float | None, whole: float | None) -> str:
    """Format a percentage: `96.0 %`. It is `100 %` or `0 %` only if it has exactly this value."""
    if part is None or not whole:
        return NONE
    percent = 100 * part / whole
    if percent not in (0, 100):
        for text, wrong in (("> 99.9 %", "100.0"), ("< 0.1 %", "0.0")):
            if f"{percent:.1f}" == wrong:
                return text
    return f"{percent:.1f} %" if percent not in (0, 100) else f"{percent:.0f} %"


def percent_of_core(value_cores: float | None) -> str:
    """Format a number of processor cores in use as a percentage of one core: `38 %`."""
    return NONE if value_cores is None else f"{100 * value_cores:,.0f} %"


def goal(name: str, value: float | None) -> str:
    """Format a goal's limit or measured value in the goal's unit."""
    if value is None:
        return NONE
    return duration(value * 1_000_000) if name.endswith("_ms") else count(value)


def goal_name(name: str) -> str:
    """Return the name of a goal for people: `p99.9` for `p99_9_ms`. The names of counts stay as they are."""
    return name.removesuffix("_ms").replace("_", ".") if name.endswith("_ms") else name
