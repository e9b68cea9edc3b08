"""Run one cell of the plan, and store its log, its row of figures, and its duration.

Owns: the stored files of a cell. Must never: decide on the events in its world (``run`` does).

The row and the log depend only on the cell. The duration also depends on the machine, so it is in a separate file.
"""

from __future__ import annotations

import gc
import time
from pathlib import Path
from typing import Any

from ingeborg.bench.experiments.experiment import Results
from ingeborg.bench.overlay import log
from ingeborg.bench.overlay.cases import Cell
from ingeborg.bench.overlay.run import Run

Row = dict[str, Any]

ROWS, TIMES, LOGS = "rows", "times", "logs"
"""Folders of a result."""


def run(cell: Cell, results: Results) -> None:
    """Run a cell and store its results.

    Python's cyclic garbage collector is off during the run. A world makes no cycles, and searching its millions of
    objects for cycles would take longer than all other work.
    """
    begun, cpu = time.perf_counter(), time.process_time()
    collecting = gc.isenabled()
    gc.disable()
    try:
        run_of = Run(cell)
        run_of.go()
    finally:
        if collecting:
            gc.enable()
    simulated, cpu = time.perf_counter(), time.process_time() - cpu
    row = run_of.row()
    lines = _log(run_of, results)
    times = {
        "cell": cell.name,
        "seconds": round(simulated - begun, 3),
        "cpu_seconds": round(cpu, 3),
        "logging_seconds": round(time.perf_counter() - simulated, 3),
        "events": row["events"],
        "lines": lines,
    }
    results.keep(TIMES, cell.name, [times])
    results.keep(ROWS, cell.name, [row])


def log_of(cell: Cell, results: Results) -> Path:
    """Return the folder of the cell's log."""
    return results.path(LOGS, cell.name, "")


def _log(run_of: Run, results: Results) -> int:
    """Write the log to another folder and then move it, so that the folder of logs has only complete logs."""
    cell = run_of.cell
    path = log_of(cell, results)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = results.out / "unfinished" / cell.name
    for former in (part, path):
        _remove(former)
    facts = {
        "run": cell.name,
        "system": cell.protocol,
        "variant": f"{cell.senders or 'all'} senders",
        "workload": f"overlay {cell.experiment}",
        "seed": cell.seed,
        "config": {**cell.facts(), "processes": 1},
        "goals": {},
    }
    lines = log.write(part, facts, run_of.world.record, run_of.phases, run_of.lives())
    part.replace(path)
    return lines


def _remove(directory: Path) -> None:
    """Remove a log that this program wrote, and no other files."""
    if directory.is_dir():
        for path in directory.iterdir():
            path.unlink()
        directory.rmdir()
