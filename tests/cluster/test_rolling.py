"""A rolling restart of three endpoints under traffic: every publish is acknowledged and every subscription survives,
even if the endpoints come back as another build, or with other settings.

The endpoints send their clients elsewhere. Clients miss only messages published while they did not listen (SPEC section
8, 4), and the tests check that message by message. A recovering client misses nothing (SPEC section 8, 10).
"""

from __future__ import annotations

import asyncio
import math
import signal
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio

from ingeborg.bench.drift import trees
from ingeborg.protocol.client import Client, ConnectionLost, Gap
from ingeborg.protocol.errors import ProtocolError
from tests.broker.running import ingeborg

from .processes import Cluster, cluster_of
from .test_history import TOPICS as KEPT
from .test_history import back, by_topic, numbered, publish, subscribed
from .traffic import Ear, Message

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="module")]

EARS = 12
#: An endpoint counts a client as gone when it sends the close; on a busy machine the client gets that a little later,
#: perhaps after the publisher's acknowledgement, which came over another connection.
NOTICED_S = 0.5
#: Nothing expires meanwhile, even on a slow machine.
VARIABLES = {"INGEBORG_DRAIN_TIME": "1", "INGEBORG_DEDUP_TTL": "600"}
WEAK = {"INGEBORG_REPLICATION": "off", "INGEBORG_HISTORY": "memory"}
TOPICS = [f"rolling {number}" for number in range(30)]
#: Retention time in seconds: longer than a test takes.
KEEP_S = 600
#: The other build's name for itself.
OTHER = "0.0.0+other"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    directory: Path = tmp_path_factory.mktemp("rolling")
    async with cluster_of("abc", directory, **VARIABLES) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return variables that make an endpoint run another build of these sources: an interpreted one in its own
    folder."""
    folder = tmp_path_factory.mktemp("other")
    trees.of_working_tree(Path(__file__).resolve().parents[2], folder)
    (folder / "broker" / "version.py").write_text(f'VERSION = "{OTHER}"\n', encoding="utf-8")
    # Without the third, the current folder would precede the first.
    return {**VARIABLES, "PYTHONPATH": str(folder), "INGEBORG_PURE": "1", "PYTHONSAFEPATH": "1"}


class Moving(Ear):
    """An ear that remembers when it did not listen."""

    def __init__(self, urls: list[str], client_id: str) -> None:
        super().__init__(urls, client_id, on_lost=self._lost, backoff_base_s=0.02, backoff_max_s=0.2)
        self.away: list[list[float]] = []  # from when to when
        self.returning: set[asyncio.Task[None]] = set()

    def _lost(self, error: ConnectionLost) -> None:
        # From when: its last sign of listening, since TCP's close may show up late.
        self.away.append([min(time.monotonic(), self.last_at or math.inf), float("inf")])
        task = asyncio.get_running_loop().create_task(self._back(self.away[-1]))
        self.returning.add(task)
        task.add_done_callback(self.returning.discard)

    async def _back(self, away: list[float]) -> None:
        await self.all_read()  # which waits for the next connection
        away[1] = time.monotonic()


class Publisher:
    """Publishes numbers to the topics in turn, as fast as the acknowledgements come, over several connections at
    once."""

    def __init__(self, clients: list[Client], keep_s: int | None) -> None:
        self.sent: dict[Message, tuple[float, float]] = {}  # when it was sent, and when acknowledged
        self._clients = clients
        self._keep_s = keep_s
        self._stop = asyncio.Event()

    async def _publish(self, first: int, client: Client) -> None:
        number = first
        while not self._stop.is_set():
            message = (TOPICS[number % len(TOPICS)], number)
            began = time.monotonic()
            await client.publish(*message, ack=True, keep_s=self._keep_s)
            self.sent[message] = (began, time.monotonic())
            number += len(self._clients)
            await asyncio.sleep(0.005)

    async def run(self) -> None:
        """Publish until ``stop``. A publish that fails fails the test."""
        async with asyncio.TaskGroup() as group:
            for first, client in enumerate(self._clients):
                group.create_task(self._publish(first, client))

    def stop(self) -> None:
        """Publish no more."""
        self._stop.set()


async def roll(cluster: Cluster, variables: Mapping[str, str], keep_s: int | None = None) -> None:
    """Restart each endpoint in turn, with these variables in its environment. ``keep_s``: messages are retained this
    long, and a client recovers."""
    gaps: list[Gap] = []
    async with AsyncExitStack() as stack:
        ears = []
        for number in range(EARS):
            ear = Moving(cluster.urls("abc"[number % 3]), f"rolling ear {number}")
            ears.append(await stack.enter_async_context(ear))
            await ear.client.subscribe(TOPICS[number % 3 :: 3])
        recovering = Ear(cluster.urls("b"), "rolling recovering", recover=True, on_gap=gaps.append)
        if keep_s is not None:
            await stack.enter_async_context(recovering)
            await recovering.client.subscribe(TOPICS)
        clients = [
            await stack.enter_async_context(
                Client(cluster.urls(name), f"rolling publisher {name}", timeout_s=30, backoff_base_s=0.02)
            )
            for name in "abc"
        ]
        publisher = Publisher(clients, keep_s)
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

        assert sum(len(ear.away) for ear in ears) >= EARS  # everybody was sent away at least once
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
        if keep_s is not None:
            await recovering.hears(publisher.sent)
            assert recovering.client.reconnects >= 1
            assert recovering.heard == dict.fromkeys(publisher.sent, 1)
            assert gaps == []
        for endpoint in cluster.endpoints.values():
            assert "could not" not in endpoint.said()


async def test_a_rolling_restart_as_another_build_loses_no_publish_and_no_subscription(
    cluster: Cluster, other: dict[str, str]
) -> None:
    await roll(cluster, other)
    assert all(f"ingeborg {OTHER}, interpreted" in endpoint.said() for endpoint in cluster.endpoints.values())


async def test_settings_that_change_in_a_rolling_restart_lose_and_double_nothing(tmp_path: Path) -> None:
    async with cluster_of("abc", tmp_path, **VARIABLES, **WEAK) as cluster:
        a, b, c = (cluster[name].url for name in "abc")
        before = await subscribed(a, "anna")
        await publish(b, numbered(0, 24))
        for setting in (("replication", "on"), ("history", "store")):
            assert await cluster.record(*setting) == 0
        await roll(cluster, VARIABLES, KEEP_S)
        assert await differing(cluster) == [0, 0, 0]
        await cluster.replicated()
        assert all([(await endpoint.metrics())["replicas"] for endpoint in cluster.endpoints.values()])
        after = await subscribed(b, "bert")
        await publish(c, numbered(24, 48))
        await kill_all(cluster)
        await cluster.whole()
        bert, _ = await back(a, "bert", after)
        assert (bert.gaps, by_topic(bert.payloads)) == ([], by_topic(numbered(24, 48)))
        # Messages retained before the change were in memory.
        anna, _ = await back(a, "anna", before)
        assert (anna.lacking, by_topic(anna.payloads)) == ({*KEPT}, by_topic(numbered(24, 48)))


@pytest.mark.prove
async def test_the_end_of_all_in_the_middle_of_a_change_is_a_gap_of_what_was_in_memory_and_of_nothing_else(
    tmp_path: Path,
) -> None:
    async with cluster_of("abc", tmp_path, **VARIABLES, **WEAK) as cluster:
        assert await cluster.record("history", "store") == 0
        assert await differing(cluster) == [0, 0, 0]
        await again(cluster, "a", VARIABLES)
        assert await differing(cluster) == [2, 1, 1]
        position = await subscribed(cluster["b"].url, "anna")
        await publish(cluster["b"].url, numbered(0, 48))
        await kill_all(cluster)
        for name in "bc":
            cluster[name].variables = dict(VARIABLES)
        await cluster.whole()
        anna, _ = await back(cluster["c"].url, "anna", position)
        written = [topic for topic in KEPT if cluster.home(topic) == "a"]
        assert anna.lacking == {*KEPT} - {*written}
        assert by_topic(anna.payloads) == {topic: by_topic(numbered(0, 48))[topic] for topic in written}


async def test_an_endpoint_with_another_setting_than_the_cluster_ends_and_names_the_command(tmp_path: Path) -> None:
    async with (
        cluster_of("a", tmp_path, **WEAK) as cluster,
        ingeborg(tmp_path, "serve", *cluster.options, "--port", "0", "--replication", "on") as refused,
    ):
        assert await refused.ended() == 2
        (line,) = refused.said().splitlines()
        assert line.startswith("ingeborg serve: the cluster has replication=off")
        assert line.endswith("`ingeborg cluster set replication on`")


async def test_a_messages_own_key_goes_with_its_topic_to_other_homes(cluster: Cluster) -> None:
    async with Client(cluster.urls("a"), "keys", timeout_s=30) as client:
        assert {cluster.home(topic) for topic in TOPICS} == {"a", "b", "c"}
        assert await said(client, "paid", "first") == dict.fromkeys(TOPICS, False)
        for name in "bc":
            await again(cluster, name, VARIABLES)
        assert await said(client, "on hold", "second") == dict.fromkeys(TOPICS, False)
        assert await said(client, "paid", "third") == dict.fromkeys(TOPICS, False)
        assert await said(client, "paid", "first") == dict.fromkeys(TOPICS, True)
        assert await said(client, "on hold", "first") == dict.fromkeys(TOPICS, "conflict")


async def again(cluster: Cluster, name: str, variables: Mapping[str, str]) -> None:
    """End the endpoint in order and start it again, with these variables in its environment."""
    endpoint = cluster[name]
    endpoint.signal(signal.SIGTERM)
    assert await endpoint.ended(within_s=25) == 0
    endpoint.variables = dict(variables)
    await endpoint.start()
    await cluster.linked(*"abc")


async def said(client: Client, payload: str, own_key: str) -> dict[str, bool | str | None]:
    """Publish the payload with this key; return by topic whether it was a duplicate, or the error."""
    found: dict[str, bool | str | None] = {}
    for topic in TOPICS:
        try:
            found[topic] = await client.publish(topic, payload, ack=True, dedup=own_key)
        except ProtocolError as error:
            found[topic] = error.code
    return found


async def kill_all(cluster: Cluster) -> None:
    """Prevent endpoints from handing over anything."""
    for endpoint in cluster.endpoints.values():
        endpoint.signal(signal.SIGKILL)
    for endpoint in cluster.endpoints.values():
        await endpoint.ended()


async def differing(cluster: Cluster) -> list[float]:
    """Return how many others have other settings, from each endpoint's view."""
    return [(await endpoint.metrics())["settings_differ"] for endpoint in cluster.endpoints.values()]
