"""The plan for real processes: experiments 3 and 4 of the document, and the latencies of its sweeps 5 to 7.

Owns: the units of each part, and all numbers. Must never: run anything.

A unit is one broker from its start to its end: a number of records, one strategy, one capacity, one database. The
document leaves open where a record is written, and how subscribers fetch records. Each unit follows one interpretation
of each question (``ALWAYS`` or ``EITHER``, ``WAITING`` or ``POLLING``). With bounded memory, a missed record is not
added to memory, as in the slides' rules.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from ingeborg.bench.caching.cases import LIVE_KAFKA, LIVE_RIAK, RECORDS, of
from ingeborg.bench.caching.policies import named
from ingeborg.bench.experiments import experiment

LATENCY, THROUGHPUT = "latency", "throughput"
"""The kinds of units. Records are published at a fixed rate, or at full speed."""

ALWAYS, EITHER = "always", "either"
"""Where a record is written. ``ALWAYS``: the broker writes each record to the database, even if it is in memory.
``EITHER``: a record is in memory or in the database (see ``named.EITHER``)."""

WAITING, POLLING = "waiting", "polling"
"""How subscribers fetch. ``WAITING``: a poll waits at the broker until a record arrives. ``POLLING``: subscribers poll
twice a second, so each record waits for a quarter of a second on average."""

ENDS: Final = (RECORDS[0], RECORDS[-1])
"""The smallest and the largest number of records. The document compares these two."""

RECORDS_MAX: Final = 100_000
"""Maximum number of records in all rounds together. A limit is necessary because memory holds every subscriber's
answers until the end of the run."""

SUBSCRIBERS: Final = 200
"""Number of subscribers, out of the world's 1,000. A record goes to eight of the 200 on average. With all 1,000, both
processes would have five times as much work, and the digest would have five times as many rows. Hit rates do not depend
on this number, apart from chance."""

RATE_PER_S: Final = 2_000
"""The rate of records, which is the same for all units on LMDB. The broker uses a third of a core if subscribers poll
twice a second. If polls wait, each delivery is a separate answer, and the broker uses about half of a core."""

RIAK_RECORDS: Final = 500
RIAK_RATE_PER_S: Final = 100
"""Number and rate of records on Riak. Without a cache, each delivery needs a request to Riak, so there are a thousand
requests a second. A cluster of three nodes can serve this rate, and so can the tests' substitute for Riak on one
core."""

RIAK_RUNS: Final = 3

LMDB, RIAK = "lmdb", "riak"
DIRECT, KAFKA = "direct", "kafka"

UNBOUNDED: Final = None
CAPACITY: Final = 0.01
"""The bounded memory of the live runs, as a share of the bytes of all records. With more room, a subscriber that polls
twice a second finds nearly every record that a strategy has admitted."""

LATENCY_RUNS: Final = 3
"""Number of runs with the smallest and with the largest number of records. Their interval shows which differences are
noise."""

ROUNDS: Final = {500: 80, 10_000: 8}
"""Rounds of a throughput run, by number of records. In a round, the publishers send all records at full speed, and wait
until all deliveries have arrived. A single round takes less than a second, which is too short for a meaningful
result."""

THROUGHPUT_RUNS: Final = 3
"""Number of runs of each throughput. Their interval shows which differences are noise."""

KAFKA_RECORDS: Final = 5_000
KAFKA_ROUNDS: Final = 8
KAFKA_RUNS: Final = 3
SWEEP_RECORDS: Final = 2_000

SHARES: Final = ("0.1", "0.3", "0.5", "0.7", "0.9")
BATCHES: Final = (1, 3, 10, 100, 1_000)
"""Parameters of the sweeps: values of lambda and mu, and of alpha; sizes of a batch."""

STRATEGIES: Final = (*named.RULES, named.OWED)
"""The document's five strategies, and ours."""

START_S: Final = 1.2
CHECK_S: Final = 2e-5
"""Seconds that a unit takes for the broker's start and the connections, and seconds for checking the deliveries of one
record."""

FULL_SPEED_PER_S: Final = 20_000
"""The approximate number of records per second at full speed."""

Parameters = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Case:
    """One unit. ``records`` is the number of records, or of the records of one round. ``capacity`` is a share of all
    bytes, or ``None`` without a limit. ``parameters`` are the parameters of the strategy, by their names in
    ``named.RULES``. If they are empty, the parameters of the document apply. ``run`` is the number of the run, if a
    unit is repeated."""

    kind: str
    records: int
    strategy: str
    capacity: float | None = UNBOUNDED
    database: str = LMDB
    via: str = DIRECT
    parameters: Parameters = ()
    writes: str = ALWAYS
    fetches: str = WAITING
    rounds: int = 1
    seed: int = 1
    run: int = 1
    subscribers: int = SUBSCRIBERS

    def __post_init__(self) -> None:
        if self.writes == EITHER and self.capacity is not None:
            raise ValueError("if writes is `either`, memory must have no limit: evicted records would be lost")
        if self.writes == EITHER and self.strategy not in named.EITHER:
            raise ValueError(f"{self.strategy} writes each record: only {', '.join(named.EITHER)} can write either way")
        if self.kind == THROUGHPUT and self.fetches == POLLING:
            raise ValueError("throughput needs subscribers that wait: polls twice a second would limit it")
        if self.kind == LATENCY and self.rounds != 1:
            raise ValueError("latency is measured in one round, at a fixed rate")

    @property
    def published(self) -> int:
        """Return the number of records in all rounds together."""
        return self.records * self.rounds

    @property
    def rate_per_s(self) -> float | None:
        """Return the rate of records, or ``None`` for full speed."""
        if self.kind == THROUGHPUT:
            return None
        return RIAK_RATE_PER_S if self.database == RIAK else RATE_PER_S

    @property
    def cost(self) -> float:
        """Return roughly the seconds that the unit takes. No other unit runs at the same time."""
        return START_S + self.published * (CHECK_S + 1 / (self.rate_per_s or FULL_SPEED_PER_S))

    @property
    def name(self) -> str:
        """Return the name of the unit's files."""
        capacity = "unbounded" if self.capacity is None else f"{100 * self.capacity:g}%"
        values = [f"{name}{value}" for name, value in self.parameters]
        parts = [self.kind, self.database, self.via, f"n{self.records}", self.strategy, *values, capacity]
        parts += [self.writes, self.fetches]
        if self.subscribers != SUBSCRIBERS:
            parts.append(f"of{self.subscribers}")
        return "-".join([*parts, f"seed{self.seed}", f"run{self.run}"])

    def facts(self) -> dict[str, Any]:
        """Return the unit's fields, for a row."""
        return asdict(self) | {
            "unit": self.name,
            "parameters": dict(self.parameters),
            "rate_per_s": self.rate_per_s,
        }


