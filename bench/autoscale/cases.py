"""The plan of the comparison: which groups are run, over which streams.

Owns: names and order of its units. Must never: run one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ingeborg.bench.autoscale import scale

#: Kafka's own ways to share partitions out: two assignors of clients, and the server's (KIP-848).
ASSIGNORS: Final = ("range", "cooperative-sticky", "kip-848")
#: Groups whose number of members follows the lag, as KEDA's scaler for Kafka and Kubernetes have it.
KEDA: Final = "keda"
#: The document's algorithm, this project's, and this project's with more room.
PACKED: Final = ("mwf", "mend", "mend-roomy")
#: So much of a member's capacity is given to it; the rest is the hysteresis.
FILL: Final = {"mwf": 5 / 6, "mend": 5 / 6, "mend-roomy": 0.65}


@dataclass(frozen=True)
class Unit:
    """One run. ``number``: of members, of Kafka's own assignments; records of lag a member, of KEDA's rule; else 0."""

    system: str
    number: int
    seed: int

    @property
    def label(self) -> str:
        """Of what is compared: the same for all seeds."""
        return f"{self.system} {self.number}" if self.number else self.system

    @property
    def is_fixed(self) -> bool:
        """Its number of members does not change, so that its time is not that of a program's start."""
        return self.system in ASSIGNORS

    @property
    def name(self) -> str:
        """Of its files."""
        return f"{self.label} s{self.seed}".replace(" ", "-")


def labels() -> list[Unit]:
    """One seed's units, in the order of a table."""
    found = [Unit(assignor, count, 0) for assignor in ASSIGNORS for count in scale.COUNTS]
    found += [Unit(KEDA, lag, 0) for lag in scale.LAGS]
    return found + [Unit(system, 0, 0) for system in PACKED]


def units(seeds: int) -> Sequence[Unit]:
    """The whole plan. Seed by seed, so that a run that is cut short has whole seeds; the packed ones first."""
    each = sorted(labels(), key=lambda unit: (unit.system not in PACKED, unit.is_fixed))
    return [Unit(unit.system, unit.number, seed) for seed in range(1, seeds + 1) for unit in each]
