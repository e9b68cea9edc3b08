"""Run one unit of the plan, and store its log and its row of figures.

Owns: the stored files of a unit, and their places. Must never: decide what happens in a unit (``run`` does).
"""

from __future__ import annotations

import asyncio
import shutil
import signal
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import uvloop

from ingeborg.bench.caching.live.cases import LATENCY, Unit
from ingeborg.bench.caching.live.run import NOWHERE, Outcome, Places, measure
from ingeborg.bench.experiments.units import keep

ROWS, LOGS, DIGESTED = "rows", "logs", "digested"
"""Folders of a result. Each unit has a file with its row. The log of a latency has a folder, and its digest a file."""

UNFINISHED = "unfinished"


def run(unit: Unit, out: Path, places: Places = NOWHERE) -> None:
    """Run the unit and store its results, unless they exist. The row is written last, and marks the unit as done. If
    the run fails, this raises ``BenchError``, and the unit's log and the broker's output stay in ``UNFINISHED``, so
    that a person can read them."""
    if kept(unit, out):
        return
    part, log = out / UNFINISHED / unit.name, path_of(out, LOGS, unit)
    for former in (part, log):
        shutil.rmtree(former, ignore_errors=True)
    outcome = _run(measure(unit, part / "log", part / "scratch", places))
    log.parent.mkdir(parents=True, exist_ok=True)
    if unit.kind == LATENCY:  # the figures of a throughput are counts and a duration, which need no digest
        (part / "log").replace(log)
    shutil.rmtree(part)
    keep(path_of(out, ROWS, unit), [outcome.row])


def _run(measuring: Coroutine[Any, Any, Outcome]) -> Outcome:
    """Run the measurement in a separate event loop. SIGTERM interrupts it in an orderly way, as Ctrl-C does: after
    everything has ended, this function raises ``KeyboardInterrupt``."""
    if threading.current_thread() is not threading.main_thread():
        return uvloop.run(measuring)
    before = signal.getsignal(signal.SIGTERM)

    async def interruptible() -> Outcome:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await measuring

    try:
        return uvloop.run(interruptible())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    finally:
        signal.signal(signal.SIGTERM, before)


def kept(unit: Unit, out: Path) -> bool:
    """Return whether the unit is done."""
    return path_of(out, ROWS, unit).is_file()


def path_of(out: Path, kind: str, unit: Unit) -> Path:
    """Return the unit's file of this kind, or its folder if the kind is ``LOGS``."""
    return out / kind / (unit.name if kind == LOGS else f"{unit.name}.json")
