"""`bench caching`: repeats the document's evaluation of its caching strategies, and evaluates this project's strategy.

Owns: the options of the evaluation, and the list of everything that determines its rows. Must never: run a unit.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import platform
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ingeborg import form
from ingeborg.bench import rivals
from ingeborg.bench.caching import cases, simulator, work
from ingeborg.bench.caching import log as logs
from ingeborg.bench.caching.live import cases as live_cases
from ingeborg.bench.errors import BenchError, UsageError
from ingeborg.bench.experiments import units
from ingeborg.bench.experiments.experiment import Digest, Experiment, Results, Selection, Unit
from ingeborg.bench.rivals import kafka_jars
from ingeborg.bench.text.blocks import Report
from ingeborg.broker.core import caches

NOT_IN_ROWS: Final = (
    *("claims.py", "conclusions.py", "experiment.py", "found.py", "goals.py", "job.py", "judging.py", "plots.py"),
    *("report.py", "simulator.py", "simulator_program.py", "timings.py"),
)
"""Source files that cannot affect the rows, because they only read rows."""

KAFKA: Final = "kafka"


@dataclass
class Caching(Experiment):
    """The evaluation of caching strategies. ``log``: a now-playing log. ``via``: whether to start a Kafka. ``riak``:
    the nodes of a Riak. ``python``: an interpreter with libcachesim. ``note``: the user's note on the measurements."""

    name = "caching"
    help = "compare strategies for keeping records in memory"
    description = (
        "Run every caching strategy of the document (Effect of Caching in a Content-Based Pub/Sub System using Kafka), "
        "other strategies, and ours. Run them over streams of records and reads, and then in a broker on real "
        "processes. The default parts take about 20 minutes on two cores."
    )
    parts = cases.PARTS
    seeds = cases.SEEDS
    log: Path | None = None
    via: str | None = None
    riak: str = ""
    python: str | None = None
    note: str = ""

    def add(self, command: argparse.ArgumentParser) -> None:
        """See ``Experiment``."""
        command.add_argument(
            "--log",
            type=Path,
            metavar="FILE",
            help="a now-playing log; without it, the parts requests, reads and subscribers have no streams of plays",
        )
        command.add_argument(
            "--via", choices=(KAFKA,), help=f"start a real Kafka, which the part {cases.LIVE_KAFKA} needs"
        )
        command.add_argument(
            "--store", metavar="riak:HOST:PORT,…", help=f"the Riak that the part {cases.LIVE_RIAK} needs"
        )
        command.add_argument(
            "--libcachesim",
            metavar="PYTHON",
            help=f"the interpreter with libcachesim that the part {cases.LIBCACHESIM} needs (make simulator prepares "
            "one)",
        )
        command.add_argument(
            "--note",
            default="",
            metavar="TEXT",
            help="a note on the measurements for the report, such as whose Riak it was, and what else ran",
        )

    def settle(self, options: argparse.Namespace, parts: Collection[str]) -> None:
        """See ``Experiment``."""
        kind, _, self.riak = (options.store or "riak:").partition(":")
        if kind != "riak" or (options.store and not self.riak):
            raise UsageError("--store must be riak:HOST:PORT,HOST:PORT…")
        self.log, self.via, self.python, self.note = options.log, options.via, options.libcachesim, options.note
        needs = {
            cases.LIBCACHESIM: ("--libcachesim PYTHON", self.python),
            cases.LIVE_KAFKA: (f"--via {KAFKA}", self.via),
            cases.LIVE_RIAK: ("--store riak:HOST:PORT", self.riak),
        }
        for part, (option, value) in needs.items():
            if part in parts and not value:
                raise UsageError(f"the part {part} needs {option}")
            if value and part not in parts:
                raise UsageError(f"{option.partition(' ')[0]} is for the part {part}: add this part with --only")
        if self.log is not None:
            logs.read(self.log)
        if self.python:
            simulator.check(self.python)
        if self.via:
            kafka_jars.ensure(kafka_jars.CACHE, kafka_jars.java_home())
        if self.riak:
            from ingeborg.bench.caching.live.riak import reach  # imported only if needed: it brings Protocol Buffers

            asyncio.run(reach(self.riak))

    def plan(self, selection: Selection) -> Sequence[Unit]:
        """See ``Experiment``."""
        streams = cases.units(selection.seeds, selection.parts, log=self.log is not None)
        return [*streams, *live_cases.units(selection.seeds, selection.parts)]

    def identity(self) -> Mapping[str, Any]:
        """See ``Experiment``."""
        sources = units.fingerprint((Path(caches.__path__[0]), Path(__file__).parent), NOT_IN_ROWS)
        log = None if self.log is None else hashlib.blake2b(self.log.read_bytes(), digest_size=8).hexdigest()
        return {"sources": sources, "log": log}

    def run(self, unit: Unit, results: Results) -> None:
        """See ``Experiment``."""
        work.run(unit, results, self.log, self.python)

    def live(self, due: Sequence[Unit], results: Results, done: Callable[[Unit, str], None]) -> None:
        """See ``Experiment``."""
        from ingeborg.bench.caching.live import work as live_work
        from ingeborg.bench.caching.live.log import machine
        from ingeborg.bench.caching.live.run import Places

        facts = machine() | {"python": platform.python_version(), "form": form.name(), "note": self.note}
        for part in {unit.part for unit in due}:
            results.keep(live_work.FACTS, part, [facts])
        with ExitStack() as stack:
            kafka = ""
            if any(unit.part == cases.LIVE_KAFKA for unit in due):
                server = stack.enter_context(rivals.running(KAFKA, state=results.out / KAFKA))
                kafka = server.url.partition("://")[2]
            for unit in due:
                try:
                    live_work.run(unit.work, results, Places(kafka, self.riak))
                except BenchError as error:
                    done(unit, str(error))
                else:
                    done(unit, "")

    def after(self, batch: Sequence[Unit], results: Results) -> None:
        """See ``Experiment``."""
        from ingeborg.bench.caching.live import job

        job.digest([unit.work for unit in batch if unit.is_live], results)

    def digest(self, results: Results) -> Digest:
        """See ``Experiment``."""
        from ingeborg.bench.caching import job
        from ingeborg.bench.experiments import digesting

        with digesting.session(results) as spark:
            return job.figures(spark, results)

    def report(self, digest: Digest) -> Report:
        """See ``Experiment``."""
        from ingeborg.bench.caching import report

        return report.report(digest)
