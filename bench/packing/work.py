"""Runs one unit of the plan and stores its rows, which hold each algorithm's results for a stream.

Owns: the rows, which depend only on the unit (times are in separate files). Must never: compare algorithms, because the
digest does so.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ingeborg import form
from ingeborg.autoscaler.groups.instance import NOWHERE, Instance, lower_bound, moved, rscore
from ingeborg.autoscaler.groups.packing import Algorithm, pack
from ingeborg.bench.experiments.units import keep
from ingeborg.bench.packing import latency
from ingeborg.bench.packing.cases import (
    ALGORITHMS,
    LATENCY_COUNT,
    LATENCY_ITEMS,
    LATENCY_OF,
    ONLINE,
    OPTIMUM_EVERY,
    OPTIMUM_SEEDS,
    TIMED_TRIES,
    Case,
    Unit,
)
from ingeborg.bench.packing.optimum import Solver
from ingeborg.bench.packing.streams import CAPACITY, drawn

Row = dict[str, Any]

ROWS, OPTIMA, LATENCIES, TIMES = "rows", "optima", "latencies", "times"
KINDS = (ROWS, OPTIMA, LATENCIES, TIMES)
"""The folders of a result. Each holds one kind of rows."""


def run(unit: Unit, out: Path, python: str | None) -> None:
    """Run the unit and store its rows, unless they are stored already. The file that is written last marks the unit as
    complete. ``python`` is an interpreter with OR-tools, or ``None`` to skip the search for the optimum."""
    if kept(unit, out):
        return
    if unit.case is None:
        keep(_path(out, LATENCIES, unit), _latencies(unit))
        return
    rows, times = _rows(unit, unit.case)
    if unit.case.timed:
        keep(_path(out, TIMES, unit), times)
    if python is not None and unit.case.optimum and unit.seed <= OPTIMUM_SEEDS:
        with Solver(python) as solver:
            keep(_path(out, OPTIMA, unit), _optima(unit, unit.case, rows, solver))
    keep(_path(out, ROWS, unit), rows)


def kept(unit: Unit, out: Path) -> bool:
    """Return whether the unit is complete."""
    return _path(out, ROWS if unit.case else LATENCIES, unit).is_file()


def _path(out: Path, kind: str, unit: Unit) -> Path:
    return out / kind / f"{unit.name}.jsonl"


def _rows(unit: Unit, case: Case) -> tuple[list[Row], list[Row]]:
    stream = list(case.stream(unit.delta, unit.seed))
    rows, times = [], []
    for name in case.algorithms:
        bins, scores, moves = [], [], []
        former: list[int] | None = None
        for number, sizes in enumerate(stream):
            instance = Instance(sizes, former, CAPACITY)
            if case.timed:
                where, time_row = _timed(ALGORITHMS[name], instance)
                facts = {"case": case.name, "delta": unit.delta, "algorithm": name, "form": form.name()}
                times.append({**facts, "number": number, **time_row})
            elif name in ONLINE and case.shuffled:
                where = _shuffled(ALGORITHMS[name], instance, f"order {unit.seed} {number}")
            else:
                where = pack(ALGORITHMS[name], instance)
            bins.append(len(set(where)))
            scores.append(round(rscore(instance, where), 6))
            moves.append(len(moved(instance, where)))
            former = where
        rows.append({**_facts(unit, case), "algorithm": name, "bins": bins, "rscore": scores, "moves": moves})
    return rows, times


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


def _facts(unit: Unit, case: Case) -> Row:
    return {"case": case.name, "items": case.items, "delta": unit.delta, "seed": unit.seed}


def _timed(algorithm: Algorithm, instance: Instance) -> tuple[list[int], Row]:
    """Return the packing, its time, and the longest time without a yield, in milliseconds. The algorithm runs several
    times, and the shortest time of each slice counts, because the runs differ only in the disturbance by other
    processes."""
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


def _optima(unit: Unit, case: Case, rows: Sequence[Row], solver: Solver) -> Iterable[Row]:
    for number, sizes in enumerate(case.stream(unit.delta, unit.seed)):
        if number % OPTIMUM_EVERY:
            continue
        lower = lower_bound(Instance(sizes, None, CAPACITY))
        best = min(row["bins"][number] for row in rows)
        found = solver.fewest(sizes, CAPACITY, lower, best) if lower <= best else None
        yield {
            **_facts(unit, case),
            "number": number,
            "lower": lower,
            "best": best,
            "how": "bound" if lower == best else "unsolved" if found is None else "solved",
            "optimum": found,
        }


# The comparison with equal numbers of items


def _latencies(unit: Unit) -> Iterable[Row]:
    stream = list(drawn(LATENCY_ITEMS, LATENCY_COUNT, unit.delta, unit.seed))
    for name in LATENCY_OF:
        assignments: list[list[int]] = []
        for sizes in stream:
            former = assignments[-1] if assignments else [NOWHERE] * LATENCY_ITEMS
            assignments.append(pack(ALGORITHMS[name], Instance(sizes, former, CAPACITY)))
        yield {"seed": unit.seed, "algorithm": name, **_late(stream, assignments)}
    for consumers in range(1, LATENCY_ITEMS + 1):
        where = latency.by_count(LATENCY_ITEMS, consumers, unit.seed)
        yield {"seed": unit.seed, "algorithm": f"kd_{consumers}", **_late(stream, [where] * LATENCY_COUNT)}


def _late(stream: Sequence[Sequence[float]], assignments: Sequence[Sequence[int]]) -> Row:
    return dict(latency.summary(latency.latencies(stream, assignments), latency.mean_consumers(assignments)))
