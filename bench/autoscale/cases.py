"""The plan of the comparison: the groups, and their streams.

Owns: the names and the order of the plan's units. Must never: run a unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ingeborg.bench.autoscale import scale

#: Kafka's own ways to assign partitions: two assignors of clients, and the server's (KIP-848).
ASSIGNORS: Final = ("range", "cooperative-sticky", "kip-848")
#: Groups whose number of members follows the lag, as with KEDA's scaler for Kafka on Kubernetes.
KEDA: Final = "keda"
#: The document's algorithm, this project's, and this project's with more room.
PACKED: Final = ("mwf", "mend", "mend-roomy")
#: Share of a member's capacity that the algorithm fills; the rest is the hysteresis.
FILL: Final = {"mwf": 5 / 6, "mend": 5 / 6, "mend-roomy": 0.65}


@dataclass(frozen=True)
class Unit:
    """One run. ``number`` is the number of members for Kafka's own assignments, the permitted number of unread records
    per member for KEDA's rule, and 0 for the packed groups."""

    system: str
    number: int
    seed: int

    @property
    def label(self) -> str:
        """Return the name in comparisons, which is the same for all seeds."""
        return f"{self.system} {self.number}" if self.number else self.system

    @property
    def is_fixed(self) -> bool:
        """Return whether the number of members is constant. If it is, the result does not depend on how long a program
        takes to start."""
        return self.system in ASSIGNORS

    @property
    def name(self) -> str:
        """Return the name of the unit's files."""
        return f"{self.label} s{self.seed}".replace(" ", "-")


def labels() -> list[Unit]:
    """Return one seed's units, in the order of a table."""
    found = [Unit(assignor, count, 0) for assignor in ASSIGNORS for count in scale.COUNTS]
    found += [Unit(KEDA, lag, 0) for lag in scale.LAGS]
    return found + [Unit(system, 0, 0) for system in PACKED]


def units(seeds: int) -> Sequence[Unit]:
    """Return the whole plan, seed by seed, so that an interrupted run has complete seeds. For each seed, the packed
    groups come first."""
    each = sorted(labels(), key=lambda unit: (unit.system not in PACKED, unit.is_fixed))
    return [Unit(unit.system, unit.number, seed) for seed in range(1, seeds + 1) for unit in each]
