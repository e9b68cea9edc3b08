"""Run one unit of the plan, and store its log and its row of figures.

Owns: the stored files of a unit, and their places. Must never: decide what happens in a unit (``run`` does).
"""

from __future__ import annotations

import asyncio
import shutil
import signal
import threading
from collections.abc import Coroutine
from typing import Any

import uvloop

from ingeborg.bench.caching.live.cases import LATENCY, Case
from ingeborg.bench.caching.live.run import NOWHERE, Places, measure
from ingeborg.bench.experiments.experiment import Results

Row = dict[str, Any]

LIVE, LOGS = "live", "logs"
"""The kinds of results. Each unit has a row in ``LIVE``. Each latency unit has a log, which is a folder, until the
log's digest is stored (``experiments.digesting``)."""

FACTS = "facts"
"""The kind of rows with the machine of the measurements, and the user's notes on them."""

UNFINISHED = "unfinished"


def run(unit: Case, results: Results, places: Places = NOWHERE) -> None:
    """Run the unit and keep its row. If the run fails, this raises ``BenchError``, and the unit's log and the broker's
    output stay in ``UNFINISHED``, so that a user can read them."""
    part, log = results.path(UNFINISHED, unit.name, ""), results.path(LOGS, unit.name, "")
    for former in (part, log):
        shutil.rmtree(former, ignore_errors=True)
    row = _run(measure(unit, part / "log", part / "scratch", places))
    log.parent.mkdir(parents=True, exist_ok=True)
    if unit.kind == LATENCY:  # throughput has only counts and a duration, which need no digest
        (part / "log").replace(log)
    shutil.rmtree(part)
    results.keep(LIVE, unit.name, [row])


def _run(measuring: Coroutine[Any, Any, Row]) -> Row:
    """Run the measurement in a separate event loop. SIGTERM interrupts it in an orderly way, as Ctrl-C does: after
    everything has ended, this function raises ``KeyboardInterrupt``."""
    if threading.current_thread() is not threading.main_thread():
        return uvloop.run(measuring)
    before = signal.getsignal(signal.SIGTERM)

    async def interruptible() -> Row:
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
