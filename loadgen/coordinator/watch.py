"""Samples the CPU, memory and disk use of the machine and of all processes of a run, for the log and the display.

Owns: sources and their roles (bench/SCHEMA.md, `machine.csv`). Must never: decide when to take a sample.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence

import psutil

from ..backends.base import Counters
from ..log.rundir import RunDirectory
from . import machine
from .machine import Levels, Tree

#: Metrics of this broker. They give the CPU time and memory of a server whose process is on another machine.
_CPU, _RSS = "process_cpu_seconds_total", "process_resident_memory_bytes"

Sample = dict[str, tuple[int, str, Levels]]


class Watch:
    """``servers``, ``layer``: the pid of a process for each source. A sample of a process includes its children."""

    def __init__(self, directory: RunDirectory, servers: Mapping[str, int], layer: Mapping[str, int]) -> None:
        self._directory = directory
        self._trees: dict[str, tuple[str, Tree]] = {"coordinator": ("generator", _Alone(os.getpid()))}
        for role, processes in (("server", servers), ("layer", layer)):
            for source, pid in processes.items():
                self.add(source, role, pid)
        self._servers_are_here = bool(servers)
        self._last: Sample = {}

    def add(self, source: str, role: str, pid: int) -> None:
        """Add a process that started later, unless it has already ended."""
        try:
            self._trees[source] = (role, Tree(pid))
        except psutil.NoSuchProcess:
            return

    def sample(self, told: Sequence[Counters] = ()) -> Sample:
        """Log one sample of all sources and return it. ``told``: the counters that servers report about themselves."""
        now_ns = time.monotonic_ns()
        sample: Sample = {"host": (now_ns, "host", machine.host())}
        for source, (role, tree) in self._trees.items():
            at_ns = time.monotonic_ns()
            levels = tree.levels()
            if levels is not None:
                sample[source] = (at_ns, role, levels)
        if not self._servers_are_here:
            for server in told:
                if _CPU in server.values:
                    rss = int(server.values.get(_RSS, 0))
                    levels = (server.values[_CPU], rss, None, None, None, None, None)
                    sample[server.source] = (server.at_ns, "server", levels)
        for source, (at_ns, role, levels) in sample.items():
            self._directory.machine(at_ns, source, role, levels)
        return sample


class _Alone(Tree):
    """The coordinator without its descendants, because the descendants are separate sources."""

    def levels(self) -> Levels | None:
        with self._root.oneshot():
            times, memory = self._root.cpu_times(), self._root.memory_info()
            disk = self._root.io_counters() if hasattr(self._root, "io_counters") else None
        anon = memory.rss - getattr(memory, "shared", 0)
        read, written = (disk.read_bytes, disk.write_bytes) if disk else (None, None)
        return round(times.user + times.system, 3), memory.rss, anon, None, None, read, written


def cores(before: Sample, after: Sample, role: str) -> dict[str, float]:
    """Return how many cores each source of the role used on average between two samples."""
    used = {}
    for source, (at_ns, its_role, levels) in after.items():
        if its_role == role and source in before and at_ns > before[source][0]:
            grown_s = levels[0] - before[source][2][0]
            used[source] = max(grown_s, 0.0) / ((at_ns - before[source][0]) / 1e9)
    return used
