"""The subscriptions that a client has to renew: by hand, and against a model of endpoints."""

from __future__ import annotations

from math import inf
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingeborg.protocol.errors import ProtocolError
from ingeborg.protocol.expiring import AGAIN_TOPICS_MAX, Again, Ended, Kept, Key, Now, term_fields
from ingeborg.protocol.listings import Subscription

UNTIL = {"until": "disconnect"}
CHEAP, NEAR = '{"price":[1]}', '{"zip":["81"]}'


def at(awake_s: float, slept_s: float = 0.0) -> Now:
    return Now(awake_s, 1_000_000.0 + awake_s + slept_s)


def reply(*keys: str | Key, count: int | None = None) -> dict[str, Any]:
    """Return a reply that names ended subscriptions: a topic, or a topic and a filter."""
    ended = [
        {"topic": key} if isinstance(key, str) else {"topic": key[0], "filter": orjson.loads(key[1] or "")}
        for key in keys
    ]
    return {"result": "success", "ended": ended, "ended_count": len(keys) if count is None else count}


def kept(*topics: str, grace_s: float = 60.0) -> Kept:
    """Return the list of a client that listens since second 0, and has subscribed to the topics."""
    found = Kept()
    found.grace_s = grace_s
    assert found.listened({}, at(0)) is None
    found.subscribed(topics, None, None, at(0))
    return found


def all_due(found: Kept, now: Now) -> list[str | Key]:
    due: list[str | Key] = []
    while (again := found.take(now)) is not None:
        due += again.topics if again.filter is None else [(topic, again.filter) for topic in again.topics]
    return due


@pytest.mark.parametrize(
    ("until", "ttl_s", "fields"),
    [
        (None, None, {}),
        ("disconnect", None, UNTIL),
        (None, 1, {"ttl_s": 1}),
        ("disconnect", 2_592_000, {**UNTIL, "ttl_s": 2_592_000}),
    ],
)
def test_a_term_has_the_fields_of_the_specification(until: Any, ttl_s: Any, fields: dict[str, Any]) -> None:
    assert term_fields(until, ttl_s) == fields


@pytest.mark.parametrize(
    ("until", "ttl_s"),
    [("", None), ("plain", None), (1, None), (None, 0), (None, 2_592_001), (None, 1.0), (None, True)],
)
def test_what_is_no_term_is_refused(until: Any, ttl_s: Any) -> None:
    with pytest.raises(ProtocolError, match="bad_state"):
        term_fields(until, ttl_s)


def test_nothing_is_due_after_a_short_absence_and_all_after_half_of_the_grace_time() -> None:
    found = kept("a", "b")
    found.left(at(100))
    assert found.listened({}, at(130)) is None
    assert not found.is_due
    found.left(at(200))
    found.listened({}, at(230.1))
    assert all_due(found, at(230.1)) == ["a", "b"]


def test_what_has_ended_is_due_where_it_is_the_client_s_own_and_told_where_not() -> None:
    found = kept("a", "b")
    found.left(at(10))
    assert found.listened(reply("b", "x"), at(11)) == Ended([Subscription("x")], 1)
    assert found.take(at(11)) == Again(["b"], None, UNTIL)
    assert found.take(at(11)) is None


def test_what_has_ended_with_a_filter_is_due_with_this_filter_and_never_without() -> None:
    found = kept("a", "b")
    found.subscribed(["b", "a"], CHEAP, None, at(0))
    found.subscribed(["b"], NEAR, 100, at(0))
    found.left(at(10))
    named = reply(("b", CHEAP), "b", ("b", NEAR), ("a", CHEAP), ("a", NEAR), ("c", CHEAP))
    told = [Subscription("a", {"zip": ["81"]}), Subscription("c", {"price": [1]})]
    assert found.listened(named, at(11)) == Ended(told, 2)
    assert [found.take(at(20)) for _ in range(4)] == [
        Again(["b", "a"], CHEAP, UNTIL),
        Again(["b"], None, UNTIL),
        Again(["b"], NEAR, {**UNTIL, "ttl_s": 80}),
        None,
    ]
    found.out([("b", CHEAP)])
    found.gone(["a"])
    found.left(at(21))
    found.listened({}, at(90))
    assert all_due(found, at(90)) == ["b", ("b", NEAR)]
    found.gone(["b"])
    assert len(found) == 0


