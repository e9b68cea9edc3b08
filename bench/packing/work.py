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
from ingeborg.bench.errors import UsageError
from ingeborg.bench.packing import latency, optimum
from ingeborg.bench.packing.cases import (
    ALGORITHMS,
    LATENCY,
    ONLINE,
    OPTIMUM,
    OPTIMUM_EVERY,
    TIMED_TRIES,
    Case,
    Unit,
)
from ingeborg.bench.packing.optimum import Solver
from ingeborg.bench.packing.streams import CAPACITY
from ingeborg.bench.units import keep

Row = dict[str, Any]

ROWS, OPTIMA, LATENCIES, TIMES = "rows", "optima", "latencies", "times"
KINDS = (ROWS, OPTIMA, LATENCIES, TIMES)
"""The folders of a result. Each holds one kind of rows."""


def check(plan: Iterable[Unit], python: str | None) -> None:
    """Check that the plan can run, before its first unit does. ``python`` is an interpreter with OR-tools, or ``None``.
    Raises ``UsageError`` if the plan needs a solver and has none, and ``BenchError`` if the solver does not answer."""
    if any(unit.part == OPTIMUM for unit in plan):
        if python is None:
            raise UsageError(f"the part {OPTIMUM} needs --optimum PYTHON: make optimum prepares an environment")
        optimum.check(python)


def run(unit: Unit, out: Path, python: str | None) -> None:
    """Run the unit and store its rows, unless they are stored already. The file that is written last marks the unit as
    complete. ``python`` is an interpreter with OR-tools, which only the part ``optimum`` needs."""
    if kept(unit, out):
        return
    if unit.part == LATENCY:
        keep(_path(out, unit), _latencies(unit))
    elif unit.part == OPTIMUM:
        assert python is not None  # see ``check``
        with Solver(python) as solver:
            keep(_path(out, unit), _optima(unit, solver))
    else:
        rows, times = _rows(unit)
        if unit.case.timed:
            keep(out / TIMES / f"{unit.name}.jsonl", times)
        keep(_path(out, unit), rows)


def kept(unit: Unit, out: Path) -> bool:
    """Return whether the unit is complete."""
    return _path(out, unit).is_file()


def _path(out: Path, unit: Unit) -> Path:
    kind = {LATENCY: LATENCIES, OPTIMUM: OPTIMA}.get(unit.part, ROWS)
    return out / kind / f"{unit.name}.jsonl"


def _rows(unit: Unit) -> tuple[list[Row], list[Row]]:
    case = unit.case
    stream = list(case.stream(unit.delta, unit.seed))
    rows, times = [], []
    for name in case.algorithms:
        bins, scores, moves, unnamed = [], [], [], []
        former: list[int] | None = None
        for number, sizes in enumerate(stream):
            instance = Instance(sizes, former, CAPACITY)
            if case.timed:
                where, time_row = _timed(ALGORITHMS[name], instance)
                facts = {"case": case.name, "delta": unit.delta, "algorithm": name, "form": form.name()}
                times.append({**facts, "number": number, **time_row})
            else:
                where = _packed(unit, name, number, instance)
            bins.append(len(set(where)))
            scores.append(round(rscore(instance, where), 6))
            moves.append(len(moved(instance, where)))
            if case.unnamed:
                unnamed.append(len(set(_packed(unit, name, number, Instance(sizes, None, CAPACITY)))))
            former = where
        row = {**_facts(unit, case), "algorithm": name, "bins": bins, "rscore": scores, "moves": moves}
        rows.append({**row, "unnamed": unnamed} if case.unnamed else row)
    return rows, times


def _packed(unit: Unit, name: str, number: int, instance: Instance) -> list[int]:
    """Pack the stream's measurement ``number``."""
    if name in ONLINE and unit.case.shuffled:
        return _shuffled(ALGORITHMS[name], instance, f"order {unit.seed} {number}")
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


def _optima(unit: Unit, solver: Solver) -> Iterable[Row]:
    """Yield a row for each decision whose optimum was searched for. It has the number of bins of each algorithm, so
    that the digest needs no other rows."""
    rows, _ = _rows(unit)
    for number, sizes in enumerate(unit.case.stream(unit.delta, unit.seed)):
        if number % OPTIMUM_EVERY:
            continue
        bins = {row["algorithm"]: row["bins"][number] for row in rows}
        lower, best = lower_bound(Instance(sizes, None, CAPACITY)), min(bins.values())
        found = solver.fewest(sizes, CAPACITY, lower, best) if lower <= best else None
        yield {
            **_facts(unit, unit.case),
            "number": number,
            "lower": lower,
            "best": best,
            "how": "bound" if lower == best else "unsolved" if found is None else "solved",
            "optimum": found,
            "bins": bins,
        }


# The comparison with equal numbers of items


def _latencies(unit: Unit) -> Iterable[Row]:
    items, count = unit.case.items, unit.case.count
    stream = list(unit.case.stream(unit.delta, unit.seed))
    for name in unit.case.algorithms:
        assignments: list[list[int]] = []
        for number, sizes in enumerate(stream):
            former = assignments[-1] if assignments else None
            assignments.append(_packed(unit, name, number, Instance(sizes, former, CAPACITY)))
        yield {"seed": unit.seed, "algorithm": name, **_late(stream, assignments)}
    for consumers in range(1, items + 1):
        where = latency.by_count(items, consumers, unit.seed)
        yield {"seed": unit.seed, "algorithm": f"kd_{consumers}", **_late(stream, [where] * count)}


def _late(stream: Sequence[Sequence[float]], assignments: Sequence[Sequence[int]]) -> Row:
    return dict(latency.summary(latency.latencies(stream, assignments), latency.mean_consumers(assignments)))
