"""The ratio of two costs, and its confidence bounds.

Owns: the arithmetic of pairs of measurements. Must never: leave out a pair because it is an outlier.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist, fmean, stdev
from typing import NamedTuple

#: The probability that the ratio is within its bounds.
CONFIDENCE = 0.95
#: Minimum number of pairs. With fewer pairs, their spread is unknown.
PAIRS_MIN = 3


class Ratio(NamedTuple):
    """The ratio of the second to the first value in pairs of measurements. With probability ``CONFIDENCE`` the ratio is
    between ``low`` and ``high``."""

    mean: float
    low: float
    high: float


def ratio(pairs: Sequence[tuple[float, float]]) -> Ratio:
    """Return the geometric mean of the ratios of pairs (first, second), all above 0, and its bounds from Student's
    distribution.

    Each pair gives its own ratio, because a disturbance of the machine affects both values of a pair. The function
    averages logarithms, so that the ratios 1/2 and 2 are equally far from 1. Raises ``ValueError`` if there are fewer
    than ``PAIRS_MIN`` pairs.
    """
    if len(pairs) < PAIRS_MIN:
        raise ValueError(f"{len(pairs)} pairs are too few for a bound; {PAIRS_MIN} are the minimum")
    logarithms = [math.log(second / first) for first, second in pairs]
    mean = fmean(logarithms)
    reach = student(len(pairs) - 1) * stdev(logarithms) / math.sqrt(len(pairs))
    return Ratio(math.exp(mean), math.exp(mean - reach), math.exp(mean + reach))


def student(freedom: int) -> float:
    """Return the two-sided ``CONFIDENCE`` quantile of Student's distribution. It is the normal quantile with
    corrections (Fisher and Cornish, 1960; Abramowitz and Stegun 26.7.5). With 3 or more degrees of freedom, it is
    accurate to 1 %."""
    z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    corrections = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + math.fsum(correction / float(freedom) ** power for power, correction in enumerate(corrections, 1))