def test_what_the_machine_slept_through_is_being_away() -> None:
    found = kept("a")
    found.left(at(10, slept_s=3600))  # the client noticed the lost connection when the machine woke up
    found.listened({}, at(11, slept_s=3600))
    assert all_due(found, at(11, 3600)) == ["a"]
    found.listened({}, at(20, slept_s=7200))  # and here it did not notice
    assert all_due(found, at(20, 7200)) == ["a"]
    found.listened({}, at(30, slept_s=7200))
    assert not found.is_due


def test_an_endpoint_that_was_cut_off_has_clients_that_were_gone() -> None:
    found = kept("a")
    found.left(at(10), is_over=True)
    found.listened({}, at(10.1))
    assert all_due(found, at(10.1)) == ["a"]


def test_who_has_never_listened_is_away_since_the_first_subscribe() -> None:
    found = Kept()
    found.grace_s = 60.0
    found.subscribed(["a"], None, None, at(5))
    found.subscribed(["b"], None, None, at(50))
    found.listened({}, at(40))
    assert all_due(found, at(40)) == ["a", "b"]
    slow = Kept()
    slow.grace_s = 60.0
    slow.subscribed(["a"], None, None, at(50), began=at(5))
    slow.listened({}, at(51))
    assert all_due(slow, at(51)) == ["a"]
    early = Kept()
    early.grace_s = 60.0
    early.subscribed(["a"], None, None, at(5))
    early.listened({}, at(30))
    assert not early.is_due


def test_what_is_due_stays_so_until_it_is_taken() -> None:
    found = kept("a", "b", "c")
    found.left(at(0))
    found.listened({}, at(100))
    again = found.take(at(100))
    assert again is not None
    found.put_back(again)
    found.left(at(101))
    found.listened(reply("b"), at(102))  # a short absence; the endpoint names one that the client had not renewed yet
    assert all_due(found, at(102)) == ["a", "b", "c"]


def test_what_is_due_is_subscribed_to_since_the_position_that_the_first_of_it_was_missed_from() -> None:
    found = kept("a", "b", "c")
    found.left(at(10))
    found.listened(reply("a"), at(11), since="p1")
    again = found.take(at(12))
    assert again == Again(["a"], None, UNTIL | {"since": "p1"})
    found.left(at(13))
    found.listened(reply("b"), at(14), since="p2")  # no success has come yet for the one with p1
    found.put_back(again)
    taken = [found.take(at(15)), found.take(at(15))]
    assert taken == [Again(["a", "b"], None, UNTIL | {"since": "p1"}), None]
    found.left(at(16))
    found.listened(reply("c"), at(17), since="p3")
    assert found.take(at(18)) == Again(["c"], None, UNTIL | {"since": "p3"})
    assert found.take(at(18)) is None
    found.left(at(19))
    found.listened(reply("c"), at(20))
    assert found.take(at(21)) == Again(["c"], None, UNTIL)


def test_what_was_unsubscribed_from_meanwhile_is_not_due() -> None:
    found = kept("a", "b")
    found.left(at(0))
    found.listened({}, at(100))
    found.gone(["a"])
    assert all_due(found, at(100)) == ["b"]
    assert found.listened(reply("a"), at(101)) == Ended([Subscription("a")], 1)


def test_a_time_to_live_goes_on_and_is_over_when_it_is() -> None:
    found = kept()
    found.subscribed(["a", "b"], None, 100, at(0))
    found.subscribed(["c"], None, 500, at(0))
    found.subscribed(["d"], None, None, at(0))
    found.left(at(0))
    assert found.listened(reply("a", "b", "c", "d"), at(60.5)) is None
    batches = [found.take(at(60.5)) for _ in range(4)]
    assert batches == [
        Again(["a", "b"], None, {**UNTIL, "ttl_s": 40}),
        Again(["c"], None, {**UNTIL, "ttl_s": 440}),
        Again(["d"], None, UNTIL),
        None,
    ]
    assert found.listened(reply("a", "c"), at(100)) == Ended([Subscription("a")], 1)
    assert ("a", None) not in found
    assert ("c", None) in found


