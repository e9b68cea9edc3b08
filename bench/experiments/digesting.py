"""Digest results with Spark, and check the logs of units with this project's PySpark job.

Owns: the session, the stored part of a log's digest, and the deletion of checked logs. Must never: know what a unit
does.

Two programs compute figures of the same run. The first is the job, which reads the log as it reads any log
(``bench.spark.job``). The second is the evaluation. If their results differ, one of the programs is wrong, and nothing
is stored. A log is kept until its digest is stored. So after an interrupt, the next run checks the log, or deletes it
if only its deletion was interrupted.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import psutil
from pyspark.sql import DataFrame, SparkSession

from ingeborg.bench.errors import BenchError
from ingeborg.bench.experiments.experiment import Results
from ingeborg.bench.spark import inventory, job
from ingeborg.bench.spark.session import SPARK_ERRORS, local_session

Json = dict[str, Any]

DIGESTED: Final = "digested"
"""The kind of rows with the stored parts of digests."""

MASTER, MEMORY = "local[*]", "4g"
"""Use all cores. docs/digest.md says how much memory ten million events take, which is more than the rows take."""


@contextmanager
def session(results: Results) -> Iterator[SparkSession]:
    """Run a Spark session until the block ends. Raises ``BenchError`` if Spark fails."""
    log = results.out / "spark.log"
    with local_session(MASTER, MEMORY, log) as spark:
        try:
            yield spark
        except SPARK_ERRORS as error:
            raise BenchError(f"Spark failed: {inventory.reason(error)} (the rest is in {log})") from error


def machine() -> dict[str, str]:
    """Return what a report says about the machine."""
    return {
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "python": platform.python_version(),
    }


def read(spark: SparkSession, folder: Path, schema: str) -> DataFrame | None:
    """Return the rows of one kind, or ``None`` if its folder has none."""
    return spark.read.schema(schema).json(str(folder)) if any(folder.glob("*.jsonl")) else None


def due(found: Mapping[str, Path], results: Results) -> dict[str, Path]:
    """Return the logs whose digests are not stored yet. Each log is a folder, by the name of its unit."""
    return {name: log for name, log in found.items() if not results.path(DIGESTED, name).is_file()}


def check(
    found: Mapping[str, Path],
    results: Results,
    kind: str,
    of_run: Callable[[Json], Json],
    differences: Callable[[Json, Json], list[str]],
) -> None:
    """Digest logs, and store the figures.

    Args:
        found: the logs.
        results: the folder of the results.
        kind: the kind of rows with the evaluation's own figures of each unit.
        of_run: returns the part of a run's digest that is stored.
        differences: returns the differences between a unit's row and this part.

    Raises:
        BenchError: Spark fails, or a digest differs from its row.
    """
    if not found:
        return
    with tempfile.TemporaryDirectory(dir=results.out, prefix="digest-") as scratch, session(results) as spark:
        document = job.digest(spark, list(map(str, found.values())), Path(scratch), fresh=True, say=lambda _: None)
    by_run = {run["run"]: run for run in document["runs"]}
    for name in found:
        kept = of_run(by_run[name])
        differ = differences(json.loads(results.path(kind, name).read_bytes()), kept)
        if differ:
            raise BenchError(f"{name}: the run and the digest of its log differ: {'; '.join(differ)}")
        results.keep(DIGESTED, name, [kept])


def discard(found: Mapping[str, Path]) -> None:
    """Delete the checked logs that still exist."""
    for log in found.values():
        if log.is_dir():
            shutil.rmtree(log)
