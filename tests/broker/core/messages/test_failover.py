"""A home crashes while it dispatches messages, and its replica goes on: no client gets a message twice, and none misses
one."""

from __future__ import annotations

import orjson
import pytest
from ormsgpack import packb

from ingeborg.broker.core.cluster.homes import home_table
from ingeborg.broker.core.cluster.membership import DEAD_AFTER_S
from ingeborg.broker.core.cluster.replication import WAIT_S
from ingeborg.broker.core.dedup.dedup import key_of
from ingeborg.broker.core.dispatch import Dispatch
from ingeborg.broker.core.entries import Entry
from ingeborg.broker.core.links.requests import Carried, PublishRequest
from ingeborg.broker.core.messages.delivery import RECENT_S
from ingeborg.broker.core.model import Endpoint, Settings, StoreUnavailable
from ingeborg.protocol.hashes import SLOTS, slot_of
from ingeborg.protocol.messages import ACK_WITH_MID
from tests.simulator.world import Node

from ..fake_desk import ME
from ..talk import Cluster
from ..way import ANN, BOB, Way, publish, topics_at

NAMES = "abcd"
NEW = Endpoint("new", "new", "ws://new", 0)
TAKEN_OVER_S = DEAD_AFTER_S + 2.0


def cluster(names: str = NAMES) -> Cluster:
    made = Cluster(*names, settings=Settings(replication=True))
    made.world.run(4.0)
    assert not any(node.router.cluster.replication.without for node in made.nodes.values())
    return made


def topic_at(made: Cluster, home: str, next_home: str) -> str:
    """Return a topic with this home, and with this next home."""
    one, other = made.nodes[home], made.nodes[next_home]
    after = one.router.members.table_without_me()
    topics = (made.topic_at(home, f"t{number}-") for number in range(1_000))
    return next(topic for topic in topics if after[slot_of(topic)] == other.me.incarnation)


def failed_over(node: Node) -> int:
    return node.router.counters.counts["messages_failed_over"]


def test_a_message_that_some_have_had_comes_to_the_others_once_and_to_nobody_twice() -> None:
    four = cluster()
    topic = topic_at(four, "a", "b")
    carl, dora = four.listener("carl", "c", topic), four.listener("dora", "d", topic)
    paul = four.client("paul", "c")
    four.world.cut("a", "d", 10.0)
    four.world.cut("d", "a", 10.0)
    paul.send(command="publish", topic=topic, payload="x", ack=True)
    four.world.run(0.2)
    assert (carl.heard[2:], dora.heard[2:]) == ([f"{topic}: 'x'"], [])
    four.world.crash(four.nodes["a"])
    four.world.run(TAKEN_OVER_S)
    assert failed_over(four.nodes["b"]) == 1
    assert (carl.heard[2:], dora.heard[2:]) == ([f"{topic}: 'x'"], [f"{topic}: 'x'"])
    assert paul.heard == ["ok"]


def test_what_only_the_crashed_endpoint_had_accepted_is_delivered() -> None:
    four = cluster()
    topic = topic_at(four, "a", "b")
    dora = four.listener("dora", "d", topic)
    paul = four.client("paul", "a")
    paul.send(command="publish", topic=topic, payload="x", ack=True)
    four.world.run(0.025)  # the replica has it; the home sends it to the destination next
    assert four.nodes["b"].router.replication.barrier.replicated.of_others != {}
    four.world.cut("a", "d", 10.0)
    four.world.run(0.1)
    four.world.crash(four.nodes["a"])
    four.world.run(TAKEN_OVER_S)
    assert dora.heard[2:] == [f"{topic}: 'x'"]