def test_where_more_have_ended_than_are_named_it_is_said_when_the_own_ones_are_back() -> None:
    found = kept("a", "b")
    found.left(at(0))
    assert found.listened(reply("b", "x", count=1_500), at(1)) is None
    assert found.is_unsure
    assert all_due(found, at(1)) == ["a", "b"]
    assert found.listened(reply("x", "y", count=1_400), at(2), is_last=True) == Ended(
        [Subscription("x"), Subscription("y")], 1_400
    )
    assert not found.is_unsure
    assert not found.is_due
    assert Kept().listened(reply("x", count=1_400), at(2)) == Ended([Subscription("x")], 1_400)


@pytest.mark.parametrize(
    "bad",
    [
        *({"ended": 1}, {"ended": [1, None, "a"]}, {"ended": {}, "ended_count": "x"}, {"ended_count": 0}),
        {"ended": [{}, {"topic": 1}, {"topic": "a", "filter": "f"}]},
    ],
)
def test_a_reply_that_makes_no_sense_names_nothing(bad: dict[str, Any]) -> None:
    assert kept("a").listened(bad, at(1)) is None


def test_many_are_taken_in_commands_of_neighbours() -> None:
    topics = [f"topic {number}" for number in range(2 * AGAIN_TOPICS_MAX + 1)]
    found = kept(*topics)
    found.left(at(0))
    found.listened({}, at(100))
    sizes = []
    seen: list[str] = []
    while (again := found.take(at(100))) is not None:
        sizes.append(len(again.topics))
        seen += again.topics
    assert sizes == [AGAIN_TOPICS_MAX, AGAIN_TOPICS_MAX, 1]
    assert sorted(seen) == sorted(topics)
    assert seen != topics


def test_the_list_of_ever_new_topics_that_end_stays_short() -> None:
    found = kept("stays")
    most = 0
    for number in range(20_000):
        found.subscribed([f"topic {number}"], (None, CHEAP)[number % 2], 10, at(number))
        most = max(most, len(found), len(found._filters))
    assert most <= 1_001
    assert ("stays", None) in found


def key_of(found: Subscription) -> str | Key:
    return found.topic if found.filter is None else (found.topic, orjson.dumps(found.filter).decode())


@settings(max_examples=300)
@given(st.data())
def test_a_client_that_listens_loses_nothing_silently(data: st.DataObject) -> None:
    """The model: endpoints end a client's subscriptions after the grace time, and report them for ten minutes."""
    grace_s, remembered_s = 60.0, 600.0
    found = kept()
    there: set[str | Key] = set()  # at the endpoints
    ended: dict[str | Key, float] = {}
    wanted: set[str | Key] = set()
    left: float | None = None
    now = 0.0
    for _ in range(data.draw(st.integers(1, 25))):
        now += data.draw(st.sampled_from([0.1, 5.0, 29.0, 31.0, 61.0, 400.0, 1_000.0]))
        if left is not None and now >= left + grace_s:
            ended |= dict.fromkeys(there, left + grace_s)
            there.clear()
        ended = {key: at_s for key, at_s in ended.items() if now - at_s < remembered_s}
        topic = data.draw(st.sampled_from("ab"))
        filter = data.draw(st.sampled_from([None, CHEAP, NEAR]))
        key = topic if filter is None else (topic, filter)
        step = data.draw(st.sampled_from(["subscribe", "unsubscribe", "unsubscribe one", "leave", "listen"]))
        if step == "subscribe" and left is None:
            there.add(key)
            wanted.add(key)
            ended.pop(key, None)
            found.subscribed([topic], filter, None, at(now))
        elif step == "unsubscribe" and left is None:
            gone = {topic, (topic, CHEAP), (topic, NEAR)}
            there -= gone
            wanted -= gone
            found.gone([topic])
        elif step == "unsubscribe one" and left is None:
            there.discard(key)
            wanted.discard(key)
            found.out([(topic, filter)])
        elif step == "leave" and left is None:
            left = now
            found.left(at(now))
        elif step == "listen":
            told = found.listened(reply(*ended) if ended else {}, at(now))
            others = [] if told is None else told.subscriptions
            assert not wanted.intersection(map(key_of, others))
            again = set(all_due(found, at(now)))
            assert again <= wanted
            there |= again
            ended = {key: at_s for key, at_s in ended.items() if key not in again}
            left = None
            assert there == wanted
    assert found.grace_s != inf
