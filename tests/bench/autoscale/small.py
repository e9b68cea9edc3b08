"""Rows of runs that are small enough to count by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ingeborg.bench.autoscale import scale
from ingeborg.bench.experiments.experiment import Results

Json = dict[str, Any]


def facts(system: str, number: int, seed: int, begun_ms: int, ended_ms: int) -> Json:
    label = f"{system}-{number}" if number else system
    return {
        "kafka": "4.3.1",
        "part": "groups",
        "settled": True,
        "caught_up": system != "keda",
        "behind_s": 3.5 if system == "keda" else 0.2,
        "unit": f"{label}-s{seed}",
        "system": system,
        "number": number,
        "seed": seed,
        "begun_ms": begun_ms,
        "ended_ms": ended_ms,
        "iterations": 2,
        "bytes_per_s": 1_000.0,
        "never_read": 0,
        "again": 0,
        "refused": 0,
        "sent_late_ms": 3,
        "busy_percent": 20.0,
        "delta": 5.0,
    }


def results(out: Path) -> None:
    """Write rows of two streams of `mend` and of one of Kafka's groups, and all rows for the document's figures."""
    write = Results(out).keep
    for seed in (1, 2):
        for system, number, late_ms in (("mend", 0, 100), ("kip-848", 18, 2_000)):
            one = facts(system, number, seed, 10_000, 20_000)
            name = one["unit"]
            write("facts", name, [one])
            # One record before the run's beginning; ten within it, each equally late; one that never came.
            times = [9_000, *range(10_000, 20_000, 1_000)]
            rows: list[Json] = [
                {"at": time_ms + late_ms * seed, "member": "m", "partition": 0, "times": [time_ms]} for time_ms in times
            ]
            rows.append({"at": 24_000, "member": "", "partition": 1, "times": [19_500], "waiting": True})
            write("arrivals", name, rows)
            running = [(9_500, 1), (10_000, 4), (15_000, 6), (20_000, 5), (20_500, 9)]
            write("running", name, [{"unit": name, "at": at, "running": count} for at, count in running])
        notes: list[Json] = [
            {"event": "decided", "seconds": 0.002, "unix_ms": 9_999},
            {"event": "decided", "seconds": 0.002, "unix_ms": 10_000},
            {"event": "joined", "seconds": 1.5 * seed, "unix_ms": 12_000},
            {"event": "hot", "unix_ms": 12_000},
        ]
        notes = [{"unit": f"mend-s{seed}", "words": "", **note} for note in notes]
        write("journals", f"mend-s{seed}", notes)
    long(out)
    for part in ("throughput", "long"):  # they have facts, but are no runs of a group
        write("facts", f"{part}-1", [{"kafka": "4.3.1", "part": part, "seconds": 3.0}])
    for delta in (5.0, 25.0):
        changes = [{"event": "settled", "words": "", "seconds": seconds, "delta": delta} for seconds in (0.2, 0.4, 3.0)]
        for event, seconds in (("decided", 0.001), ("joined", 1.2)):
            changes.append({"event": event, "words": "", "seconds": seconds, "delta": delta})
        write("changes", f"delta-{delta:g}", changes)
    # The second one has half a second without a batch, and a last batch that waits until its time is over.
    for test, places in ((1, range(9)), (2, (0, 1, 6, 7, 15)), (3, range(9))):
        batches = [{"at": 1_000 + 125 * step, "topic": "t", "records": 5_000} for step in places]
        write("throughput", f"test-{test}-1", batches)
    rate = scale.STEP_RATES[0] * (1 + scale.OVERHEAD_BYTES / scale.RECORD_BYTES)
    steps = [{"time_s": float(at), "bytes_per_s": rate} for at in range(40)]
    steps += [{"time_s": 40.0 + at, "bytes_per_s": rate * min(1.0 + at / 30, 2.0)} for at in range(40)]
    write("steps", "steps", steps)


def long(out: Path) -> None:
    """Write rows of a run of KEDA's rule with a long stream, which began with a backlog, and of a long run of
    changes."""
    write = Results(out).keep
    one = facts("keda", 50, 1, 10_000, 20_000) | {"unit": "keda-50-n100-s1", "part": "long", "iterations": 100}
    write("facts", one["unit"], [one])
    times = [10_500, 12_000, 19_000]
    write("arrivals", one["unit"], [{"at": each + 3_000, "partition": 0, "times": [each]} for each in times])
    write("running", one["unit"], [{"unit": one["unit"], "at": 15_000, "running": 7}])
    write("changes-long", "delta-5", [{"event": "decided", "seconds": 0.5, "delta": 5.0, "unix_ms": 1}])
