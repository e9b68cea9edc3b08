"""The home of messages: its store calls and their times, its handling of duplicates, and the end of waiting messages
when the store, the view or the lease fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ingeborg.broker.core.dedup.dedup import key_of, payload_hash
from ingeborg.broker.core.limits import SIZES, Limits, Sizes
from ingeborg.broker.core.links.calls import NOT_HOME, TIMEOUT_S
from ingeborg.broker.core.links.requests import BroadcastRequest, Carried, DeliverRequest, PublishRequest, SeenRequest
from ingeborg.broker.core.model import Shape, StoreUnavailable
from ingeborg.protocol.filters import canonical_filter
from ingeborg.protocol.hashes import slot_of

from ..fake_desk import ME
from ..way import ANN, BOB, Way, at, note, topic_at, topic_moving, topics_at

PEER = "a"
EVERYTHING = canonical_filter({"no such attribute": [{"exists": False}]})
LOUD = canonical_filter({"volume": [{"numeric": [">", 7]}]})
DOWN = StoreUnavailable("down")


class Asked(Way):
    """An endpoint that a peer takes for the home of topics."""

    def __init__(self, *peers: Any, **options: Any) -> None:
        super().__init__(*(peers or (ANN,)), **options)
        self._number = 0

    def publish(self, topic: str, payload: bytes = b'"news"', *, dedup: bool = True, again: bool = False) -> int:
        """Send a message from a peer. Returns the number of its request."""
        self._number += 1
        key = key_of(slot_of(topic), topic, payload) if dedup else None
        message = Carried(topic, payload, PEER, self._number)
        self.home.publish_requested(PEER, self._number, PublishRequest(message, key, again))
        return self._number

    def answers(self) -> list[tuple[int, Any]]:
        """Return the answers to the peer since the last call, by kind: request, outcome or error code."""
        desk = self.desk
        told = [(number, value or False) for _, number, value in desk.answers]
        told += [(number, code) for _, number, code in desk.declined]
        desk.answers.clear()
        desk.declined.clear()
        return told

    def knows(self, topic: str, payload: bytes = b'"news"') -> bool:
        """Is the payload in the table of duplicates? The look extends its time."""
        return self.dedup.duplicate(key_of(slot_of(topic), topic, payload), self.desk.now)


@pytest.fixture
def way() -> Asked:
    return Asked()


@pytest.fixture
def topic(way: Asked) -> str:
    return topic_at(way.members, "m")


# The stages


def test_a_publish_with_a_key_of_another_slot_is_refused(way: Asked, topic: str) -> None:
    slot = slot_of(topic) ^ 1
    request = PublishRequest(Carried(topic, b"1", PEER, 7), key_of(slot, topic, b"1"))
    way.home.publish_requested(PEER, 7, request)
    assert way.answers() == [(7, "internal")]
    assert way.dedup.pending_keys() == []


def test_who_subscribes_is_asked_at_the_end_of_the_turn_once_for_all_topics_and_then_where_they_are(way: Asked) -> None:
    x, y = topics_at(way.members, "m", 2)
    for topic in (x, y, x):
        way.publish(topic, dedup=False)
    assert way.take_stored() == []
    (read,) = way.flush()
    assert (read.operation, read.arguments) == ("subscribers", ([x, y],))
    way.has_subscribers(read, {"carl"}, {"carl", "dora"})
    (find,) = way.flush()
    assert (find.operation, sorted(find.arguments[0])) == ("locations", ["carl", "dora"])
    find.end([at(ANN) for _ in find.arguments[0]])
    way.home.take_back()
    asked = way.take_asked()
    assert [(type(call.request), call.target) for call in asked] == [(DeliverRequest, "a")] * 3
    assert [call.request.message.topic for call in asked if call.request.message.topic == x] == [x, x]
    assert way.answers() == []
    for call in asked:
        call.asker.answered(call, [])
    way.home.take_back()
    assert sorted(way.answers()) == [(1, False), (2, False), (3, False)]
    assert way.inflight.messages == 0


def test_many_topics_are_read_in_several_calls_each_of_which_brings_its_own_messages_on() -> None:
    way = Asked(ANN, sizes=Sizes(topics_per_read=2))
    way.listens_at(ANN, "carl")
    topics = topics_at(way.members, "m", 5)
    for topic in topics:
        way.publish(topic)
    reads = way.flush()
    assert [read.arguments[0] for read in reads] == [topics[:2], topics[2:4], topics[4:]]
    way.has_subscribers(reads[1], {"carl"}, {"carl"})
    assert [call.request.message.topic for call in way.take_asked()] == topics[2:4]


def test_messages_of_a_topic_whose_filters_are_on_the_first_page_go_on_at_once(way: Asked) -> None:
    way.listens_at(ANN, "carl", "dora")
    topics = topics_at(way.members, "m", 3)
    for topic in topics:
        way.publish(topic)
    (read,) = way.flush()
    plain, short, long = topics
    pages = {short: ([("dora", EVERYTHING)], None), long: ([("dora", LOUD)], "next")}
    way.has_subscribers(read, {"carl"}, {"carl"}, {"carl"}, filters=pages)
    assert [(call.request.message.topic, sorted(call.request.clients)) for call in way.take_asked()] == [
        (plain, ["carl"]),
        (short, ["carl", "dora"]),
    ]
    way.desk.work()
    (read,) = way.take_stored()
    assert (read.operation, read.arguments[:2]) == ("filtered", (long, "next"))
    read.end(([("dora", EVERYTHING)], None))
    way.desk.work()
    way.home.take_back()
    (call,) = way.take_asked()
    assert (call.request.message.topic, sorted(call.request.clients)) == (long, ["carl", "dora"])


@pytest.mark.parametrize("replace", [False, True])
def test_what_is_confirmed_while_the_subscribers_are_read_holds_behind_what_has_been_read(
    way: Asked, topic: str, replace: bool
) -> None:
    """The page that comes can be older."""
    way.listens_at(ANN, "carl", "dora")
    way.publish(topic)
    (read,) = way.flush()
    if replace:
        way.routes.change("dora", [topic], False)
    way.topics.filtering.change("dora", [topic], LOUD, True, replace)
    way.has_subscribers(read, {"carl", "dora"} if replace else {"carl"})
    assert way.take_stored() == []
    (call,) = way.take_asked()
    assert call.request.clients == ["carl"]
    way.publish(topic, b'{"volume":9}')
    (call,) = way.take_asked()
    assert sorted(call.request.clients) == ["carl", "dora"]


@pytest.mark.parametrize("text", [None, EVERYTHING])
def test_who_goes_from_a_page_to_come_to_one_that_has_been_read_misses_nothing(
    way: Asked, topic: str, text: str | None
) -> None:
    """The store has written the ``replace``, and its answer comes behind the last page."""
    way.listens_at(ANN, "dora")
    way.publish(topic)
    (read,) = way.flush()
    way.has_subscribers(read, (), filters={topic: ([], "next")})
    way.topics.filtering.replacing["a write"] = ("dora", [topic], text)
    way.desk.work()
    (read,) = way.take_stored()
    read.end(([], None))
    way.desk.work()
    way.home.take_back()
    (call,) = way.take_asked()
    assert call.request.clients == ["dora"]


def test_what_the_store_says_at_once_brings_the_messages_on_in_their_turn(way: Asked, topic: str) -> None:
    carl = way.listens("carl")
    way.publish(topic)
    way.home.ask()
    (read,) = way.take_stored()
    way.has_subscribers(read, ("carl",))
    way.home.ask()
    assert way.take_stored() == []
    assert way.written(carl) == [note(topic)]
    assert way.flush() == []


def test_a_topic_that_a_full_cache_does_not_take_is_there_for_as_long_as_its_messages_are() -> None:
    way = Asked(ANN, limits=Limits(routes_topics=0, routes_ids=1_000), shape=Shape(reads_memory=True))
    way.listens_at(ANN, "carl")
    seen = []
    for topic in topics_at(way.members, "m", 40):
        way.publish(topic, b"1")
        way.publish(topic, b"2")
        assert topic in way.routes.topics()
        (read,) = way.flush()
        way.has_subscribers(read, {"carl"})
        assert [call.request.message.payload for call in way.take_asked()] == [b"1", b"2"]
        seen.append(topic in way.routes.topics())
    assert 0 < sum(seen) < 20


def test_a_topics_messages_leave_in_their_order_though_the_first_has_to_wait(way: Asked, topic: str) -> None:
    way.subscribed(topic, "carl")
    way.publish(topic, b"1")
    way.listens_at(ANN, "carl")  # the home knows it now, before the store has answered
    way.publish(topic, b"2")
    (find,) = way.flush()
    assert way.take_asked() == []
    find.end([at(ANN)])
    way.home.take_back()
    assert [call.request.message.payload for call in way.take_asked()] == [b"1", b"2"]


def test_what_is_in_the_caches_takes_no_turn_and_no_store(way: Asked, topic: str) -> None:
    carl = way.listens("carl")
    way.subscribed(topic, "carl")
    assert way.publish(topic) == 1
    assert way.answers() == [(1, False)]
    assert way.written(carl) == [note(topic)]
    assert way.flush() == []


def test_a_peer_that_takes_it_for_the_home_of_anothers_topic_is_told(way: Asked) -> None:
    number = way.publish(topic_at(way.members, "a"))
    assert way.answers() == [(number, NOT_HOME)]
    assert (way.flush(), way.inflight.messages) == ([], 0)


def test_a_broadcast_asks_the_store_nothing_and_leaves_nothing_behind() -> None:
    way = Asked(ANN)
    way.loses(ANN)
    way.publish("")
    assert len(way.routes) == 0
    assert way.flush() == []


def test_only_a_broadcast_that_was_asked_for_before_is_taken_to_have_begun_before_it_came() -> None:
    followed = []
    for again in (False, True):
        way = Asked(BOB)
        way.lets_in(ANN)
        way.loses(BOB)  # the home of broadcasts is this endpoint or ann's; the request comes from her
        way.members.table = [ME.incarnation] * len(way.members.table)
        way.publish("", again=again)
        (call,) = way.take_asked()
        assert isinstance(call.request, BroadcastRequest)
        call.asker.answered(call, [("carl", 3.0)])  # three seconds ago he left
        followed.append([stored.arguments for stored in way.take_stored()])
    assert followed == [[], [(["carl"],)]]


# Duplicates


def test_a_payload_is_known_once_it_has_been_dispatched_and_not_before(way: Asked, topic: str) -> None:
    way.subscribed(topic, "carl")
    way.listens_at(ANN, "carl")
    first = way.publish(topic)
    (call,) = way.take_asked()
    assert not way.knows(topic)
    call.asker.answered(call, [])
    way.home.take_back()
    assert way.answers() == [(first, False)]
    second = way.publish(topic)
    assert way.answers() == [(second, True)]
    assert way.desk.counts["duplicates_dropped"] == 1
    third = way.publish(topic, dedup=False)
    (call,) = way.take_asked()
    call.asker.answered(call, [])
    way.home.take_back()
    assert way.answers() == [(third, False)]


def test_duplicates_of_one_under_way_wait_and_are_in_flight_with_it(way: Asked, topic: str) -> None:
    numbers = [way.publish(topic) for _ in range(3)]
    assert way.inflight.messages == 3
    (read,) = way.flush()
    way.has_subscribers(read, set())
    assert sorted(way.answers()) == [(numbers[0], False), (numbers[1], True), (numbers[2], True)]
    assert way.inflight.messages == 0
    assert way.desk.counts["duplicates_dropped"] == 2


def fails(call: Any) -> None:
    call.asker.failed(call, "peer_unavailable", "gone")


def serves(call: Any) -> None:
    call.asker.answered(call, [])


@pytest.mark.parametrize(
    ("to_ann", "to_bob", "code", "known"),
    [(fails, fails, "peer_unavailable", False), (serves, fails, "partial", True)],
)
def test_when_it_fails_its_duplicates_fail_too_and_it_counts_as_seen_only_if_somebody_has_it(
    to_ann: Callable[[Any], None], to_bob: Callable[[Any], None], code: str, known: bool
) -> None:
    way = Asked(ANN, BOB)
    topic = topic_at(way.members, "m")
    way.subscribed(topic, "carl", "dora")
    way.listens_at(ANN, "carl")
    way.listens_at(BOB, "dora")
    numbers = [way.publish(topic) for _ in range(2)]
    calls = {call.target: call for call in way.take_asked()}
    to_ann(calls["a"])
    to_bob(calls["b"])
    way.home.take_back()
    assert sorted(way.answers()) == [(number, code) for number in numbers]
    assert way.knows(topic) == known
    assert way.desk.drops == {f"publish_{code}": 1}
    assert way.inflight.messages == 0


def test_more_duplicates_than_may_wait_are_refused_and_counted() -> None:
    way = Asked(ANN, BOB, sizes=Sizes(waiters_max=1))
    topic = topic_at(way.members, "m")
    _, _, third = (way.publish(topic) for _ in range(3))
    assert way.answers() == [(third, "peer_unavailable")]
    assert way.desk.drops == {"duplicate_waiters_full": 1}
    assert way.inflight.messages == 2


def test_of_a_slot_that_moved_while_its_message_was_under_way_the_new_home_is_told_the_payload() -> None:
    way = Asked()
    topic = topic_moving(way.members, "m", Asked(ANN, BOB).members, "b")
    way.subscribed(topic, "carl")
    way.listens_at(ANN, "carl")
    way.publish(topic)
    (call,) = way.take_asked()
    way.lets_in(BOB)
    way.home.view_changed()
    call.asker.answered(call, [])
    way.home.take_back()
    (told,) = way.take_asked()
    known = (slot_of(topic), payload_hash(topic, b'"news"'), way.dedup.ttl_s)
    assert (told.request, told.target) == (SeenRequest([known]), "b")


# The store fails


def test_when_the_store_cannot_say_who_subscribes_all_that_waits_is_refused_and_asked_anew(
    way: Asked, topic: str
) -> None:
    numbers = [way.publish(topic, payload) for payload in (b"1", b"2")]
    (read,) = way.flush()
    read.end(error=DOWN)
    assert way.answers() == [(number, "store_unavailable") for number in numbers]
    assert way.desk.drops == {"publish_store_unavailable": 2}
    assert way.inflight.messages == 0
    way.publish(topic, b"1")
    (read,) = way.flush()
    assert read.arguments == ([topic],)


def test_when_the_store_cannot_say_where_they_are_nobody_gets_it(way: Asked, topic: str) -> None:
    carl = way.listens("carl")
    way.subscribed(topic, "carl", "dora")
    number = way.publish(topic)
    (find,) = way.flush()
    find.end(error=DOWN)
    way.home.take_back()
    assert way.answers() == [(number, "store_unavailable")]
    assert way.written(carl) == []
    assert not way.knows(topic)


# The cluster changes


def test_what_waits_of_slots_that_go_is_sent_back_with_its_duplicates_and_late_answers_mean_nothing() -> None:
    way = Asked()
    after = Asked(ANN, BOB).members
    going = topic_moving(way.members, "m", after, "b")
    staying = topic_moving(way.members, "m", after, "m")
    numbers = [way.publish(going), way.publish(going)]
    stays = way.publish(staying)
    (read,) = way.flush()
    way.lets_in(BOB)
    way.home.view_changed()
    assert sorted(way.answers()) == [(number, NOT_HOME) for number in numbers]
    assert way.inflight.messages == 1
    assert way.routes.topics() == [staying]
    way.has_subscribers(read, {"carl"}, set())
    assert way.answers() == [(stays, False)]
    assert way.flush() == []  # the home does not look for carl
    assert not way.knows(going)
    assert not way.desk.drops  # the new home has them


def test_when_the_lease_has_lapsed_nothing_that_was_cached_is_kept(way: Asked, topic: str) -> None:
    way.listens("carl")
    way.subscribed("idle", "carl")
    number = way.publish(topic)
    way.home.lapsed()
    assert way.answers() == [(number, NOT_HOME)]
    assert (len(way.routes), len(way.locations)) == (0, 0)


def test_what_was_learnt_of_locations_before_all_let_it_in_is_forgotten(way: Asked) -> None:
    way.listens_at(ANN, "carl")
    way.home.joined()
    assert len(way.locations) == 0


def waiting() -> Asked:
    """Return an endpoint that has not joined. Alone it would be home of everything."""
    return Asked(joined=False)


def test_before_it_has_joined_messages_wait_and_are_in_flight() -> None:
    way = waiting()
    number = way.publish("t")
    way.home.tick()
    assert (way.flush(), way.inflight.messages, way.answers()) == ([], 1, [])
    way.members.heartbeat_written(way.desk.now)
    way.members.registry([], way.desk.now, way.desk.now)
    assert way.members.joined
    way.home.tick()
    (read,) = way.flush()
    way.has_subscribers(read, set())
    assert way.answers() == [(number, False)]
    assert way.inflight.messages == 0


def test_what_waits_for_it_to_join_is_given_up_in_time_and_counted() -> None:
    way = waiting()
    number = way.publish("t")
    way.desk.now += TIMEOUT_S - 0.1
    way.home.tick()
    assert way.answers() == []
    way.desk.now += 0.1
    way.home.tick()
    assert way.answers() == [(number, "peer_unavailable")]
    assert way.desk.drops == {"publish_peer_unavailable": 1}
    assert way.inflight.messages == 0


@pytest.mark.parametrize("what", ["a message", "a broadcast"])
def test_what_waits_goes_to_its_home_if_that_turns_out_to_be_another(what: str) -> None:
    way = waiting()
    with_bob = Asked(BOB).members
    topic = "" if what == "a broadcast" else topic_at(with_bob, "b")
    assert with_bob.table[slot_of(topic)] == "b"
    number = way.publish(topic)
    way.members.registry([BOB], way.desk.now, way.desk.now)
    way.home.tick()
    assert way.answers() == [(number, NOT_HOME)]
    assert way.inflight.messages == 0


# Messages for many


def many(count: int) -> list[str]:
    return [f"c{number}" for number in range(count)]


def test_where_many_are_is_found_in_slices_and_in_other_turns(way: Asked, topic: str) -> None:
    clients = many(SIZES.clients_per_slice + 1)
    way.listens_at(ANN, *clients)
    way.subscribed(topic, *clients)
    way.publish(topic)
    assert way.take_asked() == []
    job = way.desk.jobs.popleft()
    next(job)
    assert way.take_asked() == []
    way.desk.jobs.append(job)
    way.flush()  # the turn has no room for more
    way.desk.work()
    way.home.take_back()
    (call,) = way.take_asked()
    assert sorted(call.request.clients) == sorted(clients)


def test_of_many_those_found_at_a_peer_that_is_gone_when_the_message_s_turn_comes_are_counted_and_left_out(
    way: Asked, topic: str
) -> None:
    clients = many(SIZES.places_per_turn + 1)
    way.listens_at(ANN, *clients)
    way.subscribed(topic, *clients)
    number = way.publish(topic)
    place = way.desk.jobs.popleft()
    for _ in place:
        pass
    assert way.take_asked() == []  # the turn has no room for more, and the message waits for the next
    way.loses(ANN)
    way.flush()
    way.desk.work()
    way.home.take_back()
    assert way.take_asked() == []
    assert way.desk.drops == {"endpoint_gone": len(clients)}
    assert way.answers() == [(number, False)]
