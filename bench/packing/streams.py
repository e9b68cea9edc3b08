"""Streams of measurements. A measurement is the current rate of production into each item.

Owns: how streams are drawn from their parameters and a seed. Must never: depend on an algorithm.

The document (arXiv 2402.06085) is ambiguous about sizes. Equation 15 keeps them at 0 or above. The document's published
program also keeps them at the capacity or below, and draws only whole per cent of the capacity. This module can draw
streams of each kind (``Reading``).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from enum import StrEnum
from typing import Final

from ingeborg.protocol.hashes import SLOTS, slot_of

#: Capacity of every bin, in bytes per second. Sizes have the same unit, so only their ratio matters.
CAPACITY: Final = 100.0

#: Number of topics that ``hashed`` maps to the slots.
TOPICS: Final = 100_000

#: The smallest and the largest size that a slot may have in ``hashed``, as multiples of its first size.
LEAST_SHARE, MOST_SHARE = 0.25, 4.0


class Reading(StrEnum):
    """The allowed sizes."""

    CLAMPED = "clamped"
    """A size is at most the capacity, as in the program that the document's authors have published."""

    AS_WRITTEN = "as written"
    """A size has no upper limit, as in equation 15."""

    WHOLE = "whole per cent"
    """A size is a whole per cent of the capacity, and at most the capacity, as in the published program."""


class Start(StrEnum):
    """The sizes in the first measurement (section VI-B)."""

    RANDOM = "random"
    NOTHING = "0"
    HALF = "half C"
    FULL = "C"


def drawn(
    items: int, count: int, delta: float, seed: int, reading: Reading = Reading.CLAMPED, start: Start = Start.RANDOM
) -> Iterator[list[float]]:
    """Yield ``count`` measurements of ``items`` items. Between two measurements a size changes by up to ``delta`` per
    cent of the capacity (equation 15). Raises ``ValueError`` for ``Reading.WHOLE`` if the start is not random, or if
    the delta is not a whole number."""
    numbers = random.Random(f"{items} {delta:g} {seed}")
    if reading is Reading.WHOLE:
        if start is not Start.RANDOM or delta != int(delta):
            raise ValueError(
                f"sizes in whole per cent need a random start and a whole delta, not {start} and {delta:g}"
            )
        yield from _whole(items, count, delta, numbers)
        return
    first = {Start.NOTHING: 0.0, Start.HALF: CAPACITY / 2, Start.FULL: CAPACITY}
    sizes = [first[start] if start in first else numbers.uniform(0.0, CAPACITY) for _ in range(items)]
    step = delta / 100.0 * CAPACITY
    most = CAPACITY if reading is Reading.CLAMPED else float("inf")
    for index in range(count):
        if index:
            sizes = [min(most, max(0.0, size + numbers.uniform(-step, step))) for size in sizes]
        yield sizes


def _whole(items: int, count: int, delta: float, numbers: random.Random) -> Iterator[list[float]]:
    """Yield measurements with a random start, whose sizes are whole per cent of the capacity."""
    percents = [numbers.randint(0, 100) for _ in range(items)]
    step = int(delta)
    for index in range(count):
        if index:
            percents = [min(100, max(0, percent + numbers.randint(-step, step))) for percent in percents]
        yield [percent * (CAPACITY / 100) for percent in percents]


def hashed(exponent: float, count: int, delta: float, seed: int) -> Iterator[list[float]]:
    """Yield ``count`` measurements of all slots of a broker. The rates of the topics follow Zipf's law, and each topic
    is hashed to a slot by its name. The rate of the largest topic equals a bin's capacity. Between two measurements a
    slot's size changes by up to ``delta`` per cent of itself. Most slots are so small compared with a capacity that the
    changes of equation 15 would turn their sizes into noise."""
    numbers = random.Random(f"{exponent:g} {delta:g} {seed}")
    first = [0.0] * SLOTS
    for rank in range(1, TOPICS + 1):
        first[slot_of(f"station {seed} {rank}")] += CAPACITY / rank**exponent
    sizes = list(first)
    part = delta / 100.0
    for index in range(count):
        if index:
            sizes = [
                min(MOST_SHARE * base, max(LEAST_SHARE * base, size * (1.0 + numbers.uniform(-part, part))))
                for size, base in zip(sizes, first, strict=True)
            ]
        yield sizes
