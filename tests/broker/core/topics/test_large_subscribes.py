"""The share of large subscribes under way: as much as the store wants, as long as it writes in time. ADR 8."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

import orjson

from ingeborg.broker.core.connections import large
from ingeborg.broker.core.connections.hub import Connection
from ingeborg.broker.core.effects import Effects, Read, StoreCall
from ingeborg.broker.core.links.frames import Answer
from ingeborg.broker.core.links.link import Link
from ingeborg.broker.core.links.requests import ChangeRequest
from ingeborg.broker.core.model import Endpoint, Shape, StoreError, StoreUnavailable
from ingeborg.broker.core.router import Router
from ingeborg.broker.core.topics.write import Write
from ingeborg.broker.core.topics.writing import WRITES_WAITING_MAX
from ingeborg.protocol.hashes import slot_of

from ..queued import queued
from ..talk import Cluster

WANTED = 20_000
TOPICS_UNDER_WAY = Shape().topics_at_least


class Store:
    """One endpoint's store: holds each write until the test calls ``written``."""

    def __init__(self, shape: Shape) -> None:
        self.now = 100.0
        # Lookup routing: an endpoint can write without permission from others.
        self.router = Router(Endpoint("a", "i", "ws://a", 0), self.now, routing="lookup", shape=shape)
        self.calls: list[StoreCall] = []
        self.topics: list[str] = []
        self.replies: defaultdict[Connection, list[bytes]] = defaultdict(list)

    def subscribe(self, number: int, topics: int) -> Connection:
        connection = self.router.connected(number, self.now)
        self.say(connection, "subscribe", f"c{number}", topics)
        self.turn()
        return connection

    def say(self, connection: Connection, name: str, client: str, topics: int) -> None:
        command = {"command": name, "client_id": client, "topic": [f"t{n}" for n in range(topics)], "id": 1}
        self.router.frame(connection, orjson.dumps(command), self.now)

    def slices(self) -> Iterator[tuple[list[StoreCall], int]]:
        """Yield the results of each slice of work, to the last: calls of the store, and the number of topics with
        changed subscribers."""
        while True:
            changed = self.router.counters.counts["subscriptions_changed"]
            self.router.work(self.now)
            effects = self.router.flush(self.now)
            self.keep(effects)
            yield effects.store, self.router.counters.counts["subscriptions_changed"] - changed
            if not effects.more:
                return

    def keep(self, effects: Effects) -> None:
        for connection, frames in effects.write:
            self.replies[connection] += frames

    def turn(self) -> None:
        while True:
            effects = self.router.flush(self.now)
            self.keep(effects)
            for read in (act for act in effects.acts if isinstance(act, Read)):
                arguments = large.pack_arguments(read.is_text, read.payload_bytes_max, read.grant)
                packed = large.read_packed(arguments, b"".join(read.pieces))
                self.router.read(read.number, large.unpack_outcome(packed), self.now)
            self.calls += [call for call in effects.store if call.operation in ("subscribe", "unsubscribe")]
            if not effects.more and not any(isinstance(act, Read) for act in effects.acts):
                return
            self.router.work(self.now)

    def under_way(self) -> int:
        return sum(len(row[1]) for call in self.calls for row in call.arguments[0])

    def written(self, took_s: float, error: StoreError | None = None) -> None:
        """Finish every write under way; with an error, fail all."""
        self.now += took_s
        calls, self.calls = self.calls, []
        for call in calls:
            if error is None:
                for row in call.arguments[0]:
                    self.topics += row[1]
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
    assert store.replies[connection] == [b'{"result":"success","id":1}']


def test_it_shrinks_when_writes_fail_however_quickly() -> None:
    store = Store(Shape(WANTED, slots_together=False))
    failed = store.subscribe(1, 300_000)
    for _ in range(10):
        store.written(0.2)
    assert store.under_way() == WANTED
    store.written(0.2, StoreUnavailable("down"))
    assert store.under_way() == 0
    (reply,) = store.replies[failed]
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
        things = [thing for node in cluster.nodes.values() for thing in node.router.cluster.writes._things]
        most = max(most, sum(len(write.topics) for write in things if isinstance(write, Write)))
        if anna.heard:
            break
    assert anna.heard == ["ok 1"]
    assert 2 * TOPICS_UNDER_WAY < most <= WANTED


def test_commands_share_what_may_be_under_way_and_take_turns() -> None:
    store = Store(Shape(TOPICS_UNDER_WAY, slots_together=False))
    for number in range(10):
        store.subscribe(number, 10_000)
    done: Counter[str] = Counter()
    while store.under_way():
        assert store.under_way() <= TOPICS_UNDER_WAY
        done.update(row[0] for call in store.calls for row in call.arguments[0])
        assert max(done.values()) - min(done[f"c{number}"] for number in range(10)) <= 3  # the first began alone
        store.written(0.2)
    assert len(store.topics) == 100_000


