"""Joins and leaves as messages: their home, their outcomes, and that no other endpoint announces them. First the part
alone, then several endpoints. SPEC section 2.5."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from ingeborg.broker.core.cluster.homes import home_table
from ingeborg.broker.core.links.calls import Call
from ingeborg.broker.core.links.requests import Carried, PublishRequest
from ingeborg.broker.core.messages.announcing import UNDER_WAY_MAX, Announcing
from ingeborg.broker.core.model import StoreUnavailable
from ingeborg.protocol.hashes import slot_of
from ingeborg.protocol.topics import PRESENCE

from ..fake_desk import ME
from ..talk import Cluster, Talker
from ..way import ANN, BOB, Way, publish

DOWN = StoreUnavailable("no quorum")


class Told(Way):
    """A home of topics with presence, which begin with ``room/``."""

    def __init__(self, *peers: Any) -> None:
        super().__init__(*(peers or (ANN,)), presence=("room/", "hall/"))
        (self.part,) = (part for part in self.messages.parts if isinstance(part, Announcing))
        presence = self.topics.presence
        assert presence is not None
        self.presence = presence
        self.elsewhere = self.room(ANN.incarnation)
        self.here = self.room(ME.incarnation)

    def room(self, told_at: str) -> str:
        """Return a topic whose joins and leaves this endpoint announces."""
        homes = self.members.table
        return next(
            topic
            for topic in (f"room/{number}" for number in range(100_000))
            if homes[slot_of(topic)] == ME.incarnation and homes[slot_of(PRESENCE + topic)] == told_at
        )

    def tell(self, client: str, topic: str, joined: bool = True) -> None:
        """Announce that the client has joined the topic, or has left it."""
        self.presence.tell(client, [topic], joined)

    def asked(self) -> list[Call]:
        """End the turn; return the requests to other homes."""
        self.part.flush()
        return self.take_asked()

    def said(self) -> list[Any]:
        """Return these requests as the messages that they carry."""
        return [orjson.loads(call.request.message.payload) for call in self.asked()]

    @property
    def lost(self) -> int:
        return self.desk.counts["presence_lost"]


@pytest.fixture
def told() -> Told:
    return Told()


def test_a_join_is_a_message_to_the_home_of_the_topic_on_which_it_is_told(told: Told) -> None:
    told.tell("carl", told.elsewhere)
    (call,) = told.asked()
    assert call.target == ANN.incarnation
    message = Carried(PRESENCE + told.elsewhere, b'{"joined":["carl"]}', ME.incarnation, call.number)
    assert call.request == PublishRequest(message, None)
    assert (told.desk.counts["presence_told"], told.presence.waiting) == (0, 1)
    told.part.answered(call, False)
    assert (told.desk.counts["presence_told"], told.lost, told.presence.waiting) == (1, 0, 0)


def test_of_one_topic_one_message_is_under_way_at_a_time(told: Told) -> None:
    told.tell("carl", told.elsewhere)
    (join,) = told.asked()
    told.tell("carl", told.elsewhere, False)
    assert told.said() == []
    told.part.answered(join, False)
    assert told.said() == [{"left": ["carl"]}]


@pytest.mark.parametrize("code", ["partial", "store_unavailable", "peer_unavailable"])
def test_what_a_home_does_not_dispatch_is_counted_and_not_repeated(told: Told, code: str) -> None:
    told.tell("carl", told.elsewhere)
    told.tell("dora", told.elsewhere)
    (call,) = told.asked()
    told.part.failed(call, code, ["some did not", {"failed": ["x"]}])
    assert (told.said(), told.lost, told.presence.waiting, told.inflight.messages) == ([], 2, 0, 0)


def test_so_many_are_under_way_at_once_and_the_next_goes_when_one_of_them_has_come(told: Told) -> None:
    told.presence.tell("carl", [f"room/{number}" for number in range(UNDER_WAY_MAX + 3)], True)
    calls = told.asked()
    here = [topic for read in told.flush() for topic in read.arguments[0]]
    assert len(calls) + len(here) == UNDER_WAY_MAX
    assert told.asked() == []
    told.part.answered(calls[0], False)
    assert len(told.asked()) + len(told.flush()) == 1


# The place of an announcement


def test_the_next_home_is_asked_when_one_is_gone_and_told_so() -> None:
    way = Told(ANN, BOB)
    now, then = way.members.table, home_table([(ME.name, ME.incarnation), (BOB.name, BOB.incarnation)])
    rooms = {topic: slot_of(PRESENCE + topic) for topic in (f"room/{number}" for number in range(1_000))}
    topic = next(room for room, slot in rooms.items() if (now[slot], then[slot]) == (ANN.incarnation, BOB.incarnation))
    way.tell("carl", topic)
    (call,) = way.asked()
    way.loses(ANN)
    assert way.part.lost(call) == BOB.incarnation
    message = Carried(PRESENCE + topic, b'{"joined":["carl"]}', ME.incarnation, call.number)
    assert call.request == PublishRequest(message, None, again=True)


def test_it_is_dispatched_here_when_this_endpoint_is_the_next_home(told: Told) -> None:
    told.tell("carl", told.elsewhere)
    (call,) = told.asked()
    told.loses(ANN)
    watcher = told.listens("watcher")
    told.subscribed(PRESENCE + told.elsewhere, "watcher")
    assert told.part.lost(call) is None
    told.part.flush()
    assert told.desk.counts["presence_told"] == 1
    (frame,) = told.written(watcher)
    assert orjson.loads(frame) == {"key": PRESENCE + told.elsewhere, "broadcast": {"joined": ["carl"]}}


def test_where_this_endpoint_is_its_home_it_waits_for_the_store_as_any_message(told: Told) -> None:
    watcher = told.listens("watcher")
    told.tell("carl", told.here, False)
    told.part.flush()
    (read,) = told.flush()
    assert read.arguments == ([PRESENCE + told.here],)
    told.has_subscribers(read, {"watcher"})
    told.part.flush()
    assert (told.desk.counts["presence_told"], told.presence.waiting, told.inflight.messages) == (1, 0, 0)
    assert [orjson.loads(frame)["broadcast"] for frame in told.written(watcher)] == [{"left": ["carl"]}]


def test_here_too_what_fails_is_counted(told: Told) -> None:
    told.tell("carl", told.here)
    told.part.flush()
    told.flush()[0].end(error=DOWN)
    told.part.flush()
    assert (told.lost, told.presence.waiting, told.inflight.messages) == (1, 0, 0)


def test_it_moves_with_the_topic_it_is_told_on(told: Told) -> None:
    told.tell("carl", told.here)
    told.part.flush()
    told.flush()
    before = told.members.table[:]
    told.members.table[slot_of(PRESENCE + told.here)] = ANN.incarnation
    told.members.only_home = None
    told.home.view_changed()
    told.part.flush()
    told.members.table[:] = before
    (call,) = told.take_asked()
    message = Carried(PRESENCE + told.here, b'{"joined":["carl"]}', ME.incarnation, call.number)
    assert call.request == PublishRequest(message, None)


# No announcement by others


@pytest.mark.parametrize("topic", ["presence:room/1", "presence:room/", "presence:hall/2"])
def test_no_client_publishes_where_it_is_told(told: Told, topic: str) -> None:
    connection = told.connection()
    told.part.publish(connection, publish(topic, id=7))
    (frame,) = told.written(connection)
    reply = orjson.loads(frame)
    assert (reply["error"], reply["command"], reply["id"]) == ("forbidden", "publish", 7)
    assert "No client may publish to" in reply["info"]
    assert told.flush() == []
    assert told.take_asked() == []


@pytest.mark.parametrize("topic", ["presence:other", "presence:", "room/1", "presence:roo"])
def test_to_all_other_topics_they_do(told: Told, topic: str) -> None:
    told.subscribed(topic)
    told.part.publish(told.connection(), publish(topic))
    assert told.desk.counts["publishes_received"] == 1


# Several endpoints


def watch(cluster: Cluster, name: str, at: str, topic: str) -> Talker:
    watcher = cluster.listener(name, at)
    assert watcher.say(f"subscribe {PRESENCE}{topic}") == ["ok"]
    return watcher


def test_whoever_asks_for_them_is_told_wherever_the_homes_are() -> None:
    cluster = Cluster("a", "b", presence=("room/",))
    for number in range(12):
        topic = f"room/{number}"
        watcher = watch(cluster, f"w{number}", "ab"[number % 2], topic)
        anna = cluster.client(f"anna{number}", "ba"[number // 6])
        heard = f"{PRESENCE}{topic}: "
        anna.say(f"subscribe {topic}", f"subscribe {topic}")
        assert watcher.hear() == []
        assert watcher.heard[-1] == heard + str({"joined": [anna.name]})
        anna.say(f"unsubscribe {topic}")
        assert watcher.heard[-1] == heard + str({"left": [anna.name]})
        assert len(watcher.heard) == 4


def test_subscriptions_of_all_kinds_are_one_stay() -> None:
    cluster = Cluster("a", "b", presence=("room/",), grace_s=2.0, tells_slots=True)
    topic = cluster.topic_at("a", "room/")
    watcher = watch(cluster, "watcher", "b", topic)
    anna = cluster.listener("anna", "b")
    loud, rock = {"volume": [9]}, {"genre": ["rock"]}

    def heard(command: str, **fields: Any) -> list[str]:
        anna.send(command=command, topic=topic, **fields)
        assert anna.hear() == ["ok"]
        begin, watcher.heard[:] = watcher.heard[:], []
        return begin

    watcher.heard.clear()
    assert heard("subscribe", filter=loud) == [f"{PRESENCE}{topic}: {{'joined': ['anna']}}"]
    assert heard("subscribe", filter=rock, until="disconnect") == []
    assert heard("unsubscribe", filter=loud) == []
    assert heard("subscribe", replace=True, ttl_s=60) == []
    assert heard("subscribe", replace=True, filter=loud, until="disconnect") == []
    anna.close()
    assert watcher.hear(15.0) == [f"{PRESENCE}{topic}: {{'left': ['anna']}}"]


def test_who_hears_of_a_join_reaches_the_newcomer() -> None:
    cluster = Cluster("a", "b", presence=("room/",))
    watcher = watch(cluster, "watcher", "a", "room/1")
    anna = cluster.listener("anna", "b")
    seen = len(watcher.heard)
    anna.send(command="subscribe", topic="room/1")
    while len(watcher.heard) == seen:
        cluster.world.run(0.001)
    watcher.say("publish room/1 'welcome'")
    assert "room/1: 'welcome'" in anna.heard


def test_a_forged_one_is_refused_in_a_large_frame_too() -> None:
    cluster = Cluster("a", presence=("room/",))
    anna = cluster.client("anna", "a")
    watcher = watch(cluster, "watcher", "a", "room/1")
    for size in (1, 100_000):
        anna.send(command="publish", topic=f"{PRESENCE}room/1", payload={"joined": ["x" * size]}, ack=True)
        assert anna.hear(2.0) == ["error forbidden"]
    assert watcher.hear() == []


def test_an_end_in_order_tells_what_it_has_to() -> None:
    cluster = Cluster("a", "b", presence=("room/",))
    rooms = [cluster.topic_at("a", f"room/{number}/") for number in range(20)]
    watcher = cluster.listener("watcher", "b", *(PRESENCE + room for room in rooms))
    anna = cluster.client("anna", "a")
    anna.send(command="subscribe", topic=rooms)
    cluster.world.run(0.045)  # the store is writing them
    leaving = cluster.nodes["a"]
    leaving.event(lambda now: leaving.router.leave(now, 0.5))
    watcher.hear(5.0)
    assert sum("joined" in text for text in watcher.heard) == 20


def test_with_lookup_routing_nothing_is_told() -> None:
    cluster = Cluster("a", presence=("room/",), routing="lookup")
    assert cluster.nodes["a"].router.topics.presence is None
    anna = cluster.client("anna", "a")
    assert anna.say(f"publish {PRESENCE}room/1 'x'") == ["ok"]
