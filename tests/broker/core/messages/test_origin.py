"""A client's publish at its origin: its target, its outcome, and the replies to the publisher with their times."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from msgspec.structs import replace

from ingeborg.broker.core.connections.hub import Connection
from ingeborg.broker.core.dedup.dedup import key_of
from ingeborg.broker.core.limits import Limits
from ingeborg.broker.core.links.calls import RETAINED, Call
from ingeborg.broker.core.links.requests import Carried, PublishRequest
from ingeborg.broker.core.model import VOID, Settings, Shape, StoreUnavailable
from ingeborg.broker.core.stores import FAILED
from ingeborg.protocol.hashes import slot_of
from ingeborg.protocol.messages import ACK_WITH_MID

from ..fake_desk import ME
from ..way import ANN, BOB, Way, publish, topic_at, topic_moving, topics_at

PAYLOAD = b'"news"'


@pytest.fixture
def way() -> Way:
    return Way(ANN, BOB)


def told(way: Way, connection: Connection) -> list[dict[str, Any]]:
    """Return the replies that are now written to the publisher."""
    return [orjson.loads(frame) for frame in way.written(connection)]


def sent(way: Way, connection: Connection, topic: str, **fields: Any) -> Call:
    """Publish to a topic whose home is a peer. Returns the request to that peer."""
    way.origin.publish(connection, publish(topic, **fields))
    (call,) = way.take_asked()
    return call


# The home is another endpoint


def test_the_home_is_asked_with_the_messages_own_number_and_its_answer_is_the_reply(way: Way) -> None:
    paul, topic = way.connection(), topic_at(way.members, "a")
    call = sent(way, paul, topic, id=1)
    key = key_of(slot_of(topic), topic, PAYLOAD)
    message = Carried(topic, PAYLOAD, ME.incarnation, call.number)
    assert (call.target, call.request) == ("a", PublishRequest(message, key))
    assert call.number == call.context.message.number
    assert told(way, paul) == []
    assert (way.inflight.messages, way.inflight.bytes) == (1, len(PAYLOAD))
    call.asker.answered(call, False)
    assert told(way, paul) == [{"result": "success", "duplicate": False, "id": 1}]
    assert (way.inflight.messages, way.inflight.bytes) == (0, 0)


def test_a_reply_names_the_message_if_the_publisher_asks_for_it(way: Way) -> None:
    paul, (there, other) = way.connection(), topics_at(way.members, "a", 2)
    call = sent(way, paul, there, ack=ACK_WITH_MID)
    call.asker.answered(call, False)
    assert told(way, paul) == [{"result": "success", "duplicate": False, "mid": f"{ME.incarnation}.{call.number}"}]
    call = sent(way, paul, other, ack=ACK_WITH_MID)
    call.asker.answered(call, True)
    assert told(way, paul) == [{"result": "success", "duplicate": True}]


def test_without_ack_success_is_silent_and_failure_is_not(way: Way) -> None:
    paul, (x, y) = way.connection(), topics_at(way.members, "a", 2)
    fine, bad = (sent(way, paul, topic, id=number, ack=False) for number, topic in ((1, x), (2, y)))
    bad.asker.failed(bad, "store_unavailable", "down")
    assert told(way, paul) == []  # the first one's reply must come first
    fine.asker.answered(fine, False)
    (reply,) = told(way, paul)
    assert (reply["error"], reply["info"], reply["command"], reply["id"]) == ("store_unavailable", "down", "publish", 2)
    assert way.inflight.messages == 0


def test_what_the_home_adds_to_an_error_is_in_the_reply(way: Way) -> None:
    paul = way.connection()
    call = sent(way, paul, topic_at(way.members, "a"))
    call.asker.failed(call, "partial", ["Do not retry", {"delivered": ["ann"], "failed": ["bob"]}])
    (reply,) = told(way, paul)
    assert (reply["error"], reply["delivered"], reply["failed"]) == ("partial", ["ann"], ["bob"])


def test_a_payload_that_its_home_has_confirmed_is_dropped_here_from_then_on(way: Way) -> None:
    paul, topic = way.connection(), topic_at(way.members, "a")
    first, second = sent(way, paul, topic), sent(way, paul, topic)  # the home has not confirmed the first
    first.asker.answered(first, False)
    second.asker.answered(second, True)
    told(way, paul)
    way.origin.publish(paul, publish(topic))
    assert way.take_asked() == []
    assert told(way, paul) == [{"result": "success", "duplicate": True}]
    assert way.desk.counts["duplicates_dropped"] == 1
    assert way.desk.counts["publishes_received"] == 3
    assert way.inflight.messages == 0


def test_a_payload_that_its_home_has_failed_is_not_known(way: Way) -> None:
    paul, topic = way.connection(), topic_at(way.members, "a")
    call = sent(way, paul, topic)
    call.asker.failed(call, "peer_unavailable", "gone")
    assert isinstance(sent(way, paul, topic).request, PublishRequest)


def test_where_duplicates_are_not_looked_for_there_is_no_key_and_nothing_is_learnt(way: Way) -> None:
    paul, topic = way.connection(), topic_at(way.members, "a")
    for _ in range(2):
        call = sent(way, paul, topic, dedup=False)
        assert call.request.key is None
        call.asker.answered(call, False)
    assert len(way.origin_dedup) == 0


def test_when_its_home_is_lost_the_next_one_is_told_that_another_was_asked_before(way: Way) -> None:
    paul = way.connection()
    topic = topic_moving(way.members, "a", Way(BOB).members, "b")
    call = sent(way, paul, topic)
    before = call.request
    way.loses(ANN)
    assert call.asker.lost(call) == "b"
    assert call.request == replace(before, again=True)
    assert way.take_asked() == []  # the same request goes on, under its number
    assert way.inflight.messages == 1


def test_when_its_home_is_lost_and_the_next_is_this_endpoint_it_goes_on_here(way: Way) -> None:
    paul = way.connection()
    topic = topic_moving(way.members, "a", Way(BOB).members, "m")
    call = sent(way, paul, topic, id=1)
    way.loses(ANN)
    assert call.asker.lost(call) is None
    assert way.inflight.messages == 1  # counted once, though two parts hold it in turn
    (read,) = way.flush()
    assert (read.operation, read.arguments) == ("subscribers", ([topic],))
    way.has_subscribers(read, set())
    way.origin.take_outcomes()
    assert told(way, paul) == [{"result": "success", "duplicate": False, "id": 1}]
    assert way.inflight.messages == 0


# The home is this endpoint


def test_what_needs_no_store_is_settled_within_the_command(way: Way) -> None:
    paul, topic = way.connection(), topic_at(way.members, "m")
    way.subscribed(topic)
    way.origin.publish(paul, publish(topic, id=1))
    assert told(way, paul) == [{"result": "success", "duplicate": False, "id": 1}]
    assert (way.take_asked(), way.flush()) == ([], [])
    assert way.desk.counters.settled_at_once == 1
    assert way.desk.counters.settled_s == []


def test_what_waits_for_the_store_is_answered_when_the_home_has_its_outcome(way: Way) -> None:
    paul, topic = way.connection(), topic_at(way.members, "m")
    way.origin.publish(paul, publish(topic, id=1))
    assert told(way, paul) == []
    (read,) = way.flush()
    way.desk.now += 0.25
    read.end(error=StoreUnavailable("down"))
    way.origin.take_outcomes()
    (reply,) = told(way, paul)
    assert (reply["error"], reply["info"], reply["id"]) == ("store_unavailable", FAILED, 1)
    assert way.desk.counters.settled_s == [0.25]


def test_what_the_home_here_lets_go_of_is_sent_to_the_new_home_before_anything_later() -> None:
    way = Way()
    after = Way(ANN)
    paul, (x, y) = way.connection(), topics_at(after.members, "a", 2)
    way.origin.publish(paul, publish(x, b'"first"'))
    way.lets_in(ANN)
    way.home.view_changed()
    way.origin.publish(paul, publish(y, b'"second"'))
    first, second = way.take_asked()
    assert (first.target, first.request.message.payload, second.request.message.payload) == (
        "a",
        b'"first"',
        b'"second"',
    )
    assert first.number < second.number
    second.asker.answered(second, False)
    assert told(way, paul) == []
    first.asker.answered(first, False)
    assert len(told(way, paul)) == 2
    assert way.inflight.messages == 0


# Retained messages


@pytest.fixture
def retention() -> Way:
    limits, shape = Limits(history_bytes=1 << 20), Shape(journal=True)
    return Way(ANN, BOB, settings=Settings(history="memory"), limits=limits, shape=shape)


def test_a_retained_message_without_dedup_is_no_duplicate_of_its_own_retry(retention: Way) -> None:
    """Its key is generated: the key can only match the message itself, dispatched by a home that crashed."""
    way = retention
    paul, topic = way.connection(), topic_at(way.members, "a")
    keys = set()
    for answer, is_retained in ((RETAINED, True), (False, False), (True, False)):
        call = sent(way, paul, topic, dedup=False, keep_s=60)
        assert (call.request.again, call.request.keep_s) == (False, 60)
        keys.add(call.request.key)
        call.asker.answered(call, answer)
        assert told(way, paul) == [{"result": "success", "duplicate": False, "kept": is_retained}]
    assert len(keys) == 3
    assert b"" not in keys
    assert len(way.origin_dedup) == 0


def test_a_retained_message_with_dedup_is_one_and_keeps_nothing(retention: Way) -> None:
    way = retention
    paul, topic = way.connection(), topic_at(way.members, "a")
    call = sent(way, paul, topic, keep_s=60)
    call.asker.answered(call, True)
    assert told(way, paul) == [{"result": "success", "duplicate": True, "kept": False}]


def test_two_retained_messages_of_one_payload_without_dedup_are_both_kept_here(retention: Way) -> None:
    way = retention
    paul, topic = way.connection(), topic_at(way.members, "m")
    way.subscribed(topic)
    for _ in range(2):
        way.origin.publish(paul, publish(topic, dedup=False, keep_s=60))
    way.origin.take_outcomes()
    assert told(way, paul) == 2 * [{"result": "success", "duplicate": False, "kept": True}]
    assert way.retained.log.entries == 2


def test_the_first_message_that_is_kept_in_memory_waits_until_the_journal_knows_that_its_slot_is(
    retention: Way,
) -> None:
    way = retention
    paul, carl, topic = way.connection(), way.listens("carl"), topic_at(way.members, "m")
    way.subscribed(topic, "carl")
    way.retained.state.begun([slot_of(topic)])
    way.origin.publish(paul, publish(topic, dedup=False, keep_s=60))
    assert way.written(carl) == []
    way.retained.journal.write()
    (call,) = way.take_stored()
    assert call.arguments == ([], [], [(slot_of(topic), VOID)], [])
    call.end()
    way.home.take_back()
    assert len(way.written(carl)) == 1
    way.origin.publish(paul, publish(topic, dedup=False, keep_s=60))
    assert len(way.written(carl)) == 1


# Broadcasts


def test_a_broadcast_has_a_home_like_any_message_and_its_failure_says_what_it_was() -> None:
    way = Way(BOB)
    assert way.members.table[slot_of("")] == "b"
    paul = way.connection()
    way.origin.publish(paul, publish("", topics=()))
    (call,) = way.take_asked()
    assert (call.target, call.request.message.topic, call.request.message.payload) == ("b", "", PAYLOAD)
    call.asker.failed(call, "peer_unavailable", "gone")
    (reply,) = told(way, paul)
    assert reply["command"] == "broadcast"
