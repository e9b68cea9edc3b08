"""The number of subscribers that still lack a retained message, as the message's home counts them."""

from __future__ import annotations

import pytest

from ingeborg.broker.core.entries import Entry
from ingeborg.broker.core.limits import Limits
from ingeborg.broker.core.model import Settings
from ingeborg.protocol.hashes import slot_of

from .world import Client, Node, World

TOPIC = "topic"
FILTER = {"kind": ["news"]}


class Cluster:
    """A cluster of this many endpoints, with history. ``clients``: one at each, which recover and have subscribed."""

    def __init__(self, endpoints: int, clients: int, filters: bool) -> None:
        limits = Limits(history_bytes=1 << 20)
        self.world = world = World(7, limits=limits, settings=Settings(history="memory"))
        self.nodes: list[Node] = [world.start(name) for name in "abc"[:endpoints]]
        world.run(25.0)
        self.clients = [self.listens(f"c{number}", None) for number in range(clients)]
        for number, client in enumerate(self.clients):
            if filters:
                client.send(command="subscribe", topic=TOPIC, filter=FILTER)
            if not filters or number == 0:
                client.send(command="subscribe", topic=TOPIC)
        world.run(3.0)

    def listens(self, name: str, position: str | None) -> Client:
        client = Client(self.world, name, self.nodes[len(name) % len(self.nodes)])
        self.world.run(0.3)
        client.send(command="listen", recover=position or True)
        self.world.run(2.0)
        return client

    def entry(self) -> Entry:
        slot = slot_of(TOPIC)
        home = next(node for node in self.nodes if node.router.members.table[slot] == node.me.incarnation)
        log = home.router.retained.log.get(slot, TOPIC)
        assert log is not None
        return log.entries[-1]


@pytest.mark.parametrize("endpoints", [1, 2])
@pytest.mark.parametrize("filters", [False, True], ids=["plain", "filters"])
@pytest.mark.parametrize("clients", [5, 25])
def test_who_is_away_is_owed_it_until_it_comes_back(endpoints: int, filters: bool, clients: int) -> None:
    cluster = Cluster(endpoints, clients, filters)
    position = cluster.clients[0].replies[0][1]["position"]
    for client in cluster.clients[2:5]:
        client.close()
    cluster.world.run(2.0)
    cluster.clients[0].send(command="publish", topic=TOPIC, payload={"kind": "news"}, keep_s=60)
    cluster.world.run(1.0)
    entry = cluster.entry()
    assert entry.pending_readers == 3
    cluster.listens("c3", position)
    assert entry.pending_readers == 2
    cluster.clients[0].send(command="history", topic=TOPIC, last=1)
    cluster.world.run(1.0)
    assert entry.pending_readers == 2
