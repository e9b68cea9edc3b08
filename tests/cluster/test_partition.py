"""Two endpoints that are both alive and cannot reach each other: a proxy in their links stops passing bytes on.

An endpoint that is alive keeps its slots, so commands for the other side fail visibly, and do not happen twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ingeborg.protocol.client import Client
from ingeborg.protocol.errors import ProtocolError

from .processes import cluster_of
from .stalls import again_after_a_stall
from .traffic import Ear

pytestmark = pytest.mark.cluster


class LinkProxy:
    """Passes bytes on to a port, both ways, while ``open``; otherwise it keeps the connections and passes nothing."""

    def __init__(self, passing: asyncio.Event) -> None:
        self.port = 0  # before it serves
        self.target = 0
        self._passing = passing

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            onward = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.close()  # as the endpoint itself refuses, before its start and after its end
            return
        await asyncio.gather(self._pass_on(reader, onward[1]), self._pass_on(onward[0], writer))

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1 << 16):
                await self._passing.wait()
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass  # one side has gone: so does the other's connection
        finally:
            writer.close()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Accept connections within the block."""
        connections: set[asyncio.Task[None]] = set()

        def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connections.add(asyncio.create_task(self._accepted(reader, writer)))

        server = await asyncio.start_server(accepted, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield
        finally:
            server.close()
            for connection in connections:
                connection.cancel()
            await asyncio.gather(*connections, return_exceptions=True)


async def fails(publishing: asyncio.Task[bool | None]) -> ProtocolError:
    """Return the error of the publish."""
    with pytest.raises(ProtocolError) as failure:
        await publishing
    return failure.value


# With silent links, any stall makes peers declare an endpoint dead, and rightly so.
@again_after_a_stall(1.5)
async def test_an_endpoint_that_lives_out_of_reach_keeps_its_slots(tmp_path: Path) -> None:
    passing = asyncio.Event()
    passing.set()
    proxies = {name: LinkProxy(passing) for name in "ab"}
    async with proxies["a"].serving(), proxies["b"].serving(), cluster_of([], tmp_path) as cluster:
        for name, proxy in proxies.items():
            endpoint = cluster.new(name, "--advertise", f"ws://127.0.0.1:{proxy.port}")
            proxy.target = endpoint.port
            await endpoint.start(ready=False)
            await endpoint.ready(f"ws://127.0.0.1:{proxy.port}")
        await cluster.linked("a", "b")
        topic_of_a, topic_of_b = (cluster.topics_at_home(name, "cut", 1)[0] for name in "ab")
        alone_of_a = cluster.topics_at_home("a", "cut alone", 1)[0]
        async with (
            Ear(cluster["a"].url, "ear at a") as ear_a,
            Ear(cluster["b"].url, "ear at b") as ear_b,
            Client(cluster["a"].url, "publisher at a", timeout_s=20) as publisher,
            Client(cluster["b"].url, "publisher at b", timeout_s=20) as publisher_b,
            # On a separate connection: a command waits for earlier ones of another kind.
            Client(cluster[cluster.home("")].url, "crier", timeout_s=20) as crier,
        ):
            await ear_a.client.subscribe([topic_of_a, topic_of_b])
            await ear_b.client.subscribe([topic_of_a, topic_of_b, alone_of_a])
            for topic in (topic_of_a, topic_of_b, alone_of_a):
                assert await publisher.publish(topic, "before", ack=True) is False

            passing.clear()
            # Each takes as long as an endpoint waits for another, so all run at once. The library repeats commands if
            # that is safe; without `dedup` it does not, and the endpoint's own answer shows.
            tasks = [
                asyncio.create_task(publisher.publish(topic, "during", ack=True, dedup=False))
                for topic in (topic_of_a, topic_of_b, alone_of_a)
            ]
            tasks.append(asyncio.create_task(publisher_b.publish(topic_of_b, "by b", ack=True, dedup=False)))
            tasks.append(asyncio.create_task(crier.broadcast("during", ack=True)))
            half, out_of_reach, nobody, half_by_b, cried = [await fails(task) for task in tasks]
            assert (half.code, half.extra["delivered"], half.extra["failed"]) == ("partial", ["a"], ["b"])
            assert (half_by_b.code, half_by_b.extra["delivered"], half_by_b.extra["failed"]) == (
                "partial",
                ["b"],
                ["a"],
            )
            assert (cried.code, cried.extra["delivered"]) == ("partial", [cluster.home("")])
            assert out_of_reach.code == nobody.code == "peer_unavailable"

            passing.set()
            await cluster.linked("a", "b")
            for topic in (topic_of_a, topic_of_b, alone_of_a):
                assert await publisher.publish(topic, "after", ack=True) is False
                assert await publisher_b.publish(topic, "after at b", ack=True) is False
            await cluster.idle()
            for ear in (ear_a, ear_b):
                await ear.all_read()
                assert set(ear.heard.values()) == {1}, ear.heard
            for word in ("before", "after", "after at b"):
                assert (topic_of_a, word) in ear_a.heard
                assert (topic_of_b, word) in ear_a.heard
                assert (topic_of_a, word) in ear_b.heard
                assert (topic_of_b, word) in ear_b.heard
                assert (alone_of_a, word) in ear_b.heard
