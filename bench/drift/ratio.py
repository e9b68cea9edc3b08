"""A ratio of costs, and its bounds.

Owns: the arithmetic of pairs. Must never: leave a pair out because it does not fit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist, fmean, stdev
from typing import NamedTuple

#: The probability that the ratio is within its bounds.
CONFIDENCE = 0.95
#: Fewer pairs say nothing about their spread.
PAIRS_MIN = 3


class Ratio(NamedTuple):
    """The ratio of the second to the first, from pairs of measurements; with probability ``CONFIDENCE`` it is between
    ``low`` and ``high``."""

    mean: float
    low: float
    high: float


def ratio(pairs: Sequence[tuple[float, float]]) -> Ratio:
    """Return the geometric mean of the ratios of pairs (first, second), all above 0, and its bounds by Student's
    distribution.

    A disturbance of the machine affects both values of a pair, so each pair gives its own ratio. It uses logarithms,
    since half and double are equally far from 1. ``ValueError``: fewer than ``PAIRS_MIN``.
    """
    if len(pairs) < PAIRS_MIN:
        raise ValueError(f"{len(pairs)} pairs are too few for a bound; {PAIRS_MIN} are the least")
    logarithms = [math.log(second / first) for first, second in pairs]
    mean = fmean(logarithms)
    reach = student(len(pairs) - 1) * stdev(logarithms) / math.sqrt(len(pairs))
    return Ratio(math.exp(mean), math.exp(mean - reach), math.exp(mean + reach))


def student(freedom: int) -> float:
    """Return the two-sided ``CONFIDENCE`` quantile of Student's distribution: the normal one with three corrections
    (Fisher and Cornish, 1960; Abramowitz and Stegun 26.7.5). Within 1 % from 3 degrees of freedom on."""
    z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    corrections = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + math.fsum(correction / float(freedom) ** power for power, correction in enumerate(corrections, 1))
