"""A small version of the plan: every kind of unit, with few measurements."""

from __future__ import annotations

from dataclasses import replace

from ingeborg.bench.packing.cases import LATENCY_DELTA, Unit, cases

#: Measurements of a stream, and streams of a delta.
COUNT, SEEDS = 12, 2


def units() -> list[Unit]:
    """Return units of all cases, but only one of the cases with very many items."""
    found = [
        Unit(replace(case, count=COUNT), delta, seed)
        for case in cases(SEEDS)
        if not case.timed
        for delta in case.deltas
        for seed in range(1, case.seeds + 1)
    ]
    large = next(case for case in cases(SEEDS) if case.timed)
    found.append(Unit(replace(large, count=2, deltas=(5.0,), algorithms=("MWF", "mend")), 5.0, 1))
    return [*found, *(Unit(None, LATENCY_DELTA, seed) for seed in range(1, SEEDS + 1))]


def first(case: str, delta: float = 5.0, seed: int = 1) -> Unit:
    """Return the unit of this case."""
    return next(
        unit for unit in units() if unit.case and (unit.case.name, unit.delta, unit.seed) == (case, delta, seed)
    )
