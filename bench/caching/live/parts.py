"""The parts of a latency: seven pieces of each delivery's time, whose sum is the latency.

Owns: the beginning and the end of each piece. Must never: round before adding the pieces.

- ``sending``: from the record's intended time until the broker has it. If Kafka is in front, this includes Kafka.
- ``matching``: from then until the broker knows the record's subscribers and has queued the record for the database,
  behind the records that arrived together with it. Each later piece also begins when the previous piece ends.
- ``writing``: until the record is safe in the database. If the record is not written, until the broker has delivered
  all earlier records of the record's subscribers.
- ``waiting``: until the record's subscriber polls.
- ``memory``: until the broker has searched its memory for all records of the answer.
- ``database``: until the broker has read the records that were not in memory.
- ``delivery``: until the subscriber has the answer.

All times come from one clock, CLOCK_MONOTONIC of the machine that runs all processes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ingeborg.bench.caching.live.verdict import Batch

PARTS: Final = ("sending", "matching", "writing", "waiting", "memory", "database", "delivery")

PPM: Final = {"p50_ms": 500_000, "p99_ms": 990_000}

Json = dict[str, Any]


def parts(made: Sequence[Batch], intended_ns: Sequence[int], report: Mapping[str, Sequence[int]]) -> Json:
    """Return mean and percentiles of each piece over all deliveries (by nearest rank, of whole microseconds), in
    milliseconds. ``report`` has the broker's times for each record: when it arrived, when it was matched, and when it
    was safe."""
    came, matched, safe = report["came_ns"], report["matched_ns"], report["safe_ns"]
    sums = dict.fromkeys(PARTS, 0)
    counted: dict[str, Counter[int]] = {name: Counter() for name in PARTS}
    of_record = {
        "sending": [at - intended for at, intended in zip(came, intended_ns, strict=True)],
        "matching": [at - before for at, before in zip(matched, came, strict=True)],
        "writing": [at - before for at, before in zip(safe, matched, strict=True)],
    }
    for batch in made:
        head, numbers = batch.head, batch.numbers
        count = len(numbers)
        for name, values in of_record.items():
            found = [values[number] for number in numbers]
            sums[name] += sum(found)
            counted[name].update([value // 1_000 for value in found])
        waited = [head.asked_ns - safe[number] for number in numbers]
        sums["waiting"] += sum(waited)
        counted["waiting"].update([value // 1_000 for value in waited])
        of_batch = {
            "memory": head.looked_ns - head.asked_ns,
            "database": head.read_ns - head.looked_ns,
            "delivery": batch.at_ns - head.read_ns,
        }
        for name, value in of_batch.items():
            sums[name] += count * value
            counted[name][value // 1_000] += count
    total = sum(len(batch.numbers) for batch in made)
    return {
        name: {"mean_ms": round(sums[name] / total / 1e6, 6), **_percentiles(counted[name], total)} for name in PARTS
    }


def _percentiles(counted: Counter[int], total: int) -> Json:
    ranks = {name: -(-total * ppm // 1_000_000) for name, ppm in PPM.items()}
    found: Json = {}
    seen = 0
    for value in sorted(counted):
        seen += counted[value]
        for name, rank in ranks.items():
            if name not in found and seen >= rank:
                found[name] = value / 1e3
    return found


def mean_ms(made: Sequence[Batch], intended_ns: Sequence[int]) -> float:
    """Return the mean of all latencies in milliseconds. It is the sum of the means of the pieces."""
    total = sum(len(batch.numbers) for batch in made)
    ns = sum(batch.at_ns * len(batch.numbers) - sum(intended_ns[number] for number in batch.numbers) for batch in made)
    return ns / total / 1e6