def test_a_slow_store_has_no_more_under_way_than_it_can_write_and_a_failure_goes_back_to_that() -> None:
    store = Store(Shape(2_000, slots_together=True, topics_at_least=24))
    connection = store.subscribe(1, 10_000)
    most = 0
    while store.under_way():
        most = max(most, store.under_way())
        store.written(0.02 * store.under_way())  # seconds; it writes 50 topics in each
    assert store.replies[connection] == [b'{"result":"success","id":1}']
    assert 24 < most < 5.0 / 0.02  # the store writes this much within its time-out
    store.subscribe(2, 10_000)
    assert store.under_way() > 24
    store.written(0.2, StoreUnavailable("down"))
    store.subscribe(3, 10_000)
    assert 0 < store.under_way() <= 24


def test_a_command_that_fails_while_it_waits_for_its_turn_ends() -> None:
    store = Store(Shape(TOPICS_UNDER_WAY, slots_together=False))
    connections = [store.subscribe(number, 10_000) for number in range(3)]
    while store.under_way():
        store.written(0.2, StoreUnavailable("down"))
    assert all(b"store_unavailable" in store.replies[connection][0] for connection in connections)


def test_a_store_that_keeps_slots_together_gets_the_topics_slot_by_slot() -> None:
    store = Store(Shape(TOPICS_UNDER_WAY, slots_together=True))
    store.subscribe(1, 10_000)
    while store.under_way():
        store.written(0.2)

    groups = [slot_of(topic) for topic in store.topics]
    assert groups == sorted(groups)
    assert sorted(store.topics) == sorted(f"t{n}" for n in range(10_000))


def test_what_one_commit_has_written_ends_write_by_write() -> None:
    store = Store(Shape(WANTED, slots_together=False))
    connections = [store.subscribe(number, 1_000) for number in range(50)]
    for call in store.calls:
        store.router.stored(call.number, None, None, store.now)
    changed = [topics for _, topics in store.slices()]
    assert max(changed) == 1_000
    assert sum(changed) == 50_000
    assert all(store.replies[connection] == [b'{"result":"success","id":1}'] for connection in connections)


def test_what_a_peer_sends_together_begins_write_by_write_and_what_is_behind_it_behind_it() -> None:
    store = Store(Shape(WANTED, slots_together=False))
    for number in range(50):
        store.router.topics.writing.change_requested(
            "peer", number, ChangeRequest("c", [f"{number} {n}" for n in range(500)], True)
        )
    store.router.topics.writing.change_requested("peer", 50, ChangeRequest("c", ["0 0"], True))
    store.router.topics.writing.change_requested("peer", 51, ChangeRequest("c", ["0 0"], False))
    store.router.topics.writing.change_requested("peer", 52, ChangeRequest("another", ["0 0"], False))
    assert [call.arguments[0] for call in store.router.flush(store.now).store] == [[("another", ["0 0"], None)]]
    begun = [call for calls, _ in store.slices() for call in calls]
    assert [call.arguments[0][0][1][0] for call in begun] == [f"{number} 0" for number in range(50)] + ["0 0"]
    assert {call.operation for call in begun} == {"subscribe"}
    for call in begun:
        store.router.stored(call.number, None, None, store.now)
    (last,) = [call for calls, _ in store.slices() for call in calls]
    assert (last.operation, last.arguments[0]) == ("unsubscribe", [("c", ["0 0"], None)])


def test_none_is_refused_for_waiting_until_its_turn_and_too_many_are_for_waiting_for_the_other_kind() -> None:
    store = Store(Shape(WANTED, slots_together=False))
    router = store.router
    for number in range(WRITES_WAITING_MAX + 10):
        router.topics.writing.change_requested(
            "peer", number, ChangeRequest("c", [f"{number} {n}" for n in range(101)], True)
        )
    assert sum(len(calls) for calls, _ in store.slices()) == WRITES_WAITING_MAX + 10
    router.calls.links["peer"] = link = Link("here")
    for number in range(2_000, 2_000 + WRITES_WAITING_MAX + 10):
        router.topics.writing.change_requested("peer", number, ChangeRequest("c", ["t"], False))
    refused = [number for number, said in queued(link) if isinstance(said, Answer) and said.code]
    assert refused == list(range(2_000 + WRITES_WAITING_MAX, 2_000 + WRITES_WAITING_MAX + 10))


def test_what_has_waited_for_a_write_of_the_other_kind_begins_write_by_write() -> None:
    store = Store(Shape(WANTED, slots_together=False))
    store.subscribe(1, 1_000)
    another = store.router.connected(2, store.now)
    for _ in range(50):
        store.say(another, "unsubscribe", "c1", 1_000)
    (write,) = store.calls
    store.turn()
    assert store.calls == [write]
    store.router.stored(write.number, None, None, store.now)
    begun = [len(calls) for calls, _ in store.slices()]
    assert max(begun) == 1
    assert sum(begun) == 50
