"""The directory of a run: bench/SCHEMA.md, file by file.

Owns: the files, their headers and when they are written. Must never: know what the figures mean.

What was written before a crash stays readable: rows are appended and flushed once a second, events go to a new part
every so many lines, and ``run.json`` says ``"complete": false`` until the very end.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import orjson

from . import recorder

#: Some 30 MB: a part that is lost or torn costs little, and Spark reads parts side by side.
PART_LINES_MAX = 500_000

_PHASES = "phase,start_ns,end_ns,measured\n"
_MACHINE = "at_ns,source,cpu_s,rss_bytes,net_rx_bytes,net_tx_bytes,disk_read_bytes,disk_write_bytes\n"
_COUNTERS = "at_ns,phase,source,name,value\n"


class RunDirectory:
    """Creates ``path``, which must not exist or be empty (``FileExistsError``). ``process``: PPP of the event parts."""

    def __init__(self, path: Path, facts: Mapping[str, Any], process: int = 0) -> None:
        path.mkdir(parents=True, exist_ok=True)
        if any(path.iterdir()):
            raise FileExistsError(f"{path} is not empty; a run gets a directory of its own")
        self.path = path
        self._facts = dict(facts)
        self._process = process
        self._part = 0
        self._part_lines = 0
        self._write_facts(complete=False)
        self._events = self._open(self._part_name(), recorder.HEADER)
        self._phases = self._open("phases.csv", _PHASES)
        self._machine = self._open("machine.csv", _MACHINE)
        self._counters = self._open("counters.csv", _COUNTERS)

    def events(self, text: str, lines: int) -> None:
        """Append what a recorder gave."""
        if self._part_lines + lines > PART_LINES_MAX and self._part_lines:
            self._events.close()
            self._part += 1
            self._part_lines = 0
            self._events = self._open(self._part_name(), recorder.HEADER)
        self._part_lines += lines
        self._events.write(text)
        self._events.flush()

    def phase(self, name: str, start_ns: int, end_ns: int, measured: bool) -> None:
        """Append a phase that has ended."""
        self._phases.write(f"{name},{start_ns},{end_ns},{int(measured)}\n")
        self._phases.flush()

    def machine(self, at_ns: int, source: str, levels: Iterable[float | int | None]) -> None:
        """Append one process's second: cpu_s, rss and the four traffic counters, ``None`` where there is none."""
        cells = ",".join("" if level is None else str(level) for level in levels)
        self._machine.write(f"{at_ns},{recorder.quoted(source)},{cells}\n")
        self._machine.flush()

    def counters(self, at_ns: int, phase: str, source: str, values: Mapping[str, float]) -> None:
        """Append an endpoint's counters at one instant."""
        for name, value in values.items():
            self._counters.write(f"{at_ns},{phase},{recorder.quoted(source)},{recorder.quoted(name)},{value!r}\n")
        self._counters.flush()

    def close(self, *, complete: bool) -> None:
        """Write the end. A run that was cut short is closed with ``complete=False``."""
        for file in (self._events, self._phases, self._machine, self._counters):
            file.close()
        self._write_facts(complete=complete)

    def _part_name(self) -> str:
        return f"events-{self._process:03d}-{self._part:04d}.csv"

    def _open(self, name: str, header: str) -> TextIOWrapper:
        file = (self.path / name).open("w", encoding="utf-8", newline="")
        file.write(header)
        file.flush()
        return file

    def _write_facts(self, *, complete: bool) -> None:
        # Beside it and then over it: whoever reads run.json never finds half of one.
        beside = self.path / ".run.json"
        beside.write_bytes(orjson.dumps({**self._facts, "complete": complete}, option=orjson.OPT_APPEND_NEWLINE))
        os.replace(beside, self.path / "run.json")