@pytest.mark.parametrize("when_s", [0.2, TAKEN_OVER_S])
def test_who_repeats_it_after_the_crash_is_told_of_a_duplicate(when_s: float) -> None:
    four = cluster()
    topic = topic_at(four, "a", "b")
    carl, dora = four.listener("carl", "c", topic), four.listener("dora", "d", topic)
    paul, rosa = four.client("paul", "a"), four.client("rosa", "b")
    four.world.cut("a", "d", 10.0)
    four.world.cut("d", "a", 10.0)
    paul.send(command="publish", topic=topic, payload="x", ack=True)
    four.world.run(0.2)
    four.world.crash(four.nodes["a"])
    four.world.run(when_s)
    rosa.send(command="publish", topic=topic, payload="x", ack=True)
    four.world.run(TAKEN_OVER_S)
    assert rosa.heard == ["ok duplicate"]
    assert (carl.heard[2:], dora.heard[2:]) == ([f"{topic}: 'x'"], [f"{topic}: 'x'"])


def test_what_had_been_delivered_before_the_crash_is_a_duplicate_after() -> None:
    four = cluster()
    topic = topic_at(four, "a", "b")
    dora, paul, rosa = four.listener("dora", "d", topic), four.client("paul", "c"), four.client("rosa", "b")
    assert paul.say(f"publish {topic} 'x'") == ["ok"]
    four.world.crash(four.nodes["a"])
    four.world.run(TAKEN_OVER_S)
    assert rosa.say(f"publish {topic} 'x'") == ["ok duplicate"]
    assert dora.heard[2:] == [f"{topic}: 'x'"]


def test_whose_message_the_crashed_home_had_dispatched_is_not_told_that_it_was_a_duplicate() -> None:
    four = cluster()
    topic = topic_at(four, "a", "b")
    dora, paul = four.listener("dora", "d", topic), four.client("paul", "c")
    paul.send(command="publish", topic=topic, payload="x", ack=True)
    four.world.cut("a", "c", 10.0)  # the answer does not come
    four.world.run(0.3)
    four.world.crash(four.nodes["a"])
    four.world.run(TAKEN_OVER_S)
    assert failed_over(four.nodes["b"]) == 0
    assert paul.heard == ["ok"]
    assert dora.heard[2:] == [f"{topic}: 'x'"]


def test_a_broadcast_that_was_under_way_comes_to_all_once() -> None:
    four = cluster()
    table, slot = four.nodes["a"].router.members.table, slot_of("")
    home = next(name for name, node in four.nodes.items() if node.me.incarnation == table[slot])
    replica = four.nodes[home].router.members.table_without_me()[slot]
    third = next(name for name, node in four.nodes.items() if node.me.incarnation == replica)
    one, other = [name for name in NAMES if name not in (home, third)]
    near, far = four.listener("near", one), four.listener("far", other)
    paul = four.client("paul", third)
    four.world.cut(home, other, 10.0)
    four.world.cut(other, home, 10.0)
    paul.send(command="broadcast", payload="x", ack=True)
    four.world.run(0.2)
    assert (near.heard[1:], far.heard[1:]) == (["everybody: 'x'"], [])
    four.world.crash(four.nodes[home])
    four.world.run(TAKEN_OVER_S)
    assert (near.heard[1:], far.heard[1:]) == (["everybody: 'x'"], ["everybody: 'x'"])


def test_messages_of_one_topic_stay_in_order_while_they_wait_for_the_replica() -> None:
    four = cluster()
    topic = topic_at(four, "a", "b")
    dora, paul = four.listener("dora", "d", topic), four.client("paul", "a")
    for number in range(30):
        # Messages without a check for duplicates need no replica, and do not overtake.
        paul.send(command="publish", topic=topic, payload=number, dedup=number % 3 > 0)
        if number % 7 == 0:
            four.world.run(0.003)
    four.world.run(0.5)
    assert [note[2] for note in dora.notes] == list(range(30))


def test_a_message_waits_for_a_replica_that_hangs_and_not_for_long() -> None:
    four = cluster()
    topic = topic_at(four, "a", "b")
    dora, paul = four.listener("dora", "d", topic), four.client("paul", "a")
    four.nodes["b"].stalled_until = four.world.now + 20.0
    paul.send(command="publish", topic=topic, payload="x", ack=True)
    four.world.run(WAIT_S - 0.1)
    assert (dora.heard[2:], paul.heard) == ([], [])
    four.world.run(0.5)
    assert (dora.heard[2:], paul.heard) == ([f"{topic}: 'x'"], ["ok"])


