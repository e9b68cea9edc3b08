"""The endpoints of a soak: real processes on one embedded store, killed and started again, and watched.

Owns: the processes, in groups of their own, and their end whatever happens. Must never: leave one behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import psutil

from bench.errors import BenchError
from bench.servers import first_port
from protocol.pages import PageError, fetch, samples

#: A start, on a machine that is at its limit, in seconds.
READY_S = 60.0
#: How long a page of metrics may take then, in seconds.
PAGE_S = 5.0
_PR_SET_PDEATHSIG = 1


def _die_with_the_parent() -> None:
    """Linux: the kernel kills the endpoint when the soak is killed, which cannot clean up after itself then."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class EndpointProcess:
    """One endpoint over all its lives. ``life``: which one it is, from 0."""

    def __init__(self, number: int, port: int, directory: Path, options: Sequence[str]) -> None:
        self.number = number
        self.url = f"ws://127.0.0.1:{port}"
        self.life = -1
        self.log = directory / f"endpoint-{number}.log"
        self.counters: list[dict[str, float]] = []  # of each life, when last looked at
        self._command = [
            *(sys.executable, "-m", "broker.cli", "serve", "--name", f"soak-{number}", "--port", str(port)),
            *("--store", f"lmdb:{directory / 'store'}", *options),
        ]
        self._process: asyncio.subprocess.Process | None = None
        self._watched: psutil.Process | None = None

    async def start(self, environment: dict[str, str]) -> None:
        """Until it says that it is ready. ``BenchError``."""
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env=environment,
                start_new_session=True,
                preexec_fn=_die_with_the_parent,
            )
        assert self._process.stdout is not None
        self.life += 1
        self.counters.append({})
        self._watched = psutil.Process(self._process.pid)
        try:
            async with asyncio.timeout(READY_S):
                line = await self._process.stdout.readline()
        except TimeoutError:
            line = b""
        if b" ready at " not in line:
            raise BenchError(f"endpoint {self.number} did not start; the end of its log: {self.said()[-1500:]}")

    async def kill(self) -> None:
        """``kill -9`` of the endpoint itself."""
        assert self._process is not None
        self._process.kill()
        await self.gone()

    async def gone(self) -> None:
        """Wait for it, and take what is left of its group with it."""
        if self._process is not None:
            process, self._process, self._watched = self._process, None, None
            await process.wait()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    async def end(self) -> None:
        """Whatever state it is in."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            await self.gone()

    @property
    def runs(self) -> bool:
        """As far as has been noticed."""
        return self._process is not None and self._process.returncode is None

    def usage(self) -> tuple[int, float] | None:
        """Bytes of anonymous memory, CPU seconds so far; ``None``: it does not run."""
        try:
            if self._watched is None:
                return None
            memory, times = self._watched.memory_info(), self._watched.cpu_times()
        except psutil.NoSuchProcess:
            return None
        return memory.rss - memory.shared, times.user + times.system

    async def count(self) -> None:
        """Look at its counters."""
        life = self.life
        with contextlib.suppress(PageError):  # it is busy, or dying: the last look stays
            page = await fetch(self.url, "/metrics", timeout_s=PAGE_S)
            self.counters[life] = {sample.series: sample.value for sample in samples(page.text)}

    def said(self) -> str:
        """Its log, of all its lives."""
        return self.log.read_text(encoding="utf-8", errors="replace")


@contextlib.asynccontextmanager
async def running(
    count: int, directory: Path, options: Sequence[str], variables: dict[str, str]
) -> AsyncIterator[tuple[list[EndpointProcess], dict[str, str]]]:
    """So many, ready; and the environment that they are started with."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("INGEBORG_")} | variables
    first = first_port(max(count, 2))  # of one it would be any, and a restart needs it again
    endpoints = [EndpointProcess(number, first + number, directory, options) for number in range(count)]
    try:
        for endpoint in endpoints:
            await endpoint.start(environment)
        yield endpoints, environment
    finally:
        await asyncio.gather(*(endpoint.end() for endpoint in endpoints))
