"""An endpoint's rhythm: the ticks and signs of life that an endpoint without clients performs.

Owns: the arithmetic that subtracts the rhythm from a profile, and a message's share of the rhythm. Must never: count
instructions.

The number of ticks in a counted period depends on the clock. So this module subtracts those ticks, and adds a fixed
share to each figure instead. The fixed share is a message's share of the ticks at ``PER_S`` messages per second.
Without that share, a change that moves work from messages into ticks would look like a saving.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from ingeborg.bench.drift.profile import Profile
from ingeborg.bench.errors import BenchError

#: The core's functions for a tick and for an answer of the store. Compiled callers call them directly, other callers
#: through an entry (``CPyPy_``).
TICK = re.compile(r"CPyDef_(?:.*___)?Router___tick")
STORED = re.compile(r"CPyDef_(?:.*___)?Router___stored")

TICKS_PER_S = 10.0
#: The ticks of one second are divided among this number of messages. It is the rate of an endpoint that is busy, but
#: far from its limit.
PER_S = 1_000.0


class Rhythm(NamedTuple):
    """Instructions of an idle endpoint. ``tick``: instructions of each tick. ``answer``: instructions for each answer
    of the store. The endpoint's signs of life request an answer twice a second. ``answers``: number of answers per
    tick."""

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
        """Return the instructions of a profile, minus those of the ticks and of the store's answers. No client sent
        anything while the profile was taken."""
        return profile.total - self.tick * profile.called(TICK) - self.answer * profile.called(STORED)

    def without_ticks(self, profile: Profile) -> float:
        """Return the instructions of a profile, minus those of the ticks and signs of life. Clients sent commands while
        the profile was taken, so the store's answers to these commands stay included."""
        return profile.total - self.second / TICKS_PER_S * profile.called(TICK)


def rhythm(idle: Sequence[Profile]) -> Rhythm:
    """Compute the rhythm of an endpoint from profiles of its idle time, by least squares.

    Args:
        idle: profiles of periods of idle time, preferably of several lengths.

    Raises:
        BenchError: the profiles contain no tick.
    """
    points = [(each.called(TICK), each.called(STORED), each.total) for each in idle]
    ticks, answers = sum(t for t, _, _ in points), sum(a for _, a, _ in points)
    if not ticks:
        raise BenchError(
            "an idle endpoint did not tick: is it compiled, and does the core's tick still have this name?"
        )
    tt, ta, aa = (sum(t * t for t, _, _ in points), sum(t * a for t, a, _ in points), sum(a * a for _, a, _ in points))
    tx, ax = sum(t * x for t, _, x in points), sum(a * x for _, a, x in points)
    determinant = tt * aa - ta * ta
    if determinant <= 0 or not answers:  # ticks and answers are proportional, so their costs cannot be separated
        return Rhythm(sum(x for _, _, x in points) / ticks, 0.0, 0.0)
    return Rhythm((tx * aa - ax * ta) / determinant, (ax * tt - tx * ta) / determinant, answers / ticks)
