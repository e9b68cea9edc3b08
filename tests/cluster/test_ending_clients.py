"""The client library's subscriptions that end, against real endpoints that are killed. SPEC sections 2.2 and 9."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from ingeborg.protocol.client import Client, Notification

from .processes import PATIENCE_S, cluster_of, eventually

pytestmark = pytest.mark.cluster

GRACE_S = 1
TOPICS = {f"until {number}" for number in range(200)}


def has(client: Client, topics: set[str]) -> Callable[[], Awaitable[bool]]:
    async def look() -> bool:
        return {topic async for topic in client.subscriptions()} == topics

    return look


async def test_a_crash_costs_no_subscription_and_a_long_absence_none_that_is_kept(tmp_path: Path) -> None:
    told: list[tuple[list[str], int]] = []

    def on_ended(topics: list[str], count: int) -> None:
        told.append((topics, count))

    async with cluster_of("ab", tmp_path, "--grace", str(GRACE_S)) as cluster:
        urls = [cluster[name].url for name in "ab"]
        async with Client(urls, "ann", listen=True, on_ended=on_ended) as ann, Client(urls[1], "radio") as radio:
            await ann.subscribe([*TOPICS], until="disconnect")
            await ann.subscribe("plain")
            await cluster["a"].kill()
            await ann.unsubscribe("nothing")  # success of the endpoint that it has gone to
            assert ann.reconnects == 1
            for topic in sorted(TOPICS)[::50]:
                await radio.publish(topic, "after the crash", ack=True)
                async with asyncio.timeout(PATIENCE_S):
                    assert await anext(ann) == Notification(topic, "after the crash")
            assert await has(ann, TOPICS | {"plain"})()

            await ann.unlisten()
            await eventually(has(ann, {"plain"}), "subscriptions until disconnect end")
            await ann.listen()
            await eventually(has(ann, TOPICS | {"plain"}), "they are subscribed to again")
        assert told == []

        async with Client(urls[1], "ann", on_ended=on_ended) as later:  # which knows nothing of the former one
            await eventually(has(later, {"plain"}), "they end when their client has gone")
            await later.listen()
        ((topics, count),) = told
        assert (set(topics), count) == (TOPICS, len(TOPICS))
