"""The document's rules of admission. They compare a record's number of subscribers with the numbers of earlier records.

Owns: the rules, each with its small state. Must never: calculate with binary fractions, in which .7 * 3 + .3 * 3 is
less than 3. Otherwise, a record whose number of subscribers equals the threshold would wrongly enter the cache.

Thresholds start at 0. The previous record's number of subscribers also starts at 0. A threshold can fall below 0,
because the document does not exclude this.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final

Share = str | int | Fraction
"""A parameter, as text ("0.7") or as an exact number."""

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
    """Admits records above a threshold. An admitted record raises the threshold by ``rise`` (the document's lambda)
    times its number of subscribers. A refused record lowers it by ``fall`` (mu) times its number of subscribers."""

    def __init__(self, rise: Share = HALF, fall: Share = HALF) -> None:
        rises, falls = Fraction(rise), Fraction(fall)
        self._unit = rises.denominator * falls.denominator
        self._rise = int(rises * self._unit)
        self._fall = int(falls * self._unit)
        self._threshold = 0  # in units of 1 / self._unit

    def admits(self, utility: int) -> bool:
        """Return whether this number is above the threshold."""
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
        """Return whether this number is above the mean."""
        self._sum += utility
        self._count += 1
        if self._count == self._batch:
            self._former = self._sum
            self._count = self._sum = 0
        return utility * self._batch > self._former


class Buffer(Rule):
    """Admits a record if its number of subscribers is above the sum of two products: ``own`` (gamma) times this number,
    and ``before`` (alpha) times the previous record's number. So only ``before / (1 - own)`` matters."""

    def __init__(self, own: Share = "0.7", before: Share = "0.3") -> None:
        owns, befores = Fraction(own), Fraction(before)
        unit = owns.denominator * befores.denominator
        self._rest = int((1 - owns) * unit)
        self._before = int(befores * unit)
        self._former = 0

    def admits(self, utility: int) -> bool:
        """Return whether this number is above that sum."""
        former, self._former = self._former, utility
        return utility * self._rest > self._before * former
