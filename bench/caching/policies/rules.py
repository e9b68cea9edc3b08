"""The document's rules of admission: by the number of a record's subscribers, and of the records before.

Owns: the rules, each a small state. Must never: calculate in binary fractions: a record with exactly as many
subscribers as the threshold must not enter the cache, and .7 * 3 + .3 * 3 is less than 3.

Thresholds and the number before are 0 at first, and a threshold can fall below 0 (the document does not exclude it).
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final

Share = str | int | Fraction
"""A parameter: as written ("0.7"), or exact."""

HALF: Final = "0.5"


class Rule:
    """A rule with its state."""

    def admits(self, utility: int) -> bool:
        """Return whether to admit the next record, which has this number of subscribers."""
        raise NotImplementedError


class Everything(Rule):
    """Unlimited caching."""

    def admits(self, utility: int) -> bool:
        """Admit every record."""
        return True


class Nothing(Rule):
    """No caching."""

    def admits(self, utility: int) -> bool:
        """Admit no record."""
        return False


class Threshold(Rule):
    """Admits records above a threshold. An admitted record raises it by ``rise`` (the document's lambda) times its
    subscribers; a refused one lowers it by ``fall`` (mu) times its subscribers."""

    def __init__(self, rise: Share = HALF, fall: Share = HALF) -> None:
        rises, falls = Fraction(rise), Fraction(fall)
        self._unit = rises.denominator * falls.denominator
        self._rise = int(rises * self._unit)
        self._fall = int(falls * self._unit)
        self._threshold = 0  # in parts of 1 / unit

    def admits(self, utility: int) -> bool:
        """Return whether it is more than the threshold."""
        if utility * self._unit > self._threshold:
            self._threshold += self._rise * utility
            return True
        self._threshold -= self._fall * utility
        return False


class Mean(Rule):
    """Admits records above the mean of the last whole batch. A record that ends a batch belongs to that batch."""

    def __init__(self, batch: int = 3) -> None:
        self._batch = batch
        self._count = 0
        self._sum = 0
        self._former = 0  # the sum of the last whole batch

    def admits(self, utility: int) -> bool:
        """Return whether it is more than the mean."""
        self._sum += utility
        self._count += 1
        if self._count == self._batch:
            self._former = self._sum
            self._count = self._sum = 0
        return utility * self._batch > self._former


class Buffer(Rule):
    """Admits records above ``own`` (gamma) times their own subscribers plus ``before`` (alpha) times those of the
    previous record: so only ``before / (1 - own)`` matters."""

    def __init__(self, own: Share = "0.7", before: Share = "0.3") -> None:
        owns, befores = Fraction(own), Fraction(before)
        unit = owns.denominator * befores.denominator
        self._rest = int((1 - owns) * unit)
        self._before = int(befores * unit)
        self._former = 0

    def admits(self, utility: int) -> bool:
        """Is it more?"""
        former, self._former = self._former, utility
        return utility * self._rest > self._before * former
