"""Two endpoint processes on Riak: on the test double, and on a real cluster if one is given.

``INGEBORG_TEST_RIAK=host:port[,host:port…]`` names the nodes of a real cluster with the bucket types of
``docs/riak.md``, which no other endpoints use meanwhile. Clients and topics have unique names there.
"""

from __future__ import annotations

import secrets
import signal
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio

from ingeborg.broker.command.serve import NAME_TAKEN
from ingeborg.protocol.client import Client

from ..riak.double import RiakDouble
from ..riak.storages import real_nodes
from .processes import Cluster, cluster_of
from .traffic import Ear, each

pytestmark = pytest.mark.cluster


@pytest_asyncio.fixture(params=["double", "real"])
async def riak_url(request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """Return the ``--store`` of the endpoints."""
    if request.param == "double":
        async with RiakDouble(nodes=3) as riak:
            riak.create_broker_types()
            yield url_of(riak.addresses)
    else:
        yield url_of(real_nodes())


def url_of(nodes: list[tuple[str, int]]) -> str:
    return "riak:" + ",".join(f"{host}:{port}" for host, port in nodes)


async def test_two_endpoints_on_riak(riak_url: str, tmp_path: Path) -> None:
    mark = secrets.token_hex(4)
    names = [f"{name}-{mark}" for name in "ab"]
    # The secret of endpoints on Riak is in the user's data folder.
    async with cluster_of(names, tmp_path, store=riak_url, XDG_DATA_HOME=str(tmp_path / "data")) as cluster:
        try:
            await subscribers_hear_publishers_and_keep_their_topics(cluster, names, mark)
        finally:
            # In order, so that the registry stays as it was.
            for name in names:
                if cluster[name].runs:
                    cluster[name].signal(signal.SIGTERM)
            for name in names:
                if cluster[name].runs:
                    assert await cluster[name].ended() == 0


async def subscribers_hear_publishers_and_keep_their_topics(cluster: Cluster, names: list[str], mark: str) -> None:
    a, b = (cluster[name] for name in names)
    topics = [f"{mark} {number}" for number in range(200)]

    async def publish(by: Client, word: str, number: int) -> bool | None:
        return await by.publish(topics[number], word, ack=True)

    moving = f"{mark} moving"
    assert {cluster.home(topic) for topic in topics} == set(names)
    async with (
        Ear(a.url, f"{mark} at a") as ear_a,
        Ear(b.url, f"{mark} at b") as ear_b,
        Client(a.url, f"{mark} publisher at a", timeout_s=20) as publisher_a,
        Client(b.url, f"{mark} publisher at b", timeout_s=20) as publisher_b,
    ):
        await ear_a.client.subscribe(topics)
        await ear_b.client.subscribe(topics)
        for publisher, word in ((publisher_a, "by a"), (publisher_b, "by b")):
            answers = await each(200, partial(publish, publisher, word))
            assert not any(answers)
            answers = await each(200, partial(publish, publisher_b, word))
            assert all(answers)
        for ear in (ear_a, ear_b):
            await ear.all_read()
            assert ear.heard == {(topic, word): 1 for topic in topics for word in ("by a", "by b")}
            assert await ear.topics() == set(topics)

        await ear_a.client.unsubscribe(topics[:100])
        answers = await each(200, lambda n: publisher_b.publish(topics[n], "later", ack=True))
        assert not any(answers)
        await ear_a.all_read()
        assert {topic for topic, word in ear_a.heard if word == "later"} == set(topics[100:])

        async with Ear(a.url, moving) as former:
            await former.client.subscribe(topics[0])
        async with Ear(b.url, moving) as moved:
            assert await publisher_a.publish(topics[0], "moved", ack=True) is False
            await moved.all_read()
            assert moved.heard == {(topics[0], "moved"): 1}

    # Kill one and start it again; its clients' data is there, and the other has gone on.
    await b.kill()
    async with Ear(a.url, f"{mark} at b") as ear, Client(a.url, f"{mark} publisher at a", timeout_s=20) as publisher:
        assert await ear.topics() == set(topics)
        answers = await each(200, lambda n: publisher.publish(topics[n], "without b", ack=True))
        assert not any(answers)
        await ear.hears((topic, "without b") for topic in topics)
        await b.start()
        await cluster.linked(*names)
        answers = await each(200, lambda n: publisher.publish(topics[n], "with b again", ack=True))
        assert not any(answers)
        await ear.all_read()
        assert set(ear.heard.values()) == {1}
        assert len(ear.heard) == 400


async def test_on_riak_too_a_living_endpoint_keeps_its_name_and_a_dead_one_does_not(
    riak_url: str, tmp_path: Path
) -> None:
    """Simulate two machines: different URLs, and no endpoint assumes that it is alone at its own."""
    name = f"twin-{secrets.token_hex(4)}"
    async with cluster_of([name], tmp_path, store=riak_url, XDG_DATA_HOME=str(tmp_path / "data")) as cluster:
        first, second = cluster[name], cluster.new(name)
        await second.start(ready=False)
        assert await second.ended() == NAME_TAKEN
        assert f"endpoint {name!r} is already running at {first.url}" in second.said()
        await first.kill(writers=True)
        await second.start()
        second.signal(signal.SIGTERM)
        assert await second.ended() == 0
