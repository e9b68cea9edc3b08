"""A small version of the plan: every kind of unit, with few measurements."""

from __future__ import annotations

from dataclasses import replace

from ingeborg.bench.packing.cases import Unit
from ingeborg.bench.packing.cases import units as planned

#: Measurements of a stream, and streams of a delta.
COUNT, SEEDS = 12, 2


def units() -> list[Unit]:
    """Return units of all cases, but only one of the cases with very many items."""
    whole = planned(SEEDS)
    found = [replace(unit, case=replace(unit.case, count=COUNT)) for unit in whole if not unit.case.timed]
    large = next(unit for unit in whole if unit.case.timed)
    return [*found, replace(large, case=replace(large.case, count=2, algorithms=("MWF", "mend")), delta=5.0, seed=1)]


def first(case: str, delta: float = 5.0, seed: int = 1) -> Unit:
    """Return the unit of this case."""
    return next(unit for unit in units() if (unit.case.name, unit.delta, unit.seed) == (case, delta, seed))
