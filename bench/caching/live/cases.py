"""The plan for real processes: experiments 3 and 4 of the document, and the latencies of its sweeps 5 to 7.

Owns: the plan, cut into units that run separately and have their own files, and all its numbers. Must never: run
anything.

A unit is one broker from its start to its end: a number of records, one strategy, one capacity, one database.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from ingeborg.bench.caching.live.strategies import DOCUMENT, OURS

LATENCY, THROUGHPUT = "latency", "throughput"
"""The kinds of units: records at a fixed rate, and records at full speed."""

RECORDS: Final = (500, 800, 1_000, 2_000, 5_000, 10_000)
"""The document's numbers of records."""

RECORDS_MAX: Final = 100_000
"""Maximum number of records, which is ten times the document's maximum. A limit is necessary because memory holds every
subscriber's answers until the end of the run."""

SUBSCRIBERS: Final = 200
"""Number of subscribers, out of the world's 1,000. A record goes to eight of the 200 on average. With all 1,000, both
processes would have five times the work, and the digest five times the rows. Hit rates do not depend on this number,
apart from chance."""

RATE_PER_S: Final = 2_000
"""The rate of records, which is the same for all units on LMDB. At this rate the broker uses a third of a core, and
publishers and subscribers together use less. The slowest throughput with 10,000 records in our runs, on shared cores,
is three times this rate."""

RIAK_RECORDS: Final = 500
RIAK_RATE_PER_S: Final = 100
"""Number and rate of records on Riak. Without a cache, each delivery needs a request to Riak, so there are a thousand
requests a second. A cluster of three nodes can serve this rate, and so can the tests' substitute for Riak on one
core."""

RIAK_RUNS: Final = 2
"""Number of runs on Riak, with consecutive seeds, because results vary more with a networked store and with other work
on its machines."""

LMDB, RIAK = "lmdb", "riak"
DIRECT, KAFKA = "direct", "kafka"

UNBOUNDED: Final = None
CAPACITIES: Final = (UNBOUNDED, 0.1, 0.01)
"""Shares of the bytes of all records."""

THROUGHPUT_RUNS: Final = 2
"""Number of throughput runs with the largest size, with consecutive seeds. A run takes a second, and other work on the
machine changes its result. The spread of several runs shows which differences mean nothing."""

KAFKA_RECORDS: Final = (1_000, 5_000)
SWEEP_RECORDS: Final = 2_000

SHARES: Final = ("0.1", "0.3", "0.5", "0.7", "0.9")
BATCHES: Final = (1, 3, 10, 100, 1_000)
"""Parameters of the sweeps: values of lambda and mu, and of gamma and alpha; sizes of a batch."""

STRATEGIES: Final = (*DOCUMENT, OURS)

Parameters = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Unit:
    """One unit. ``capacity`` is a share of all bytes, or ``None`` without a limit. ``parameters`` are those of the
    strategy, by their names in ``strategies``. If they are empty, the parameters of the document apply."""

    kind: str
    records: int
    strategy: str
    capacity: float | None = UNBOUNDED
    database: str = LMDB
    via: str = DIRECT
    parameters: Parameters = ()
    seed: int = 1
    subscribers: int = SUBSCRIBERS

    @property
    def rate_per_s(self) -> float | None:
        """Return the rate of records, or ``None`` for full speed."""
        if self.kind == THROUGHPUT:
            return None
        return RIAK_RATE_PER_S if self.database == RIAK else RATE_PER_S

    @property
    def name(self) -> str:
        """Return the name of the unit's files."""
        capacity = "unbounded" if self.capacity is None else f"{100 * self.capacity:g}%"
        values = [f"{name}{value}" for name, value in self.parameters]
        parts = [self.kind, self.database, self.via, f"n{self.records}", self.strategy, *values, capacity]
        if self.subscribers != SUBSCRIBERS:
            parts.append(f"of{self.subscribers}")
        return "-".join([*parts, f"seed{self.seed}"])

    def facts(self) -> dict[str, Any]:
        """Return the unit's fields, for a row."""
        return {
            "unit": self.name,
            "kind": self.kind,
            "records": self.records,
            "strategy": self.strategy,
            "parameters": dict(self.parameters),
            "capacity": self.capacity,
            "database": self.database,
            "via": self.via,
            "rate_per_s": self.rate_per_s,
            "subscribers": self.subscribers,
            "seed": self.seed,
        }


def document(seed: int) -> list[Unit]:
    """Return experiments 3 and 4: all sizes, and all capacities for the largest size. Without a cache, there is only
    one capacity."""
    once = [
        Unit(kind, records, strategy, capacity, seed=seed)
        for kind in (LATENCY, THROUGHPUT)
        for records in RECORDS
        for strategy in STRATEGIES
        for capacity in (CAPACITIES if records == RECORDS[-1] and strategy != "none" else (UNBOUNDED,))
    ]
    return once + [
        replace(unit, seed=seed + run)
        for run in range(1, THROUGHPUT_RUNS)
        for unit in once
        if unit.kind == THROUGHPUT and unit.capacity is UNBOUNDED and unit.records == RECORDS[-1]
    ]


def behind_kafka(seed: int) -> list[Unit]:
    """Return experiments 3 and 4 with a real Kafka in front, for two sizes."""
    return [
        Unit(kind, records, strategy, via=KAFKA, seed=seed)
        for kind in (LATENCY, THROUGHPUT)
        for records in KAFKA_RECORDS
        for strategy in STRATEGIES
    ]


def on_riak(seed: int) -> list[Unit]:
    """Return latencies with a database behind the network. The unit with the most reads runs last, since the first
    units find the store's memory cold."""
    return [
        Unit(LATENCY, RIAK_RECORDS, strategy, database=RIAK, seed=seed + run)
        for run in range(RIAK_RUNS)
        for strategy in reversed(STRATEGIES)
    ]


def sweeps(seed: int) -> list[Unit]:
    """Return experiments 5 to 7. For threshold, lambda and mu range from one extreme to the other. For buffer, gamma
    and alpha vary separately, because all pairs that add up to 1 give the same result."""
    threshold = [(("rise", rise), ("fall", fall)) for rise, fall in zip(SHARES, reversed(SHARES), strict=True)]
    mean = [(("batch", str(batch)),) for batch in BATCHES]
    buffer = [
        *((("own", own), ("before", "0.3")) for own in SHARES),
        *((("own", "0.7"), ("before", before)) for before in SHARES if before != "0.3"),
    ]
    swept: Iterable[tuple[str, Sequence[Parameters]]] = (("threshold", threshold), ("mean", mean), ("buffer", buffer))
    return [
        Unit(LATENCY, SWEEP_RECORDS, strategy, parameters=parameters, seed=seed)
        for strategy, several in swept
        for parameters in several
    ]


def plan(seed: int = 1, *, kafka: bool, riak: bool) -> list[Unit]:
    """Return all units, each once. ``kafka`` and ``riak`` say whether such a system exists."""
    units = [*document(seed), *sweeps(seed)]
    if kafka:
        units += behind_kafka(seed)
    if riak:
        units += on_riak(seed)
    return list(dict.fromkeys(units))
