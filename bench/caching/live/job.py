"""Compare the digest of a unit's log with the run's own counts.

Owns: the stored part of a digest, and the comparison. Must never: run a unit, or read a log.

Both the digest and ``run`` compute the deliveries, their mean latency, and the growth of the broker's counters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ingeborg.bench.caching.live.cases import Case
from ingeborg.bench.caching.live.log import RUN
from ingeborg.bench.caching.live.work import LIVE, LOGS
from ingeborg.bench.experiments import digesting
from ingeborg.bench.experiments.experiment import Results

Json = dict[str, Any]

AGREE_MS: Final = 1e-3
"""Largest permitted difference of the two means, in milliseconds. The digest's mean is a double."""

_NONE: Final = ("lost", "duplicated", "reordered", "excess", "errors")
_COUNTED: Final = ("reads", "hits", "admitted", "admitted_utility", "records_utility")


def digest(units: Sequence[Case], results: Results) -> None:
    """Digest the logs of these units, store their figures, and delete the logs. Raises ``BenchError`` if the figures
    differ from the rows."""
    logs = {unit.name: log for unit in units if (log := results.path(LOGS, unit.name, "")).is_dir()}
    digesting.check(digesting.due(logs, results), results, LIVE, of_run, differences)
    digesting.discard(logs)


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
