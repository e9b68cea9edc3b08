"""Our figures of E1 to E3, by experiment and system.

Owns: the choice of runs that count, and the comparison of two systems. Must never: judge.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, Final, NamedTuple

from ingeborg.bench.dyconits.cases import BASES, SYSTEMS, TEN
from ingeborg.bench.dyconits.layer.settings import TOPICS
from ingeborg.bench.dyconits.workload import EXPERIMENTS
from ingeborg.bench.experiments.figures import interval

Json = Mapping[str, Any]

ERRORS: Final = ("numerical", "numerical_max", "staleness_s", "staleness_max_s")

TIMES: Final = 10.0
"""From this relative change on, a text shows a factor instead of per cent."""


class Mean(NamedTuple):
    """A mean. ``half`` is half the width of the 95 % confidence interval, or 0 for a single run."""

    mean: float
    half: float


class Found:
    """The rows of all readers. If the part ``ten`` has run, only its runs count for an experiment."""

    def __init__(self, measured: Json) -> None:
        self._cells: dict[tuple[str, str], list[Json]] = {}
        cells = measured["cells"]
        whole = {cell["experiment"] for cell in cells if cell["part"] == TEN}
        for cell in cells:
            if cell["part"] == TEN or cell["experiment"] not in whole:
                self._cells.setdefault((cell["experiment"], cell["system"]), []).append(cell)

    def cells(self, experiment: str, system: str) -> Sequence[Json]:
        """Return the rows of all readers, which may be none."""
        return self._cells.get((experiment, system), [])

    def systems(self, experiment: str) -> list[str]:
        """Return the systems that have run."""
        return [system for system in SYSTEMS if self.cells(experiment, system)]

    def experiments(self) -> list[str]:
        """Return the experiments that have run."""
        return [experiment for experiment in EXPERIMENTS if self.systems(experiment)]

    def values(self, experiment: str, system: str, figure: str, topic: str = "") -> list[float]:
        """Return a figure of every reader."""
        return [value(cell, figure, topic) for cell in self.cells(experiment, system)]

    def by_seed(self, experiment: str, system: str, figure: str, topic: str = "") -> dict[int, float]:
        """Return a figure of every run, by seed. It is the mean over the run's readers."""
        found: dict[int, list[float]] = {}
        for cell in self.cells(experiment, system):
            found.setdefault(cell["seed"], []).append(value(cell, figure, topic))
        return {seed: fmean(values) for seed, values in sorted(found.items())}

    def mean(self, experiment: str, system: str, figure: str, topic: str = "") -> Mean | None:
        """Return a figure over all runs, or None if there are none."""
        values = [*self.by_seed(experiment, system, figure, topic).values()]
        return Mean(*interval(values)) if values else None

    def change(self, experiment: str, system: str, figure: str, topic: str = "") -> Mean | None:
        """Return the relative difference of a figure from the figure of the system's base. Runs with the same seed are
        compared.

        Returns:
            The mean over the runs, or None if no run has a counterpart, or if the figure is 0 in the base.
        """
        base = self.by_seed(experiment, BASES[system], figure, topic)
        own = self.by_seed(experiment, system, figure, topic)
        changes = [own[seed] / base[seed] - 1 for seed in own if base.get(seed)]
        return Mean(*interval(changes)) if changes else None

    def difference(self, experiment: str, system: str, figure: str, topic: str = "") -> Mean | None:
        """Return the difference of a figure from the system's base, or None. Runs with the same seed are compared."""
        base = self.by_seed(experiment, BASES[system], figure, topic)
        own = self.by_seed(experiment, system, figure, topic)
        differences = [own[seed] - base[seed] for seed in own if seed in base]
        return Mean(*interval(differences)) if differences else None


def value(cell: Json, figure: str, topic: str = "") -> float:
    """Return a figure of one reader: of one topic, or of all topics together."""
    if topic:
        return float(cell["topics"][topic][figure])
    if figure in cell:
        return float(cell[figure])
    return float(sum(cell["topics"][each][figure] for each in TOPICS))


def percent(change: Mean | None) -> str:
    """Return a change as a text, such as ``-51 %``, ``+17 ± 3 %`` or ``640 times``."""
    if change is None:
        return "no change from 0"
    if change.mean >= TIMES:
        return f"{change.mean + 1:,.0f} times"
    digits = 1 if abs(change.mean) < 0.1 else 0
    half = f" ± {100 * change.half:,.{digits}f}" if change.half else ""
    return f"{100 * change.mean:+,.{digits}f}{half} %"


def amount(figure: str, mean: Mean | None) -> str:
    """Return a figure as a text with its unit."""
    if mean is None:
        return "–"
    digits, unit = _FORMS.get(figure, (0, ""))
    if figure.startswith(("staleness", "endpoint_staleness")) and mean.mean < 1:
        digits, unit, mean = 0, " ms", Mean(mean.mean * 1e3, mean.half * 1e3)
    half = f" ± {mean.half:,.{digits}f}" if mean.half else ""
    return f"{mean.mean:,.{digits}f}{half}{unit}"


_FORMS: Final[dict[str, tuple[int, str]]] = {
    "staleness_s": (1, " s"),
    "staleness_max_s": (1, " s"),
    "cpu": (1, " %"),
    "cpu_peak": (1, " %"),
    "server_cpu": (1, " %"),
    "taken_per_s": (0, "/s"),
    "skipped_per_s": (0, "/s"),
    "cpu_us_per_taken": (0, " µs"),
}
