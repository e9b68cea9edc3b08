"""The plan: the parts of the evaluation, and their units with names, order and costs.

Owns: the systems that are compared. Must never: run a unit.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ingeborg.bench.dyconits.layer.settings import NAMED, PROGRAMS, TEXT, Readings
from ingeborg.bench.dyconits.workload import EXPERIMENTS, Workload
from ingeborg.bench.experiments.experiment import Part, Selection, Unit

KAFKA: Final = "kafka"
LAYERS: Final = {f"layer-{name}": readings for name, readings in NAMED.items()}
PLAIN, ALL, LATEST = "plain", "all", "latest"
SYSTEMS: Final = (KAFKA, *LAYERS, PLAIN, ALL, LATEST)
"""The systems. The first three are plain Kafka, Kafka with the layer according to the document's text, and Kafka with
the layer according to the document's programs. The others are this broker without bounds, with bounds that deliver all
messages, and with bounds that deliver the latest message."""

NAMES: Final = {
    KAFKA: "Kafka",
    "layer-text": "layer, text",
    "layer-programs": "layer, programs",
    PLAIN: "this broker",
    ALL: "bounds, all",
    LATEST: "bounds, latest",
}
BASES: Final = {**dict.fromkeys(LAYERS, KAFKA), ALL: PLAIN, LATEST: PLAIN}
"""The system with which each system is compared."""

E4, E5, E6 = "e4", "e5", "e6"
READINGS, TEN = "readings", "ten"

PARTS: Final = (
    Part("e1", "low load and three priorities, a short run of each system"),
    Part("e2", "high load and equal priorities, a short run of each system"),
    Part("e3", "high load and three priorities, a short run of each system"),
    Part(READINGS, "the document's layer under each interpretation of its text, in virtual time"),
    Part(E4, "CPU time that an interval saves an endpoint with a fan-out of 20"),
    Part(E5, "freshness of an overloaded endpoint with a fan-out of 20"),
    Part(E6, "three endpoints, one of which is killed"),
    Part(TEN, "E1 to E3 as in the document: ten runs of two minutes of each system", is_default=False),
)

TEN_RUNS: Final = 10
READINGS_SEEDS: Final = 10
ROUNDS: Final = {E4: 2, E5: 1}
"""Number of rounds in the quick plan. With the part ``TEN``, the number is ``WHOLE_ROUNDS``."""
WHOLE_ROUNDS: Final = 5

VARIED: Final = {
    "text": TEXT,
    "text, but shifted": replace(TEXT, shifted=True),
    "text, but summed": replace(TEXT, summed=True),
    "text, but stale priority added": replace(TEXT, added=True),
    "text, but no limit when stale": replace(TEXT, limited=False),
    "text, but constant increment": replace(TEXT, growing=False),
    "text, but all low topics": replace(TEXT, all_low=True),
    "text, but quiet topics stale": replace(TEXT, quiet=True),
    "text, but bounds granted again": replace(TEXT, regranted=True),
    "programs": PROGRAMS,
}
"""The interpretations that the part ``readings`` runs, by their names in the report."""

_STOP_S: Final = 4.0
_E4_S, _E5_S, _E6_S = 72.0, 300.0, 75.0
"""Seconds that a run takes to start and stop, and seconds of a round of E4, of E5 and of E6."""


@dataclass(frozen=True)
class Cell:
    """A run of one system in one experiment. ``seed``: the seed of the messages' times. ``length_s``: the length of the
    run, in seconds."""

    experiment: str
    system: str
    seed: int
    length_s: float


@dataclass(frozen=True)
class Virtual:
    """A run in virtual time. ``readings``: the interpretation of the layer's text, or None for readers without the
    layer."""

    experiment: str
    label: str
    readings: Readings | None
    seed: int
    length_s: float


@dataclass(frozen=True)
class FanOut:
    """E4, E5 or E6. ``rounds``: the number of rounds."""

    experiment: str
    rounds: int


Work = Cell | Virtual | FanOut


def units(selection: Selection, workload: Workload) -> Sequence[Unit]:
    """Return the units of the selected parts. All runs of a seed follow each other, so that a change of the machine's
    speed affects all systems."""
    found: list[Unit] = []
    for part in (part.name for part in PARTS if part.name in selection.parts):
        if part in EXPERIMENTS:
            found += _cells(part, [part], selection.seeds, workload, workload.short_s)
        elif part == TEN:
            found += _cells(part, EXPERIMENTS, TEN_RUNS, workload, workload.length_s)
        elif part == READINGS:
            found += _virtual(workload)
        else:
            rounds = WHOLE_ROUNDS if TEN in selection.parts else ROUNDS.get(part, 1)
            cost = {E4: _E4_S * rounds, E5: _E5_S * rounds, E6: _E6_S}[part]
            found.append(Unit(f"{part}-{rounds}", part, FanOut(part, rounds), cost, is_live=True))
    return found


def _cells(part: str, experiments: Collection[str], seeds: int, workload: Workload, length_s: float) -> list[Unit]:
    found = []
    for seed in range(1, seeds + 1):
        for experiment in experiments:
            for system in SYSTEMS if seed % 2 else SYSTEMS[::-1]:
                lead_s = workload.lead_s if system in LAYERS else 0.0
                cell = Cell(experiment, system, seed, length_s)
                name = f"{experiment}-{system}-{seed}" + ("-whole" if part == TEN else "")
                found.append(Unit(name, part, cell, lead_s + length_s + _STOP_S, is_live=True))
    return found


def _virtual(workload: Workload) -> list[Unit]:
    labels: dict[str, Readings | None] = {KAFKA: None, **VARIED}
    return [
        Unit(
            f"virtual-{experiment}-{number:02}-{seed:02}",  # the report has the rows in the order of these names
            READINGS,
            Virtual(experiment, label, readings, seed, workload.length_s),
            0.6,
        )
        for experiment in EXPERIMENTS
        for number, (label, readings) in enumerate(labels.items())
        for seed in range(1, READINGS_SEEDS + 1)
    ]
