"""Where those are that a message is for, while others come all the time."""

from __future__ import annotations

import pytest

from ingeborg.broker.core.effects import StoreCall
from ingeborg.broker.core.limits import SIZES, Sizes
from tests.simulator.world import Node

from ..talk import Cluster

ROCK = {"genre": ["rock"]}


def locations_take(cluster: Cluster, seconds: float) -> None:
    """The store takes so long to say where clients are."""
    world, call_store = cluster.world, cluster.world.call_store

    def call(node: Node, call: StoreCall) -> None:
        world.at(seconds if call.operation == "locations" else 0.0, call_store, node, call)

    def none_at_once(node: Node) -> None:
        for each in node.router.asks(world.now):
            call(node, each)

    world.call_store, world.tell_at_once = call, none_at_once  # type: ignore[method-assign]


@pytest.mark.parametrize("filtered", [False, True])
@pytest.mark.parametrize("sizes", [SIZES, Sizes(clients_per_slice=2)], ids=["at once", "in slices"])
def test_a_message_goes_out_while_new_clients_subscribe_all_the_time(sizes: Sizes, filtered: bool) -> None:
    cluster = Cluster("a", sizes=sizes)
    anna = cluster.listener("anna", "a", "hot")
    crowd = cluster.client("0", "a")
    options = {"filter": ROCK} if filtered else {}
    for number in range(40):
        crowd.send(command="subscribe", topic="hot", client_id=str(number), **options)
    crowd.hear(2.0)
    locations_take(cluster, 0.1)
    anna.notes.clear()
    anna.send(command="publish", topic="hot", payload={"genre": "rock"}, ack=True)
    begun = len(anna.heard)
    for number in range(100):  # a second and more, one each 20 ms
        crowd.send(command="subscribe", topic="hot", client_id=f"new {number}", **options)
        cluster.world.run(0.02)
        if "ok" in anna.heard[begun:]:
            break
    assert number < 50
    assert [payload for _, _, payload in anna.notes] == [{"genre": "rock"}]