def in_both(unit: Case) -> list[Case]:
    """Return the unit that writes each record. If the strategy also works with ``EITHER``, return that unit too."""
    return [unit, *([replace(unit, writes=EITHER)] if unit.strategy in named.EITHER else [])]


def latencies(seed: int) -> list[Case]:
    """Return experiment 3 without the wait for a poll, for all numbers of records. Units with the smallest and the
    largest number run several times, and also with ``EITHER``. All strategies run once before any strategy runs again,
    so that a slow minute of the machine does not affect only one strategy."""
    units = []
    for records in RECORDS:
        for run in range(1, 1 + (LATENCY_RUNS if records in ENDS else 1)):
            for strategy in STRATEGIES:
                both = in_both(Case(LATENCY, records, strategy, seed=seed, run=run))
                units += both if records in ENDS else both[:1]
    return units


def throughputs(seed: int) -> list[Case]:
    """Return experiment 4, in the order of ``latencies``. With the smallest number of records, only two strategies run:
    those whose difference should grow with the number of records. Units with ``EITHER`` run with the largest number."""
    units = []
    for records, rounds in ROUNDS.items():
        for run in range(1, 1 + THROUGHPUT_RUNS):
            for strategy in STRATEGIES if records == RECORDS[-1] else ("none", "all"):
                both = in_both(Case(THROUGHPUT, records, strategy, rounds=rounds, seed=seed, run=run))
                units += both if records == RECORDS[-1] else both[:1]
    return units


def polling(seed: int) -> list[Case]:
    """Return the latencies of subscribers that poll twice a second, with the smallest and the largest number of
    records, and with bounded memory."""
    units = [
        Case(LATENCY, records, strategy, fetches=POLLING, seed=seed) for records in ENDS for strategy in STRATEGIES
    ]
    return units + [
        Case(LATENCY, RECORDS[-1], strategy, CAPACITY, fetches=POLLING, seed=seed)
        for strategy in STRATEGIES
        if strategy != "none"
    ]


def parameters(seed: int) -> list[Case]:
    """Return the latencies of experiments 5 to 7. For threshold, lambda and mu range from one extreme to the other. For
    buffer, only alpha varies, because only alpha / (1 - gamma) matters."""
    threshold = [(("rise", rise), ("fall", fall)) for rise, fall in zip(SHARES, reversed(SHARES), strict=True)]
    mean = [(("batch", str(batch)),) for batch in BATCHES]
    buffer = [(("own", "0.7"), ("before", before)) for before in SHARES]
    swept: Iterable[tuple[str, Sequence[Parameters]]] = (("threshold", threshold), ("mean", mean), ("buffer", buffer))
    return [
        Case(LATENCY, SWEEP_RECORDS, strategy, parameters=values, seed=seed)
        for strategy, several in swept
        for values in several
    ]


def behind_kafka(seed: int) -> list[Case]:
    """Return experiments 3 and 4 with a real Kafka in front."""
    units = []
    for run in range(1, 1 + KAFKA_RUNS):
        for strategy in STRATEGIES:
            latency = Case(LATENCY, KAFKA_RECORDS, strategy, via=KAFKA, seed=seed, run=run)
            units += in_both(latency)
            units += in_both(replace(latency, kind=THROUGHPUT, rounds=KAFKA_ROUNDS))
    return units


def on_riak(seed: int) -> list[Case]:
    """Return latencies with a database behind the network. The unit with the most reads runs last, because the store's
    memory is cold during the first units."""
    return [
        unit
        for run in range(1, 1 + RIAK_RUNS)
        for strategy in reversed(STRATEGIES)
        for fetches in (WAITING, POLLING)
        for unit in in_both(Case(LATENCY, RIAK_RECORDS, strategy, database=RIAK, fetches=fetches, seed=seed, run=run))
    ]


PARTS: Final[dict[str, Callable[[int], list[Case]]]] = {
    "experiment3": latencies,
    "experiment4": throughputs,
    "live-polling": polling,
    "live-parameters": parameters,
    LIVE_KAFKA: behind_kafka,
    LIVE_RIAK: on_riak,
}
"""For each part with real processes, a function that returns the units of a seed."""


def units(seeds: int, parts: Collection[str]) -> list[experiment.Unit]:
    """Return the units of the parts. Each part has one seed by default (see ``cases.SEEDS``)."""
    found = [
        (part, unit) for part, made in PARTS.items() if part in parts for seed in of(seeds)(1) for unit in made(seed)
    ]
    return [experiment.Unit(unit.name, part, unit, unit.cost, is_live=True) for part, unit in found]
