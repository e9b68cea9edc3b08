"""Runs one unit of the plan and stores its rows, which hold each algorithm's results for a stream.

Owns: the rows, which depend only on the unit (times are in separate files). Must never: compare algorithms, because the
digest compares them.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Sequence
from typing import Any

from ingeborg import form
from ingeborg.autoscaler.groups.instance import NOWHERE, Instance, lower_bound, moved, rscore
from ingeborg.autoscaler.groups.packing import Algorithm, pack
from ingeborg.bench.experiments.experiment import Results, Unit
from ingeborg.bench.packing import latency
from ingeborg.bench.packing.cases import (
    ALGORITHMS,
    LATENCY,
    ONLINE,
    OPTIMUM,
    OPTIMUM_EVERY,
    TIMED_TRIES,
    Stream,
)
from ingeborg.bench.packing.optimum import Solver
from ingeborg.bench.packing.streams import CAPACITY

Row = dict[str, Any]

ROWS, OPTIMA, LATENCIES, TIMES = "rows", "optima", "latencies", "times"
"""The kinds of rows."""


def run(unit: Unit, results: Results, python: str | None) -> None:
    """Run the unit and keep its rows. ``python`` is an interpreter with OR-tools, which only the part ``optimum``
    needs."""
    stream: Stream = unit.work
    if unit.part == LATENCY:
        results.keep(LATENCIES, unit.name, _latencies(stream))
    elif unit.part == OPTIMUM:
        assert python is not None  # see ``optimum.check``
        with Solver(python) as solver:
            results.keep(OPTIMA, unit.name, _optima(stream, solver))
    else:
        rows, times = _rows(stream)
        if stream.case.timed:
            results.keep(TIMES, unit.name, times)
        results.keep(ROWS, unit.name, rows)


def _rows(stream: Stream) -> tuple[list[Row], list[Row]]:
    case = stream.case
    rows, times = [], []
    for name in case.algorithms:
        bins, scores, moves, unnamed = [], [], [], []
        former: list[int] | None = None
        for number, sizes in enumerate(stream.sizes()):
            instance = Instance(sizes, former, CAPACITY)
            if case.timed:
                where, time_row = _timed(ALGORITHMS[name], instance)
                facts = {"case": case.name, "delta": stream.delta, "algorithm": name, "form": form.name()}
                times.append({**facts, "number": number, **time_row})
            else:
                where = _packed(stream, name, number, instance)
            bins.append(len(set(where)))
            scores.append(round(rscore(instance, where), 6))
            moves.append(len(moved(instance, where)))
            if case.unnamed:
                unnamed.append(len(set(_packed(stream, name, number, Instance(sizes, None, CAPACITY)))))
            former = where
        row = {**_facts(stream), "algorithm": name, "bins": bins, "rscore": scores, "moves": moves}
        rows.append({**row, "unnamed": unnamed} if case.unnamed else row)
    return rows, times


def _packed(stream: Stream, name: str, number: int, instance: Instance) -> list[int]:
    """Pack the stream's measurement ``number``."""
    if name in ONLINE and stream.case.shuffled:
        return _shuffled(ALGORITHMS[name], instance, f"order {stream.seed} {number}")
    return pack(ALGORITHMS[name], instance)


def _shuffled(algorithm: Algorithm, instance: Instance, seed: str) -> list[int]:
    """Pack the items in a random order."""
    order = list(range(len(instance.sizes)))
    random.Random(seed).shuffle(order)
    sizes = [instance.sizes[item] for item in order]
    former = [instance.former[item] for item in order]
    where = [NOWHERE] * len(order)
    for item, bin in zip(order, pack(algorithm, Instance(sizes, former, instance.capacity)), strict=True):
        where[item] = bin
    return where


def _facts(stream: Stream) -> Row:
    case = stream.case
    return {"case": case.name, "items": case.items, "delta": stream.delta, "seed": stream.seed}


def _timed(algorithm: Algorithm, instance: Instance) -> tuple[list[int], Row]:
    """Return the packing, its time, and the longest time without a yield, in milliseconds. The algorithm runs several
    times, and the shortest time of each slice counts. The runs differ only because other processes disturb them."""
    slices: list[float] = []
    where: list[int] = []
    for _ in range(TIMED_TRIES):
        tried = []
        work = algorithm(instance)
        done = False
        while not done:
            begun = time.perf_counter()
            try:
                next(work)
            except StopIteration as end:
                where, done = end.value, True
            tried.append(time.perf_counter() - begun)
        slices = list(map(min, slices, tried)) if slices else tried
    return where, {"ms": round(sum(slices) * 1e3, 3), "slice_ms": round(max(slices) * 1e3, 3)}


# The optimum


def _optima(stream: Stream, solver: Solver) -> Iterable[Row]:
    """Yield a row for each decision whose optimum was searched for. The row has the number of bins of each algorithm,
    so that the digest needs no other rows."""
    rows, _ = _rows(stream)
    for number, sizes in enumerate(stream.sizes()):
        if number % OPTIMUM_EVERY:
            continue
        bins = {row["algorithm"]: row["bins"][number] for row in rows}
        lower, best = lower_bound(Instance(sizes, None, CAPACITY)), min(bins.values())
        found = solver.fewest(sizes, CAPACITY, lower, best) if lower <= best else None
        yield {
            **_facts(stream),
            "number": number,
            "lower": lower,
            "best": best,
            "how": "bound" if lower == best else "unsolved" if found is None else "solved",
            "optimum": found,
            "bins": bins,
        }


# The comparison with equal numbers of items


def _latencies(stream: Stream) -> Iterable[Row]:
    items, sizes = stream.case.items, list(stream.sizes())
    for name in stream.case.algorithms:
        assignments: list[list[int]] = []
        for number, each in enumerate(sizes):
            former = assignments[-1] if assignments else None
            assignments.append(_packed(stream, name, number, Instance(each, former, CAPACITY)))
        yield {"seed": stream.seed, "algorithm": name, **_late(sizes, assignments)}
    for consumers in range(1, items + 1):
        where = latency.by_count(items, consumers, stream.seed)
        yield {"seed": stream.seed, "algorithm": f"kd_{consumers}", **_late(sizes, [where] * len(sizes))}


def _late(sizes: Sequence[Sequence[float]], assignments: Sequence[Sequence[int]]) -> Row:
    return dict(latency.summary(latency.latencies(sizes, assignments), latency.mean_consumers(assignments)))
