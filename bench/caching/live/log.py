"""Write a run as a log in this project's format (bench/SCHEMA.md).

Owns: the use of the schema for these runs, and the files. Must never: compute a figure.

All records belong to one topic, 0. A record's number, counted from 1, is its ``seq``, so that the digest detects a
subscriber that got records in another order. A subscriber's connection has the subscriber's number, and the publishers'
connection has the next number. The phase ``run`` lasts from the first record to the last delivery, so the counters at
its two ends show its whole cost.
"""

from __future__ import annotations

import hashlib
import os
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import orjson

from ingeborg.bench.caching.live.publishing import Publishing
from ingeborg.bench.caching.live.verdict import Batch

SCHEMA: Final = 2
PART_LINES: Final = 250_000
"""Maximum number of lines of a part, which are about 15 MB. Spark reads parts in parallel."""

SOURCE: Final = "broker"
TOPIC: Final = 0

_EVENTS = "kind,phase,connection,topic,seq,intended_ns,at_ns,value,detail\n"
_PHASES = "phase,kind,start_ns,end_ns,measured,offered_per_s,amount,detail\n"
_COUNTERS = "at_ns,phase,source,name,value\n"

RUN: Final = "run"

Counters = tuple[int, Mapping[str, int]]
"""The time when the counters were read, and their values."""


@dataclass(frozen=True)
class Phase:
    """A phase of a run. ``before`` and ``after`` are the broker's counters at its beginning and at its end."""

    name: str
    start_ns: int
    end_ns: int
    kind: str = ""
    measured: bool = False
    offered_per_s: float | None = None
    amount: int | None = None
    before: Counters | None = None
    after: Counters | None = None


class Log:
    """A log in a new or empty directory. ``facts`` is the part of run.json that describes the run."""

    def __init__(self, directory: Path, facts: Mapping[str, Any]) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._facts = {
            "schema": SCHEMA,
            "series": None,
            "started_unix_ms": int(time.time() * 1e3),
            "started_ns": time.monotonic_ns(),
            "machine": _machine(),
            "software": {"python": platform.python_version(), "websockets": version("websockets")},
            **facts,
        }
        self._write(complete=False)

    def events(self, published: Publishing, made: Sequence[Batch], readers: Sequence[int], publishers: int) -> None:
        """Write all events. ``readers`` has the number of deliveries that each record must cause. ``publishers`` is the
        number of the publishers' connection."""
        parts = _Parts(self._directory)
        intended_ns = published.intended_ns
        for number, (intended, sent) in enumerate(zip(intended_ns, published.sent_ns, strict=True)):
            seq = number + 1
            parts.write(f"news,{RUN},,{TOPIC},{seq},{intended},{intended},{readers[number]},\n")
            parts.write(f"sent,{RUN},{publishers},{TOPIC},{seq},{intended},{sent},1,\n")
        for subscriber, at_ns, _, numbers in made:
            head = f"received,{RUN},{subscriber},{TOPIC},"
            for number in numbers:
                intended = intended_ns[number]
                parts.write(f"{head}{number + 1},{intended},{at_ns},{at_ns - intended},\n")
        parts.end()

    def phases(self, phases: Sequence[Phase]) -> None:
        """Write all phases and their counters."""
        (self._directory / "phases.csv").write_text(_PHASES + "".join(map(_phase, phases)), encoding="utf-8")
        (self._directory / "counters.csv").write_text(_COUNTERS + "".join(map(_counters, phases)), encoding="utf-8")

    def close(self, failed: str | None = None) -> None:
        """Close the log. ``failed`` says why the run ended early, if it did."""
        if failed is not None:
            self._facts["failed"] = failed
        self._facts["files"] = {path.name: _identity(path) for path in sorted(self._directory.glob("*.csv"))}
        self._write(complete=failed is None)

    def _write(self, *, complete: bool) -> None:
        text = orjson.dumps({**self._facts, "complete": complete}, option=orjson.OPT_APPEND_NEWLINE)
        (self._directory / "run.json").write_bytes(text)


class _Parts:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._part = 0
        self._lines: list[str] = []

    def write(self, line: str) -> None:
        self._lines.append(line)
        if len(self._lines) >= PART_LINES:
            self.end()

    def end(self) -> None:
        if self._lines or not self._part:
            path = self._directory / f"events-000-{self._part:04d}.csv"
            path.write_text(_EVENTS + "".join(self._lines), encoding="utf-8", newline="")
            self._part += 1
            self._lines = []


def _phase(phase: Phase) -> str:
    offered = "" if phase.offered_per_s is None else f"{phase.offered_per_s:.10g}"
    amount = "" if phase.amount is None else phase.amount
    kind = phase.kind or phase.name
    return f"{phase.name},{kind},{phase.start_ns},{phase.end_ns},{int(phase.measured)},{offered},{amount},\n"


def _counters(phase: Phase) -> str:
    return "".join(
        f"{at_ns},{phase.name},{SOURCE},{name},{value}\n"
        for at_ns, values in filter(None, (phase.before, phase.after))
        for name, value in values.items()
    )


def _machine() -> dict[str, Any]:
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return {"cores": len(os.sched_getaffinity(0)), "memory_bytes": pages * size, "kernel": platform.release()}


def _identity(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}
