"""Clusters of endpoints as real processes, watched through their published state.

Owns: which endpoints share a store, the waiting for them, and that all endpoints end. Must never: start a process
directly; ``ingeborg.bench.starting`` does.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ingeborg.bench.starting import Endpoint, claim, end_all
from ingeborg.broker.core.cluster.homes import home_table
from ingeborg.protocol.hashes import slot_of
from ingeborg.protocol.pages import PageError, fetch, samples
from tests.broker.running import ingeborg

#: Time limit for a condition to come true if the product promises none, in seconds.
PATIENCE_S = 60.0

#: Interval between two checks of a condition without an event, in seconds.
LOOK_S = 0.03


async def eventually(condition: Callable[[], Awaitable[bool]], what: str, within_s: float = PATIENCE_S) -> float:
    """Poll until the condition holds; return how long that took, in seconds. Fails after ``within_s``."""
    began = time.monotonic()
    while not await condition():
        assert time.monotonic() - began < within_s, f"not within {within_s:g} s: {what}"
        await asyncio.sleep(LOOK_S)
    return time.monotonic() - began


def free_port() -> int:
    """Return a port that is free now. To keep a port, hold it: ``ingeborg.bench.starting.claim``."""
    with claim() as ports:
        return ports.first


@dataclass
class Metrics:
    """One scrape. ``values``: sums over the labels, by metric name without ``ingeborg_``."""

    incarnation: str
    values: dict[str, float]
    peers_up: set[str]

    def __getitem__(self, name: str) -> float:
        return self.values.get(name, 0.0)


class EndpointProcess(Endpoint):
    """One endpoint under one name and one port, over all its lives, and its published state."""

    def __init__(
        self,
        name: str,
        options: Sequence[str],
        directory: Path,
        variables: Mapping[str, str] | None = None,
        *,
        host: str = "127.0.0.1",
        through: Sequence[str] = (),
        serving: Sequence[str] = (),
    ) -> None:
        super().__init__(name, options, directory, variables, host=host, through=through, serving=serving)
        self.inside = self.url  # the address of its metrics

    async def metrics(self) -> Metrics:
        """Scrape its metrics; raises ``PageError`` if it does not answer."""
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
        """Does an HTTP server answer at its port?"""
        try:
            return (await fetch(self.url, "/healthz")).status == 200
        except PageError:
            return False


@dataclass
class Cluster:
    """Endpoints that share a store, by name, in the order of their start."""

    directory: Path
    options: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    endpoints: dict[str, EndpointProcess] = field(default_factory=dict)

    def __getitem__(self, name: str) -> EndpointProcess:
        return self.endpoints[name]

    def urls(self, *first: str) -> list[str]:
        """Return every endpoint's URL; the named ones first, in that order."""
        return [self[name].url for name in sorted(self.endpoints, key=lambda name: (name not in first, name))]

    def others(self, name: str) -> list[EndpointProcess]:
        """Return every endpoint but this one."""
        return [endpoint for endpoint in self.endpoints.values() if endpoint.name != name]

    def home(self, topic: str) -> str:
        """Return the name of the topic's home while all are alive."""
        return home_table((name, name) for name in self.endpoints)[slot_of(topic)]

    def topics_at_home(self, name: str, prefix: str, count: int) -> list[str]:
        """Return this many topics that have this endpoint as their home."""
        found: list[str] = []
        number = 0
        while len(found) < count:
            topic = f"{prefix} {number}"
            number += 1
            if self.home(topic) == name:
                found.append(topic)
        return found

    def new(self, name: str, *options: str) -> EndpointProcess:
        """Add one more endpoint, not started. The caller has to tell two of one name apart."""
        endpoint = EndpointProcess(name, [*self.options, *options], self.directory, self.environment)
        self.endpoints[name if name not in self.endpoints else f"{name} again"] = endpoint
        return endpoint

    async def whole(self) -> None:
        """Have every endpoint run, linked with every other one; start those that do not run."""
        for endpoint in self.endpoints.values():
            if not endpoint.runs:
                await endpoint.end()
                await endpoint.start()
        await self.linked(*self.endpoints)

    async def linked(self, *names: str, within_s: float = PATIENCE_S) -> float:
        """Wait until each of these has joined and has links to exactly the others; return how long it took, in
        seconds."""

        async def all_up() -> bool:
            for name in names:
                scrape = await self[name].metrics()
                if scrape["joined"] != 1 or scrape.peers_up != set(names) - {name}:
                    return False
            return True

        return await eventually(all_up, f"{', '.join(names)} linked with each other and nobody else", within_s)

    async def record(self, setting: str, value: str) -> int:
        """Run `ingeborg cluster set`; return its exit code. Endpoints take the setting at their next start."""
        async with ingeborg(self.directory, "cluster", "set", setting, value, *self.options[:2]) as command:
            return await command.ended()

    async def replicated(self) -> None:
        """Wait until every slot of every running endpoint has its replica."""

        async def all_have() -> bool:
            scrapes = [await endpoint.metrics() for endpoint in self.endpoints.values() if endpoint.runs]
            return not any(scrape["slots_without_replica"] for scrape in scrapes)

        await eventually(all_have, "a replica for every slot")

    async def idle(self) -> None:
        """Wait until no running endpoint has a publish, or any request to another endpoint, under way."""

        async def nothing_under_way() -> bool:
            for endpoint in self.endpoints.values():
                if endpoint.runs:
                    scrape = await endpoint.metrics()
                    if scrape["publishes_in_flight"] or scrape["requests_under_way"]:
                        return False
            return True

        await eventually(nothing_under_way, "nothing under way at any endpoint")

    async def no_fault(self) -> None:
        """Check that no running endpoint has met a fault of its own."""
        for endpoint in self.endpoints.values():
            if endpoint.runs:
                assert (await endpoint.metrics())["turns_failed_total"] == 0, endpoint.said()
            assert "Traceback" not in endpoint.said(), endpoint.said()


@asynccontextmanager
async def cluster_of(
    names: Sequence[str], directory: Path, *options: str, store: str | None = None, **environment: str
) -> AsyncIterator[Cluster]:
    """Endpoints with these names, started one by one; at the end all are gone, and none has met a fault of its own.

    ``store``: their ``--store``; by default their own LMDB directory. ``options``: further options of `serve`.
    """
    cluster = Cluster(directory, ["--store", store or f"lmdb:{directory / 'store'}", *options], environment)
    try:
        for name in names:
            await cluster.new(name).start()
        await cluster.linked(*names)
        yield cluster
        await cluster.no_fault()
    finally:
        await end_all(list(cluster.endpoints.values()))


def options_of(module: Any) -> list[str]:
    """The options that a test module gives to its cluster's `serve`."""
    return list(getattr(module, "SERVE_OPTIONS", []))
