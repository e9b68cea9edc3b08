"""The search for the greatest rate that the set-up sustains.

Owns: the choice of the next rate to try. Must never: read a clock, or measure.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple

#: Each step raises the rate by this factor, until a step fails. Then the range between the last two rates is bisected
#: this number of times.
FACTOR, BISECTIONS = 1.5, 3

#: The search ends at this rate. No broker on such a machine sustains a higher rate.
RATE_MAX = 200_000.0


class Step(NamedTuple):
    """The result of a step: its rate, the rate that was actually sent, the p99 of the deliveries, and the number of
    publishes without an answer at the end."""

    rate: float
    sent_per_s: float
    p99_ms: float
    unanswered: int
    sustained: bool


def sustained(rate: float, sent_per_s: float, p99_ms: float, unanswered: int, limit_ms: float) -> bool:
    """Return whether a rate is sustained. The generator must have sent at the offered rate, and p99 must be within its
    limit. No queue may grow, so the number of unanswered publishes may be at most the number sent in half a second."""
    return sent_per_s >= 0.97 * rate and p99_ms <= limit_ms and unanswered <= 0.5 * rate


def search(start: float) -> Generator[float, bool, float]:
    """Yield each rate to try. The caller sends back whether the rate was sustained. Return the greatest sustained rate,
    or 0 if there is none."""
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
