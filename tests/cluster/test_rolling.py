"""A rolling restart of three endpoints under traffic: every publish is acknowledged, every subscription is kept. So is
one after which they are of another release.

Clients are told to go and listen elsewhere; what they miss is what was published while they did not listen (SPEC
section 8, 4), which is looked at message by message.
"""

from __future__ import annotations

import asyncio
import math
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio

from ingeborg.broker.core.links.capabilities import CAPABILITIES
from ingeborg.protocol.client import Client, ConnectionLost
from ingeborg.protocol.errors import ProtocolError

from .processes import PATIENCE_S, Cluster, EndpointProcess, cluster_of, eventually
from .traffic import Ear, Message

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="module")]

EARS = 12
#: An endpoint counts a client as gone when it sends the close; on a busy machine the client hears of it a little later,
#: and perhaps after the publisher's acknowledgement, which came over another connection.
NOTICED_S = 0.5
#: Nothing is forgotten meanwhile, however slow the machine is.
VARIABLES = {"INGEBORG_DRAIN_TIME": "1", "INGEBORG_DEDUP_TTL": "600"}
TOPICS = [f"rolling {number}" for number in range(30)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    directory: Path = tmp_path_factory.mktemp("rolling")
    async with cluster_of("abc", directory, **VARIABLES) as cluster:
        yield cluster


class Moving(Ear):
    """An ear that remembers when it did not listen."""

    def __init__(self, urls: list[str], client_id: str) -> None:
        super().__init__(urls, client_id, on_lost=self._lost, backoff_base_s=0.02, backoff_max_s=0.2)
        self.away: list[list[float]] = []  # since when, until when
        self.returning: set[asyncio.Task[None]] = set()

    def _lost(self, error: ConnectionLost) -> None:
        # Since when: the last sign that it did, for the close of TCP may be seen late.
        self.away.append([min(time.monotonic(), self.last_at or math.inf), float("inf")])
        task = asyncio.get_running_loop().create_task(self._back(self.away[-1]))
        self.returning.add(task)
        task.add_done_callback(self.returning.discard)

    async def _back(self, away: list[float]) -> None:
        await self.all_read()  # which waits for the next connection
        away[1] = time.monotonic()


class Publisher:
    """Publishes numbers to the topics in turn, as fast as they are acknowledged, over several connections at once."""

    def __init__(self, clients: list[Client], first: int) -> None:
        self.sent: dict[Message, tuple[float, float]] = {}  # when it was sent, and acknowledged
        self._clients = clients
        self._first = first  # number
        self._stop = asyncio.Event()

    async def _publish(self, first: int, client: Client) -> None:
        number = first
        while not self._stop.is_set():
            message = (TOPICS[number % len(TOPICS)], number)
            began = time.monotonic()
            await client.publish(*message, ack=True)
            self.sent[message] = (began, time.monotonic())
            number += len(self._clients)
            await asyncio.sleep(0.005)

    async def run(self) -> None:
        """Until ``stop``. A publish that fails fails the test."""
        async with asyncio.TaskGroup() as group:
            for first, client in enumerate(self._clients, self._first):
                group.create_task(self._publish(first, client))

    def stop(self) -> None:
        """Publish no more."""
        self._stop.set()


async def roll(cluster: Cluster, variables: Mapping[str, str] | None = None, first: int = 0) -> None:
    """Each endpoint in turn ends and starts again, with these variables in its environment. ``first``: number of what
    is published meanwhile, which nobody has published before."""
    async with AsyncExitStack() as stack:
        ears = []
        for number in range(EARS):
            ear = Moving(cluster.urls("abc"[number % 3]), f"rolling ear {number}")
            ears.append(await stack.enter_async_context(ear))
            await ear.client.subscribe(TOPICS[number % 3 :: 3])
        clients = [
            await stack.enter_async_context(
                Client(cluster.urls(name), f"rolling publisher {name}", timeout_s=30, backoff_base_s=0.02)
            )
            for name in "abc"
        ]
        publisher = Publisher(clients, first)
        publishing = asyncio.create_task(publisher.run())
        for name in "abc":
            await again(cluster, name, variables)
        publisher.stop()
        await publishing
        await cluster.idle()
        for ear in ears:
            await asyncio.gather(*ear.returning)
            await ear.all_read()
            assert all(until < float("inf") for _, until in ear.away), ear.away

        assert sum(len(ear.away) for ear in ears) >= EARS  # everybody was sent away once, at least
        missed = 0
        for number, ear in enumerate(ears):
            wanted = {message for message in publisher.sent if message[0] in TOPICS[number % 3 :: 3]}
            assert set(ear.heard) <= wanted
            assert set(ear.heard.values()) == {1}
            for message in wanted - set(ear.heard):
                sent, acknowledged = publisher.sent[message]
                missed += 1
                explained = any(sent <= until and acknowledged >= since - NOTICED_S for since, until in ear.away)
                assert explained, (message, sent, acknowledged, ear.away)
            assert await ear.topics() == set(TOPICS[number % 3 :: 3])
        heard = sum(len(ear.heard) for ear in ears)
        assert heard > 10 * missed
        for endpoint in cluster.endpoints.values():
            assert "could not" not in endpoint.said()


async def test_a_rolling_restart_loses_no_publish_and_no_subscription(cluster: Cluster) -> None:
    await roll(cluster)


@pytest.mark.prove
async def test_a_rolling_upgrade_and_a_downgrade_lose_none_either(tmp_path: Path, old: dict[str, str]) -> None:
    async with cluster_of("abc", tmp_path, INGEBORG_DRAIN_TIME="1", **old) as cluster:
        assert {await capabilities(cluster[name]) for name in "abc"} == {None}
        await roll(cluster, {"INGEBORG_DRAIN_TIME": "1", "INGEBORG_STANDBY": "1"})
        assert {await capabilities(cluster[name]) for name in "abc"} == {len(CAPABILITIES)}
        # What is wanted is on once the last one is able to.
        await eventually(lambda: standby(cluster, True), "standby on")
        # What is on has to be off before an older release can start.
        _, url = cluster.options[:2]
        code, said = await asyncio.to_thread(ingeborg_features, "--store", url, "--off", "standby")
        assert code == 0, said
        await eventually(lambda: standby(cluster, False), "standby off")
        await roll(cluster, {"INGEBORG_DRAIN_TIME": "1", **old}, 1_000_000)
        assert {await capabilities(cluster[name]) for name in "abc"} == {None}


async def test_a_messages_own_key_goes_with_its_topic_to_other_homes(cluster: Cluster) -> None:
    async with Client(cluster.urls("a"), "keys", timeout_s=30) as client:
        assert {cluster.home(topic) for topic in TOPICS} == {"a", "b", "c"}
        assert await said(client, "paid", "first") == dict.fromkeys(TOPICS, False)
        for name in "bc":
            await again(cluster, name)
        assert await said(client, "on hold", "second") == dict.fromkeys(TOPICS, False)
        assert await said(client, "paid", "third") == dict.fromkeys(TOPICS, False)
        assert await said(client, "paid", "first") == dict.fromkeys(TOPICS, True)
        assert await said(client, "on hold", "first") == dict.fromkeys(TOPICS, "conflict")


@pytest.mark.prove
async def test_own_keys_do_where_homes_are_of_an_older_release(tmp_path: Path, old: dict[str, str]) -> None:
    """Which does not know of them, and notices no conflict; and the next home, which does, has them from it."""
    async with cluster_of("abc", tmp_path, **VARIABLES, **old) as cluster:
        await again(cluster, "a", VARIABLES)
        async with Client(cluster["a"].url, "keys", timeout_s=30) as new, Client(cluster["b"].url, "keys") as former:
            assert await said(new, "paid", "first") == dict.fromkeys(TOPICS, False)
            assert await said(new, "on hold", "second") == dict.fromkeys(TOPICS, False)
            assert await said(new, "paid", "third") == dict.fromkeys(TOPICS, False)
            assert await said(former, "paid", "fourth") == dict.fromkeys(TOPICS, "bad_state")
            for name in "bc":
                await again(cluster, name, VARIABLES)
            assert await said(new, "paid", "first") == dict.fromkeys(TOPICS, True)


@pytest.mark.prove
async def test_subscriptions_end_once_the_last_endpoint_can(tmp_path: Path, old: dict[str, str]) -> None:
    variables = {**VARIABLES, "INGEBORG_GRACE": "1"}
    async with cluster_of("abc", tmp_path, **VARIABLES, **old) as cluster:
        await again(cluster, "a", variables)
        async with Client(cluster["a"].url, "ann", listen=True, timeout_s=7) as ann:
            with pytest.raises(ProtocolError, match="b, c cannot do it") as refused:
                await ann.subscribe(TOPICS, until="disconnect")
            assert refused.value.code == "peer_unavailable"
            await ann.subscribe("plain")
        for name in "bc":
            await again(cluster, name, variables)
        async with Client(cluster["a"].url, "ann", listen=True, timeout_s=30) as ann:
            await ann.subscribe(TOPICS, until="disconnect")
        async with Client(cluster["b"].url, "ann", timeout_s=30) as ann:
            assert {topic async for topic in ann.subscriptions()} == {"plain", *TOPICS}

            async def have_ended() -> bool:
                return [topic async for topic in ann.subscriptions()] == ["plain"]

            await eventually(have_ended, "subscriptions until disconnect end")
        # An older release starts again when it is off, and has what is plain.
        url = cluster.options[1]
        refusing = cluster["c"]
        refusing.signal(signal.SIGTERM)
        assert await refusing.ended(within_s=25) == 0
        refusing.variables = {**VARIABLES, **old}
        code, said = await asyncio.to_thread(ingeborg_features, "--store", url, "--off", "ending")
        assert code == 0, said
        await refusing.start()
        await cluster.linked(*"abc")
        async with Client(refusing.url, "ann", timeout_s=30) as ann:
            assert [topic async for topic in ann.subscriptions()] == ["plain"]


@pytest.mark.prove
async def test_filters_are_taken_once_the_last_endpoint_can(tmp_path: Path, old: dict[str, str]) -> None:
    rock = {"genre": ["rock"]}
    async with cluster_of("abc", tmp_path, **VARIABLES, **old) as cluster:
        await again(cluster, "a", VARIABLES)
        async with Client(cluster["a"].url, "ann", listen=True, timeout_s=7) as ann:
            with pytest.raises(ProtocolError, match="b, c cannot do it") as refused:
                await ann.subscribe(TOPICS, filter=rock)
            assert refused.value.code == "peer_unavailable"
        for name in "bc":
            await again(cluster, name, VARIABLES)
        async with (
            Client(cluster["a"].url, "ann", listen=True, timeout_s=30) as ann,
            Client(cluster["b"].url, "publisher", timeout_s=30) as publisher,
        ):
            await ann.subscribe(TOPICS, filter=rock)
            for topic in TOPICS:
                await publisher.publish(topic, {"genre": "pop"}, ack=True)
                await publisher.publish(topic, {"genre": "rock"}, ack=True)
            heard = {(await asyncio.wait_for(anext(ann), PATIENCE_S)).key for _ in TOPICS}
            assert heard == set(TOPICS)
        # An older release does not start while there may be some, and then has none of them.
        url, refusing = cluster.options[1], cluster["c"]
        refusing.signal(signal.SIGTERM)
        assert await refusing.ended(within_s=25) == 0
        refusing.variables = {**VARIABLES, **old}
        code, said = await asyncio.to_thread(ingeborg_features, "--store", url, "--off", "filters")
        assert code == 0, said
        await refusing.start()
        await cluster.linked(*"abc")
        async with Client(refusing.url, "ann", timeout_s=30) as ann:
            assert [topic async for topic in ann.subscriptions()] == []


async def again(cluster: Cluster, name: str, variables: Mapping[str, str] | None = None) -> None:
    """The endpoint ends in order and starts again."""
    endpoint = cluster[name]
    endpoint.signal(signal.SIGTERM)
    assert await endpoint.ended(within_s=25) == 0
    if variables is not None:
        endpoint.variables = dict(variables)
    await endpoint.start()
    await cluster.linked(*"abc")


async def said(client: Client, payload: str, own_key: str) -> dict[str, bool | str | None]:
    """What comes of the payload with this key, by topic: whether it was a duplicate, or the error."""
    found: dict[str, bool | str | None] = {}
    for topic in TOPICS:
        try:
            found[topic] = await client.publish(topic, payload, ack=True, dedup=own_key)
        except ProtocolError as error:
            found[topic] = error.code
    return found


def ingeborg_features(*words: str) -> tuple[int, str]:
    """The command's exit code, and what it says."""
    command = [sys.executable, "-m", "ingeborg.broker.command.cli", "features", *words]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return ended.returncode, ended.stdout + ended.stderr


async def standby(cluster: Cluster, on: bool) -> bool:
    """At all of them: is it on, and has every slot its standby; or is it off, and is nothing copied?"""
    for endpoint in cluster.endpoints.values():
        scrape = await endpoint.metrics()
        if scrape["features_on"] != on or scrape["slots_without_standby"] or (scrape["copies"] > 0) != on:
            return False
    return True


async def capabilities(endpoint: EndpointProcess) -> int | None:
    """That the endpoint and all of its peers have; ``None``: it is of a release before there were any."""
    values = (await endpoint.metrics()).values
    return int(values["capabilities"]) if "capabilities" in values else None
