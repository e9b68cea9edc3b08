"""Presence among real endpoints, one of which is killed. SPEC section 2.5."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ingeborg.broker.access.tokens import make_token, new_keys
from ingeborg.protocol.client import Client
from ingeborg.protocol.errors import ProtocolError

from .processes import PATIENCE_S, Cluster, cluster_of

pytestmark = pytest.mark.cluster

GRACE_S = 1


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with cluster_of("ab", tmp_path, "--grace", str(GRACE_S), "--presence", "room,hall") as cluster:
        yield cluster


async def heard(watcher: Client, topic: str) -> object:
    """Return the next notification, which has to be about that topic."""
    async with asyncio.timeout(PATIENCE_S):
        notification = await anext(watcher)
    assert notification.key == f"presence:{topic}"
    return notification.broadcast


@pytest.mark.parametrize("home", ["a", "b"])
async def test_who_comes_to_a_room_and_who_leaves_it_is_told(cluster: Cluster, home: str) -> None:
    (room,) = cluster.topics_at_home(home, "room", 1)
    urls = [cluster[name].url for name in "ab"]
    async with Client(urls[0], "watcher", listen=True) as watcher, Client(urls[1], "ann", listen=True) as ann:
        await watcher.subscribe(f"presence:{room}")
        await ann.subscribe(room)
        assert await heard(watcher, room) == {"joined": ["ann"]}
        await ann.subscribe(room)  # no join; nor is her move
        async with Client(urls[0], "ann", listen=True) as moved:
            await moved.subscribe(room, until="disconnect", filter={"a": [1]})  # nor this second subscription
            await moved.unsubscribe(room, filter={"a": [1]})
            await moved.subscribe(room, until="disconnect", replace=True)
            await moved.unsubscribe(room)
        assert await heard(watcher, room) == {"left": ["ann"]}
        async with Client(urls[1], "visitor", listen=True) as visitor:
            await visitor.subscribe(room, until="disconnect", filter={"a": [1]})
            assert await heard(watcher, room) == {"joined": ["visitor"]}
        assert await heard(watcher, room) == {"left": ["visitor"]}  # after the grace time
        await cluster.idle()  # the last one counts once its outcome is known, which is after its arrival
        metrics = await cluster[home].metrics()
        assert (metrics["presence_told_total"], metrics["presence_lost_total"]) == (4, 0)


async def test_the_death_of_the_home_keeps_nobody_waiting_and_the_next_one_tells(cluster: Cluster) -> None:
    rooms = cluster.topics_at_home("b", "room", 20)
    url = cluster["a"].url
    async with Client(url, "watcher", listen=True) as watcher, Client(url, "ann") as ann:
        await watcher.subscribe([f"presence:{room}" for room in rooms])
        for room in rooms[:10]:
            await ann.subscribe(room)
        told: set[str | None] = set()
        while len(told) < 10:
            async with asyncio.timeout(PATIENCE_S):
                told.add((await anext(watcher)).key)
        await cluster["b"].kill()
        async with asyncio.timeout(PATIENCE_S):
            for room in rooms:
                await ann.subscribe(room)  # to the ten to which she has subscribed
        for room in rooms[10:]:
            assert await heard(watcher, room) == {"joined": ["ann"]}
        with pytest.raises(ProtocolError, match="No client may publish to"):
            await ann.publish(f"presence:{rooms[0]}", {"joined": ["forged"]}, ack=True)


async def test_a_token_lets_see_who_is_in_a_room_and_forge_nothing(tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    new_keys(keys)
    token = make_token(keys, "ann", presence=["room"], subscribe=["room", "presence:room"], publish=[""])
    async with cluster_of("ab", tmp_path, "--presence", "room", "--auth-keys", str(keys)) as cluster:
        (room,) = cluster.topics_at_home("a", "room", 1)
        async with Client(cluster["b"].url, "ann", token=token, listen=True) as ann:
            await ann.subscribe(f"presence:{room}")
            await ann.subscribe(room)
            assert await heard(ann, room) == {"joined": ["ann"]}
            assert [subscriber async for subscriber in ann.subscribers(room)] == [("ann", True, False)]
            with pytest.raises(ProtocolError, match="does not permit listing the subscribers of 'hall'"):
                await anext(ann.subscribers("hall"))
            for size in (1, 100_000):
                with pytest.raises(ProtocolError, match="No client may publish to"):
                    await ann.publish(f"presence:{room}", {"joined": ["x" * size]}, ack=True)
