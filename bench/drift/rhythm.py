"""An endpoint's rhythm: the ticks and signs of life that it has without any client.

Owns: the arithmetic that subtracts the rhythm from a profile, and a message's share of the rhythm. Must never: count.

The clock decides how many ticks fall into a counted stretch. So this module subtracts those ticks, and adds the same
share to each figure instead, that of ``PER_S`` messages per second. Otherwise, work moved from messages into ticks
would look like work saved.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from ingeborg.bench.drift.profile import Profile
from ingeborg.bench.errors import BenchError

#: The functions through which callers that are not compiled enter the core: for a tick, and for an answer of the store.
TICK = re.compile(r"CPyPy_(?:.*___)?Router___tick")
STORED = re.compile(r"CPyPy_(?:.*___)?Router___stored")

TICKS_PER_S = 10.0
#: Messages per second that share what an endpoint does in a second: a busy endpoint, but far from a full one.
PER_S = 1_000.0


class Rhythm(NamedTuple):
    """Instructions of an idle endpoint. ``tick``: for each tick. ``answer``: for each answer of the store, which the
    signs of life ask for twice a second. ``answers``: how many answers there are per tick."""

    tick: float
    answer: float
    answers: float

    @property
    def second(self) -> float:
        """Instructions of an idle second."""
        return TICKS_PER_S * (self.tick + self.answers * self.answer)

    @property
    def share(self) -> float:
        """Return a message's share of one second's work."""
        return self.second / PER_S

    def without(self, profile: Profile) -> float:
        """Return what remains of a profile taken while no client sent."""
        return profile.total - self.tick * profile.called(TICK) - self.answer * profile.called(STORED)

    def without_ticks(self, profile: Profile) -> float:
        """Return what remains of a profile taken while clients sent. The store's answers to them stay."""
        return profile.total - self.second / TICKS_PER_S * profile.called(TICK)


def rhythm(idle: Sequence[Profile]) -> Rhythm:
    """Return the rhythm of an endpoint from profiles of its idle time, by least squares.

    Args:
        idle: stretches, better of several lengths.

    Raises:
        BenchError: there was no tick.
    """
    points = [(each.called(TICK), each.called(STORED), each.total) for each in idle]
    ticks, answers = sum(t for t, _, _ in points), sum(a for _, a, _ in points)
    if not ticks:
        raise BenchError("an idle endpoint did not tick: is it compiled, and is the core's tick still called so?")
    tt, ta, aa = (sum(t * t for t, _, _ in points), sum(t * a for t, a, _ in points), sum(a * a for _, a, _ in points))
    tx, ax = sum(t * x for t, _, x in points), sum(a * x for _, a, x in points)
    determinant = tt * aa - ta * ta
    if determinant <= 0 or not answers:  # the numbers of ticks and answers were proportional
        return Rhythm(sum(x for _, _, x in points) / ticks, 0.0, 0.0)
    return Rhythm((tx * aa - ax * ta) / determinant, (ax * tt - tx * ta) / determinant, answers / ticks)
