"""The endpoints of a soak. They are real processes that share one embedded store. The soak kills them, starts them
again, and observes them.

Owns: the readings of memory, CPU time and counters while the endpoints run, and the end of every endpoint. Must never:
start a process directly.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

import psutil

from ingeborg.bench.starting import Endpoint, end_all
from ingeborg.protocol.pages import PageError, fetch, samples

#: The longest wait for an endpoint's metrics on a machine at its limit, in seconds.
PAGE_S = 5.0


class EndpointProcess(Endpoint):
    """One endpoint, with all its lives. A life is one process."""

    def __init__(self, number: int, directory: Path, options: Sequence[str], variables: Mapping[str, str]) -> None:
        super().__init__(f"soak-{number}", ["--store", f"lmdb:{directory / 'store'}", *options], directory, variables)
        self.number = number
        self.log = directory / f"endpoint-{number}.log"  # a fixed name, because it becomes part of the record
        self.counters: list[dict[str, float]] = []  # for each life, the values that were read last

    @property
    def life(self) -> int:
        """Return the number of the endpoint's current or last life, from 0."""
        return self.lives - 1

    async def start(self, *, ready: bool = True) -> None:
        self.counters.append({})
        await super().start(ready=ready)

    def usage(self) -> tuple[int, float] | None:
        """Return the bytes of anonymous memory and the CPU seconds so far, or ``None`` if the endpoint does not run."""
        try:
            if (process := self.process) is None:
                return None
            memory, times = process.memory_info(), process.cpu_times()
        except psutil.NoSuchProcess:
            return None
        return memory.rss - memory.shared, times.user + times.system

    async def count(self) -> None:
        """Read the endpoint's counters."""
        life = self.life
        with contextlib.suppress(PageError):  # if the endpoint is busy or dying, keep the last reading
            page = await fetch(self.url, "/metrics", timeout_s=PAGE_S)
            self.counters[life] = {sample.series: sample.value for sample in samples(page.text)}


@contextlib.asynccontextmanager
async def running(
    count: int, directory: Path, options: Sequence[str], variables: Mapping[str, str]
) -> AsyncIterator[list[EndpointProcess]]:
    """Start this number of endpoints, and wait until they are ready. ``variables`` are added to their environment.
    Raises ``BenchError`` if an endpoint does not start."""
    endpoints = [EndpointProcess(number, directory, options, variables) for number in range(count)]
    try:
        for endpoint in endpoints:
            await endpoint.start()
        yield endpoints
    finally:
        await end_all(endpoints)
