"""The plan. It lists the groups of the comparison and their streams, and the experiments with a single program.

Owns: the parts of the plan, and their units with their names, order and costs. Must never: run a unit.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, NamedTuple

from ingeborg.bench.autoscale import scale
from ingeborg.bench.experiments.experiment import Part, Unit

#: Kafka's own ways to assign partitions: two assignors of clients, and the server's (KIP-848).
ASSIGNORS: Final = ("range", "cooperative-sticky", "kip-848")
#: Groups whose number of members follows the lag, as with KEDA's scaler for Kafka on Kubernetes.
KEDA: Final = "keda"
#: The document's algorithm, this project's algorithm, and this project's algorithm with more room.
PACKED: Final = ("mwf", "mend", "mend-roomy")
#: Share of a member's capacity that the algorithm fills. The rest is the hysteresis.
FILL: Final = {"mwf": 5 / 6, "mend": 5 / 6, "mend-roomy": 0.65}

THROUGHPUT, RESPONSE, GROUPS, LONG = "throughput", "response", "groups", "long"

PARTS: Final = (
    Part(THROUGHPUT, "how fast one member reads under the three conditions of table VI, figure 13"),
    Part(RESPONSE, "how long each step of a change takes, figures 14 to 17"),
    Part(GROUPS, "late data and numbers of members, for packed groups, Kafka's own groups and KEDA's rule"),
    Part(
        LONG,
        "the part groups with 100 and 500 decisions in a stream, and the part response with 500, as in the document",
        is_default=False,
    ),
)

#: Repetitions of each condition of table VI.
REPEATS: Final = 3
#: The changes of the part ``response``, in per cent of C, and the duration of each of its two runs in seconds.
DELTAS: Final = (5.0, 25.0)
CHANGES_S: Final = 240.0

#: Settings of the part ``long``: the number of streams, by the number of decisions in a stream (sections VI-C and
#: VI-B).
LONG_SEEDS: Final = {100: 3, 500: 1}
#: Number of decisions in the long runs of changes (section VI-F uses the streams of section VI-B).
LONG_CHANGES: Final = 500

#: Seconds that a run takes in addition to its stream: until its group is warm (by kind of group), and until its
#: programs have ended.
_WARM_S: Final = {"fixed": 10.0, "packed": 65.0, KEDA: 120.0}
_END_S: Final = 15.0
#: Four durations of the other experiments, in seconds. The first is the length of a run in which one member reads as
#: fast as it can. The second is the time between two measurements in a long run of changes. The third is the time until
#: a run of changes has its backlog. The fourth is the length of a run in which the load changes in steps.
_READING_S: Final = 20.0
_CHANGE_S: Final = 2.0
_FILL_S: Final = 40.0
_STEPS_S: Final = 210.0


class Condition(NamedTuple):
    """A row of table VI. ``total_bytes`` is the size of all partitions together. Each table of the document is a topic
    here."""

    number: int
    total_bytes: int
    partitions: int
    tables: int


CONDITIONS: Final = (
    Condition(1, 648_000_000, 32, 1),
    Condition(2, 100_000_000, 116, 5),
    Condition(3, 678_000_000, 144, 5),
)


@dataclass(frozen=True)
class GroupRun:
    """A group reads a stream of ``iterations`` measurements. Between two measurements, a partition's load changes by at
    most ``delta`` per cent of C. ``number`` is the number of members for Kafka's own assignments, the permitted number
    of unread records per member for KEDA's rule, and 0 for the packed groups."""

    system: str
    number: int
    seed: int
    iterations: int = scale.ITERATIONS
    delta: float = scale.DELTA
    part: str = GROUPS

    @property
    def label(self) -> str:
        """Return the name in comparisons, which is the same for all seeds."""
        return f"{self.system} {self.number}" if self.number else self.system

    @property
    def name(self) -> str:
        """Return the name of the unit's files."""
        length = f" n{self.iterations}" if self.part == LONG else ""
        return f"{self.label}{length} s{self.seed}".replace(" ", "-")

    @property
    def cost(self) -> float:
        """Return roughly how many seconds the run takes."""
        kind = "fixed" if may_share(self) else KEDA if self.system == KEDA else "packed"
        return _WARM_S[kind] + self.iterations * scale.ITERATION_S + _END_S


@dataclass(frozen=True)
class Reading:
    """One member reads full topics as fast as it can."""

    condition: Condition
    repeat: int
    cost: float = _READING_S

    @property
    def name(self) -> str:
        """Return the name of the unit's files."""
        return f"throughput-{self.condition.number}-{self.repeat}"


@dataclass(frozen=True)
class Changes:
    """A controller gets prepared measurements instead of those of a monitor. The run lasts ``CHANGES_S`` seconds, or
    ``count`` measurements."""

    delta: float
    count: int | None = None

    @property
    def name(self) -> str:
        """Return the name of the unit's files."""
        return f"changes-{self.delta:g}" + (f"-n{self.count}" if self.count else "")

    @property
    def cost(self) -> float:
        """Return roughly how many seconds the run takes."""
        return _FILL_S + (self.count * _CHANGE_S if self.count else CHANGES_S)


@dataclass(frozen=True)
class Steps:
    """A monitor measures a load that changes in steps."""

    cost: float = _STEPS_S
    name: str = "steps"


Work = GroupRun | Reading | Changes | Steps
"""The work of a unit. Each work has a unique ``name``, and a ``cost`` in seconds."""


def may_share(work: Work) -> bool:
    """Return whether other work may run at the same time. Other work may run if the number of members is constant,
    because then the result does not depend on the time that a program takes to start."""
    return isinstance(work, GroupRun) and work.system in ASSIGNORS


def labels() -> list[GroupRun]:
    """Return one seed's runs, in the order of a table."""
    found = [GroupRun(assignor, count, 0) for assignor in ASSIGNORS for count in scale.COUNTS]
    found += [GroupRun(KEDA, lag, 0) for lag in scale.LAGS]
    return found + [GroupRun(system, 0, 0) for system in PACKED]


def group_runs(
    seeds: int, iterations: int = scale.ITERATIONS, delta: float = scale.DELTA, part: str = GROUPS
) -> list[GroupRun]:
    """Return the runs of all groups, seed by seed, so that an interrupted evaluation has complete seeds. For each seed,
    the packed groups come first."""
    each = sorted(labels(), key=lambda run: (run.system not in PACKED, may_share(run)))
    return [
        GroupRun(run.system, run.number, seed, iterations, delta, part) for seed in range(1, seeds + 1) for run in each
    ]


def units(parts: Collection[str], seeds: int, iterations: int, delta: float) -> list[Unit]:
    """Return the units of the parts. ``seeds``, ``iterations`` and ``delta`` are those of the part ``groups``."""
    works: dict[str, list[Work]] = {
        THROUGHPUT: [Reading(one, repeat) for repeat in range(1, REPEATS + 1) for one in CONDITIONS],
        RESPONSE: [*(Changes(each) for each in DELTAS), Steps()],
        GROUPS: [*group_runs(seeds, iterations, delta)],
        LONG: [Changes(each, LONG_CHANGES) for each in DELTAS],
    }
    for count, streams in LONG_SEEDS.items():
        works[LONG] += group_runs(streams, count, scale.DELTA, LONG)
    chosen = [(part, work) for part in works if part in parts for work in works[part]]
    return [Unit(work.name, part, work, work.cost, is_live=True) for part, work in chosen]
