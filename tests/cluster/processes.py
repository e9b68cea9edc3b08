"""Endpoints as real processes: started, watched through what they publish, killed, stopped, restarted, ended.

Owns: the processes it starts, each in a process group of its own, and their end. Must never: end a process by name, or
leave one behind.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from broker.core.homes import home_table, slot_of
from protocol.pages import PageError, fetch, samples

#: How long a process may take to print its ready line, in seconds. It takes one; a machine under load, many times that.
READY_S = 60.0

#: How long a condition may take to come true where the product promises no time of its own, in seconds.
PATIENCE_S = 60.0

#: How long an orderly end may take, in seconds: what an endpoint allows itself and its clients, and some.
END_S = 60.0

#: Between two looks at what can only be looked at, in seconds.
LOOK_S = 0.03


async def eventually(condition: Callable[[], Awaitable[bool]], what: str, within_s: float = PATIENCE_S) -> float:
    """Look until the condition holds; how long that took, in seconds. Fails after ``within_s``."""
    began = time.monotonic()
    while not await condition():
        assert time.monotonic() - began < within_s, f"not within {within_s:g} s: {what}"
        await asyncio.sleep(LOOK_S)
    return time.monotonic() - began


def free_port() -> int:
    """A port that is free, and not of the range that outgoing connections take theirs from: a restart needs it again.

    ``random`` and not a seed: two runs at the same time must not want the same ones.
    """
    while True:
        port = random.SystemRandom().randrange(10_000, 30_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


@dataclass
class Metrics:
    """One scrape. ``values``: sums over the labels, by metric name without ``ingeborg_``."""

    incarnation: str
    values: dict[str, float]
    peers_up: set[str]

    def __getitem__(self, name: str) -> float:
        return self.values.get(name, 0.0)


class EndpointProcess:
    """One endpoint under one name and one port, over all its lives."""

    def __init__(
        self,
        name: str,
        options: Sequence[str],
        directory: Path,
        environment: Mapping[str, str],
        *,
        host: str = "127.0.0.1",
        through: Sequence[str] = (),
    ) -> None:
        """``through``: a command that becomes the endpoint's, such as `ip netns exec NAME`."""
        self.name = name
        self.port = free_port()
        self.url = f"ws://{host}:{self.port}"
        self.inside = self.url  # where its metrics are
        self._through = through
        self.log = directory / f"{name}-{self.port}.log"
        self._options = options
        self._environment = {**os.environ, **environment}
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, *, ready: bool = True) -> None:
        """Start it; with ``ready``, wait for the line that says so."""
        assert self._process is None, f"{self.name} runs"
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._through,
                *(sys.executable, "-m", "broker.cli", "serve", "--name", self.name, "--port", str(self.port)),
                *self._options,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env=self._environment,
                start_new_session=True,
            )
        if ready:
            await self.ready()

    async def ready(self, url: str | None = None, within_s: float = READY_S) -> None:
        """Wait for the ready line; ``url``: what it names, where that is not the endpoint's own."""
        assert self._process is not None
        assert self._process.stdout is not None
        async with asyncio.timeout(within_s):
            line = (await self._process.stdout.readline()).decode()
        assert f"endpoint {self.name} ready at {url or self.url}/" in line, f"{line!r}; {self.said()}"

    @property
    def runs(self) -> bool:
        """Has it been started, and not been seen to end?"""
        return self._process is not None and self._process.returncode is None

    def signal(self, number: signal.Signals) -> None:
        """Send the endpoint's process, and not its store's writers, a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    async def ended(self, within_s: float = END_S) -> int:
        """Wait for the end; the exit code. Nothing of its process group stays."""
        assert self._process is not None
        async with asyncio.timeout(within_s):
            code = await self._process.wait()
        self._kill_group()
        self._process = None
        return code

    async def kill(self, *, writers: bool = False) -> None:
        """``kill -9``; with ``writers``, of its store's writers at the same instant too."""
        if writers:
            self._kill_group()
        else:
            self.signal(signal.SIGKILL)
        await self.ended()

    async def end(self) -> None:
        """Whatever state it is in: it runs no more afterwards."""
        if self._process is not None:
            self._kill_group()
            await self.ended()

    def _kill_group(self) -> None:
        assert self._process is not None
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # it has ended already, and its writers with it

    def said(self) -> str:
        """Its log, of all its lives."""
        return self.log.read_text(errors="replace")

    async def metrics(self) -> Metrics:
        """A scrape; raises ``PageError`` where it does not answer."""
        page = await fetch(self.inside, "/metrics", timeout_s=10.0)
        scrape = Metrics("", {}, set())
        for sample in samples(page.text):
            name = sample.name.removeprefix("ingeborg_")
            scrape.values[name] = scrape.values.get(name, 0.0) + sample.value
            if name == "info":
                scrape.incarnation = sample.labels["incarnation"]
            elif name == "peer_up" and sample.value == 1:
                scrape.peers_up.add(sample.labels["name"])
        return scrape

    async def answers(self) -> bool:
        """Is there an HTTP server at its port?"""
        try:
            return (await fetch(self.url, "/healthz")).status == 200
        except PageError:
            return False


