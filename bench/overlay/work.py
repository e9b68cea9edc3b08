"""Runs one cell of the plan and stores its log, its row of figures, and its duration.

Owns: the stored files of a cell, and their places. Must never: decide what happens in its world (``run`` does).

Row and log depend on the cell alone; the duration is in a separate file.
"""

from __future__ import annotations

import gc
import time
from pathlib import Path
from typing import Any

from ingeborg.bench.overlay import log
from ingeborg.bench.overlay.experiments import Cell
from ingeborg.bench.overlay.run import Run
from ingeborg.bench.units import keep

Row = dict[str, Any]

ROWS, TIMES, LOGS = "rows", "times", "logs"
"""Folders of a result."""


def run(cell: Cell, out: Path) -> None:
    """Run the cell and store its results, unless they exist. Its row, written last, marks it as done.

    Meanwhile Python's cycle collector is off: a world makes no cycles, and searching its millions of objects for cycles
    takes longer than all other work.
    """
    if kept(cell, out):
        return
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
    lines = _log(run_of, out)
    times = {
        "cell": cell.name,
        "seconds": round(simulated - begun, 3),
        "cpu_seconds": round(cpu, 3),
        "logging_seconds": round(time.perf_counter() - simulated, 3),
        "events_per_cpu_second": round(row["events"] / cpu),
        "lines": lines,
    }
    keep(path_of(out, TIMES, cell), [times])
    keep(path_of(out, ROWS, cell), [row])


def kept(cell: Cell, out: Path) -> bool:
    """Is the cell done?"""
    return path_of(out, ROWS, cell).is_file()


def path_of(out: Path, kind: str, cell: Cell) -> Path:
    """Return its file of this kind, or its folder of ``LOGS``."""
    return out / kind / (cell.name if kind == LOGS else f"{cell.name}.json")


def _log(run_of: Run, out: Path) -> int:
    """Write the log next to its place and move it, so that a folder of logs holds only complete ones."""
    cell = run_of.cell
    path = path_of(out, LOGS, cell)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = out / "unfinished" / cell.name
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
    """Remove a log that this program wrote, and no other file."""
    if directory.is_dir():
        for path in directory.iterdir():
            path.unlink()
        directory.rmdir()
