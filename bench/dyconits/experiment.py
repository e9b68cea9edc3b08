"""`bench dyconits`: repeats the experiments of document 000 on a real Kafka with the document's layer, and compares the
results with the bounds of this broker.

Owns: the options of the evaluation, and the list of everything that determines its rows.
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ingeborg.bench.dyconits import cases, errors, model, workload
from ingeborg.bench.dyconits.cases import Cell, FanOut, Virtual
from ingeborg.bench.dyconits.layer.settings import TOPICS
from ingeborg.bench.errors import BenchError, ExtraMissing
from ingeborg.bench.experiments import units
from ingeborg.bench.experiments.experiment import MEASURED, Digest, Experiment, Results, Selection, Unit
from ingeborg.bench.text.blocks import Report

NOT_IN_ROWS: Final = ("claims.py", "experiment.py", "found.py", "job.py", "published.py", "report.py")
"""Source files that cannot affect the rows, because they only read rows."""

VIRTUAL, FAN_OUT = "virtual", "fan-out"
"""Names of folders with rows."""


@dataclass
class Dyconits(Experiment):
    """The evaluation of bounded inconsistency. ``path``: the workload file."""

    name = "dyconits"
    help = "compare bounded inconsistency on a real Kafka with the bounds of this broker"
    description = (
        "Run the experiments of the document (Karsai, A Dyconit Middleware for Publish-Subscribe Systems, 2024) with "
        "real processes: Kafka, Kafka with the document's layer, and this broker without and with bounds. This command "
        "starts all servers."
    )
    word = "runs"
    parts = cases.PARTS
    seeds = 1
    path: Path = field(default=workload.DEFAULT)
    load: workload.Workload = field(default_factory=lambda: workload.load(workload.DEFAULT))

    def add(self, command: argparse.ArgumentParser) -> None:
        """See ``Experiment``."""
        command.add_argument(
            "--workload",
            type=Path,
            default=workload.DEFAULT,
            metavar="FILE",
            help="the settings of all experiments (default: bench/workloads/dyconits.toml)",
        )

    def settle(self, options: argparse.Namespace, parts: Collection[str]) -> None:
        """See ``Experiment``."""
        self.path = options.workload
        self.load = workload.load(self.path)
        if set(parts) & {*workload.EXPERIMENTS, cases.TEN}:
            try:
                from ingeborg.bench.dyconits import running  # noqa: F401
                from ingeborg.bench.rivals import kafka_jars
            except ImportError as error:
                raise ExtraMissing(f"{error}: pip install 'ingeborg[server,bench,rivals]', or make setup") from error
            kafka_jars.java_home()

    def plan(self, selection: Selection) -> Sequence[Unit]:
        """See ``Experiment``."""
        return cases.units(selection, self.load)

    def identity(self) -> Mapping[str, Any]:
        """See ``Experiment``."""
        settings = hashlib.blake2b(self.path.read_bytes(), digest_size=8).hexdigest()
        return {"workload": settings, "sources": units.fingerprint((Path(__file__).parent,), NOT_IN_ROWS)}

    def run(self, unit: Unit, results: Results) -> None:
        """Run a unit of the part ``readings``."""
        work: Virtual = unit.work
        found = model.run(self.load, work.experiment, work.readings, work.seed, work.length_s)
        for reader in sorted({sample.reader for sample in found.samples}):
            mean, peak = errors.usage([used for used in found.used if used.reader == reader])
            taken = sum(sample.taken for sample in found.samples[-len(TOPICS) * self.load.readers.count :]) / (
                self.load.readers.count
            )
            row = {
                "experiment": work.experiment,
                "label": work.label,
                "seed": work.seed,
                "reader": reader,
                "cpu": mean,
                "cpu_peak": peak,
                "taken_per_s": taken / work.length_s,
            }
            for topic in TOPICS:
                samples = [each for each in found.samples if (each.reader, each.topic) == (reader, topic)]
                row[topic] = errors.errors(found.produced[topic], samples)._asdict()
            results.keep(VIRTUAL, f"{unit.name}-{reader}", [row])

    def live(self, due: Sequence[Unit], results: Results, done: Callable[[Unit, str], None]) -> None:
        """Run the cells, then E4 to E6."""
        from ingeborg.bench.dyconits import fan_out, running

        running.run([unit for unit in due if isinstance(unit.work, Cell)], results, self.load, done)
        for unit in due:
            if isinstance(unit.work, FanOut):
                try:
                    found = fan_out.run(unit.work, results.out / f"{unit.name}.log")
                except (BenchError, OSError) as error:
                    done(unit, str(error) or type(error).__name__)
                else:
                    results.keep(FAN_OUT, unit.name, found)
                    done(unit, "")

    def digest(self, results: Results) -> Digest:
        """See ``Experiment``."""
        from ingeborg.bench.dyconits import job

        pure, measured = job.digest(results)
        bounds = {name: workload.overhead(self.load, name) for name in workload.EXPERIMENTS}
        return Digest({**pure, "overhead": bounds}, measured)

    def report(self, digest: Digest) -> Report:
        """See ``Experiment``."""
        from ingeborg.bench.dyconits import report

        if not digest.measured:
            raise BenchError(f"the folder has no {MEASURED}: run bench dyconits again")
        return report.report(digest.pure, digest.measured)
