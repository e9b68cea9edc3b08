"""``--routing lookup`` with three endpoints: every endpoint asks the store for every message (thesis, listing 5.1).

Duplicates are best effort there: two endpoints can both find a hash missing. A message published after the answer to an
earlier publish is certainly a duplicate, and the tests check that.
"""

from __future__ import annotations

from collections import Counter
from contextlib import AsyncExitStack

import pytest

from ingeborg.protocol.client import Client

from .processes import Cluster
from .traffic import Ear, each

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="module")]

SERVE_OPTIONS = ["--routing", "lookup"]


async def test_every_subscriber_hears_every_publisher_and_moves(cluster: Cluster) -> None:
    topics = [f"lookup {number}" for number in range(30)]
    async with AsyncExitStack() as stack:
        ears = [await stack.enter_async_context(Ear(cluster[name].url, f"ear {name}")) for name in "abc"]
        publishers = [
            await stack.enter_async_context(Client(cluster[name].url, f"publisher {name}", timeout_s=20))
            for name in "abc"
        ]
        for ear in ears:
            await ear.client.subscribe(topics)
        answers = await each(90, lambda number: publishers[number % 3].publish(topics[number // 3], number, ack=True))
        assert not any(answers)
        # The same messages again, each through another endpoint.
        answers = await each(
            90, lambda number: publishers[(number + 1) % 3].publish(topics[number // 3], number, ack=True)
        )
        assert all(answers)
        for ear in ears:
            await ear.all_read()
            assert ear.heard == {(topics[number // 3], number): 1 for number in range(90)}

        async with Ear(cluster["b"].url, "ear a") as moved:
            for number, publisher in enumerate(publishers):
                assert await publisher.publish(topics[0], f"after the move {number}", ack=True) is False
            await moved.all_read()
            assert moved.heard == {(topics[0], f"after the move {number}"): 1 for number in range(3)}
        await ears[1].client.unsubscribe(topics)
        for number, publisher in enumerate(publishers):
            assert await publisher.publish(topics[1], f"after the end {number}", ack=True) is False
        await ears[1].all_read()
        assert not [message for message in ears[1].heard if "end" in str(message[1])]
        assert await publishers[0].broadcast("to all", ack=True) is False
        assert Counter([await publisher.broadcast("to all", ack=True) for publisher in publishers]) == {True: 3}
        for ear in ears[1:]:
            await ear.all_read()
            assert ear.heard[None, "to all"] == 1


async def test_the_death_of_an_endpoint_leaves_the_others_working(cluster: Cluster) -> None:
    topics = [f"lookup death {number}" for number in range(30)]
    async with (
        Ear(cluster["b"].url, "stays") as stays,
        Ear(cluster.urls("c"), "comes back", backoff_max_s=0.2) as comes_back,
        Client(cluster["a"].url, "publisher", timeout_s=20) as publisher,
    ):
        await stays.client.subscribe(topics)
        await comes_back.client.subscribe(topics)
        await cluster["c"].kill()
        await comes_back.back()
        answers = await each(30, lambda number: publisher.publish(topics[number], number, ack=True))
        assert not any(answers)
        for ear in (stays, comes_back):
            await ear.hears((topic, number) for number, topic in enumerate(topics))
            assert set(ear.heard.values()) == {1}
