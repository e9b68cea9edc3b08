"""The search for the greatest rate that the set-up sustains.

Owns: the next rate to try. Must never: look at a clock, or measure.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple

#: The factor from step to step, until one fails; then the number of bisections between the last two.
FACTOR, BISECTIONS = 1.5, 3

#: No broker on such a machine takes more; the search ends here in any case.
RATE_MAX = 200_000.0


class Step(NamedTuple):
    """The result of a rate: the rate in fact sent, the p99 of deliveries, and the publishes unanswered at its end."""

    rate: float
    sent_per_s: float
    p99_ms: float
    unanswered: int
    sustained: bool


def sustained(rate: float, sent_per_s: float, p99_ms: float, unanswered: int, limit_ms: float) -> bool:
    """Sent as offered, in time, and without a growing queue: at most half a second's publishes wait for answers."""
    return sent_per_s >= 0.97 * rate and p99_ms <= limit_ms and unanswered <= 0.5 * rate


def search(start: float) -> Generator[float, bool, float]:
    """Yield the rate to try, receive whether it was sustained, return the greatest sustained rate; 0: none."""
    good, bad = 0.0, 0.0
    rate = start
    while rate <= RATE_MAX:
        if (yield rate):
            good, rate = rate, rate * FACTOR
        else:
            bad = rate
            break
    else:
        return good
    for _ in range(BISECTIONS):
        middle = (good + bad) / 2
        if (yield middle):
            good = middle
        else:
            bad = middle
    return good
