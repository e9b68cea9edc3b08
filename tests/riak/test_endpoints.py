"""Whole endpoints on Riak: real sockets to the clients and between the endpoints, with the double as the cluster.

These tests show what the driver's own tests cannot: what clients get when nodes go and come.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from ingeborg.broker.command.serve import listen
from ingeborg.broker.core.model import Endpoint
from ingeborg.broker.shell.server import EndpointServer
from ingeborg.broker.store.riak import RiakStore
from ingeborg.protocol.client import Client
from ingeborg.protocol.pages import fetch
from tests.broker.running import PATIENCE_S, UNHURRIED, plain
from tests.cluster.stalls import Stalls

from .double import RiakDouble

SECRET = b"the secret of these tests"
TOPICS = [f"song {number}" for number in range(40)]

Start = Callable[..., Awaitable[EndpointServer]]


@pytest.fixture
async def start(riak: RiakDouble) -> AsyncIterator[Start]:
    """``await start("name", nodes=[0, 1])`` returns a running endpoint that has joined the others."""
    async with AsyncExitStack() as running:

        async def start(name: str, nodes: list[int] | None = None, **options: Any) -> EndpointServer:
            sock = listen("127.0.0.1", 0)
            url = f"ws://127.0.0.1:{sock.getsockname()[1]}"
            addresses = riak.addresses if nodes is None else [riak.addresses[number] for number in nodes]
            server = EndpointServer(
                Endpoint(name, secrets.token_hex(8), url, 0),
                RiakStore(addresses),
                secret=SECRET,
                store_name="riak",
                patience=UNHURRIED,
                **options,
            )
            await server.start(sock)
            running.push_async_callback(server.stop)
            async with asyncio.timeout(PATIENCE_S):
                await server.ready.wait()
            return server

        yield start


async def readiness(url: str, status: int) -> str:
    """Return the text of ``/readyz`` once it has that status."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            page = await fetch(url, "/readyz")
            if page.status == status:
                return page.text
            await asyncio.sleep(0.05)


async def next_note(client: Client) -> tuple[str | None, Any]:
    async with asyncio.timeout(PATIENCE_S):
        note = await anext(aiter(client))
    return note.key, note.broadcast


async def test_two_endpoints_share_subscribers_through_riak(start: Start) -> None:
    one, other = await start("one"), await start("other")
    async with Client(one.router.me.url, "ann", listen=True) as ann, Client(other.router.me.url, "bob") as bob:
        await ann.subscribe(TOPICS)
        for topic in TOPICS:
            assert await bob.publish(topic, topic, ack=True) is False
        got = [await next_note(ann) for _ in TOPICS]
        assert sorted(got) == sorted((topic, topic) for topic in TOPICS)


async def test_with_one_node_down_subscribes_and_publishes_go_on(riak: RiakDouble, start: Start) -> None:
    server = await start("one")
    url = server.router.me.url
    async with Client(url, "ann", listen=True) as ann:
        await ann.subscribe(TOPICS[:20])
        riak.memory.faults.fallbacks_answer_first = True  # nodes that never saw a key answer before those that have it
        await riak.nodes[1].kill()
        await ann.subscribe(TOPICS[20:])
        for topic in TOPICS:
            await ann.publish(topic, "with two nodes", ack=True)
        got = [await next_note(ann) for _ in TOPICS]
        assert sorted(str(key) for key, _ in got) == sorted(TOPICS)
        assert (await fetch(url, "/readyz")).status == 200


async def test_the_whole_store_down_is_said_survived_and_recovered_from(riak: RiakDouble, start: Start) -> None:
    server = await start("one")
    url = server.router.me.url
    async with Client(url, "ann", listen=True) as ann, plain(url) as bob, plain(url) as cat:
        await ann.subscribe(["cached", "not cached"])
        await ann.publish("cached", "before", ack=True)
        assert await next_note(ann) == ("cached", "before")

        for node in riak.nodes:
            await node.kill()
        with Stalls() as stalls:
            began = time.monotonic()
            refusal = await bob.ask({"command": "subscribe", "client_id": "bob", "topic": "anything"})
            assert refusal["error"] == "store_unavailable"
            assert time.monotonic() - began < 5 + stalls.seconds
        assert "the store does not answer" in await readiness(url, 503)
        assert await ann.publish("cached", "during", ack=True) is False
        assert await next_note(ann) == ("cached", "during")
        publish = {"command": "publish", "client_id": "cat", "topic": "not cached", "payload": "during", "ack": True}
        assert (await cat.ask({**publish, "dedup": False}))["error"] == "store_unavailable"

        for number in range(len(riak.nodes)):
            await riak.restart(number)
        await readiness(url, 200)
        assert await bob.ask({"command": "subscribe", "client_id": "bob", "topic": "anything"}) == {"result": "success"}
        assert await ann.publish("not cached", "after", ack=True) is False
        assert await next_note(ann) == ("not cached", "after")
