"""How much of large subscribes is under way: as much as the store wants, as long as it writes it in time. ADR 8."""

from __future__ import annotations

import orjson

from broker.core import large
from broker.core.hub import Connection
from broker.core.membership import slot_of
from broker.core.model import Endpoint, Shape, StoreError, StoreUnavailable
from broker.core.router import Router, StoreCall
from broker.core.subscribing import TOPICS_UNDER_WAY

from .talk import Cluster

WANTED = 20_000


class Store:
    """Of one endpoint: keeps what it is asked to write until it is told to have written it."""

    def __init__(self, shape: Shape) -> None:
        self.now = 100.0
        # Lookup routing: an endpoint needs no leave of others to write.
        self.router = Router(Endpoint("a", "i", "ws://a", 0), self.now, routing="lookup", shape=shape)
        self.calls: list[StoreCall] = []
        self.topics: list[str] = []

    def subscribe(self, number: int, topics: int) -> Connection:
        connection = self.router.connected(number)
        command = {
            "command": "subscribe",
            "client_id": f"c{number}",
            "topic": [f"t{n}" for n in range(topics)],
            "id": 1,
        }
        self.router.frame(connection, orjson.dumps(command), self.now)
        self.turn()
        return connection

    def turn(self) -> None:
        while True:
            effects = self.router.flush()
            for read in effects.read:
                arguments = large.pack_arguments(read.is_text, read.payload_bytes_max, read.grant)
                packed = large.read_packed(arguments, b"".join(read.pieces))
                self.router.read(read.number, large.unpack_outcome(packed), self.now)
            self.calls += [call for call in effects.store if call.operation == "subscribe"]
            if not effects.more and not effects.read:
                return
            self.router.work(self.now)

    def under_way(self) -> int:
        return sum(len(topics) for call in self.calls for _, topics in call.arguments[0])

    def written(self, took_s: float, error: StoreError | None = None) -> None:
        """Everything that is under way; or, with an error, none of it."""
        self.now += took_s
        calls, self.calls = self.calls, []
        for call in calls:
            if error is None:
                for _, topics in call.arguments[0]:
                    self.topics += topics
            self.router.stored(call.number, None, error, self.now)
        self.turn()


def test_it_grows_to_what_the_store_wants_while_writes_are_quick_and_shrinks_when_they_are_not() -> None:
    store = Store(Shape(WANTED, slots_together=False))
    connection = store.subscribe(1, 300_000)
    seen = [store.under_way()]
    assert seen[0] == TOPICS_UNDER_WAY
    for _ in range(10):
        store.written(0.2)
        seen.append(store.under_way())
    assert seen == sorted(seen)
    assert seen[-1] == WANTED
    for _ in range(2):
        store.written(2.0)  # neither quick nor slow
        assert store.under_way() == WANTED
    for _ in range(3):
        store.written(3.0)
    assert store.under_way() == TOPICS_UNDER_WAY
    while store.under_way():
        store.written(0.2)
    assert store.topics == [f"t{n}" for n in range(300_000)]
    assert connection.outbox.take() == [b'{"result":"success","id":1}']


def test_it_shrinks_when_writes_fail_however_quickly() -> None:
    store = Store(Shape(WANTED, slots_together=False))
    failed = store.subscribe(1, 300_000)
    for _ in range(10):
        store.written(0.2)
    assert store.under_way() == WANTED
    store.written(0.2, StoreUnavailable("down"))
    assert store.under_way() == 0
    (reply,) = failed.outbox.take()
    assert orjson.loads(reply)["error"] == "store_unavailable"

    store.subscribe(2, 300_000)
    assert store.under_way() == TOPICS_UNDER_WAY


def test_it_grows_as_well_when_the_topics_have_several_homes() -> None:
    cluster = Cluster("a", "b", "c", shape=Shape(WANTED, slots_together=False))
    anna = cluster.client("anna", "a")
    anna.send(command="subscribe", topic=[f"t{number}" for number in range(60_000)], id=1)
    most = 0
    for _ in range(1_000):
        cluster.world.run(0.01)
        writes = [write for node in cluster.nodes.values() for write in node.router.subscribing.under_way]
        most = max(most, sum(len(write.topics) for write in writes))
        if anna.heard:
            break
    assert anna.heard == ["ok 1"]
    assert 2 * TOPICS_UNDER_WAY < most <= WANTED


def test_each_command_has_its_own_least_however_many_there_are() -> None:
    store = Store(Shape(WANTED, slots_together=False))
    for number in range(30):
        store.subscribe(number, 10_000)
    assert store.under_way() == 30 * TOPICS_UNDER_WAY
    while store.under_way():
        store.written(0.2)
    assert len(store.topics) == 300_000


def test_a_store_that_keeps_slots_together_gets_the_topics_slot_by_slot() -> None:
    store = Store(Shape(TOPICS_UNDER_WAY, slots_together=True))
    store.subscribe(1, 10_000)
    while store.under_way():
        store.written(0.2)

    groups = [slot_of(topic) for topic in store.topics]
    assert groups == sorted(groups)
    assert sorted(store.topics) == sorted(f"t{n}" for n in range(10_000))
