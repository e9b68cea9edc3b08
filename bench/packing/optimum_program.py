"""Asks OR-tools' CP-SAT whether items fit into a number of bins. This is a separate program with its own environment.

Owns: how a question is stated as a model for the solver. Must never: treat an unproven answer as proven.

A line of standard input is ``{"sizes": [...], "capacity": C, "bins": n}``. A line of output is ``true`` or ``false``,
or ``null`` if the solver reaches its effort limit first. OR-tools needs an older version of Protocol Buffers than an
endpoint does, so one environment cannot have both. This program imports no other part of the project.
"""

from __future__ import annotations

import json
import math
import sys
from typing import Final

from ortools.sat.python import cp_model

#: A bin's capacity in the units of the model, because the solver calculates in whole numbers. Sizes are rounded down,
#: so that a proof that items do not fit also holds for their exact sizes.
UNITS: Final = 1_000_000

#: Limit of the solver's effort, in its own deterministic seconds, which are the same on every machine.
EFFORT: Final = 2.0


def fits(sizes: list[float], capacity: float, bins: int) -> bool | None:
    """Return whether the items fit into ``bins`` bins, or ``None`` if the solver cannot tell within ``EFFORT``. An item
    that is larger than the capacity fills a bin on its own."""
    units = [min(UNITS, math.floor(size / capacity * UNITS)) for size in sizes]
    items = sorted((unit for unit in units if unit > 0), reverse=True)
    model = cp_model.CpModel()
    inside = [[model.new_bool_var("") for _ in range(bins)] for _ in items]
    for row in inside:
        model.add_exactly_one(row)
    for bin in range(bins):
        model.add(sum(unit * row[bin] for unit, row in zip(items, inside, strict=True)) <= UNITS)
    # Bins are interchangeable. No two items above half the capacity fit into one bin. So these items go into the first
    # bins in order.
    for place, unit in enumerate(items):
        if 2 * unit <= UNITS:
            break
        if place >= bins:
            return False
        model.add(inside[place][place] == 1)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    solver.parameters.max_deterministic_time = EFFORT
    status = solver.solve(model)
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return True
    return False if status == cp_model.INFEASIBLE else None


def main() -> None:
    """Answer questions until standard input ends."""
    for line in sys.stdin:
        question = json.loads(line)
        print(json.dumps(fits(question["sizes"], question["capacity"], question["bins"])), flush=True)


if __name__ == "__main__":
    main()
