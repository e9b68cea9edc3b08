"""Digest cells: run each log through this project's PySpark job, and compare the result with the simulator's own
counts.

Owns: the stored part of a digest, and the comparison. Must never: simulate a cell, or make a report.

Two programs compute latencies, losses, duplicates and reorderings of the same run: the job (``bench.spark.job``)
computes them from the log, and ``metrics`` from the record. If their results differ, one of the programs is wrong, and
nothing is stored.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from ingeborg.bench.errors import BenchError
from ingeborg.bench.experiments.experiment import Results
from ingeborg.bench.overlay.cases import Cell
from ingeborg.bench.overlay.work import ROWS, log_of
from ingeborg.bench.spark import job, logs
from ingeborg.bench.spark.session import SPARK_ERRORS, local_session

Json = dict[str, Any]

DIGESTED: Final = "digested"

MASTER, MEMORY = "local[*]", "4g"
"""Use all cores. docs/digest.md says how much memory ten million events take."""

AGREE_MS: Final = 1e-3
"""The largest permitted difference between the two figures, in milliseconds. It is not 0, because both are rounded."""

_KEPT = ("news", "expected", "delivered", "lost", "duplicated", "reordered", "excess")


def check(cells: Sequence[Cell], results: Results) -> None:
    """Digest the logs of these cells, and store the figures. Raises ``BenchError`` if Spark fails, or if the figures
    differ from the rows."""
    log = results.out / "spark.log"
    paths = [str(log_of(cell, results)) for cell in cells]
    scratch = tempfile.TemporaryDirectory(dir=results.out, prefix="digest-")
    with scratch as folder, local_session(MASTER, MEMORY, log) as spark:
        try:
            document = job.digest(spark, paths, Path(folder), fresh=True, say=lambda _: None)
        except SPARK_ERRORS as error:
            raise BenchError(f"Spark failed: {logs.reason(error)} (the rest is in {log})") from error
    by_run = {run["run"]: run for run in document["runs"]}
    for cell in cells:
        found = of_run(by_run[cell.name])
        (row,) = map(json.loads, results.path(ROWS, cell.name).read_text(encoding="utf-8").splitlines())
        differ = differences(row, found)
        if differ:
            raise BenchError(f"{cell.name}: the simulator and the digest of its log differ: {'; '.join(differ)}")
        results.keep(DIGESTED, cell.name, [found])


def discard(cells: Sequence[Cell], results: Results) -> None:
    """Delete the digested logs of these cells."""
    for cell in cells:
        shutil.rmtree(log_of(cell, results))


def of_run(run: Json) -> Json:
    """Return the stored part of a run's digest: for each phase with messages, its counts, and its latencies in ms."""
    phases = {}
    for phase in run["phases"]:
        if phase["news"]:
            latency = {name: value for name, value in phase["latency_ns"].items() if value is not None}
            phases[phase["phase"]] = {
                **{name: phase[name] for name in _KEPT},
                **{f"{name}_ms": round(value / 1e6, 6) for name, value in latency.items()},
            }
    return {"cell": run["run"], "lines": run["log"]["lines"], "phases": phases}


def differences(row: Json, found: Json) -> list[str]:
    """Return the differences between the simulator's row and the digest of its log.

    If a root delivers its own message again, the simulator counts a double, but the log has a first delivery at that
    node. So in a cell with doubles, the log can have more deliveries than the record, up to the number of doubles, and
    figures that depend on deliveries are not compared.
    """
    differ = []
    doubles = row["doubles"]
    for name, ours in row["phases"].items():
        theirs = found["phases"].get(name)
        if theirs is None:
            if ours["messages"]:
                differ.append(f"{name}: no messages in the log")
            continue
        pairs = {"messages": "news", "deliveries": "delivered"}
        for mine, other in pairs.items():
            # A double has a row in the log, but the simulator does not count it as a delivery.
            value = theirs[other] - (theirs["duplicated"] if other == "delivered" else 0)
            if not 0 <= value - ours[mine] <= (doubles if other == "delivered" else 0):
                differ.append(f"{name}: {mine} {ours[mine]}, in the log {value}")
        if not doubles and (ours["reliability"] < 1.0) != (theirs["lost"] > 0):
            differ.append(f"{name}: reliability {ours['reliability']}, but the log has {theirs['lost']} lost")
        if doubles:
            continue  # the log's latencies include doubles
        differ += [
            f"{name}: {figure} {ours[figure]}, in the log {theirs.get(figure)}"
            for figure in ("mean_ms", "p50_ms", "p99_ms", "max_ms")
            if abs(ours[figure] - theirs.get(figure, 0.0)) > AGREE_MS
        ]
    return differ
