"""A small version of the plan: every kind of unit, with few measurements."""

from __future__ import annotations

from dataclasses import replace

from ingeborg.bench.experiments.experiment import Unit
from ingeborg.bench.packing.cases import PARTS, Case
from ingeborg.bench.packing.cases import units as planned

#: Measurements of a stream, and streams of a delta.
COUNT, SEEDS = 12, 2


def units() -> list[Unit]:
    """Return units of all cases, but only one of the cases with very many items."""
    whole = planned(SEEDS, [part.name for part in PARTS])
    found = [_with(unit, replace(unit.work.case, count=COUNT)) for unit in whole if not unit.work.case.timed]
    large = next(unit for unit in whole if unit.work.case.timed and (unit.work.delta, unit.work.seed) == (5.0, 1))
    return [*found, _with(large, replace(large.work.case, count=2, algorithms=("MWF", "mend")))]


def _with(unit: Unit, case: Case) -> Unit:
    return replace(unit, work=replace(unit.work, case=case))


def first(case: str, delta: float = 5.0, seed: int = 1) -> Unit:
    """Return the unit of this case."""
    wanted = (case, delta, seed)
    return next(unit for unit in units() if (unit.work.case.name, unit.work.delta, unit.work.seed) == wanted)
