"""Run a matrix: every system under every workload, one cell at a time, each on a fresh server.

Owns: the outcome of a cell, and `comparison.json`, from which an interrupted comparison continues. Must never: measure
(loadgen does), or run two cells at the same time.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ingeborg.bench.compare import servers
from ingeborg.bench.compare.matrix import Cell, Matrix
from ingeborg.bench.errors import BenchError
from ingeborg.bench.rivals import releases

RECORD = "comparison.json"
LOGS = "logs"
#: Seconds from the time limit until the generator is killed. In this time, it can drain, unsubscribe and close.
_CUT_S_MAX = 60.0
#: Pause between two cells, in seconds. In this time, the operating system closes the previous cell's sockets and writes
#: its pages to disk.
_REST_S = 2.0

#: Exit code of loadgen if the run is complete and counts as a result, but deliveries or connections were lost
#: (docs/cli.md).
LOSSES = 3

DONE, CUT, FAILED, SKIPPED = "done", "cut short at its time limit", "failed", "skipped"


def check(matrix: Matrix) -> None:
    """Check that every recorded log can be replayed as its cells need it. Raises ``BenchError``, which names the first
    failure."""
    checked: list[list[str]] = []
    for cell in matrix.cells(1):
        settings = ["--workload", str(cell.workload.file), *_options(cell)]
        if cell.workload.kind != "replay" or settings in checked:
            continue
        checked.append(settings)
        command = [sys.executable, "-m", "ingeborg.loadgen.cli", "preview", *settings]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode:
            said = (done.stderr.splitlines() or [f"it ended with status {done.returncode}"])[-1]
            raise BenchError(f"{cell.workload.name} on {cell.system.name}: {said}")


class Comparison:
    """Runs ``matrix`` into the directory ``out``. ``say`` gets each line of progress."""

    def __init__(self, matrix: Matrix, out: Path, say: Callable[[str], None], *, repetitions: int) -> None:
        self._cells = list(matrix.cells(repetitions))
        self._out = out
        self._say = say
        self._record: dict[str, dict[str, Any]] = {}

    def resume(self) -> None:
        """Mark as done the cells that an earlier attempt in ``out`` finished. Raises ``BenchError`` if the record of
        that attempt cannot be read."""
        file = self._out / RECORD
        if file.exists():
            try:
                self._record = {cell["cell"]: cell for cell in json.loads(file.read_text(encoding="utf-8"))["cells"]}
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise BenchError(f"{file} is not a comparison's record: {error}") from error

    @property
    def logs(self) -> list[Path]:
        """Return the directories of the cells that produced logs."""
        found = [self._out / LOGS / cell.name for cell in self._cells]
        return [path for path in found if any(path.glob("**/run.json"))]

    def run(self) -> None:
        """Run every cell that is not done. A failed cell is a result, and does not stop the other cells."""
        for number, cell in enumerate(self._cells, start=1):
            if self._record.get(cell.name, {}).get("outcome") in (DONE, CUT, FAILED):
                continue
            self._say(f"\n== {number} of {len(self._cells)}: {cell.workload.name} on {cell.system.name}")
            started_s = time.monotonic()
            outcome, why, running = self._cell(cell)
            took_s = time.monotonic() - started_s
            self._say(f"== {cell.name}: {outcome}{': ' + why if why else ''} ({took_s:.0f} s)")
            self._record[cell.name] = {
                "cell": cell.name,
                "workload": cell.workload.name,
                "system": cell.system.name,
                "outcome": outcome,
                "why": why,
                "version": running.version if running else "",
                "year": running.year if running else None,
                "took_s": round(took_s, 1),
            }
            self._save()
            time.sleep(_REST_S)

    def _cell(self, cell: Cell) -> tuple[str, str, servers.Running | None]:
        """Run a cell. Return its outcome, the reason, and the system, if a system ran."""
        log = self._out / LOGS / cell.name
        shutil.rmtree(log, ignore_errors=True)
        layer = cell.workload.name in cell.system.dedup
        try:
            with servers.running(cell.system, self._out / LOGS / "servers", layer=layer) as running:
                status, cut = _generate(_command(cell, running, log), cell.workload.time_limit_s)
        except servers.Skipped as error:
            return SKIPPED, str(error), None
        except BenchError as error:
            return FAILED, str(error), None
        if status == 0:
            return DONE, "", running
        if status == LOSSES:
            return DONE, "deliveries or connections were lost; see the report", running
        if cut:
            return CUT, f"{cell.workload.time_limit_s:g} s", running
        return FAILED, _why(log) or f"loadgen ended with status {status}", running

    def _save(self) -> None:
        file = self._out / RECORD
        beside = file.with_name(f".{RECORD}.part")
        text = json.dumps({"cells": list(self._record.values())}, ensure_ascii=False, indent=1)
        beside.write_text(text + "\n", encoding="utf-8")
        os.replace(beside, file)


def _command(cell: Cell, running: servers.Running, log: Path) -> list[str]:
    workload, system = cell.workload, cell.system
    command = [
        sys.executable,
        "-m",
        "ingeborg.loadgen.cli",
        workload.kind,
        "--workload",
        str(workload.file),
        "--out",
        str(log),
    ]
    command += ["--system", system.adapter, "--variant", _variant(cell, running)]
    if system.lines:
        command.append("--lines")
    for url in running.urls:
        command += ["--url", url]
    for url in running.inside:
        command += ["--metrics-url", url]
    if workload.kind != "topics":
        command += ["--processes", str(workload.processes)]
    if running.dedup_url is not None:
        command += ["--dedup", running.dedup_url, "--deduplicators", str(system.deduplicators)]
    return command + _options(cell)


def _options(cell: Cell) -> list[str]:
    return [word for name, value in cell.options.items() for word in ("--" + name.replace("_", "-"), str(value))]


def _variant(cell: Cell, running: servers.Running) -> str:
    """Return the words that tables add to the system's name: its variant and, for rivals, the release and its year."""
    release = "" if cell.system.system == "ingeborg" else releases.written(running.version, running.year)
    return ", ".join(filter(None, (cell.system.variant, release)))


def _generate(command: Sequence[str], limit_s: float) -> tuple[int, bool]:
    """Return the exit status of the generator, and whether the limit cut it short."""
    # The generator has its own session, so it gets only the signal from here, and not a second signal from a terminal's
    # Ctrl-C.
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        try:
            return process.wait(limit_s), False
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            try:
                return process.wait(_CUT_S_MAX), True
            except subprocess.TimeoutExpired:
                process.kill()
                return process.wait(), True
    finally:
        if process.poll() is None:  # after an interrupt, the generator keeps what it has logged
            process.send_signal(signal.SIGINT)
            try:
                process.wait(_CUT_S_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _why(log: Path) -> str:
    """Return why a cell's run failed. For a series of runs, return why the last failed run failed."""
    for file in sorted(log.glob("**/run.json"), reverse=True):
        failed = json.loads(file.read_text(encoding="utf-8")).get("failed")
        if failed:
            return str(failed)
    return ""
