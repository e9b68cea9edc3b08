"""Digest units: run each log through this project's PySpark job, and compare the result with the run's own counts.

Owns: the stored part of a digest, and the comparison. Must never: run a unit.

Two programs compute the deliveries, their mean latency, and the growth of the broker's counters. One is the job, which
reads the log as it reads any log (``bench.spark.job``), and the other is ``run``. If their results differ, one program
is wrong, and nothing is stored.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import orjson

from ingeborg.bench.caching.live.cases import Case
from ingeborg.bench.caching.live.log import RUN
from ingeborg.bench.caching.live.work import DIGESTED, LIVE, LOGS
from ingeborg.bench.errors import BenchError
from ingeborg.bench.experiments.experiment import Results
from ingeborg.bench.spark import job
from ingeborg.bench.spark.session import local_session

Json = dict[str, Any]

MASTER, MEMORY = "local[*]", "4g"
"""Spark's options: all cores, and the memory for ten million events (docs/digest.md). The whole plan has half as many
events."""

AGREE_MS: Final = 1e-3
"""Largest permitted difference of the two means, in milliseconds. The digest's mean is a double."""

_NONE: Final = ("lost", "duplicated", "reordered", "excess", "errors")
_COUNTED: Final = ("reads", "hits", "admitted", "admitted_utility", "records_utility")


def digest(units: Sequence[Case], results: Results) -> None:
    """Digest the logs of these units that have not been digested, store their figures, and delete the logs. Raises
    ``BenchError`` if the figures differ from the rows."""
    due = {unit.name: log for unit in units if (log := results.path(LOGS, unit.name, "")).is_dir()}
    if not due:
        return
    with (
        tempfile.TemporaryDirectory(dir=results.out, prefix="digest-") as scratch,
        local_session(MASTER, MEMORY, results.out / "spark.log") as spark,
    ):
        document = job.digest(spark, list(map(str, due.values())), Path(scratch), fresh=True, say=lambda _: None)
    for run in document["runs"]:
        name, found = run["run"], of_run(run)
        row = orjson.loads(results.path(LIVE, name).read_bytes())
        if differ := differences(row, found):
            raise BenchError(f"{name}: the run and the digest of its log differ: {'; '.join(differ)}")
        results.keep(DIGESTED, name, [found])
        shutil.rmtree(due[name])


def of_run(run: Json) -> Json:
    """Return the stored part of a run's digest: latencies and lags in ms, counts, and the growth of counters."""
    [phase] = [phase for phase in run["phases"] if phase["phase"] == RUN]
    return {
        "unit": run["run"],
        "latency": _in_ms(phase["latency_ns"]),
        "lag": _in_ms(phase["lag_ns"]),
        "counts": {name: phase[name] for name in ("news", "expected", "delivered", *_NONE)},
        "counters": {row["name"]: row["delta"] for row in run["counters"]},
        "noise": phase["noise"],
    }


def _in_ms(values: Json) -> Json:
    return {f"{name}_ms": round(value / 1e6, 6) for name, value in values.items() if value is not None}


def differences(row: Json, found: Json) -> list[str]:
    """Return the differences between the run's row and the digest of its log."""
    counts, counters = found["counts"], found["counters"]
    pairs = {
        "records": (row["records"], counts["news"]),
        "deliveries owed": (row["deliveries"], counts["expected"]),
        "deliveries": (row["deliveries"], counts["delivered"]),
        **{name: (0, counts[name]) for name in _NONE},
        **{name: (row[name], counters.get(f"caching_{name}_total")) for name in _COUNTED},
    }
    differ = [f"{name} {ours}, in the digest {theirs}" for name, (ours, theirs) in pairs.items() if ours != theirs]
    mean_ms = found["latency"]["mean_ms"]
    if abs(row["latency_mean_ms"] - mean_ms) > AGREE_MS:
        differ.append(f"mean latency {row['latency_mean_ms']} ms, in the digest {mean_ms} ms")
    return differ
