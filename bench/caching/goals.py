"""Compare the figures with this project's goals for its policies, and check that no policy exceeds its upper bound.

Owns: the goals and their limits. Must never: do I/O.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from ingeborg.bench.caching.cases import SHARES
from ingeborg.bench.caching.found import Found
from ingeborg.bench.caching.judging import points
from ingeborg.bench.caching.policies.named import BELADY, PLAIN
from ingeborg.bench.caching.work import BOUND

AHEAD_MIN: Final = 0.05
"""Minimum lead of `owed` over the best other policy, as a share of all reads."""

APART_MAX: Final = 0.005
"""Largest permitted difference between our hit rate and libcachesim's hit rate."""


@dataclass(frozen=True)
class Goal:
    """One of our goals. ``found`` has an entry for each case: its name, the figure, and whether the figure meets the
    goal (``None`` if the goal does not apply)."""

    text: str
    limit: str
    found: list[tuple[str, str, bool | None]] = field(default_factory=list)


def goals(found: Found) -> list[Goal]:
    """Return the goals that have figures."""
    return [goal for goal in (_ahead(found), _bounded(found), *_beside(found)) if goal.found]


def _ahead(found: Found) -> Goal:
    goal = Goal("lead of owed over the best other policy, by read", f"≥ {100 * AHEAD_MIN:g} points")
    for share in SHARES:
        for stream in found.compared(share):
            row = found.ahead(stream)
            if row is not None:
                text = f"{points(row['by_read'])} ({row['other']})"
                goal.found.append((f"{stream.stream}, {share:.0%}", text, row["by_read"][0] >= AHEAD_MIN))
    return goal


def _bounded(found: Found) -> Goal:
    goal = Goal("no policy is above its bound", "Belady, PFOO")
    for share in SHARES:
        above, rows = 0, 0
        for exponent in found.exponents:
            best = found.requests(exponent, share, BELADY)
            others = [found.requests(exponent, share, name) for name in PLAIN]
            for row in others:
                if row is not None and best is not None:
                    rows += 1
                    above += row["rate"][0] > best["rate"][0]
        for stream in found.streams:
            bound = found.reads(stream, BOUND)
            if stream.share != share or bound is None:
                continue
            for name in found.policies(stream):
                for knows in (False, True):
                    row = found.reads(stream, name, knows=knows)
                    if row is not None and name != BOUND:
                        rows += 1
                        above += row["by_read"][0] > bound["by_read"][0]
        if rows:
            goal.found.append((f"{share:.0%}", f"{above} of {rows} above", above == 0))
    return goal


def _beside(found: Found) -> list[Goal]:
    goals = []
    for policy in (*PLAIN, BELADY):
        narrow = policy == "tinylfu"
        goal = Goal(
            f"{policy}{', with as small a sketch,' if narrow else ''} against libcachesim's",
            f"≤ {100 * APART_MAX:g} points apart",
        )
        for share in SHARES:
            rows = [found.requests(exponent, share, policy) for exponent in found.exponents]
            pairs = [
                (row["narrow"] if narrow else row["rate"], row["libcachesim"])
                for row in rows
                if row is not None and row["libcachesim"]
            ]
            apart = [abs(one[0] - other[0]) for one, other in pairs if one]
            if apart:
                goal.found.append((f"{share:.0%}", f"at most {100 * max(apart):.2f}", max(apart) <= APART_MAX))
        goals.append(goal)
    return goals
