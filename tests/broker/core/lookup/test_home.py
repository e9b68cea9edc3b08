"""Routing by lookup: the store calls for each message, and their order; the home keeps none of the answers."""

from __future__ import annotations

import pytest

from ingeborg.broker.core.dedup.dedup import key_of_hash, payload_hash
from ingeborg.broker.core.dispatch import Dispatch, Publish
from ingeborg.broker.core.links.calls import NOT_HOME
from ingeborg.broker.core.links.requests import Carried, DeliverRequest, PublishRequest
from ingeborg.broker.core.model import StoreUnavailable
from ingeborg.protocol.errors import ProtocolError

from ..way import ANN, DEDUP_TTL_S, Way, at, message, note, publish

DOWN = StoreUnavailable("down")


@pytest.fixture
def way() -> Way:
    return Way(ANN, lookup=True)


def take(way: Way, topic: str, payload: bytes = b'"news"', *, dedup: bool = True) -> None:
    """Publish as a client of this endpoint."""
    way.origin.publish(way.connection(), publish(topic, payload, dedup=dedup))


def outcomes(way: Way) -> list[object]:
    """Return the outcomes of messages; an error by its code."""
    taken = [dispatch.outcome for dispatch in way.outcomes.due]
    way.outcomes.due.clear()
    return [outcome.code if isinstance(outcome, ProtocolError) else outcome for outcome in taken]


def test_nobody_has_to_ask_another_endpoint_and_who_does_is_told(way: Way) -> None:
    way.home.publish_requested("a", 5, PublishRequest(Carried("t", b"1", "a", 5), None))
    assert way.desk.declined == [("a", 5, NOT_HOME)]
    assert way.flush() == []


def test_a_message_asks_whether_it_was_seen_then_who_subscribes_then_where_they_are(way: Way) -> None:
    carl = way.listens("carl")
    take(way, "t")
    (see,) = way.flush()
    assert (see.operation, see.arguments) == ("seen", ([payload_hash("t", b'"news"')], DEDUP_TTL_S))
    see.end([False])
    (read,) = way.flush()
    assert (read.operation, read.arguments) == ("subscribers", (["t"],))
    way.has_subscribers(read, {"carl"})
    (find,) = way.flush()
    assert (find.operation, find.arguments) == ("locations", (["carl"],))
    find.end([way.hub.bindings["carl"].location])
    way.home.take_back()
    assert way.written(carl) == [note("t")]
    assert outcomes(way) == [False]
    assert way.inflight.messages == 0


def test_of_a_topic_and_of_clients_nothing_is_kept(way: Way) -> None:
    for _ in range(2):
        take(way, "t", dedup=False)
        (read,) = way.flush()
        way.has_subscribers(read, {"carl"})
        (find,) = way.flush()
        find.end([at(ANN)])
        way.home.take_back()
        (call,) = way.take_asked()
        assert (type(call.request), call.target) == (DeliverRequest, "a")
        assert (len(way.routes), len(way.locations)) == (0, 0)


def test_the_first_messages_of_all_topics_are_asked_for_together_and_those_behind_them_in_their_turn(way: Way) -> None:
    for topic, payload in (("x", b"1"), ("x", b"2"), ("y", b"3")):
        take(way, topic, payload)
    (see,) = way.flush()
    assert see.arguments[0] == [payload_hash("x", b"1"), payload_hash("y", b"3")]
    see.end([True, True])
    assert outcomes(way) == [True, True]
    (see,) = way.flush()
    assert see.arguments[0] == [payload_hash("x", b"2")]


def test_the_message_behind_another_asks_anew_who_subscribes(way: Way) -> None:
    for payload in (b"1", b"2"):
        take(way, "t", payload, dedup=False)
    for _ in range(2):
        (read,) = way.flush()
        assert (read.operation, read.arguments) == ("subscribers", (["t"],))
        way.has_subscribers(read, set())
    assert outcomes(way) == [False, False]


def test_what_was_seen_is_dropped_and_counted_without_a_look_at_its_subscribers(way: Way) -> None:
    take(way, "t")
    (see,) = way.flush()
    see.end([True])
    assert outcomes(way) == [True]
    assert way.desk.counts["duplicates_dropped"] == 1
    assert (way.flush(), len(way.routes), way.inflight.messages) == ([], 0, 0)


def test_what_is_not_to_be_checked_is_not_asked_for(way: Way) -> None:
    take(way, "t", dedup=False)
    (read,) = way.flush()
    assert read.operation == "subscribers"


@pytest.mark.parametrize("fails", ["seen", "subscribers", "locations"])
def test_when_the_store_does_not_answer_what_waits_of_the_topic_is_refused_and_counted(way: Way, fails: str) -> None:
    answers = {"seen": [False], "subscribers": ([{"carl"}], []), "locations": [at(ANN)]}
    take(way, "t", b"1")
    take(way, "t", b"2")
    while True:
        (call,) = way.flush()
        if call.operation == fails:
            break
        call.end(answers[call.operation])
    call.end(error=DOWN)
    way.home.take_back()
    assert outcomes(way) == ["store_unavailable"] * 2
    assert way.desk.drops == {"publish_store_unavailable": 2}
    assert (way.flush(), way.take_asked(), way.inflight.messages) == ([], [], 0)


def test_an_answer_for_a_message_that_was_given_up_changes_nothing_for_the_next_one(way: Way) -> None:
    key = key_of_hash(1, bytes(16))
    first, second = (Dispatch(publish.message, 0, key, publish) for publish in (made(way), made(way)))
    way.home.take(first)
    (see,) = way.flush()
    way.routes.drop("t")
    way.home.take(second)
    see.end([True])
    assert outcomes(way) == []
    (see,) = way.flush()
    assert len(see.arguments[0]) == 1
    see.end([True])
    assert way.outcomes.due.popleft() is second


def made(way: Way) -> Publish:
    """Return a client's publish in its origin's form."""
    return Publish(message("t"), 0, way.connection(), None, False)


def test_a_lapsed_lease_or_a_new_view_changes_nothing(way: Way) -> None:
    take(way, "t")
    (see,) = way.flush()
    way.home.lapsed()
    way.loses(ANN)
    way.home.view_changed()
    see.end([False])
    (read,) = way.flush()
    way.has_subscribers(read, set())
    assert outcomes(way) == [False]
