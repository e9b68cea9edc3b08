"""Asks OR-tools' CP-SAT whether items fit into so many bins: a program of its own, in an environment of its own.

Owns: the question as the solver is asked it. Must never: take an answer that is not proven for one that is.

A line of standard input is ``{"sizes": [...], "capacity": C, "bins": n}``; a line of the answer is ``true``, ``false``,
or ``null`` where the solver does not know within its effort. OR-tools wants an older Protocol Buffers than an endpoint
does, so it cannot be installed beside one; nothing else of the project is imported here.
"""

from __future__ import annotations

import json
import math
import sys
from typing import Final

from ortools.sat.python import cp_model

#: The solver calculates in whole numbers: so many to a capacity. Sizes are rounded down, so that what it proves is
#: true of the sizes themselves.
UNITS: Final = 1_000_000

#: How long it may try, in its own deterministic seconds: the same on every machine.
EFFORT: Final = 2.0


def fits(sizes: list[float], capacity: float, bins: int) -> bool | None:
    """Do the items fit into so many bins? ``None``: not known within ``EFFORT``. An item that is greater than a
    capacity takes a bin of its own."""
    units = [min(UNITS, math.floor(size / capacity * UNITS)) for size in sizes]
    items = sorted((unit for unit in units if unit > 0), reverse=True)
    model = cp_model.CpModel()
    inside = [[model.new_bool_var("") for _ in range(bins)] for _ in items]
    for row in inside:
        model.add_exactly_one(row)
    for bin in range(bins):
        model.add(sum(unit * row[bin] for unit, row in zip(items, inside, strict=True)) <= UNITS)
    # Bins are alike: items of which no two fit together are in the first ones, in their order.
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
    """Answer until there are no questions any more."""
    for line in sys.stdin:
        question = json.loads(line)
        print(json.dumps(fits(question["sizes"], question["capacity"], question["bins"])), flush=True)


if __name__ == "__main__":
    main()