@dataclass
class Cluster:
    """Endpoints that share a store, by name in the order they were started in."""

    directory: Path
    options: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    endpoints: dict[str, EndpointProcess] = field(default_factory=dict)

    def __getitem__(self, name: str) -> EndpointProcess:
        return self.endpoints[name]

    def urls(self, *first: str) -> list[str]:
        """Every endpoint's URL; those named come first, in that order."""
        return [self[name].url for name in sorted(self.endpoints, key=lambda name: (name not in first, name))]

    def others(self, name: str) -> list[EndpointProcess]:
        """Every endpoint but this one."""
        return [endpoint for endpoint in self.endpoints.values() if endpoint.name != name]

    def home(self, topic: str) -> str:
        """The name of the topic's home while all of them are alive."""
        return home_table((name, name) for name in self.endpoints)[slot_of(topic)]

    def topics_at_home(self, name: str, prefix: str, count: int) -> list[str]:
        """So many topics that have this endpoint for their home."""
        found: list[str] = []
        number = 0
        while len(found) < count:
            topic = f"{prefix} {number}"
            number += 1
            if self.home(topic) == name:
                found.append(topic)
        return found

    def new(self, name: str, *options: str) -> EndpointProcess:
        """One more endpoint, not started. Two of one name are told apart by whoever asks for that."""
        endpoint = EndpointProcess(name, [*self.options, *options], self.directory, self.environment)
        self.endpoints[name if name not in self.endpoints else f"{name} again"] = endpoint
        return endpoint

    async def whole(self) -> None:
        """Every endpoint runs and is linked with every other one; whichever does not is started."""
        for endpoint in self.endpoints.values():
            if not endpoint.runs:
                await endpoint.end()
                await endpoint.start()
        await self.linked(*self.endpoints)

    async def linked(self, *names: str, within_s: float = PATIENCE_S) -> float:
        """Wait until each of these has joined and has links to exactly the others; how long it took, in seconds."""

        async def all_up() -> bool:
            for name in names:
                scrape = await self[name].metrics()
                if scrape["joined"] != 1 or scrape.peers_up != set(names) - {name}:
                    return False
            return True

        return await eventually(all_up, f"{', '.join(names)} linked with each other and nobody else", within_s)

    async def idle(self) -> None:
        """Wait until no running endpoint has a publish, or anything else that it asked of another, under way."""

        async def nothing_under_way() -> bool:
            for endpoint in self.endpoints.values():
                if endpoint.runs:
                    scrape = await endpoint.metrics()
                    if scrape["publishes_in_flight"] or scrape["requests_under_way"]:
                        return False
            return True

        await eventually(nothing_under_way, "nothing under way at any endpoint")

    async def no_fault(self) -> None:
        """No running endpoint has met a fault of its own."""
        for endpoint in self.endpoints.values():
            if endpoint.runs:
                assert (await endpoint.metrics())["turns_failed_total"] == 0, endpoint.said()
            assert "Traceback" not in endpoint.said(), endpoint.said()


@asynccontextmanager
async def cluster_of(
    names: Sequence[str], directory: Path, *options: str, store: str | None = None, **environment: str
) -> AsyncIterator[Cluster]:
    """Endpoints of these names, started one by one; at the end all are gone, and none has met a fault of its own.

    ``store``: their ``--store``; an LMDB directory of their own where none is given. ``options``: more of `serve`'s.
    """
    cluster = Cluster(directory, ["--store", store or f"lmdb:{directory / 'store'}", *options], environment)
    try:
        for name in names:
            await cluster.new(name).start()
        await cluster.linked(*names)
        yield cluster
        await cluster.no_fault()
    finally:
        await asyncio.gather(*(endpoint.end() for endpoint in cluster.endpoints.values()))


def options_of(module: Any) -> list[str]:
    """What a test module wants its cluster's `serve` to be given."""
    return list(getattr(module, "SERVE_OPTIONS", []))
