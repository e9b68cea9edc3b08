"""What is run on real processes: experiments 3 and 4 of the document, and the latencies of its sweeps 5 to 7.

Owns: the plan, cut into units that are run and kept each by itself, and every number of it. Must never: run anything.

A unit is one broker from its start to its end: so many records, one strategy, so much memory, one database.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from ingeborg.bench.caching.live.strategies import DOCUMENT, OURS

LATENCY, THROUGHPUT = "latency", "throughput"
"""Records at a fixed rate, and as fast as they go."""

RECORDS: Final = (500, 800, 1_000, 2_000, 5_000, 10_000)
"""The document's sizes of what is published."""

RECORDS_MAX: Final = 100_000
"""Ten times the document's most: what each subscriber got is kept in memory until the run is over."""

SUBSCRIBERS: Final = 200
"""Of the world's 1,000. A record goes to eight of them on average. All 1,000 would take five times as much of both
processes, and as many rows to be digested; hit rates do not depend on it, but for chance."""

RATE_PER_S: Final = 2_000
"""The same for all. At it the broker takes a third of a core, and publishers and subscribers together less. The slowest
throughput of 10,000 records that was seen, on cores that were shared, is three times as much."""

RIAK_RECORDS: Final = 500
RIAK_RATE_PER_S: Final = 100
"""Without a cache each delivery is a request to Riak: a thousand a second. A cluster of three nodes does that, and so
does the tests' double on one core."""

RIAK_RUNS: Final = 2
"""With seeds one after the other: a store on a network, and what else its machines do, change more than LMDB does."""

LMDB, RIAK = "lmdb", "riak"
DIRECT, KAFKA = "direct", "kafka"

UNBOUNDED: Final = None
CAPACITIES: Final = (UNBOUNDED, 0.1, 0.01)
"""Shares of the bytes of all records."""

THROUGHPUT_RUNS: Final = 2
"""Of the largest size, with seeds one after the other: a run takes a second, and what else the machine does then
changes it. How far two are apart says how little a difference means."""

KAFKA_RECORDS: Final = (1_000, 5_000)
SWEEP_RECORDS: Final = 2_000

SHARES: Final = ("0.1", "0.3", "0.5", "0.7", "0.9")
BATCHES: Final = (1, 3, 10, 100, 1_000)
"""Of the sweeps: of lambda and mu, gamma and alpha; of a batch."""

STRATEGIES: Final = (*DOCUMENT, OURS)

Parameters = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Unit:
    """``capacity``: a share of all bytes, ``None`` without a limit; ``parameters``: of the strategy, by their names in
    ``strategies``; none are the document's own."""

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
        """Of records; ``None``: as fast as they go."""
        if self.kind == THROUGHPUT:
            return None
        return RIAK_RATE_PER_S if self.database == RIAK else RATE_PER_S

    @property
    def name(self) -> str:
        """Of its files."""
        capacity = "unbounded" if self.capacity is None else f"{100 * self.capacity:g}%"
        values = [f"{name}{value}" for name, value in self.parameters]
        parts = [self.kind, self.database, self.via, f"n{self.records}", self.strategy, *values, capacity]
        if self.subscribers != SUBSCRIBERS:
            parts.append(f"of{self.subscribers}")
        return "-".join([*parts, f"seed{self.seed}"])

    def facts(self) -> dict[str, Any]:
        """Its fields, for a row."""
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
    """Experiments 3 and 4: all sizes, and of the largest one all capacities. Without a cache there is one capacity."""
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
    """The same with a real Kafka in front, of two sizes."""
    return [
        Unit(kind, records, strategy, via=KAFKA, seed=seed)
        for kind in (LATENCY, THROUGHPUT)
        for records in KAFKA_RECORDS
        for strategy in STRATEGIES
    ]


def on_riak(seed: int) -> list[Unit]:
    """Latencies where a read of the database is a request over the network. Who reads most comes last: the first ones
    find a store whose memory is cold."""
    return [
        Unit(LATENCY, RIAK_RECORDS, strategy, database=RIAK, seed=seed + run)
        for run in range(RIAK_RUNS)
        for strategy in reversed(STRATEGIES)
    ]


def sweeps(seed: int) -> list[Unit]:
    """Experiments 5 to 7. Of threshold the ends of lambda and mu, and between them; of buffer gamma and alpha apart, as
    it is the same wherever they add up to 1."""
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
    """All units, each once. ``kafka``, ``riak``: is one there?"""
    units = [*document(seed), *sweeps(seed)]
    if kafka:
        units += behind_kafka(seed)
    if riak:
        units += on_riak(seed)
    return list(dict.fromkeys(units))