def test_a_cut_between_home_and_replica_fails_nobody() -> None:
    four = cluster()
    topic = topic_at(four, "a", "b")
    dora, paul, carl = four.listener("dora", "d", topic), four.client("paul", "a"), four.client("carl", "c")
    for one, other in ("ab", "ba"):
        four.world.cut(one, other, 20.0)
    paul.send(command="publish", topic=topic, payload="x", ack=True)
    carl.send(command="publish", topic=topic, payload="y", ack=True)
    four.world.run(WAIT_S + 0.5)
    assert (paul.heard, carl.heard) == (["ok"], ["ok"])
    assert sorted(dora.heard[2:]) == [f"{topic}: 'x'", f"{topic}: 'y'"]


def test_who_repeats_it_between_two_tries_doubles_nothing() -> None:
    four = cluster()
    topic = topic_at(four, "a", "b")
    carl, dora = four.listener("carl", "c", topic), four.listener("dora", "d", topic)
    paul, rosa = four.client("paul", "a"), four.client("rosa", "b")
    second, store = four.nodes["b"], four.world.store
    four.world.cut("a", "d", 10.0)
    four.world.cut("d", "a", 10.0)
    paul.send(command="publish", topic=topic, payload="x", ack=True)
    four.world.run(0.2)

    def gone(endpoint: Endpoint) -> None:
        store.cut.add(second.me.incarnation)
        four.world.at(1.0, store.cut.discard, second.me.incarnation)

    second.on_gone = gone
    four.world.crash(four.nodes["a"])
    while not second.router.messages.failover._again or second.me.incarnation in store.cut:
        four.world.run(0.005)
    rosa.send(command="publish", topic=topic, payload="x", ack=True)
    four.world.run(8.0)
    assert (carl.heard[2:], dora.heard[2:]) == ([f"{topic}: 'x'"], [f"{topic}: 'x'"])
    assert rosa.heard == ["ok"]


def test_what_a_home_sent_before_it_gave_the_slot_away_does_not_stay_with_its_replica() -> None:
    """A newcomer's request reaches the replica before the home's."""
    made = cluster("abc")
    a, b, c = (made.nodes[name] for name in "abc")
    after = a.router.members.table_without_me()
    with_d = home_table([(node.me.name, node.me.incarnation) for node in (a, b, c)] + [("d", "d")])
    topics = (made.topic_at("a", f"t{number}-") for number in range(3_000))
    topic = next(t for t in topics if after[slot_of(t)] == b.me.incarnation and with_d[slot_of(t)] == "d")
    carl, paul = made.listener("carl", "c", topic), made.client("paul", "a")
    d = made.nodes["d"] = made.world.start("d")
    slot = slot_of(topic)
    while b.router.members.table[slot] != d.me.incarnation:
        made.world.cuts.add(("d", "a")) if d.router.joining._asked else None
        made.world.run(0.001)
    assert a.router.members.table[slot] == a.me.incarnation
    made.world.cut("d", "a", 0.3)
    made.world.cut("a", "c", 1.5)
    made.world.cut("c", "a", 1.5)
    paul.send(command="publish", topic=topic, payload="x", ack=True)
    made.world.run(8.0)
    assert d.router.members.joined
    assert carl.heard[2:] == [f"{topic}: 'x'"]
    assert b.router.replication.barrier.replicated.of_others == {}


def test_what_cannot_be_dispatched_at_once_is_tried_again() -> None:
    four = cluster()
    topic = topic_at(four, "a", "b")
    dora, paul = four.listener("dora", "d", topic), four.client("paul", "a")
    second, store = four.nodes["b"], four.world.store
    four.world.cut("a", "d", 10.0)
    paul.send(command="publish", topic=topic, payload="x", ack=True)
    four.world.run(0.2)

    def gone(endpoint: Endpoint) -> None:
        store.cut.add(second.me.incarnation)
        four.world.at(3.0, store.cut.discard, second.me.incarnation)

    second.on_gone = gone
    four.world.crash(four.nodes["a"])
    four.world.run(TAKEN_OVER_S)
    assert (failed_over(second), dora.heard[2:]) == (1, [])
    four.world.run(8.0)
    assert dora.heard[2:] == [f"{topic}: 'x'"]
    assert second.router.inflight.messages == 0


