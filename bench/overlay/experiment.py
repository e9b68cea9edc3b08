"""`bench overlay`: runs the document's protocols and ours among thousands of simulated nodes.

Owns: the options of the evaluation, the list of everything that determines its rows, and the number of logs that exist
at the same time.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ingeborg.bench.errors import ExtraMissing, UsageError
from ingeborg.bench.experiments import units
from ingeborg.bench.experiments.experiment import Digest, Experiment, Results, Selection, Unit
from ingeborg.bench.overlay import cases, job, work
from ingeborg.bench.text.blocks import Report
from ingeborg.broker.core import overlay

AT_ONCE: Final = 15_000_000
"""Maximum number of deliveries in the logs that exist at the same time. These logs belong to one or more cells. Each
delivery takes about 70 bytes, and the digest of this number of deliveries fits into Spark's memory."""

NOT_IN_ROWS: Final = (
    *("cells.py", "claims.py", "drawing.py", "experiment.py", "job.py", "judges.py", "printed.py", "report.py"),
    "sentences.py",
)
"""Source files that cannot affect a row, because they only read rows."""


@dataclass
class Overlay(Experiment):
    """The evaluation of broadcast over trees. ``nodes``: the number of nodes in all worlds, or ``None`` if each part
    has its own. ``keep_logs``: whether checked logs stay."""

    name = "overlay"
    help = "simulate broadcast over trees and floods among thousands of nodes"
    description = (
        "Run the evaluation of a thesis (CPTCast, Plumtree, PRC-broadcast) and of grove in a simulated network of two "
        "sites. Spark checks the log of each cell against the simulator's counts."
    )
    word = "cells"
    parts = cases.PARTS
    seeds = cases.SEEDS
    fresh = True
    nodes: int | None = None
    keep_logs: bool = False

    def add(self, command: argparse.ArgumentParser) -> None:
        """See ``Experiment``."""
        command.add_argument(
            "--nodes",
            type=int,
            metavar="N",
            help="number of nodes in all worlds (default: both 10,000 and 1,000, and 1,000 in worlds with faults)",
        )
        command.add_argument(
            "--keep-logs",
            action="store_true",
            help="keep the checked logs, about 70 MB for a cell of 10,000 nodes (with --resume, too)",
        )

    def settle(self, options: argparse.Namespace, parts: Collection[str]) -> None:
        """See ``Experiment``."""
        self.nodes, self.keep_logs = options.nodes, options.keep_logs
        if self.nodes is not None and not cases.NODES_MIN <= self.nodes <= cases.NODES_MAX:
            raise UsageError(f"--nodes must be from {cases.NODES_MIN} to {cases.NODES_MAX}")
        if not options.plan:
            try:
                from ingeborg.bench.spark import session
            except ModuleNotFoundError as error:
                raise ExtraMissing(f"PySpark is not installed ({error}): pip install 'ingeborg[bench]'") from error
            session.require_java(dict(os.environ))

    def plan(self, selection: Selection) -> Sequence[Unit]:
        """See ``Experiment``."""
        return cases.units(selection.parts, selection.seeds, self.nodes)

    def identity(self) -> Mapping[str, Any]:
        """See ``Experiment``. The names of units contain the number of nodes and the seed."""
        return {"sources": units.fingerprint((Path(overlay.__path__[0]), Path(__file__).parent), NOT_IN_ROWS)}

    def run(self, unit: Unit, results: Results) -> None:
        """See ``Experiment``."""
        work.run(unit.work, results)

    def batches(self, plan: Sequence[Unit]) -> Iterator[Sequence[Unit]]:
        """See ``Experiment``. A batch has at most ``AT_ONCE`` deliveries, or one unit."""
        batch: list[Unit] = []
        for unit in plan:
            if batch and sum(each.work.deliveries for each in (*batch, unit)) > AT_ONCE:
                yield batch
                batch = []
            batch.append(unit)
        yield batch

    def after(self, batch: Sequence[Unit], results: Results) -> None:
        """Check the logs of the finished units, and delete them."""
        from ingeborg.bench.experiments import digesting

        logs = {unit.name: work.log_of(unit.work, results) for unit in batch}
        due = digesting.due(logs, results)
        if due:
            clear = "\r\x1b[K" if sys.stdout.isatty() else ""
            print(f"{clear}  checking the logs of {len(due)} cells …", flush=True)
            digesting.check(due, results, work.ROWS, job.of_run, job.differences)
        if not self.keep_logs:
            digesting.discard(logs)

    def digest(self, results: Results) -> Digest:
        """See ``Experiment``."""
        from ingeborg.bench.experiments.digesting import DIGESTED
        from ingeborg.bench.overlay import drawing

        found = {row["cell"]: row["phases"] for row in results.rows(DIGESTED)}
        rows = [{**row, "digest": found[row["cell"]]} for row in results.rows(work.ROWS) if row["cell"] in found]
        times = list(results.rows(work.TIMES))
        totals = {name: sum(row[name] for row in times) for name in ("events", "cpu_seconds")}
        return Digest({"cells": rows, "drawing": drawing.drawing()}, totals)

    def report(self, digest: Digest) -> Report:
        """See ``Experiment``."""
        from ingeborg.bench.overlay import report

        return report.report(digest)
