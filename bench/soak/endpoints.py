"""The endpoints of a soak: real processes on one embedded store, killed and started again, and watched.

Owns: what is looked at while they run, and that all of them end. Must never: start a process by itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

import psutil

from ingeborg.bench.starting import Endpoint, end_all
from ingeborg.protocol.pages import PageError, fetch, samples

#: How long a page of metrics may take on a machine that is at its limit, in seconds.
PAGE_S = 5.0


class EndpointProcess(Endpoint):
    """One endpoint over all its lives."""

    def __init__(self, number: int, directory: Path, options: Sequence[str], variables: Mapping[str, str]) -> None:
        super().__init__(f"soak-{number}", ["--store", f"lmdb:{directory / 'store'}", *options], directory, variables)
        self.number = number
        self.log = directory / f"endpoint-{number}.log"  # a name that the record has in every run
        self.counters: list[dict[str, float]] = []  # of each life, when last looked at

    @property
    def life(self) -> int:
        """Which one it is, or was last, from 0."""
        return self.lives - 1

    async def start(self, *, ready: bool = True) -> None:
        self.counters.append({})
        await super().start(ready=ready)

    def usage(self) -> tuple[int, float] | None:
        """Bytes of anonymous memory, CPU seconds so far; ``None``: it does not run."""
        try:
            if (process := self.process) is None:
                return None
            memory, times = process.memory_info(), process.cpu_times()
        except psutil.NoSuchProcess:
            return None
        return memory.rss - memory.shared, times.user + times.system

    async def count(self) -> None:
        """Look at its counters."""
        life = self.life
        with contextlib.suppress(PageError):  # it is busy, or dying: the last look stays
            page = await fetch(self.url, "/metrics", timeout_s=PAGE_S)
            self.counters[life] = {sample.series: sample.value for sample in samples(page.text)}


@contextlib.asynccontextmanager
async def running(
    count: int, directory: Path, options: Sequence[str], variables: Mapping[str, str]
) -> AsyncIterator[list[EndpointProcess]]:
    """So many, ready. ``variables``: of their environment. ``BenchError``."""
    endpoints = [EndpointProcess(number, directory, options, variables) for number in range(count)]
    try:
        for endpoint in endpoints:
            await endpoint.start()
        yield endpoints
    finally:
        await end_all(endpoints)
