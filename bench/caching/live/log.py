"""Write a run as a log in this project's format (bench/SCHEMA.md).

Owns: the use of the schema for these runs. Must never: compute a figure.

All records belong to one topic, 0. A record's number, counted from 1, is its ``seq``, so that the digest detects a
subscriber that got records in another order. A subscriber's connection has the subscriber's number, and the publishers'
connection has the next number. The phase ``run`` lasts from the first record to the last delivery, so the counters at
its two ends show its whole cost.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from ingeborg.bench.caching.live.publishing import Publishing
from ingeborg.bench.caching.live.verdict import Batch
from ingeborg.loadgen.log.recorder import Recorder
from ingeborg.loadgen.log.rundir import EventFiles, RunDirectory

SCHEMA: Final = 2
LINES: Final = 100_000
"""Number of lines that are written at once, which are about 6 MB."""

SOURCE: Final = "broker"
TOPIC: Final = 0
RUN: Final = "run"

Counters = tuple[int, Mapping[str, int]]
"""The time when the counters were read, and their values."""


class Log(RunDirectory):
    """A log in a new or empty directory. ``facts`` is the part of run.json that describes the run."""

    def __init__(self, directory: Path, facts: Mapping[str, Any]) -> None:
        made = {
            "schema": SCHEMA,
            "series": None,
            "started_unix_ms": int(time.time() * 1e3),
            "started_ns": time.monotonic_ns(),
            "machine": machine(),
            "software": {"python": platform.python_version(), "websockets": version("websockets")},
        }
        super().__init__(directory, made | dict(facts))

    def events(self, published: Publishing, made: Sequence[Batch], readers: Sequence[int], publishers: int) -> None:
        """Write all events. ``readers`` has the number of deliveries that each record must cause. ``publishers`` is the
        number of the publishers' connection."""
        files, recorder = EventFiles(self.path, 0), Recorder()
        intended_ns = published.intended_ns
        for number, (intended, sent) in enumerate(zip(intended_ns, published.sent_ns, strict=True)):
            recorder.news(RUN, TOPIC, number + 1, intended, readers[number])
            recorder.sent(RUN, publishers, TOPIC, number + 1, intended, sent, True)
        for subscriber, at_ns, _, numbers in made:
            for number in numbers:
                recorder.received(RUN, subscriber, TOPIC, number + 1, intended_ns[number], at_ns)
            if (lines := len(recorder)) >= LINES:
                files.write(recorder.take(), lines)
        lines = len(recorder)
        files.write(recorder.take(), lines)
        files.close()

    def run(self, start_ns: int, end_ns: int, offered_per_s: float | None, before: Counters, after: Counters) -> None:
        """Write the phase of the run, with the broker's counters at its beginning and at its end."""
        self.phase(RUN, RUN, start_ns, end_ns, measured=True, offered_per_s=offered_per_s)
        for at_ns, values in (before, after):
            self.counters(at_ns, RUN, SOURCE, values)


def machine() -> dict[str, Any]:
    """Return the cores, the memory and the kernel of this machine."""
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return {"cores": len(os.sched_getaffinity(0)), "memory_bytes": pages * size, "kernel": platform.release()}
