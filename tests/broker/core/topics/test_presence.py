"""Presence: what is told of who joins and leaves a topic, and what is not. SPEC section 2.5. First the parts alone,
then among endpoints."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from ingeborg.broker.core.clients.keepalive import Keepalive
from ingeborg.broker.core.cluster.homes import home_table
from ingeborg.broker.core.cluster.underway import UnderWay
from ingeborg.broker.core.links.calls import TIMEOUT_S, Call
from ingeborg.broker.core.links.requests import PublishRequest
from ingeborg.broker.core.model import StoreUnavailable, Subscribe, Subscription, Term
from ingeborg.broker.core.topics import presence
from ingeborg.broker.core.topics.presence import Presence
from ingeborg.broker.core.topics.sweeping import WALK_S_MAX, Sweeping
from ingeborg.broker.core.topics.write import Write, Writer
from ingeborg.broker.core.topics.writing import Writing
from ingeborg.protocol.errors import ProtocolError
from ingeborg.protocol.hashes import slot_of
from ingeborg.protocol.topics import PRESENCE, TOPIC_BYTES_MAX

from ..fake_desk import Stored
from ..talk import Cluster, Talker
from ..way import ANN, BOB, ME, Way, publish

DOWN = StoreUnavailable("no quorum")


class Ours(Writer):
    """Who has written."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def written(self, write: Write, error: ProtocolError | None) -> None:
        self.told.append("ok" if error is None else error.code)

    def not_home(self, write: Write) -> None:
        self.told.append("not_home")


class Told(Way):
    """A home of topics with presence, which begin with ``room/``."""

    def __init__(self, *peers: Any, prefixes: tuple[str, ...] = ("room/", "hall/")) -> None:
        super().__init__(*(peers or (ANN,)))
        desk, me = self.desk.real, ME.incarnation
        writes = UnderWay()
        self.keepalive = Keepalive(desk, self.sending, 25.0, 0.0)
        parts = (self.members, self.hub, self.routes, self.filtering, self.locations, writes, self.keepalive)
        self.sweeping = Sweeping(desk, *parts, True)
        self.part = self.sweeping.presence = Presence(
            desk,
            me,
            self.members,
            self.home,
            self.outcomes,
            self.inflight,
            self.replies,
            self.origin.publish,
            prefixes,
        )
        self.writing = Writing(desk, me, self.members, self.routes, self.links, writes, self.sweeping, self.filtering)
        self.elsewhere = self.room(ANN.incarnation)
        self.here = self.room(ME.incarnation)

    def room(self, told_at: str, *, number: int = 0) -> str:
        """A topic of ours whose joins and leaves this endpoint tells."""
        homes = self.members.table
        return next(
            topic
            for topic in (f"room/{number}" for number in range(number, 100_000))
            if homes[slot_of(topic)] == ME.incarnation and homes[slot_of(PRESENCE + topic)] == told_at
        )

    def write(
        self, client: str, *topics: str, added: bool = True, filter: str | None = None, replace: bool = False
    ) -> Ours:
        """Somebody here changes subscriptions to topics of ours."""
        now = self.desk.now
        write = Write(client, list(topics), added, now, now + TIMEOUT_S, None, filter, replace)
        write.writer = ours = Ours()
        self.writing.take(write)
        return ours

    def store(self, *operations: str) -> list[Stored]:
        """What the store is asked has to be these."""
        calls = self.take_stored()
        assert [call.operation for call in calls] == list(operations)
        return calls

    def has(self, client: str, *filters: str | None) -> list[Subscription]:
        """What the client has at a topic whose joins and leaves are told elsewhere."""
        return [Subscription(self.elsewhere, client, text) for text in filters]

    def cached(self, topic: str, *clients: str) -> None:
        """The set is in the routing cache."""
        self.subscribed(topic, *clients)

    def asked(self) -> list[Call]:
        """The turn ends; what other homes are asked."""
        self.part.flush()
        return self.take_asked()

    def said(self) -> list[Any]:
        """The same, as what they are to hand over."""
        return [orjson.loads(call.request.payload) for call in self.asked()]

    @property
    def lost(self) -> int:
        return self.desk.counts["presence_lost"]


@pytest.fixture
def told() -> Told:
    return Told()


# What is a join, and what is a leave


