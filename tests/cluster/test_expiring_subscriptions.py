"""The client library's expiring subscriptions, against real endpoints that are killed. SPEC sections 2.2 and 9."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from ingeborg.protocol.client import Client, Notification
from ingeborg.protocol.listings import Subscription

from .processes import PATIENCE_S, cluster_of, eventually

pytestmark = pytest.mark.cluster

GRACE_S = 1
TOPICS = {f"until {number}" for number in range(200)}

Wanted = tuple[str, bool, str | None]
"""A topic, whether there is a filter, and the end."""

ENDING: set[Wanted] = {(topic, True, "disconnect") for topic in TOPICS} | {("until 0", False, "disconnect")}
STAYING: set[Wanted] = {("stays", False, None), ("until 1", True, None)}


SAID = {"said": [{"exists": True}]}


def has(client: Client, wanted: set[Wanted]) -> Callable[[], Awaitable[bool]]:
    async def look() -> bool:
        return {(each.topic, each.filter is not None, each.until) async for each in client.subscriptions()} == wanted

    return look


async def test_a_crash_costs_no_subscription_and_a_long_absence_none_that_is_kept(tmp_path: Path) -> None:
    told: list[tuple[list[Subscription], int]] = []

    def on_ended(found: list[Subscription], count: int) -> None:
        told.append((found, count))

    async with cluster_of("ab", tmp_path, "--grace", str(GRACE_S)) as cluster:
        urls = [cluster[name].url for name in "ab"]
        async with Client(urls, "ann", listen=True, on_ended=on_ended) as ann, Client(urls[1], "radio") as radio:
            await ann.subscribe([*TOPICS], until="disconnect", filter=SAID)
            await ann.subscribe("until 0", until="disconnect")
            await ann.subscribe("stays")
            await ann.subscribe("until 1", filter={"other": [1]})
            await cluster["a"].kill()
            await ann.unsubscribe("nothing")  # success from the endpoint to which it has moved
            assert ann.reconnects == 1
            for topic in sorted(TOPICS)[::50]:
                await radio.publish(topic, {"said": "after the crash"}, ack=True)
                async with asyncio.timeout(PATIENCE_S):
                    assert await anext(ann) == Notification(topic, {"said": "after the crash"})
            assert await has(ann, ENDING | STAYING)()

            await ann.unlisten()
            await eventually(has(ann, STAYING), "subscriptions until disconnect end")
            await ann.listen()
            await eventually(has(ann, ENDING | STAYING), "they are subscribed to again")
            await radio.publish("until 2", "matches no filter", ack=True)
            await radio.publish("until 2", {"said": 1}, ack=True)
            async with asyncio.timeout(PATIENCE_S):
                assert await anext(ann) == Notification("until 2", {"said": 1})
        assert told == []

        async with Client(urls[1], "ann", on_ended=on_ended) as later:  # which knows nothing of the former one
            await eventually(has(later, STAYING), "they end when their client has gone")
            await later.listen()
        ((found, count),) = told
        assert {(each.topic, each.filter is not None, "disconnect") for each in found} == ENDING
        assert count == len(found) == len(ENDING)