# The part alone


class Alone(Way):
    """One endpoint's part, home of the topic. It keeps messages in memory."""

    def __init__(self, replication: bool = False) -> None:
        super().__init__(ANN, BOB, settings=Settings(replication, "memory"))
        self.part, self.replicated = self.messages.failover, self.replication.replicated
        (self.topic,) = topics_at(self.members, ME.incarnation)
        self.slot = slot_of(self.topic)
        self.key = key_of(self.slot, self.topic, b"x")

    def take_over(self) -> None:
        """Take over a message that another home was dispatching; the part dispatches it in a moment."""
        self.replicated.of_others[self.key] = Carried(self.topic, b"x", "origin", 7)
        self.replicated.arrived([self.slot], True)
        self.part.view_changed()

    def begin(self) -> None:
        """Take over a message, and let that moment pass."""
        self.take_over()
        self.desk.work()

    @property
    def taken(self) -> list[Dispatch]:
        """Return the home's open dispatches."""
        route = self.routes.get(self.topic)
        return [] if route is None else list(route.waiting())

    def pass_time(self, seconds: float) -> None:
        self.desk.now += seconds
        self.part.tick()

    def leaves_it(self) -> None:
        """End the message here without a dispatch: nobody has subscribed."""
        self.has_subscribers(self.flush()[0], set())
        self.pass_time(0.1)

    def fails(self) -> None:
        """End the message here: the store cannot read its subscribers."""
        self.flush()[0].end(error=StoreUnavailable("down"))
        self.pass_time(0.1)

    def goes_to(self, peer: Endpoint) -> None:
        """Give the slot to that peer."""
        self.members.connected(peer, self.desk.now)
        self.members.table = [peer.incarnation] * SLOTS
        self.retained.state.gone([self.slot])
        self.home.view_changed()

    @property
    def holds_back(self) -> bool:
        """Does an open message hold positions back?"""
        return self.retained.clock.watermark < self.retained.clock.value


@pytest.fixture
def alone() -> Alone:
    return Alone()


@pytest.fixture
def moved() -> Alone:
    """Return an endpoint that kept the message, and whose slot has gone to ``NEW`` before the message's moment came."""
    alone = Alone()
    entry = Entry(alone.topic, b"x", "origin", 7, 5, alone.desk.now + 600.0)
    alone.retained.log.add(alone.slot, entry, alone.desk.now)
    alone.retained.clock.see(5)
    assert not alone.holds_back
    alone.take_over()
    assert alone.holds_back
    alone.goes_to(NEW)
    alone.desk.work()
    alone.pass_time(0.1)
    return alone


def test_it_is_dispatched_under_the_identity_that_it_had(alone: Alone) -> None:
    alone.begin()
    assert alone.dedup.pending(alone.key) == []
    (dispatch,) = alone.taken
    message = dispatch.message
    assert (message.topic, message.payload, message.origin, message.number) == (alone.topic, b"x", "origin", 7)
    assert message.travelled
    alone.leaves_it()
    alone.pass_time(5.0)
    assert (alone.taken, alone.take_asked()) == ([], [])


@pytest.mark.parametrize("event", ["view_changed", "joined"])
def test_what_a_crashed_home_has_left_is_begun_when_the_cluster_changes(alone: Alone, event: str) -> None:
    alone.replicated.left.append((alone.key, Carried(alone.topic, b"x", "origin", 7)))
    getattr(alone.part, event)()
    assert alone.replicated.left == []
    alone.desk.work()
    assert len(alone.taken) == 1