def test_a_join_is_told_when_the_store_and_the_cache_have_it_and_nobody_waits_for_the_telling(told: Told) -> None:
    ours = told.write("carl", told.elsewhere)
    (read,) = told.store("subscriptions_of")
    assert read.arguments == ([("carl", told.elsewhere)],)
    read.end([[]])
    (write,) = told.store("subscribe")
    told.cached(told.elsewhere, "dora")
    assert (told.said(), ours.told) == ([], [])
    write.end()
    assert ours.told == ["ok"]
    route = told.routes.get(told.elsewhere)
    assert route is not None
    assert route.subscribers is not None
    assert "carl" in route.subscribers
    (call,) = told.asked()
    assert call.target == ANN.incarnation
    assert call.request == PublishRequest(PRESENCE + told.elsewhere, b'{"joined":["carl"]}', None)
    told.part.answered(call, False)
    assert (told.desk.counts["presence_told"], told.lost, told.part.waiting) == (1, 0, 0)


PLAIN, LOUD, ROCK = None, '{"volume":[9]}', '{"genre":["rock"]}'


@pytest.mark.parametrize("filter", [PLAIN, LOUD])
@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("before", [[], [PLAIN], [LOUD], [ROCK], [PLAIN, LOUD]])
def test_who_had_nothing_at_the_topic_joins_by_whatever_it_subscribes_to(
    told: Told, filter: str | None, replace: bool, before: list[str | None]
) -> None:
    told.write("carl", told.elsewhere, filter=filter, replace=replace)
    told.store("subscriptions_of")[0].end([told.has("carl", *before)])
    told.store("subscribe")[0].end()
    assert told.said() == ([] if before else [{"joined": ["carl"]}])


@pytest.mark.parametrize(
    ("filter", "before", "leaves"),
    [
        (None, [], False),
        (None, [PLAIN], True),
        (None, [LOUD], True),
        (None, [PLAIN, LOUD, ROCK], True),
        (LOUD, [], False),
        (LOUD, [PLAIN], False),
        (LOUD, [LOUD], True),
        (LOUD, [ROCK], False),
        (LOUD, [LOUD, ROCK], False),
        (LOUD, [PLAIN, LOUD], False),
    ],
)
def test_who_has_nothing_at_the_topic_any_more_leaves(
    told: Told, filter: str | None, before: list[str | None], leaves: bool
) -> None:
    told.write("carl", told.elsewhere, added=False, filter=filter)
    told.store("subscriptions_of")[0].end([told.has("carl", *before)])
    told.store("unsubscribe")[0].end()
    assert told.said() == ([{"left": ["carl"]}] if leaves else [])


def test_topics_without_presence_are_written_as_ever(told: Told) -> None:
    told.write("carl", "other", f"{PRESENCE}room/1", "hall")
    told.store("subscribe")[0].end()
    told.write("carl", "other")
    told.write("carl", "other")
    assert len(told.store("subscribe", "subscribe")) == 2
    assert told.said() == []


def test_of_who_is_told_nothing_is_told_whatever_the_prefix() -> None:
    told = Told(prefixes=("p",))
    assert told.part.of(["presence:room/1", "people", "presence", "room/1"]) == ["people", "presence"]


