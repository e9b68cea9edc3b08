"""Write a run as a log in this project's format (bench/SCHEMA.md).

Owns: the use of the schema for these runs. Must never: compute a figure.

All records belong to one topic, 0. A record's number, counted from 1, is its ``seq``, so that the digest detects a
subscriber that got records in another order. A subscriber's connection has the subscriber's number, and the publishers'
connection has the next number. The phase ``run`` lasts from the first record to the last delivery, so the counters at
its start and end show the cost of the whole run.
"""

from __future__ import annotations

import hashlib
import os
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from itertools import count, islice
from pathlib import Path
from typing import Any, Final

import orjson

from ingeborg.bench.caching.live.publishing import Publishing
from ingeborg.bench.caching.live.verdict import Batch

SCHEMA: Final = 2
PART_LINES: Final = 250_000
"""Maximum number of lines of a part. They take about 15 MB. Spark reads parts in parallel."""

SOURCE: Final = "broker"
TOPIC: Final = 0
RUN: Final = "run"

_EVENTS = "kind,phase,connection,topic,seq,intended_ns,at_ns,value,detail\n"
_PHASES = "phase,kind,start_ns,end_ns,measured,offered_per_s,amount,detail\n"
_COUNTERS = "at_ns,phase,source,name,value\n"

Counters = tuple[int, Mapping[str, int]]
"""The time when the counters were read, and their values."""


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
            "machine": machine(),
            "software": {"python": platform.python_version(), "websockets": version("websockets")},
            **facts,
        }
        self._phases: list[str] = []
        self._write(complete=False)

    def events(self, published: Publishing, made: Sequence[Batch], readers: Sequence[int], publishers: int) -> None:
        """Write all events. ``readers`` has the number of deliveries that each record must cause. ``publishers`` is the
        number of the publishers' connection."""
        lines = _events(published, made, readers, publishers)
        for part in count():
            some = list(islice(lines, PART_LINES))
            if part and not some:
                return
            text = _EVENTS + "".join(some)
            (self._directory / f"events-000-{part:04d}.csv").write_text(text, encoding="utf-8", newline="")

    def phase(self, name: str, start_ns: int, end_ns: int, connections: int) -> None:
        """Note a phase before the run, in which this number of connections took part."""
        self._phases.append(f"{name},{name},{start_ns},{end_ns},0,,{connections},\n")

    def run(self, start_ns: int, end_ns: int, rate_per_s: float | None, before: Counters, after: Counters) -> None:
        """Note the run, write all phases, and write the broker's counters at the run's beginning and at its end."""
        offered = "" if rate_per_s is None else f"{rate_per_s:.10g}"
        phases = [*self._phases, f"{RUN},{RUN},{start_ns},{end_ns},1,{offered},,\n"]
        pairs = [(at_ns, *pair) for at_ns, values in (before, after) for pair in values.items()]
        counters = [f"{at_ns},{RUN},{SOURCE},{name},{value}\n" for at_ns, name, value in pairs]
        (self._directory / "phases.csv").write_text(_PHASES + "".join(phases), encoding="utf-8")
        (self._directory / "counters.csv").write_text(_COUNTERS + "".join(counters), encoding="utf-8")

    def close(self, failed: str | None = None) -> None:
        """Close the log. ``failed`` says why the run ended early, if it did."""
        if failed is not None:
            self._facts["failed"] = failed
        self._facts["files"] = {path.name: _identity(path) for path in sorted(self._directory.glob("*.csv"))}
        self._write(complete=failed is None)

    def _write(self, *, complete: bool) -> None:
        text = orjson.dumps({**self._facts, "complete": complete}, option=orjson.OPT_APPEND_NEWLINE)
        (self._directory / "run.json").write_bytes(text)


def _events(published: Publishing, made: Sequence[Batch], readers: Sequence[int], publishers: int) -> Iterator[str]:
    intended_ns = published.intended_ns
    for number, (intended, sent) in enumerate(zip(intended_ns, published.sent_ns, strict=True)):
        seq = number + 1
        yield f"news,{RUN},,{TOPIC},{seq},{intended},{intended},{readers[number]},\n"
        yield f"sent,{RUN},{publishers},{TOPIC},{seq},{intended},{sent},1,\n"
    for subscriber, at_ns, _, numbers in made:
        for number in numbers:
            intended = intended_ns[number]
            yield f"received,{RUN},{subscriber},{TOPIC},{number + 1},{intended},{at_ns},{at_ns - intended},\n"


def _identity(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def machine() -> dict[str, Any]:
    """Return the cores, the memory and the kernel of this machine."""
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return {"cores": len(os.sched_getaffinity(0)), "memory_bytes": pages * size, "kernel": platform.release()}
