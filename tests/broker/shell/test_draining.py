"""An orderly end: the endpoint sends clients away, a few at a time, and loses none of their commands. SPEC section
1.1."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from websockets.exceptions import InvalidStatus

from ingeborg.broker.core.limits import Sizes
from ingeborg.broker.store.embedded.store import EmbeddedStore
from ingeborg.protocol.client import Client
from ingeborg.protocol.pages import fetch
from tests.cluster.processes import eventually
from tests.conftest import Logged

from ..running import PATIENCE_S, UNHURRIED, Gated, plain, running

pytestmark = pytest.mark.usefixtures("transport", "logged")

#: For an endpoint whose store does not answer: its waits to transfer its slots, and for a client's reply, time out.
ENDING = replace(UNHURRIED, transfer_s=0.3, replies_s=PATIENCE_S)


async def test_clients_are_told_to_go_over_the_drain_time(tmp_path: Path) -> None:
    async with running(tmp_path, drain_s=1.0, sizes=Sizes(told_at_once=1)) as endpoint, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(plain(endpoint.url)) for _ in range(40)]
        loop = asyncio.get_running_loop()
        closed_at = []

        async def wait(client: object) -> None:
            assert (await client.closed())[0] == 1001  # type: ignore[attr-defined]
            closed_at.append(loop.time())

        waiting = [asyncio.create_task(wait(client)) for client in clients]
        await endpoint.server.stop()
        await asyncio.gather(*waiting)
        # In batches, the first at once: never all together. (The time depends on the machine as well.)
        assert max(closed_at) - min(closed_at) > 0.5


async def test_while_clients_are_sent_away_it_is_not_ready_and_takes_nobody_in(tmp_path: Path, logged: Logged) -> None:
    logged.expect("could not transfer all slots")
    store = Gated(EmbeddedStore(tmp_path))
    async with running(tmp_path, store=store, patience=ENDING) as endpoint, plain(endpoint.url) as anna:
        store.shut()
        await anna.send({"command": "subscribe", "client_id": "anna", "topic": "t"})  # whose reply has to wait
        await endpoint.until(lambda metrics: metrics["ingeborg_store_calls_total"] > 0)
        stopping = asyncio.create_task(endpoint.server.stop())
        async with asyncio.timeout(PATIENCE_S):
            while (await fetch(endpoint.url, "/readyz")).status == 200:
                pass
        page = await fetch(endpoint.url, "/readyz")
        assert (page.status, "shutting down" in page.text) == (503, True)
        with pytest.raises(InvalidStatus, match="503"):
            async with plain(endpoint.url):
                pass
        store.reopen()
        assert await anna.hear() == {"result": "success"}
        assert (await anna.closed())[0] == 1001
        await stopping


async def test_what_was_sent_before_the_close_counts(tmp_path: Path, logged: Logged) -> None:
    logged.expect("could not transfer all slots")
    store = Gated(EmbeddedStore(tmp_path))
    async with running(tmp_path, store=store, patience=ENDING) as endpoint, plain(endpoint.url) as anna:
        store.shut()
        await anna.send({"command": "subscribe", "client_id": "anna", "topic": "t"})
        await endpoint.until(lambda metrics: metrics["ingeborg_store_calls_total"] > 0)
        stopping = asyncio.create_task(endpoint.server.stop())

        async def drains() -> bool:
            return any(connection.draining for connection in endpoint.server.clients.sockets)

        await eventually(drains, "the client's turn to go")
        # The endpoint does not read it while its reply is due; then it sends it away.
        await anna.send(*({"command": "publish", "client_id": "anna", "topic": "t", "payload": n} for n in range(100)))
        assert endpoint.server.router.counters.counts["publishes_received"] == 0
        store.reopen()
        assert await anna.hear() == {"result": "success"}
        assert (await anna.closed())[0] == 1001
        await stopping
        assert endpoint.server.router.counters.counts["publishes_received"] == 100


async def test_a_client_of_the_library_goes_on_elsewhere_and_loses_no_publish(tmp_path: Path) -> None:
    async with (
        running(tmp_path / "one", drain_s=0.2) as first,
        running(tmp_path / "other") as second,
        Client([first.url, second.url], "anna") as anna,
    ):
        numbers = iter(range(100_000))
        acknowledged = []
        stop = asyncio.Event()

        async def publish() -> None:
            while not stop.is_set():
                number = next(numbers)
                await anna.publish("t", number, ack=True)
                acknowledged.append(number)

        publishing = [asyncio.create_task(publish()) for _ in range(10)]
        await first.until(lambda metrics: metrics["ingeborg_publishes_received_total"] > 100)
        await first.server.stop()
        await second.until(lambda metrics: metrics["ingeborg_publishes_received_total"] > 100)
        stop.set()
        await asyncio.gather(*publishing)  # none has failed
        assert sorted(acknowledged) == list(range(next(numbers)))
