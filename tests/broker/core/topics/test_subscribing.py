"""The client's endpoint: from a `subscribe` to the homes of its topics, and back to the reply."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ingeborg.broker.core.connections.hub import Connection
from ingeborg.broker.core.limits import SIZES, Limits
from ingeborg.broker.core.links.calls import TIMEOUT_S
from ingeborg.broker.core.links.requests import ChangeRequest
from ingeborg.broker.core.model import Introduction, Shape, StoreUnavailable, Subscribe, Term
from ingeborg.broker.core.topics.subscribing import TOPICS_PER_SLICE, WRITE_S_LONG
from ingeborg.protocol.hashes import slot_of

from ..fake_desk import Stored
from ..surroundings import Surroundings, command, packed, peer

DOWN = StoreUnavailable("no quorum")
TOPICS_UNDER_WAY = Shape().topics_at_least


class Endpoint(Surroundings):
    """A client's endpoint, which is also the home of some topics."""

    def __init__(self, *peers: str, joined: bool = True, shape: Shape | None = None, quota: int = 0) -> None:
        super().__init__(*peers, joined=joined, limits=Limits(subscriptions=quota), shape=shape)
        self.part = self.make_topics().subscribing
        self.anna = self.client()

    def say(self, name: str, topics: Any, number: int = 1, connection: Connection | None = None) -> None:
        said = command(name, topic="-", id=number)._replace(topics=topics)
        self.part.change(connection or self.anna, said)

    def asked(self) -> list[tuple[str, Any]]:
        """Return the requests under way to peers: receiver and content."""
        assert {type(call.request) for call in self.desk.asked} <= {ChangeRequest}
        return [(call.target, call.request) for call in self.desk.asked]

    def leave_to(self, peer: str) -> None:
        """Let the other peers go; this one is home of everything."""
        for other in self.members.view():
            if other != peer:
                self.members.left(other)
        self.members.leave()


@pytest.fixture
def endpoint() -> Endpoint:
    return Endpoint("p", "q")


# The homes


def test_each_home_gets_its_topics_in_one_request(endpoint: Endpoint) -> None:
    topics = {home: endpoint.topics_at(home, 3) for home in "mpq"}
    endpoint.say("subscribe", [topics[home][n] for n in range(3) for home in "mpq"])
    assert dict(endpoint.asked()) == {home: ChangeRequest("anna", topics[home], True) for home in "pq"}
    assert endpoint.stored("subscribe")[0].arguments == ([Subscribe("anna", topics["m"])],)


def test_success_is_said_when_every_home_has_said_so(endpoint: Endpoint) -> None:
    endpoint.say("unsubscribe", [endpoint.topics_at(home, 1)[0] for home in "mpq"])
    p, q = endpoint.desk.asked
    (own,) = endpoint.stored("unsubscribe")
    endpoint.part.answered(p, None)
    assert endpoint.results(endpoint.anna) == []
    own.end()
    assert endpoint.results(endpoint.anna) == []
    endpoint.part.answered(q, None)
    assert endpoint.results(endpoint.anna) == ["ok 1"]


