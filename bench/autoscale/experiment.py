"""`bench autoscale`: compares the document's autoscaler and ours with Kafka's own groups and KEDA's rule, on a real
Kafka.

Owns: the options of the evaluation, and the list of everything that determines its rows.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ingeborg import autoscaler
from ingeborg.bench.autoscale import cases, scale
from ingeborg.bench.errors import BenchError, ExtraMissing, UsageError
from ingeborg.bench.experiments import units
from ingeborg.bench.experiments.experiment import MEASURED, Digest, Experiment, Results, Selection, Unit
from ingeborg.bench.text.blocks import Report

NOT_IN_ROWS: Final = ("claims.py", "experiment.py", "job.py", "report.py", "view")
"""Source files and folders that cannot affect the rows, because they only read rows."""

ITERATIONS_MAX, AT_ONCE_MAX = 100, 16


@dataclass
class Autoscale(Experiment):
    """The evaluation of the autoscaler. Its attributes are the options of the part ``groups``."""

    name = "autoscale"
    help = "compare the autoscaler of consumer groups with Kafka's own groups, on a real Kafka"
    description = (
        "Run the experiments of the document (arXiv 2402.06085, section VI) with real programs, on a Kafka that this "
        f"command starts. Times of the parts groups and long are scaled 1:{scale.TIME:g}."
    )
    word = "runs"
    parts = cases.PARTS
    seeds = scale.SEEDS
    only_live = True
    iterations: int = scale.ITERATIONS
    delta: float = scale.DELTA
    at_once: int = 1

    def add(self, command: argparse.ArgumentParser) -> None:
        """See ``Experiment``."""
        command.add_argument(
            "--iterations",
            type=int,
            default=scale.ITERATIONS,
            metavar="N",
            help=f"groups: number of measurements in a stream, {scale.ITERATION_S:g} s each (default: %(default)s)",
        )
        command.add_argument(
            "--delta",
            type=float,
            default=scale.DELTA,
            metavar="PERCENT",
            help="groups: greatest change of a partition's load between measurements, %% of C (default: %(default)g)",
        )
        command.add_argument(
            "--at-once",
            type=int,
            default=1,
            metavar="N",
            help="number of concurrent runs of groups with a fixed number of members, if one run does not keep the "
            "machine busy (default: %(default)s)",
        )

    def settle(self, options: argparse.Namespace, parts: Collection[str]) -> None:
        """See ``Experiment``."""
        if not 1 <= options.iterations <= ITERATIONS_MAX:
            raise UsageError(f"--iterations has to be from 1 to {ITERATIONS_MAX}: a run takes at most five minutes")
        if not 0.0 <= options.delta <= 100.0:
            raise UsageError("--delta has to be from 0 to 100")
        if not 1 <= options.at_once <= AT_ONCE_MAX:
            raise UsageError(f"--at-once has to be from 1 to {AT_ONCE_MAX}")
        self.iterations, self.delta, self.at_once = options.iterations, options.delta, options.at_once
        try:
            from ingeborg.bench.autoscale import running  # noqa: F401
            from ingeborg.bench.rivals import kafka_jars
        except ImportError as error:
            raise ExtraMissing(
                f"{error}: pip install 'ingeborg[server,autoscale,bench,rivals]', or prepare the repository: make setup"
            ) from error
        kafka_jars.java_home()

    def plan(self, selection: Selection) -> Sequence[Unit]:
        """See ``Experiment``."""
        return cases.units(selection.parts, selection.seeds, self.iterations, self.delta)

    def identity(self) -> Mapping[str, Any]:
        """See ``Experiment``."""
        sources = units.fingerprint((Path(autoscaler.__path__[0]), Path(__file__).parent), NOT_IN_ROWS)
        return {"iterations": self.iterations, "delta": self.delta, "sources": sources}

    def run(self, unit: Unit, results: Results) -> None:
        """Run one unit on a separate Kafka."""
        errors: list[str] = []
        self.live([unit], results, lambda _, error: errors.append(error))
        if errors != [""]:
            raise BenchError(errors[0])

    def live(self, due: Sequence[Unit], results: Results, done: Callable[[Unit, str], None]) -> None:
        """Run all units on one Kafka."""
        from ingeborg.bench.autoscale import running

        running.run(due, results, done, self.at_once)

    def digest(self, results: Results) -> Digest:
        """See ``Experiment``."""
        from ingeborg.bench.autoscale import job
        from ingeborg.bench.experiments import digesting

        plan = {"time_scale": scale.TIME, "iterations": self.iterations, "delta": self.delta}
        with digesting.session(results) as spark:
            return Digest(plan, job.figures(spark, results.out))

    def report(self, digest: Digest) -> Report:
        """See ``Experiment``."""
        from ingeborg.bench.autoscale import report

        if not digest.measured:
            raise BenchError(f"the folder has no {MEASURED}, which has all figures of bench autoscale: run it again")
        return report.report(digest.pure, digest.measured)
