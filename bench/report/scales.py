"""The axes of plots: linear, logarithmic, time, powers of two, and percentiles.

Owns ranges, ticks and their texts. Each function returns an axis as a function from a number of ticks to a `Scale`,
because a wide drawing has room for more ticks than a narrow one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

Ticks = list[tuple[float, str]]
Axis = Callable[[int], "Scale"]


@dataclass(frozen=True)
class Scale:
    """An axis, which has a range and ticks, and maps a value to a share of the axis's length (0 … 1)."""

    low: float
    high: float
    ticks: Ticks
    log: bool = False

    def share(self, value: float) -> float:
        """Return the value's place on the axis: 0 at `low` or below, 1 at `high` or above."""
        if self.log:
            value, low, high = (math.log10(max(item, self.low)) for item in (value, self.low, self.high))
        else:
            low, high = self.low, self.high
        return min(1.0, max(0.0, (value - low) / (high - low)))


def linear(high: float, text: Callable[[float], str], low: float = 0.0, *, whole: bool = False) -> Axis:
    """Return a linear scale from `low` to a round number at or above `high`. `whole` is for counts: all ticks are whole
    numbers."""

    def scale(wanted: int) -> Scale:
        step = _round_step((high - low or 1.0) / wanted, whole)
        top = low + step * max(1, math.ceil((high - low) / step - 1e-9))
        steps = round((top - low) / step)
        return Scale(low, top, [(low + step * index, text(low + step * index)) for index in range(steps + 1)])

    return scale


def _round_step(step: float, whole: bool) -> float:
    power = 10.0 ** math.floor(math.log10(max(step, 1.0) if whole else step))
    factors = (1, 2, 5, 10) if whole and power < 10 else (1, 2, 2.5, 5, 10)
    return next(factor * power for factor in factors if factor * power >= step * 0.999999)


def logarithmic(values: Iterable[float], text: Callable[[float], str]) -> Axis:
    """Return a log scale that includes all positive `values`. It has ticks at 1, 2 and 5 of each decade, or only at the
    decades if there is no room for more ticks. Values of 0 and below have no place on the scale."""
    positive = [value for value in values if value > 0] or [1.0, 10.0]
    steps = [factor * 10.0**power for power in range(-9, 16) for factor in (1, 2, 5)]
    low = max((step for step in steps if step <= min(positive)), default=steps[0])
    high = min((step for step in steps if step >= max(positive)), default=steps[-1])
    if low == high:
        low, high = steps[max(0, steps.index(low) - 1)], steps[min(len(steps) - 1, steps.index(high) + 1)]

    def scale(wanted: int) -> Scale:
        inside = [step for step in steps if low <= step <= high]
        decades = [step for step in inside if math.log10(step).is_integer()]
        ticks = inside if len(inside) <= wanted + 2 or len(decades) < 2 else decades
        return Scale(low, high, [(tick, text(tick)) for tick in ticks], log=True)

    return scale


def seconds_axis(low: float, high: float) -> Axis:
    """Return a time axis in seconds since the run's start, with ticks at whole seconds or minutes."""

    def scale(wanted: int) -> Scale:
        span = max(1.0, high - low)
        steps = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 43200, 86400)
        step = next((step for step in steps if span / step <= wanted), steps[-1])
        first = math.ceil(low / step) * step
        ticks = [float(tick) for tick in range(first, math.floor(low + span) + 1, step)]
        return Scale(low, low + span, [(tick, _clock(tick, step)) for tick in ticks])

    return scale


def _clock(value_s: float, step: int) -> str:
    whole = int(value_s)
    if step < 60:
        return f"{whole} s"
    return f"{whole // 60} min" if whole < 3600 or whole % 3600 else f"{whole // 3600} h"


def doubling_axis(low: float, high: float) -> Axis:
    """Return a log axis over powers of two. Each power has a tick. The last tick always has a label. Other ticks have
    labels as far as there is room."""
    first, last = math.floor(math.log2(max(low, 1))), math.ceil(math.log2(max(high, 1)))
    last = max(last, first + 1)

    def scale(wanted: int) -> Scale:
        step = math.ceil((last - first + 1) / wanted)
        powers = range(first, last + 1)
        ticks = [(2.0**power, f"{2**power:,}" if (last - power) % step == 0 else "") for power in powers]
        return Scale(2.0**first, 2.0**last, ticks, log=True)

    return scale


def percentile_axis(points: float) -> Axis:
    """Return an axis on which a share p of the values is at -log10(1 - p), so every further nine (90 %, 99 %, 99.9 % …)
    has the same width. It ends at 99.999 %, or earlier if there are too few values (`points`)."""
    high = min(5.0, max(1.0, math.log10(max(points, 10))))

    def scale(_: int) -> Scale:
        named = ((0.0, "0 %"), (0.5, "50 %"), (0.9, "90 %"), (0.99, "99 %"), (0.999, "99.9 %"), (0.9999, "99.99 %"))
        ticks = [(nines(p), text) for p, text in named]
        ticks.append((5.0, "99.999 %"))
        return Scale(0.0, high, [tick for tick in ticks if tick[0] <= high + 1e-6])

    return scale


def nines(p: float) -> float:
    """Return the place of the share p of values on the percentile axis."""
    return -math.log10(max(1e-9, 1 - p))
