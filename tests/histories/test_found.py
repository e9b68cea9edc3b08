"""Bugs that histories have found, each reduced to the smallest case."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

from ingeborg.broker.store.embedded.store import EmbeddedStore
from ingeborg.broker.store.riak import RiakStore

from ..broker.running import Gated, plain, running
from ..contract.asking import add, subscribers
from ..riak.double import RiakDouble


async def test_on_riak_a_subscription_confirmed_during_a_cut_outlives_it() -> None:
    """Found by seed 31 on Riak. One node of three is cut off, with the latest writes there.

    The two others write the `unsubscribe`. The `subscribe` after it may read from the one where the client still is. If
    it then wrote nothing, the removal would be the later version when the cut heals.
    """
    async with RiakDouble(nodes=3) as riak:
        riak.create_broker_types()
        home = RiakStore(riak.addresses)
        try:
            await home.open()
            random = Random(1)  # nodes serve requests in turn: other draws shift the turns
            topics = [f"t{number}" for number in range(60)]
            await add(home, "ann", topics)
            riak.memory.cut([0], [1, 2])
            for topic in topics:
                for change in (home.unsubscribe([("ann", [topic], None)]), add(home, "ann", [topic])):
                    for _ in range(random.randrange(3)):
                        await home.locations(["somebody"])
                    await change
            riak.memory.heal()
            assert await subscribers(home, topics) == [{"ann"}] * len(topics)
        finally:
            await home.close()


async def test_on_riak_topics_of_two_homes_leave_a_clients_list_together() -> None:
    """Found by seed 307 on Riak. The cluster is healthy, and the subscriber sets themselves are right.

    One `unsubscribe` of topics with different homes writes the client's list at each home; a union of the two versions
    would undo both.
    """
    async with RiakDouble(nodes=3) as riak:
        riak.create_broker_types()
        homes = [RiakStore(riak.addresses), RiakStore(riak.addresses)]
        try:
            for home in homes:
                await home.open()
            for round in range(20):
                topics = [f"{round} of one home", f"{round} of the other"]
                for home, topic in zip(homes, topics, strict=True):
                    await add(home, "ann", [topic])
                changes = (
                    home.unsubscribe([("ann", [topic], None)]) for home, topic in zip(homes, topics, strict=True)
                )
                await asyncio.gather(*changes)
                assert await subscribers(homes[0], topics) == [set(), set()]
            listed, _ = await homes[0].topics("ann", None, 1000)
            assert listed == []
        finally:
            await asyncio.gather(*(home.close() for home in homes))


async def test_a_listen_that_waits_where_the_client_has_left_does_not_take_it_back(tmp_path: Path) -> None:
    """Found by seed 32 on Riak. The store is slow; the client sends another `listen` behind waiting commands, gives up,
    and listens elsewhere.

    If the endpoint did not read the old connection while commands wait there, it would miss the close, and begin the
    `listen` after it, with the greater number.
    """
    store = Gated(EmbeddedStore(tmp_path))
    async with running(tmp_path, store=store) as endpoint:
        store.shut()
        async with plain(endpoint.url) as old:
            await old.send(
                {"command": "subscribe", "client_id": "ann", "topic": "t"},
                {"command": "listen", "client_id": "ann"},
            )
            await endpoint.until(lambda metrics: metrics["ingeborg_store_calls_total"] > 0)
        await endpoint.until(lambda metrics: metrics["ingeborg_connections"] == 0)
        async with plain(endpoint.url) as new:
            await new.send({"command": "listen", "client_id": "ann"})
            store.reopen()
            assert await new.hear() == {"result": "success"}
            await endpoint.until(lambda metrics: metrics["ingeborg_subscriptions_changed_total"] == 1)
            await new.send({"command": "publish", "client_id": "ann", "topic": "t", "payload": 1})
            assert await new.hear() == {"key": "t", "broadcast": 1}
        dropped = endpoint.server.router.counters.drops
        assert dropped["command_of_closed_connection"] == 1