FAILURES: dict[str, Callable[[Endpoint], None]] = {
    "the peer refuses": lambda endpoint: endpoint.part.failed(endpoint.desk.asked[0], "store_unavailable", "no quorum"),
    "our store fails": lambda endpoint: endpoint.stored("subscribe")[0].end(error=DOWN),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_one_home_that_fails_makes_it_no_success_and_all_are_waited_for(endpoint: Endpoint, failure: str) -> None:
    endpoint.say("subscribe", [endpoint.topics_at(home, 1)[0] for home in "mp"])
    FAILURES[failure](endpoint)
    assert endpoint.results(endpoint.anna) == []
    if failure == "our store fails":
        endpoint.part.answered(endpoint.desk.asked[0], None)
    else:
        endpoint.stored("subscribe")[0].end()
    assert endpoint.results(endpoint.anna) == ["store_unavailable 1"]


def test_of_several_failures_the_first_is_said(endpoint: Endpoint) -> None:
    endpoint.say("subscribe", [endpoint.topics_at(home, 1)[0] for home in "pq"])
    endpoint.part.failed(endpoint.desk.asked[0], "peer_unavailable", "")
    endpoint.part.failed(endpoint.desk.asked[1], "store_unavailable", "")
    assert endpoint.results(endpoint.anna) == ["peer_unavailable 1"]


def test_where_one_endpoint_is_the_home_of_everything_nothing_is_sorted() -> None:
    endpoint = Endpoint()
    endpoint.say("subscribe", ("a", "b", "c"))
    assert endpoint.stored("subscribe")[0].arguments == ([Subscribe("anna", ["a", "b", "c"])],)
    assert endpoint.desk.asked == []


# Homes that change


def test_topics_of_a_home_that_is_gone_go_to_the_next(endpoint: Endpoint) -> None:
    topics = endpoint.topics_at("p", 20)
    endpoint.say("subscribe", topics)
    (call,) = endpoint.desk.asked
    endpoint.desk.asked.clear()
    endpoint.members.left("p")
    assert endpoint.part.lost(call) is None
    now_at_q = [topic for topic in topics if endpoint.members.table[slot_of(topic)] == "q"]
    assert endpoint.asked() == [("q", ChangeRequest("anna", now_at_q, True))]
    (own,) = endpoint.stored("subscribe")
    assert sorted([*own.arguments[0][0][1], *now_at_q]) == sorted(topics)
    own.end()
    assert endpoint.results(endpoint.anna) == []
    endpoint.part.answered(endpoint.desk.asked[0], None)
    assert endpoint.results(endpoint.anna) == ["ok 1"]


def test_many_of_them_go_there_in_a_turn_of_their_own(endpoint: Endpoint) -> None:
    endpoint.say("subscribe", endpoint.topics_at("p", SIZES.topics_at_once + 1))
    (call,) = endpoint.desk.asked
    endpoint.leave_to("q")
    endpoint.part.lost(call)
    assert len(endpoint.desk.asked) == 1
    endpoint.desk.work()
    assert endpoint.asked()[1:] == [("q", call.request)]


def test_homes_are_looked_for_no_longer_than_a_request_may_take(endpoint: Endpoint) -> None:
    endpoint.say("subscribe", endpoint.topics_at("p", 1))
    first = endpoint.desk.asked[0]
    endpoint.desk.now += TIMEOUT_S - 0.01
    endpoint.part.lost(first)  # asked again
    endpoint.desk.now += 0.01
    assert endpoint.results(endpoint.anna) == []
    endpoint.part.lost(endpoint.desk.asked[1])
    assert len(endpoint.desk.asked) == 2
    assert endpoint.results(endpoint.anna) == ["peer_unavailable 1"]


def test_what_was_written_here_after_the_lease_had_lapsed_is_dispatched_again(endpoint: Endpoint) -> None:
    topics = endpoint.topics_at("m", 2)
    endpoint.say("subscribe", topics)
    (own,) = endpoint.stored("subscribe")
    endpoint.lose_lease()
    endpoint.leave_to("p")
    own.end()
    assert endpoint.asked() == [("p", ChangeRequest("anna", topics, True))]
    endpoint.part.answered(endpoint.desk.asked[0], None)
    assert endpoint.results(endpoint.anna) == ["ok 1"]


# Large commands


def names(count: int) -> list[str]:
    return [f"t{number}" for number in range(count)]


def written(call: Stored) -> list[str]:
    topics: list[str] = call.arguments[0][0][1]
    return topics


def test_a_large_one_is_cut_and_not_all_of_it_is_under_way() -> None:
    endpoint = Endpoint(shape=Shape(slots_together=False))
    topics = names(TOPICS_UNDER_WAY + 2 * TOPICS_PER_SLICE)
    endpoint.say("subscribe", topics)
    endpoint.stored()
    endpoint.desk.work()
    first, second = endpoint.stored("subscribe", "subscribe")
    assert written(first) + written(second) == topics[:TOPICS_UNDER_WAY]
    assert not endpoint.desk.jobs  # it waits for the end of its own writes
    first.end()
    endpoint.desk.work()
    (third,) = endpoint.stored("subscribe")
    second.end()
    third.end()
    endpoint.desk.work()
    (fourth,) = endpoint.stored("subscribe")
    assert written(third) + written(fourth) == topics[TOPICS_UNDER_WAY:]
    assert endpoint.results(endpoint.anna) == []
    fourth.end()
    endpoint.desk.work()
    assert endpoint.results(endpoint.anna) == ["ok 1"]


def test_more_is_under_way_as_long_as_the_store_is_fast_and_less_when_it_is_slow() -> None:
    endpoint = Endpoint(shape=Shape(topics_at_once=TOPICS_UNDER_WAY + 2 * TOPICS_PER_SLICE, slots_together=False))
    endpoint.say("subscribe", names(60 * TOPICS_PER_SLICE))
    under_way: list[Stored] = []
    most: list[int] = []

    def writes_take(seconds: float) -> None:
        for _ in range(12):
            endpoint.desk.now += seconds
            under_way.pop(0).end()
            endpoint.desk.work()
            under_way.extend(endpoint.desk.stored)
            endpoint.desk.stored.clear()
        most.append(len(under_way))

    endpoint.desk.work()
    under_way.extend(endpoint.stored("subscribe", "subscribe"))
    writes_take(0.01)
    writes_take(WRITE_S_LONG)
    assert most == [4, 2]  # slices: as many as the store wants, and the number that is always allowed


def test_a_failure_lets_less_be_under_way_however_soon_it_comes() -> None:
    endpoint = Endpoint(shape=Shape(topics_at_once=4 * TOPICS_PER_SLICE, slots_together=False))

    def begun(topics: int, fails: int) -> int:
        """Return how many slices a command begins at once, if its first ``fails`` slices fail."""
        endpoint.say("subscribe", names(topics))
        endpoint.desk.work()
        at_once = len(endpoint.desk.stored)
        count = 0
        while endpoint.desk.stored:
            count += 1
            endpoint.desk.stored.pop(0).end(error=DOWN if count <= fails else None)
            endpoint.desk.work()
        return at_once

    assert begun(10 * TOPICS_PER_SLICE, 0) == 2
    assert begun(4 * TOPICS_PER_SLICE, 0) == 4
    assert begun(4 * TOPICS_PER_SLICE, 4) == 4
    assert begun(4 * TOPICS_PER_SLICE, 0) == 2


def test_one_that_fails_is_cut_no_further() -> None:
    endpoint = Endpoint(shape=Shape(slots_together=False))
    endpoint.say("subscribe", names(10 * TOPICS_PER_SLICE))
    endpoint.desk.work()
    first, second = endpoint.stored("subscribe", "subscribe")
    first.end(error=DOWN)
    endpoint.desk.work()
    endpoint.stored()
    assert endpoint.results(endpoint.anna) == []
    second.end()
    endpoint.desk.work()
    assert endpoint.results(endpoint.anna) == ["store_unavailable 1"]


def test_topics_of_one_slot_come_together_where_the_store_keeps_them_together() -> None:
    endpoint = Endpoint(shape=Shape(topics_at_once=1 << 20))
    topics = names(20 * TOPICS_PER_SLICE)
    endpoint.say("subscribe", topics)
    endpoint.desk.work()
    parts: list[list[str]] = []
    while endpoint.desk.stored:
        for call in list(endpoint.desk.stored):
            endpoint.desk.stored.remove(call)
            parts.append(written(call))
            call.end()
            endpoint.desk.work()
    assert sorted(topic for part in parts for topic in part) == sorted(topics)
    assert max(map(len, parts)) <= TOPICS_PER_SLICE
    slots = [{slot_of(topic) for topic in part} for part in parts]
    assert sum(map(len, slots)) == len(set.union(*slots))


def test_what_the_connection_holds_for_a_long_list_is_counted_until_its_end() -> None:
    endpoint = Endpoint()
    topics = packed(names(2 * TOPICS_PER_SLICE))
    endpoint.say("subscribe", topics)
    assert endpoint.memory.of(endpoint.anna) == topics.size
    endpoint.desk.work()
    for call in list(endpoint.desk.stored):
        call.end(error=DOWN)
    endpoint.desk.work()
    assert endpoint.memory.of(endpoint.anna) == 0
    assert endpoint.results(endpoint.anna) == ["store_unavailable 1"]


# A limit of topics


def test_where_topics_are_limited_the_client_is_counted_before_anything_is_written() -> None:
    endpoint = Endpoint(quota=2)
    endpoint.say("subscribe", ["a"], 1)
    (count,) = endpoint.stored("topics")
    count.end((["x"], None))
    endpoint.stored("subscribe")[0].end()
    endpoint.say("subscribe", ["b"], 2)
    endpoint.stored("topics")[0].end((["a", "x"], None))
    endpoint.stored()
    assert endpoint.results(endpoint.anna) == ["ok 1", "too_many_topics 2"]


def test_the_next_change_of_a_client_is_counted_when_the_one_before_has_been_written() -> None:
    endpoint = Endpoint(quota=2)
    endpoint.say("subscribe", ["a"], 1)
    endpoint.say("subscribe", ["b"], 2)
    endpoint.stored("topics")[0].end(([], None))
    (write,) = endpoint.stored("subscribe")
    endpoint.stored()
    write.end()
    endpoint.stored("topics")


def test_to_take_topics_back_nobody_is_counted() -> None:
    endpoint = Endpoint(quota=1)
    endpoint.say("unsubscribe", ["a"])
    endpoint.stored("unsubscribe")[0].end()
    assert endpoint.results(endpoint.anna) == ["ok 1"]


# Subscriptions with a filter or a term, and those that replace all others


def say_with(endpoint: Endpoint, name: str, topics: list[str], **fields: Any) -> None:
    said = command(name, topic=topics, id=1)._replace(**fields)
    endpoint.part.change(endpoint.anna, said)


@pytest.mark.parametrize(
    ("fields", "options", "row", "told"),
    [
        ({"term": (True, 7)}, {"until_disconnect": True, "ttl_s": 7}, (None, Term(True, 7.0), False), {"grace_s": 60}),
        ({"filter": "{}"}, {"filter": "{}"}, ("{}", None, False), {"filtered": True}),
        ({"replace": True}, {"replace": True}, (None, None, True), {}),
        (
            {"filter": "{}", "term": (False, 7), "replace": True},
            {"filter": "{}", "ttl_s": 7, "replace": True},
            ("{}", Term(False, 7.0), True),
            {"grace_s": 60, "filtered": True},
        ),
    ],
)
def test_each_home_is_told_all_of_it_and_so_is_the_client(
    endpoint: Endpoint, fields: dict[str, Any], options: dict[str, Any], row: Any, told: dict[str, Any]
) -> None:
    topics = {home: endpoint.topics_at(home, 1) for home in "mp"}
    say_with(endpoint, "subscribe", topics["m"] + topics["p"], **fields)
    assert endpoint.asked() == [("p", ChangeRequest("anna", topics["p"], True, **options))]
    (own,) = endpoint.stored("subscribe")
    assert own.arguments == ([Subscribe("anna", topics["m"], *row)],)
    own.end()
    endpoint.part.answered(endpoint.desk.asked[0], None)
    assert endpoint.heard(endpoint.anna) == [{"result": "success", "id": 1, **told}]


def test_the_reply_tells_the_grace_time_that_counts_at_every_home(endpoint: Endpoint) -> None:
    endpoint.members.connected(peer("q"), endpoint.desk.now, Introduction(7.5))
    say_with(endpoint, "subscribe", endpoint.topics_at("m", 1), term=(True, 0))
    endpoint.stored("subscribe")[0].end()
    assert endpoint.heard(endpoint.anna) == [{"result": "success", "id": 1, "grace_s": 7.5}]


def test_each_home_is_told_which_filter_goes(endpoint: Endpoint) -> None:
    topics = {home: endpoint.topics_at(home, 1) for home in "mp"}
    say_with(endpoint, "unsubscribe", topics["m"] + topics["p"], filter="{}")
    assert endpoint.asked() == [("p", ChangeRequest("anna", topics["p"], False, "{}"))]
    (own,) = endpoint.stored("unsubscribe")
    assert own.arguments == ([("anna", topics["m"], "{}")],)
    own.end()
    endpoint.part.answered(endpoint.desk.asked[0], None)
    assert endpoint.heard(endpoint.anna) == [{"result": "success", "id": 1}]