def test_of_a_topic_that_leaves_no_room_for_the_prefix_nothing_is_told_but_counted(told: Told) -> None:
    homes = told.members.table
    longest = TOPIC_BYTES_MAX - len(PRESENCE)
    fits, too_long = (
        next(
            topic
            for topic in (
                f"room/{number:04}" + "é" * ((length - 9) // 2) + "x" * (length % 2 ^ 1) for number in range(999)
            )
            if homes[slot_of(topic)] == ME.incarnation and homes[slot_of(PRESENCE + topic)] == ANN.incarnation
        )
        for length in (longest, longest + 1)
    )
    assert (len(fits.encode()), len(too_long.encode())) == (longest, longest + 1)
    told.write("carl", fits, too_long)
    (read,) = told.store("subscriptions_of")
    assert read.arguments == ([("carl", fits)],)
    read.end([[]])
    told.store("subscribe")[0].end()
    assert [call.request.topic for call in told.asked()] == [PRESENCE + fits]
    assert told.lost == 1


# Order


def test_two_subscribes_of_a_client_that_overlap_are_one_join(told: Told) -> None:
    first, second = told.write("carl", told.elsewhere), told.write("carl", told.elsewhere)
    told.store("subscriptions_of")[0].end([[]])
    told.store("subscribe")[0].end()
    assert (first.told, second.told) == (["ok"], [])
    told.desk.work()
    told.store("subscriptions_of")[0].end([told.has("carl", PLAIN)])
    told.store("subscribe")[0].end()
    assert second.told == ["ok"]
    assert told.said() == [{"joined": ["carl"]}]


def test_a_leave_behind_a_join_waits_for_it_and_is_told_behind_it(told: Told) -> None:
    told.write("carl", told.elsewhere)
    told.write("carl", told.elsewhere, added=False)
    told.store("subscriptions_of")[0].end([[]])
    told.store("subscribe")[0].end()
    (join,) = told.asked()
    told.desk.work()
    told.store("subscriptions_of")[0].end([told.has("carl", PLAIN)])
    told.store("unsubscribe")[0].end()
    assert told.said() == []  # one message of a topic at a time
    told.part.answered(join, False)
    assert told.said() == [{"left": ["carl"]}]


def test_what_changes_while_a_message_is_under_way_goes_into_the_next(told: Told) -> None:
    told.part.tell("c0", [told.elsewhere], True)
    (first,) = told.asked()
    for number in range(1, 4):
        told.part.tell(f"c{number}", [told.elsewhere], True)
    told.part.tell("c0", [told.elsewhere], False)
    told.part.tell("c4", [told.elsewhere], True)
    said: list[Any] = []
    while first is not None:
        told.part.answered(first, False)
        calls = told.asked()
        said += [orjson.loads(call.request.payload) for call in calls]
        first = calls[0] if calls else None  # type: ignore[assignment]
    assert said == [{"joined": ["c1", "c2", "c3"]}, {"left": ["c0"]}, {"joined": ["c4"]}]
    assert (told.part.waiting, told.inflight.messages) == (0, 0)


def test_a_message_has_a_thousand_ids_at_most(told: Told) -> None:
    for number in range(presence.IDS_PER_MESSAGE + 1):
        told.part.tell(f"c{number}", [told.elsewhere], True)
    (first,) = told.asked()
    assert len(orjson.loads(first.request.payload)["joined"]) == presence.IDS_PER_MESSAGE
    told.part.answered(first, False)
    assert told.said() == [{"joined": [f"c{presence.IDS_PER_MESSAGE}"]}]


def test_other_writes_of_a_client_wait_for_one_that_is_told_and_others_clients_do_not(told: Told) -> None:
    told.write("carl", told.elsewhere)
    told.write("carl", "other")
    told.write("dora", "other")
    read, write = told.store("subscriptions_of", "subscribe")
    assert write.arguments == ([Subscribe("dora", ["other"])],)
    read.end([[]])
    told.store("subscribe")[0].end()
    told.desk.work()
    (write,) = told.store("subscribe")
    assert write.arguments == ([Subscribe("carl", ["other"])],)


# What cannot be told


def test_where_it_cannot_be_read_what_is_there_the_change_is_made_and_counted_as_lost(told: Told) -> None:
    ours = told.write("carl", told.elsewhere, told.here)
    told.store("subscriptions_of")[0].end(error=DOWN)
    told.store("subscribe")[0].end()
    assert (ours.told, told.said(), told.lost) == (["ok"], [], 2)


def test_of_a_write_that_fails_nothing_is_told(told: Told) -> None:
    ours = told.write("carl", told.elsewhere)
    told.store("subscriptions_of")[0].end([[]])
    told.store("subscribe")[0].end(error=DOWN)
    assert (ours.told, told.said(), told.lost) == (["store_unavailable"], [], 1)


def test_nor_of_one_that_another_home_may_have_made_meanwhile(told: Told) -> None:
    ours = told.write("carl", told.elsewhere)
    told.store("subscriptions_of")[0].end([[]])
    (write,) = told.store("subscribe")
    told.members.round += 1
    write.end()
    assert (ours.told, told.said(), told.lost) == (["not_home"], [], 1)


def test_who_is_home_no_more_when_that_has_been_read_does_not_write(told: Told) -> None:
    ours = told.write("carl", told.elsewhere)
    (read,) = told.store("subscriptions_of")
    told.members.round += 1
    read.end([[]])
    told.store()
    told.writing.tick()  # it is again by now
    told.store("subscriptions_of")[0].end([[]])
    told.store("subscribe")[0].end()
    assert ours.told == ["ok"]


def test_a_change_that_begins_again_counts_a_topic_that_is_too_long_once(told: Told) -> None:
    names = (f"room/{number:04}".ljust(TOPIC_BYTES_MAX, "x") for number in range(9_999))
    too_long = next(topic for topic in names if told.members.table[slot_of(topic)] == ME.incarnation)
    told.write("carl", told.elsewhere, too_long)
    (read,) = told.store("subscriptions_of")
    told.members.round += 1
    read.end([[]])
    told.writing.tick()
    told.store("subscriptions_of")
    assert told.lost == 1


@pytest.mark.parametrize("code", ["partial", "store_unavailable", "peer_unavailable"])
def test_what_a_home_does_not_hand_over_is_counted_and_not_repeated(told: Told, code: str) -> None:
    told.part.tell("carl", [told.elsewhere], True)
    told.part.tell("dora", [told.elsewhere], True)
    (call,) = told.asked()
    told.part.failed(call, code, ["some did not", {"failed": ["x"]}])
    assert (told.said(), told.lost, told.part.waiting, told.inflight.messages) == ([], 2, 0, 0)


def test_too_many_that_wait_are_dropped_and_counted(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    topics = [f"room/{number}" for number in range(presence.WAITING_MAX + 3)]
    told.part.tell("carl", topics, True)
    assert (told.lost, told.part.waiting) == (3, presence.WAITING_MAX)
    told.part.flush()
    assert told.inflight.messages >= presence.UNDER_WAY_MAX
    under_way = len(told.take_asked()) + len(told.flush())
    assert under_way <= presence.UNDER_WAY_MAX


# Where it is told


def test_the_next_home_is_asked_when_one_is_gone_and_told_so() -> None:
    way = Told(ANN, BOB)
    now, then = way.members.table, home_table([(ME.name, ME.incarnation), (BOB.name, BOB.incarnation)])
    rooms = {topic: slot_of(PRESENCE + topic) for topic in (f"room/{number}" for number in range(1_000))}
    topic = next(room for room, slot in rooms.items() if (now[slot], then[slot]) == (ANN.incarnation, BOB.incarnation))
    way.part.tell("carl", [topic], True)
    (call,) = way.asked()
    way.loses(ANN)
    assert way.part.lost(call) == BOB.incarnation
    assert call.request == PublishRequest(PRESENCE + topic, b'{"joined":["carl"]}', None, again=True)


def test_it_is_handed_over_here_when_this_endpoint_is_the_next_home(told: Told) -> None:
    told.part.tell("carl", [told.elsewhere], True)
    (call,) = told.asked()
    told.loses(ANN)
    watcher = told.listens("watcher")
    told.cached(PRESENCE + told.elsewhere, "watcher")
    assert told.part.lost(call) is None
    told.part.flush()
    assert told.desk.counts["presence_told"] == 1
    (frame,) = told.written(watcher)
    assert orjson.loads(frame) == {"key": PRESENCE + told.elsewhere, "broadcast": {"joined": ["carl"]}}


def test_where_this_endpoint_is_its_home_it_waits_for_the_store_as_any_message(told: Told) -> None:
    watcher = told.listens("watcher")
    told.part.tell("carl", [told.here], False)
    told.part.flush()
    (read,) = told.flush()
    assert read.arguments == ([PRESENCE + told.here],)
    told.has_subscribers(read, {"watcher"})
    told.part.flush()
    assert (told.desk.counts["presence_told"], told.part.waiting, told.inflight.messages) == (1, 0, 0)
    assert [orjson.loads(frame)["broadcast"] for frame in told.written(watcher)] == [{"left": ["carl"]}]


def test_here_too_what_fails_is_counted(told: Told) -> None:
    told.part.tell("carl", [told.here], True)
    told.part.flush()
    told.flush()[0].end(error=DOWN)
    told.part.flush()
    assert (told.lost, told.part.waiting, told.inflight.messages) == (1, 0, 0)


def test_it_moves_with_the_topic_it_is_told_on(told: Told) -> None:
    told.part.tell("carl", [told.here], True)
    told.part.flush()
    told.flush()
    before = told.members.table[:]
    told.members.table[slot_of(PRESENCE + told.here)] = ANN.incarnation
    told.members.only_home = None
    told.home.view_changed()
    told.part.flush()
    told.members.table[:] = before
    (call,) = told.take_asked()
    assert call.request == PublishRequest(PRESENCE + told.here, b'{"joined":["carl"]}', None)


# Nobody else tells it


@pytest.mark.parametrize("topic", ["presence:room/1", "presence:room/", "presence:hall/2"])
def test_no_client_publishes_where_it_is_told(told: Told, topic: str) -> None:
    connection = told.connection()
    told.part.commands()["publish"](connection, publish(topic, id=7))
    (frame,) = told.written(connection)
    reply = orjson.loads(frame)
    assert (reply["error"], reply["command"], reply["id"]) == ("forbidden", "publish", 7)
    assert "No client publishes to" in reply["info"]
    assert told.flush() == []
    assert told.take_asked() == []


@pytest.mark.parametrize("topic", ["presence:other", "presence:", "room/1", "presence:roo"])
def test_to_all_other_topics_they_do(told: Told, topic: str) -> None:
    told.subscribed(topic)
    told.part.commands()["publish"](told.connection(), publish(topic))
    assert told.desk.counts["publishes_received"] == 1


# Subscriptions that end


class Ends(Told):
    """One client's subscriptions to the room are over, and found to be: one without a filter, and one with."""

    def __init__(self) -> None:
        super().__init__()
        self.keepalive.expire(100.0)
        self.records = [
            Subscription(self.elsewhere, "carl", text, Term(False, 50.0), stamp)
            for stamp, text in enumerate((None, LOUD), 1)
        ]

    def find(self) -> list[Stored]:
        """The walk comes to them; what the store is asked then."""
        self.desk.now += WALK_S_MAX
        self.sweeping.tick()
        asked: list[Stored] = []
        while calls := self.take_stored():
            for call in calls:
                if call.operation == "ending":
                    call.end((self.records, None))
                elif call.operation == "tidy":
                    call.end(0)
                elif call.operation == "ending_slots":
                    call.end([slot_of(self.elsewhere)])
                else:
                    asked.append(call)
        return asked

    def ends(self, *before: str | None) -> Stored:
        """They are found, and the store says what the client has at the room: these, by their filters."""
        (read,) = self.find()
        assert (read.operation, set(read.arguments[0])) == ("subscriptions_of", {("carl", self.elsewhere)})
        read.end([self.has("carl", *before) for _ in read.arguments[0]])
        (end,) = self.store("end")
        return end


def test_who_has_nothing_left_when_they_have_ended_has_left() -> None:
    told = Ends()
    told.cached(told.elsewhere, "carl", "dora")
    end = told.ends(None, LOUD)
    assert told.said() == []
    end.end([told.records])
    assert told.said() == [{"left": ["carl"]}]


@pytest.mark.parametrize(
    ("before", "over"),
    [
        ([None, LOUD, ROCK], 2),  # there is another one
        ([None, LOUD], 1),  # one has got another term since
        ([None, LOUD], 0),  # the client has come back
        ([], 2),  # it had left before
    ],
)
def test_who_has_something_left_or_had_nothing_before_has_not(before: list[str | None], over: int) -> None:
    told = Ends()
    told.ends(*before).end([told.records[:over]])
    assert (told.said(), told.lost) == ([], 0)
    told.write("carl", told.elsewhere)  # and is held no longer
    assert told.take_stored()[-1].operation == "subscriptions_of"


def test_of_an_end_that_fails_nothing_is_told_but_counted() -> None:
    told = Ends()
    told.ends(None, LOUD).end(error=DOWN)
    assert (told.said(), told.lost) == ([], 1)


def test_who_subscribes_again_meanwhile_joins_behind_the_leave() -> None:
    told = Ends()
    told.cached(told.elsewhere, "carl")
    end = told.ends(None, LOUD)
    told.write("carl", told.elsewhere)
    assert told.take_stored() == []
    end.end([told.records])
    (left,) = told.asked()
    told.desk.work()
    (read,) = [call for call in told.take_stored() if call.operation == "subscriptions_of"]
    read.end([[]])
    told.store("subscribe")[0].end()
    told.part.answered(left, False)
    assert orjson.loads(left.request.payload) == {"left": ["carl"]}
    assert told.said() == [{"joined": ["carl"]}]


def test_while_something_of_it_is_written_nothing_of_it_ends() -> None:
    told = Ends()
    told.write("carl", told.elsewhere)
    told.store("subscriptions_of")
    assert told.find() == []


def test_a_store_that_does_not_say_what_is_there_is_asked_again() -> None:
    told = Ends()
    told.find()[0].end(error=DOWN)
    assert told.find() == []  # this walk ends
    assert told.ends(None, LOUD)


# Among endpoints


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
    cluster.world.run(0.045)  # they are being written
    leaving = cluster.nodes["a"]
    leaving.event(lambda now: leaving.router.leave(now, 0.5))
    watcher.hear(5.0)
    assert sum("joined" in text for text in watcher.heard) == 20


def test_with_lookup_routing_nothing_is_told() -> None:
    cluster = Cluster("a", presence=("room/",), routing="lookup")
    assert cluster.nodes["a"].router.topics.sweeping.presence is None
    anna = cluster.client("anna", "a")
    assert anna.say(f"publish {PRESENCE}room/1 'x'") == ["ok"]
