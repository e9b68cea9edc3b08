"""`bench packing`: repeats the document's evaluation of its algorithms, and evaluates ours.

Owns: the options and parts of the evaluation, and the list of everything that determines its rows.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ingeborg.autoscaler import groups
from ingeborg.bench.experiments import units
from ingeborg.bench.experiments.experiment import Digest, Experiment, Results, Selection, Unit
from ingeborg.bench.packing import cases, optimum, work
from ingeborg.bench.text.blocks import Report

NOT_IN_ROWS: Final = (
    *("claims.py", "experiment.py", "found.py", "front.py", "job.py", "late_claims.py", "published.py", "report.py"),
)
"""Source files that cannot affect the rows, because they only read rows."""


@dataclass
class Packing(Experiment):
    """The evaluation of the packing algorithms. ``solver``: an interpreter with OR-tools."""

    name = "packing"
    help = "evaluate the algorithms that pack consumer groups"
    description = (
        "Evaluate every packing algorithm over streams of measurements, as the document (arXiv 2402.06085) does."
    )
    word = "streams"
    parts = cases.PARTS
    seeds = cases.SEEDS
    solver: str | None = None

    def add(self, command: argparse.ArgumentParser) -> None:
        """See ``Experiment``."""
        command.add_argument(
            "--optimum",
            metavar="PYTHON",
            help="the interpreter with OR-tools that the part `optimum` needs (make optimum prepares one)",
        )

    def settle(self, options: argparse.Namespace, parts: Collection[str]) -> None:
        """See ``Experiment``."""
        self.solver = options.optimum
        if cases.OPTIMUM in parts:
            optimum.check(self.solver)

    def plan(self, selection: Selection) -> Sequence[Unit]:
        """See ``Experiment``."""
        return cases.units(selection.seeds, selection.parts)

    def identity(self) -> Mapping[str, Any]:
        """See ``Experiment``."""
        return {"sources": units.fingerprint((Path(groups.__path__[0]), Path(__file__).parent), NOT_IN_ROWS)}

    def run(self, unit: Unit, results: Results) -> None:
        """See ``Experiment``."""
        work.run(unit, results, self.solver)

    def digest(self, results: Results) -> Digest:
        """See ``Experiment``."""
        from ingeborg.bench.experiments import digesting
        from ingeborg.bench.packing import job

        with digesting.session(results) as spark:
            return job.figures(spark, results.out)

    def report(self, digest: Digest) -> Report:
        """See ``Experiment``."""
        from ingeborg.bench.packing import report

        return report.report(digest)
