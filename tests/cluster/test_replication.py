"""Slots with replicas, while one home after the other is killed under traffic: no payload comes twice, and no
acknowledged one is missing. SPEC sections 7 and 8.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
import pytest_asyncio

from ingeborg.protocol.client import Client
from ingeborg.protocol.errors import ProtocolError

from .processes import Cluster, cluster_of
from .traffic import Ear, Message

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="module")]

TOPICS = [f"replica {number}" for number in range(60)]

#: Interval between two publishes of one connection, in seconds: about 400 a second from both together.
PACE_S = 0.005


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    async with cluster_of("abc", tmp_path_factory.mktemp("replication"), "--replication", "on") as cluster:
        yield cluster


class Reporter:
    """Publishes the numbers that it gets, at one endpoint, and passes them to the other reporters, which publish the
    same."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.acknowledged: set[Message] = set()
        self.failed: list[str] = []

    async def report(self, message: tuple[str, str]) -> None:
        try:
            await self.client.publish(*message, ack=True)
        except ProtocolError as error:
            self.failed.append(error.code)
        else:
            self.acknowledged.add(message)


@pytest.mark.parametrize("victim", "abc")
async def test_the_crash_of_a_home_doubles_and_loses_nothing(cluster: Cluster, victim: str) -> None:
    await cluster.whole()
    await cluster.replicated()
    one, other = [endpoint.name for endpoint in cluster.others(victim)]
    messages: list[tuple[str, str]] = []
    async with AsyncExitStack() as stack:
        ears = []
        for name in (one, other):
            ear = await stack.enter_async_context(Ear(cluster[name].url, f"{victim} ear {name}"))
            await ear.client.subscribe(TOPICS)
            ears.append(ear)
        reporters = [
            Reporter(await stack.enter_async_context(Client(cluster[name].url, f"{victim} {name}", timeout_s=30)))
            for name in (one, other)
        ]
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:

            async def publish() -> None:
                while not stop.is_set():
                    number = len(messages)
                    messages.append((TOPICS[number % len(TOPICS)], f"{victim} {number}"))
                    group.create_task(reporters[number % 2].report(messages[-1]))
                    # One reporter's news soon comes from the other as well; sometimes after the home has crashed.
                    if number > 20:
                        group.create_task(reporters[number % 2 - 1].report(messages[number - number % 20]))
                    await asyncio.sleep(PACE_S)

            publishing = group.create_task(publish())
            await asyncio.sleep(1.0)
            await cluster[victim].kill()
            before = len(messages)
            await cluster.linked(one, other)
            for message in messages[before - 200 : before]:
                group.create_task(reporters[0].report(message))
            await asyncio.sleep(1.0)
            stop.set()
            await publishing
        acknowledged = reporters[0].acknowledged | reporters[1].acknowledged
        for ear in ears:
            await ear.hears(acknowledged)
            await ear.all_read()
            assert {message: often for message, often in ear.heard.items() if often > 1} == {}
        assert reporters[0].failed + reporters[1].failed == []
        assert len(acknowledged) == len(messages) > 100
        await cluster.replicated()
