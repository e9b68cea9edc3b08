"""The errors of a reader in virtual time (section 3.3), and its CPU usage.

Owns: the definitions of the errors and of CPU usage. `job` repeats them for the rows of real runs. Must never: read a
file.

- The numerical error is the number of produced messages that the reader has neither taken nor skipped.
- The staleness error is the age of the oldest of these messages. The document's scripts compute the same age. They find
  the time at which the number of produced messages was equal to the number that the reader has taken.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final, NamedTuple

from ingeborg.bench.dyconits.rows import SAMPLE_MS, Sample, Used

PEAK_MS: Final = 5_000.0
"""The document measures CPU usage over five seconds. The peak is the greatest value of all periods of five seconds."""

PEAK_SAMPLES: Final = round(PEAK_MS / SAMPLE_MS)


class Errors(NamedTuple):
    """Mean and maximum of the two errors of one topic at one reader. Staleness is in seconds."""

    numerical: float
    numerical_max: float
    staleness_s: float
    staleness_max_s: float


def errors(produced_ms: Sequence[float], samples: Sequence[Sample]) -> Errors:
    """Return the errors of a topic.

    Args:
        produced_ms: the production time of each message, in milliseconds, ascending.
        samples: the samples of one reader, of which there is at least one.
    """
    counts, ages_s = [], []
    for sample in samples:
        count = bisect_right(produced_ms, sample.at_ms)
        counts.append(max(count - sample.last, 0))
        ages_s.append((sample.at_ms - produced_ms[sample.last]) / 1e3 if sample.last < count else 0.0)
    return Errors(sum(counts) / len(counts), max(counts), sum(ages_s) / len(ages_s), max(ages_s))


def usage(used: Sequence[Used]) -> tuple[float, float]:
    """Return mean and peak of the CPU usage of a reader, in per cent of a core. ``used`` has two or more samples."""
    first, last = used[0], used[-1]
    mean = _per_cent(first, last)
    peaks = [_per_cent(one, other) for one, other in zip(used, used[PEAK_SAMPLES:], strict=False)]
    return mean, max(peaks, default=mean)


def _per_cent(one: Used, other: Used) -> float:
    return (other.cpu_s - one.cpu_s) / (other.at_ms - one.at_ms) * 1e5
