"""Two endpoints whose disk does not answer for ten seconds, as a virtual machine's occasionally does."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from ingeborg.bench.starting import end_all
from ingeborg.bench.starting.endpoints import python
from ingeborg.broker.core.stores import STORE_TIMEOUT_S
from ingeborg.broker.store.embedded.layout import Lane
from ingeborg.protocol.client import Client
from tests.broker.running import plain
from tests.store.stalling_writer import stalled_disk

from .processes import Cluster, EndpointProcess
from .traffic import Ear, streaming

pytestmark = pytest.mark.cluster

STALL_S = 10.0
"""Longer than the store's time-out, than a lease, and than the others wait before they take an endpoint for dead."""

LATE_S = 1.0
"""The machine's permitted lateness."""


async def test_ten_seconds_of_a_stalled_disk_delay_writes_and_nothing_else(tmp_path: Path) -> None:
    store = tmp_path / "store"
    cluster = Cluster(tmp_path, ["--store", f"lmdb:{store}"])
    serving = python("tests.cluster.stalling_endpoint")
    for name in "ab":
        cluster.endpoints[name] = EndpointProcess(name, cluster.options, tmp_path, serving=serving)
    try:
        for endpoint in cluster.endpoints.values():
            await endpoint.start()
        await cluster.linked("a", "b")
        await _stall(cluster, store)
        await cluster.no_fault()
    finally:
        await end_all(list(cluster.endpoints.values()))


async def _stall(cluster: Cluster, store: Path) -> None:
    topics = [topic for name in "ab" for topic in cluster.topics_at_home(name, "before", 20)]
    subscribe = {"command": "subscribe", "client_id": "ann"}
    later = [cluster.topics_at_home(name, "later", 1)[0] for name in "ab"]
    async with (
        Client(cluster["a"].url, "publisher", timeout_s=30) as publisher,
        Ear(cluster["b"].url, "ear") as ear,
        plain(cluster["a"].url) as ann,
    ):
        assert await ann.ask({"command": "listen", "client_id": "ann"}) == {"result": "success"}
        await ear.client.subscribe(topics)
        async with streaming(publisher, topics) as stream:
            await stream.goes_on(60)
            before = {name: await cluster[name].metrics() for name in "ab"}
            with stalled_disk(store, Lane.DURABLE) as durable, stalled_disk(store, Lane.SOFT) as soft:
                began = time.monotonic()
                while time.monotonic() < began + STALL_S:
                    await stream.goes_on(10)
                    await ear.hears(stream.acknowledged)
                    for topic in later:
                        asked = time.monotonic()
                        reply = await ann.ask(subscribe | {"topic": topic})
                        assert reply["error"] == "store_unavailable"
                        assert "the disk" not in reply["info"]
                        assert time.monotonic() - asked < STORE_TIMEOUT_S + LATE_S
                durable.end()
                soft.end()
            for topic in later:
                assert await ann.ask(subscribe | {"topic": topic}) == {"result": "success"}
            await stream.goes_on(60)
        await ear.hears(stream.acknowledged)
        assert not stream.failed
        assert set(ear.heard.values()) == {1}
        for topic in later:
            await publisher.publish(topic, "after")
            assert await ann.hear() == {"key": topic, "broadcast": "after"}
    for name in "ab":
        after = await cluster[name].metrics()
        assert after.incarnation == before[name].incarnation
        for series in ("joins_total", "leases_lapsed_total", "endpoints_gone_total"):
            assert after[series] == before[name][series], series
        said = cluster[name].said()
        assert "starts another one" not in said
        assert len(re.findall(r"/soft: the disk has not finished a flush", said)) == 1
        assert len(re.findall(r"/soft: the disk works again, after", said)) == 1
