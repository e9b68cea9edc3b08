"""Two endpoints under a little traffic of every kind, scraped by a Prometheus: their metrics, and its answers.

Owns: the endpoints, the traffic and the Prometheus, and their end. Must never: judge the results.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import shutil
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

from ingeborg.bench.starting import Child, awaited, claim
from ingeborg.protocol.client import Client
from ingeborg.protocol.pages import fetch, samples
from tests import wants
from tests.cluster.processes import Cluster, cluster_of, eventually

#: The interval of scrapes, in seconds.
SCRAPE_S = 0.25

#: Scrapes of each endpoint behind every answer.
SCRAPES = 12

#: The topic of the client with bounds.
WATCHED = "watched"

#: The longest wait for a reply, in seconds.
_REPLY_S = 60.0


@dataclass
class Answer:
    """An answer of Prometheus. ``error``: its message; ``series``: their number; ``numbers``: those with a number."""

    error: str = ""
    series: int = 0
    numbers: int = 0


@dataclass
class Observed:
    """``labels``: all labels seen, by metric. ``answers``: by query; empty without a Prometheus."""

    labels: dict[str, set[str]] = field(default_factory=dict)
    answers: dict[str, Answer] | None = None

    async def see(self, cluster: Cluster, published: Collection[str]) -> None:
        """Read the endpoints' metrics until all of these are present."""
        deadline = asyncio.get_running_loop().time() + _REPLY_S
        while True:
            for endpoint in cluster.endpoints.values():
                for sample in samples((await fetch(endpoint.url, "/metrics")).text):
                    self.labels.setdefault(sample.name, set()).update(sample.labels)
            if self.labels.keys() >= set(published) or asyncio.get_running_loop().time() > deadline:
                return
            await asyncio.sleep(SCRAPE_S / 2)


async def observe(
    directory: Path, published: Collection[str], queries: Iterable[str], shown: Collection[str]
) -> Observed:
    """Run it all; some ten seconds. ``published``: the metrics to wait for, because many appear only after the counted
    event. ``shown``: those of the queries that have an answer, possibly a late one, as a scrape can be late. After a
    time limit the function returns without the missing ones."""
    observed = Observed()
    async with cluster_of(["a", "b"], directory) as cluster, traffic(cluster):
        await observed.see(cluster, published)
        if (program := shutil.which("prometheus", path=wants.PATH)) is not None:
            async with prometheus(program, directory, cluster) as url:
                observed.answers = {query: await ask(url, query) for query in queries}
                deadline = asyncio.get_running_loop().time() + _REPLY_S
                for query in shown:
                    while not observed.answers[query].numbers and asyncio.get_running_loop().time() < deadline:
                        await asyncio.sleep(SCRAPE_S / 2)
                        observed.answers[query] = await ask(url, query)
    return observed


@asynccontextmanager
async def traffic(cluster: Cluster) -> AsyncIterator[None]:
    """Keep a listener at each endpoint and one with bounds, publish across both, and cause once each: an error, a drop,
    a closed connection."""
    urls = cluster.urls()
    async with contextlib.AsyncExitStack() as stack:
        listeners = [
            await stack.enter_async_context(Client([url], f"listener-{number}", listen=True))
            for number, url in enumerate(urls)
        ]
        watcher = await stack.enter_async_context(connect(urls[0]))
        for command in ({"command": "listen", "bounds": "wall"}, {"command": "subscribe", "topic": WATCHED}):
            await watcher.send(json.dumps({"client_id": "watcher", **command}))
        publisher = await stack.enter_async_context(Client([urls[0]], "publisher"))
        topics = [*cluster.topics_at_home("a", "topic", 2), *cluster.topics_at_home("b", "topic", 2)]
        for listener in listeners:
            await listener.subscribe(topics)
        await err(urls[0])
        await eventually(lambda: dropped(cluster, topics), "a reply that came too late")

        async def publish() -> None:
            number = 0
            while True:
                number += 1
                await publisher.publish(topics[number % len(topics)], number, ack=True)
                await publisher.publish(topics[number % len(topics)], number, ack=True)
                await publisher.publish(WATCHED, number, ack=True)
                if number % 10 == 0:
                    await listeners[0].subscribe([f"other {number}"])
                await asyncio.sleep(0.02)

        async def read(messages: Client | ClientConnection) -> None:
            async for _ in messages:
                pass

        readers: list[Client | ClientConnection] = [*listeners, watcher]
        reading = [asyncio.create_task(read(each)) for each in readers]
        tasks = [asyncio.create_task(publish()), *reading]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(outcome, asyncio.CancelledError) for outcome in ended), ended


async def err(url: str) -> None:
    """Send an unknown command, and close after its error has come."""
    async with connect(url) as plain:
        await plain.send('{"command": "err"}')
        async with asyncio.timeout(_REPLY_S):
            assert "bad_command" in str(await plain.recv())


async def dropped(cluster: Cluster, topics: list[str]) -> bool:
    """Send a request and leave without waiting for the reply. Has any endpoint dropped one?"""
    for endpoint in cluster.endpoints.values():
        plain = await connect(endpoint.url)
        await plain.send(json.dumps({"command": "subscribe", "client_id": "hasty", "topic": topics}))
        plain.transport.abort()
    scrapes = [await endpoint.metrics() for endpoint in cluster.endpoints.values()]
    return any(scrape["drops_total"] for scrape in scrapes)


@asynccontextmanager
async def prometheus(program: str, directory: Path, cluster: Cluster) -> AsyncIterator[str]:
    """Start a Prometheus, wait until it has scraped each endpoint some times, and yield its URL."""
    targets = [endpoint.url.removeprefix("ws://") for endpoint in cluster.endpoints.values()]
    scrape = {"job_name": "ingeborg", "static_configs": [{"targets": targets}]}
    interval = f"{SCRAPE_S * 1000:.0f}ms"
    configuration = {"global": {"scrape_interval": interval, "scrape_timeout": interval}, "scrape_configs": [scrape]}
    (directory / "prometheus.yml").write_text(json.dumps(configuration))  # JSON is YAML
    with claim() as port:
        address = f"127.0.0.1:{port.first}"
        url = f"http://{address}"
        command = [
            program,
            f"--config.file={directory / 'prometheus.yml'}",
            f"--storage.tsdb.path={directory / 'prometheus'}",
            f"--web.listen-address={address}",
        ]
        child = Child("Prometheus", command, directory / "prometheus.log")
        try:

            async def scraped() -> bool:
                assert child.runs, child.said()
                query = f"count(count_over_time(ingeborg_joined[1m]) >= {SCRAPES}) == {len(targets)}"
                return (await ask(url, query)).series == 1

            await eventually(scraped, f"{SCRAPES} scrapes of each endpoint", within_s=120.0)
            yield url
        finally:
            await awaited(child.end(_REPLY_S))


async def ask(url: str, query: str) -> Answer:
    """Evaluate an expression now."""
    return await asyncio.to_thread(_ask, url, query)


def _ask(url: str, query: str) -> Answer:
    try:
        with urllib.request.urlopen(
            f"{url}/api/v1/query", urllib.parse.urlencode({"query": query}).encode(), timeout=10.0
        ) as response:
            result: list[Any] = json.load(response)["data"]["result"]
    except urllib.error.HTTPError as error:
        return Answer(error=error.read().decode())
    except (OSError, ValueError) as error:  # not there yet
        return Answer(error=str(error))
    values = [float(series["value"][1]) for series in result]
    return Answer(series=len(values), numbers=sum(not math.isnan(value) for value in values))
