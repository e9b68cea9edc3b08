"""A solver without OR-tools, which is exact, and slow beyond a few items; and results of the small plan."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ingeborg.bench.experiments.experiment import Results
from ingeborg.bench.packing import optimum, work

from . import small

#: Answers as `optimum_program.py` does. With 13 or more items that have a size its answer is "unknown".
PROGRAM = """
import json, sys

def place(sizes, bins, capacity):
    if not sizes:
        return True
    first, rest = sizes[0], sizes[1:]
    for index, room in enumerate(bins):
        if room in bins[:index]:
            continue  # as good as that one
        if first <= room or (first > capacity and room == capacity):
            if place(rest, [*bins[:index], max(0.0, room - first), *bins[index + 1:]], capacity):
                return True
    return False

for line in sys.stdin:
    question = json.loads(line)
    sizes = sorted((size for size in question["sizes"] if size > 0), reverse=True)
    capacity = question["capacity"]
    known = len(sizes) < 13
    found = place(sizes, [capacity] * question["bins"], capacity) if known else None
    print(json.dumps(found), flush=True)
"""


@pytest.fixture(scope="session")
def exact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the program's path."""
    path = tmp_path_factory.mktemp("solver") / "exact.py"
    path.write_text(PROGRAM, encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory, exact: Path) -> Path:
    """Make results of the small plan: rows as `bench packing` stores them."""
    out = tmp_path_factory.mktemp("packing")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(optimum, "PROGRAM", exact)
        for unit in small.units():
            work.run(unit, Results(out), sys.executable)
    return out
