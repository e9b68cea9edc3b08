"""Writes the directory of a run. bench/SCHEMA.md describes each of its files.

Owns: the files, their headers and when they are written. Must never: know what the figures mean.

After a crash, everything written before is readable. Rows are appended and flushed once a second, events go to a new
part after a fixed number of lines, and ``run.json`` says ``"complete": false`` until the end of the run. At the end,
``run.json`` also gets the size and checksum of every file, so that a copy with a missing or damaged file does not count
as the whole log.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable, Mapping
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import orjson

from . import recorder

#: This number of lines takes about 30 MB. If a part is lost or damaged, little is lost. Spark reads parts in parallel.
PART_LINES_MAX = 500_000
RUN_FILE = "run.json"
TABLE_FILES = ("phases.csv", "machine.csv", "counters.csv")

_PHASES = "phase,kind,start_ns,end_ns,measured,offered_per_s,amount,detail\n"
_MACHINE = "at_ns,source,role,cpu_s,rss_bytes,anon_bytes,net_rx_bytes,net_tx_bytes,disk_read_bytes,disk_write_bytes\n"
_COUNTERS = "at_ns,phase,source,name,value\n"


class EventFiles:
    """Writes the events of one process of the generator, in parts. ``process``: the number PPP in their names."""

    def __init__(self, path: Path, process: int) -> None:
        self._path = path
        self._process = process
        self._part = 0
        self._part_lines = 0
        self._file = _opened(path / self._name(), recorder.HEADER)

    def write(self, text: str, lines: int) -> None:
        """Append lines from a recorder. ``lines``: the number of lines in ``text``."""
        if self._part_lines + lines > PART_LINES_MAX and self._part_lines:
            self._file.close()
            self._part += 1
            self._part_lines = 0
            self._file = _opened(self._path / self._name(), recorder.HEADER)
        self._part_lines += lines
        self._file.write(text)
        self._file.flush()

    def close(self) -> None:
        """Close the last part. Idempotent."""
        self._file.close()

    def _name(self) -> str:
        return f"events-{self._process:03d}-{self._part:04d}.csv"


class RunDirectory:
    """Creates ``path`` and all its files except the events. Raises ``FileExistsError`` if ``path`` has files
    already."""

    def __init__(self, path: Path, facts: Mapping[str, Any]) -> None:
        path.mkdir(parents=True, exist_ok=True)
        if any(path.iterdir()):
            raise FileExistsError(f"{path} is not empty; a run needs its own directory")
        self.path = path
        self._facts = dict(facts)
        self._forms: dict[str, list[str]] = {}
        self._write_facts(complete=False)
        self._phases = _opened(path / "phases.csv", _PHASES)
        self._machine = _opened(path / "machine.csv", _MACHINE)
        self._counters = _opened(path / "counters.csv", _COUNTERS)

    def phase(
        self,
        name: str,
        kind: str,
        start_ns: int,
        end_ns: int,
        *,
        measured: bool,
        offered_per_s: float | None = None,
        amount: int | None = None,
        detail: str = "",
    ) -> None:
        """Append a phase that has ended."""
        offered, done = ("" if value is None else f"{value:.10g}" for value in (offered_per_s, amount))
        row = f"{name},{kind},{start_ns},{end_ns},{int(measured)},{offered},{done},{recorder.quoted(detail)}\n"
        self._phases.write(row)
        self._phases.flush()

    def machine(self, at_ns: int, source: str, role: str, levels: Iterable[float | int | None]) -> None:
        """Append a row for one source and second. ``levels``: the fields of ``machine.Levels``, ``None`` if missing."""
        cells = ",".join("" if level is None else str(level) for level in levels)
        self._machine.write(f"{at_ns},{recorder.quoted(source)},{role},{cells}\n")
        self._machine.flush()

    def counters(self, at_ns: int, phase: str, source: str, values: Mapping[str, float]) -> None:
        """Append a server's counters at one instant."""
        for name, value in values.items():
            self._counters.write(f"{at_ns},{phase},{recorder.quoted(source)},{recorder.quoted(name)},{value!r}\n")
        self._counters.flush()

    def form(self, endpoint: str, form: str) -> None:
        """Record which form of the code an endpoint runs, as soon as the endpoint reports it. The directory of a killed
        run then has the form too. If an endpoint restarts in another form during the run, both forms are recorded in
        order."""
        forms = self._forms.setdefault(endpoint, [])
        if form not in forms:
            forms.append(form)
            endpoints = {name: ", then ".join(said) for name, said in self._forms.items()}
            self._facts["form"] = {**self._facts.get("form", {}), "endpoints": endpoints}
            self._write_facts(complete=False)

    def close(self, *, complete: bool, failed: str | None = None) -> None:
        """Close the files and finish ``run.json``. ``complete``: false if the run was cut short or failed. ``failed``:
        why the run failed."""
        for file in (self._phases, self._machine, self._counters):
            file.close()
        if failed is not None:
            self._facts["failed"] = failed
        # Checksums take half a second per gigabyte, but nothing else runs any more. Files that other programs wrote are
        # left out.
        tables = [*self.path.glob("events-*.csv"), *(self.path / name for name in TABLE_FILES)]
        self._facts["files"] = {path.name: _identity(path) for path in sorted(tables) if path.exists()}
        self._write_facts(complete=complete)

    def discard(self) -> None:
        """Remove the files of a run that could not begin, including events. Files that other programs wrote stay."""
        self.close(complete=False)
        for name in (RUN_FILE, *TABLE_FILES):
            (self.path / name).unlink()
        for part in self.path.glob("events-*.csv"):
            part.unlink()
        with contextlib.suppress(OSError):  # not empty: another program has a file there
            self.path.rmdir()

    def _write_facts(self, *, complete: bool) -> None:
        # Write a second file and rename it to run.json, so that a reader never finds half a run.json.
        beside = self.path / f".{RUN_FILE}"
        beside.write_bytes(orjson.dumps({**self._facts, "complete": complete}, option=orjson.OPT_APPEND_NEWLINE))
        os.replace(beside, self.path / RUN_FILE)


def _identity(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return {"bytes": os.fstat(file.fileno()).st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def _opened(path: Path, header: str) -> TextIOWrapper:
    file = path.open("w", encoding="utf-8", newline="")
    file.write(header)
    file.flush()
    return file
