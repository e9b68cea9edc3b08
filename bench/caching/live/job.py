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

from ingeborg.bench.caching.live.cases import Unit
from ingeborg.bench.caching.live.log import RUN
from ingeborg.bench.caching.live.work import DIGESTED, LOGS, ROWS, path_of
from ingeborg.bench.errors import BenchError
from ingeborg.bench.experiments.units import keep
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


def digest(units: Sequence[Unit], out: Path) -> None:
    """Digest the logs of these units and store their figures. Raises ``BenchError`` if they differ from the rows."""
    logs = [str(path_of(out, LOGS, unit)) for unit in units]
    with (
        tempfile.TemporaryDirectory(dir=out, prefix="digest-") as scratch,
        local_session(MASTER, MEMORY, out / "spark.log") as spark,
    ):
        document = job.digest(spark, logs, Path(scratch), fresh=True, say=lambda _: None)
    by_run = {run["run"]: run for run in document["runs"]}
    for unit in units:
        row = orjson.loads(path_of(out, ROWS, unit).read_bytes())
        found = of_run(by_run[unit.name])
        if differ := differences(row, found):
            raise BenchError(f"{unit.name}: the run and the digest of its log differ: {'; '.join(differ)}")
        keep(path_of(out, DIGESTED, unit), [found])


def discard(units: Sequence[Unit], out: Path) -> None:
    """Delete the digested logs of these units."""
    for unit in units:
        shutil.rmtree(path_of(out, LOGS, unit))


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