def test_a_message_that_somebody_repeats_meanwhile_is_not_begun_twice(alone: Alone) -> None:
    alone.begin()
    alone.begin()
    assert len(alone.taken) == 1
    alone.fails()
    alone.dedup.begin(alone.key)  # its publisher has repeated it
    alone.pass_time(2.0)
    assert alone.taken == []


@pytest.mark.parametrize("keep_s", [0, 60])
def test_a_message_that_takes_over_the_name_of_the_first_is_reported_under_that_name(keep_s: int) -> None:
    here, there = Alone(replication=True), Alone(replication=True)
    for alone in (here, there):
        alone.begin()
        alone.fails()  # it waits for a retry
    # A client of the home itself, and one of another endpoint, publish the same payload.
    paul, ann = here.connection(), there.connection()
    here.origin.publish(paul, publish(here.topic, b"x", ack=ACK_WITH_MID, keep_s=keep_s))
    carried = Carried(there.topic, b"x", ANN.incarnation, 9)
    there.home.publish_requested(ANN.incarnation, 3, PublishRequest(carried, there.key, keep_s=keep_s))
    for alone in (here, there):
        (dispatch,) = alone.taken
        assert (dispatch.message.origin, dispatch.message.number) == ("origin", 7)
        alone.leaves_it()
    here.origin.take_outcomes()
    (reply,) = here.written(paul)
    kept = {"kept": True} if keep_s else {}
    assert orjson.loads(reply) == {"result": "success", "duplicate": False, "mid": "origin.7", **kept}
    (answer,) = [value for peer, number, value in there.desk.answers if (peer, number) == (ANN.incarnation, 3)]
    assert answer == [bool(keep_s), "origin", 7]
    # The origin there reports that name, too.
    there.origin.publish(
        ann, publish(topics_at(there.members, BOB.incarnation)[0], b"y", ack=ACK_WITH_MID, keep_s=keep_s)
    )
    (call,) = there.take_asked()
    decoded = PublishRequest.answer.decode(packb(answer))
    assert decoded == tuple(answer)
    there.origin.answered(call, decoded)
    (reply,) = there.written(ann)
    assert orjson.loads(reply)["mid"] == "origin.7"


def test_it_goes_on_to_the_home_of_its_slot(moved: Alone) -> None:
    assert moved.taken == []
    moved.pass_time(1.1)
    (call,) = moved.take_asked()
    expected = PublishRequest(Carried(moved.topic, b"x", "origin", 7), moved.key, again=True)
    assert (call.target, call.request) == (NEW.incarnation, expected)
    moved.part.failed(call, "store_unavailable", "")
    moved.pass_time(1.1)
    (call,) = moved.take_asked()
    assert moved.part.lost(call) is None
    moved.pass_time(1.1)
    (call,) = moved.take_asked()
    assert moved.holds_back
    moved.part.answered(call, False)
    moved.pass_time(RECENT_S)
    assert moved.take_asked() == []
    assert not moved.holds_back
    assert moved.desk.drops["failover_given_up"] == 0


def test_what_no_home_hands_over_is_given_up_at_last(moved: Alone) -> None:
    assert moved.holds_back
    for _ in range(40):
        moved.pass_time(1.1)
        for call in moved.take_asked():
            moved.part.failed(call, "store_unavailable", "")
    assert moved.desk.drops["failover_given_up"] == 1
    assert not moved.holds_back


def test_one_that_came_to_some_is_done_with(alone: Alone) -> None:
    alone.listens_at(ANN, "anna")
    alone.listens_at(BOB, "bert")
    alone.begin()
    alone.has_subscribers(alone.flush()[0], {"anna", "bert"})
    to_ann, to_bob = alone.take_asked()
    to_ann.asker.answered(to_ann, [])
    to_bob.asker.failed(to_bob, "peer_unavailable", "gone")
    alone.home.take_back()
    alone.pass_time(0.1)
    alone.pass_time(3.0)
    assert (alone.taken, alone.take_asked()) == ([], [])
    assert alone.desk.drops == {"publish_partial": 1}
