"""Filters of topics, from a client's ``subscribe`` to the recipients of a message, over several endpoints."""

from __future__ import annotations

from typing import Any

import pytest

from ingeborg.broker.core.effects import StoreCall
from ingeborg.broker.core.limits import Limits, Sizes
from ingeborg.broker.core.links.calls import TIMEOUT_S
from ingeborg.broker.core.topics import filtering
from ingeborg.broker.core.topics.topic_filters import ROWS_PER_SLICE, TopicFilters
from ingeborg.protocol.filters import canonical_filter
from tests.simulator.world import Node

from ..talk import Cluster, Talker

ROCK, LOUD = {"genre": ["rock"]}, {"volume": [{"numeric": [">", 7]}]}
EVERYTHING = {"no such attribute": [{"exists": False}]}


def ask(talker: Talker, **command: Any) -> dict[str, Any]:
    """Return the reply to this command."""
    before = len(talker.replies)
    talker.send(**command)
    talker.hear()
    assert len(talker.replies) == before + 1
    reply = talker.replies[-1][1]
    assert isinstance(reply, dict)
    return reply


def subscribe(talker: Talker, topic: str, filter: dict[str, Any] | None = None, **fields: Any) -> None:
    options = {} if filter is None else {"filter": filter}
    assert ask(talker, command="subscribe", topic=topic, **options, **fields)["result"] == "success"


def publish(talker: Talker, topic: str, payload: Any) -> None:
    assert ask(talker, command="publish", topic=topic, payload=payload, ack=True)["result"] == "success"


def heard(talker: Talker) -> list[Any]:
    """Return the payloads received since the last call."""
    payloads = [payload for _, _, payload in talker.notes]
    talker.notes.clear()
    return payloads


@pytest.fixture
def pair() -> Cluster:
    return Cluster("a", "b")


@pytest.mark.parametrize("home", ["a", "b"])
def test_a_message_goes_to_those_whose_filter_holds_and_to_those_that_have_none(pair: Cluster, home: str) -> None:
    topic = pair.topic_at(home)
    anna, bert, carl = pair.listener("anna", "a"), pair.listener("bert", "b"), pair.listener("carl", "b", topic)
    subscribe(anna, topic, ROCK)
    subscribe(bert, topic, LOUD)
    rock, loud, neither = {"genre": "rock"}, {"volume": 8, "genre": "pop"}, [1, 2]
    for payload in (rock, loud, neither):
        publish(bert, topic, payload)
    assert (heard(anna), heard(bert), heard(carl)) == ([rock], [loud], [rock, loud, neither])


def test_several_filters_are_alternatives_and_a_message_comes_once(pair: Cluster) -> None:
    topic = pair.topic_at("a")
    anna = pair.listener("anna", "b")
    subscribe(anna, topic, ROCK)
    subscribe(anna, topic, LOUD)
    both, loud = {"genre": "rock", "volume": 9}, {"volume": 9}
    for payload in (both, loud, {"volume": 1}):
        publish(anna, topic, payload)
    assert heard(anna) == [both, loud]
    subscribe(anna, topic)  # a subscription without a filter beats any filter
    publish(anna, topic, {"volume": 2})
    assert heard(anna) == [{"volume": 2}]
    assert ask(anna, command="unsubscribe", topic=topic, filter=LOUD)["result"] == "success"
    publish(anna, topic, {"volume": 3})
    assert heard(anna) == [{"volume": 3}]
    assert ask(anna, command="unsubscribe", topic=topic)["result"] == "success"
    publish(anna, topic, {"genre": "rock", "volume": 10})
    assert heard(anna) == []


def test_replace_takes_the_place_of_all_else(pair: Cluster) -> None:
    topic = pair.topic_at("b")
    anna = pair.listener("anna", "a", topic)
    subscribe(anna, topic, ROCK)
    subscribe(anna, topic, LOUD, replace=True)
    for payload in ({"genre": "rock"}, {"volume": 9}):
        publish(anna, topic, payload)
    assert heard(anna) == [{"volume": 9}]
    assert ask(anna, command="subscriptions")["subscriptions"] == {topic: [{"filter": LOUD}]}
    subscribe(anna, topic, replace=True)
    publish(anna, topic, {"volume": 1})
    assert heard(anna) == [{"volume": 1}]
    assert "subscriptions" not in ask(anna, command="subscriptions")
    subscribe(anna, topic, ROCK)
    assert ask(anna, command="unsubscribe", topic=topic, filter=ROCK)["result"] == "success"
    publish(anna, topic, {"volume": 2})
    assert heard(anna) == [{"volume": 2}]


def test_one_of_several_is_taken_back(pair: Cluster) -> None:
    topic = pair.topic_at("b")
    anna = pair.listener("anna", "a")
    subscribe(anna, topic, ROCK)
    subscribe(anna, topic, LOUD)
    assert ask(anna, command="unsubscribe", topic=topic, filter={"genre": ["rock", "rock"]})["result"] == "success"
    for payload in ({"genre": "rock"}, {"volume": 9}):
        publish(anna, topic, payload)
    assert heard(anna) == [{"volume": 9}]


@pytest.mark.parametrize("fields", [{"ttl_s": 3}, {"until": "disconnect"}])
def test_one_ends_by_itself_and_the_next_listen_says_which(fields: dict[str, Any]) -> None:
    cluster = Cluster("a", "b", grace_s=2.0, tells_slots=True)
    topic = cluster.topic_at("b")
    anna, bert = cluster.listener("anna", "a"), cluster.client("bert", "b")
    subscribe(anna, topic, LOUD, **fields)
    subscribe(anna, topic, ROCK)
    publish(bert, topic, {"volume": 9})
    assert heard(anna) == [{"volume": 9}]
    if "until" in fields:
        anna.close()
    cluster.world.run(15.0)
    if "until" in fields:
        anna = cluster.client("anna", "b")
    told = ask(anna, command="listen")
    assert (told["ended"], told["ended_count"]) == ([{"topic": topic, "filter": LOUD}], 1)
    publish(bert, topic, {"volume": 9, "again": True})
    publish(bert, topic, {"genre": "rock"})
    assert heard(anna) == [{"genre": "rock"}]
    subscribe(anna, topic, ROCK, **fields)  # this does not change the permanent subscription
    assert "ended" in ask(anna, command="listen")
    subscribe(anna, topic, LOUD)
    assert "ended" not in ask(anna, command="listen")
    assert ask(anna, command="subscriptions")["subscriptions"] == {topic: [{"filter": ROCK}, {"filter": LOUD}]}


def test_the_next_home_reads_them(pair: Cluster) -> None:
    topic = pair.topic_at("b")
    anna = pair.listener("anna", "a")
    subscribe(anna, topic, ROCK)
    publish(anna, topic, {"genre": "rock"})
    pair.world.crash(pair.nodes["b"])
    pair.world.run(8.0)
    publish(anna, topic, {"genre": "rock", "again": True})
    publish(anna, topic, {"genre": "pop"})
    assert heard(anna) == [{"genre": "rock"}, {"genre": "rock", "again": True}]


def many(cluster: Cluster, at: str, topic: str, count: int, filter: dict[str, Any]) -> Talker:
    """Open a connection with ``count`` clients that have the filter."""
    crowd = cluster.client("0", at)
    for fields in ({"command": "listen"}, {"command": "subscribe", "topic": topic, "filter": filter}):
        for number in range(count):
            crowd.send(**fields, client_id=str(number))
        crowd.hear(3.0)
    assert [reply["result"] for _, reply in crowd.replies] == ["success"] * 2 * count
    crowd.replies.clear()
    return crowd


def test_pages_of_filters_are_read_while_messages_wait_and_changes_come(pair: Cluster) -> None:
    topic = pair.topic_at("a")
    crowd = many(pair, "b", topic, 2 * filtering.PAIRS_PER_PAGE + 10, ROCK)
    home = pair.nodes["a"].router
    home.topics.routes.drop(topic)
    anna = pair.listener("anna", "a")
    anna.send(command="publish", topic=topic, payload={"genre": "rock"}, ack=True)
    while (route := home.topics.routes.get(topic)) is None or route.filters is None:
        pair.world.run(0.001)
    filters = route.filters
    assert filters.loading
    anna.send(command="subscribe", topic=topic, filter=LOUD)
    assert ask(crowd, command="unsubscribe", topic=topic)["result"] == "success"  # client "0", the first of a page
    while filters.loading:
        pair.world.run(0.0005)
        assert len(home._jobs) <= 2  # early pages queue nothing twice
    anna.hear(2.0)
    assert [reply["result"] for _, reply in anna.replies[-2:]] == ["success"] * 2
    assert not route.filters.loading
    assert len(crowd.notes) in (2 * filtering.PAIRS_PER_PAGE + 9, 2 * filtering.PAIRS_PER_PAGE + 10)
    crowd.notes.clear()
    publish(anna, topic, {"genre": "rock", "volume": 9})
    crowd.hear(2.0)
    assert len(crowd.notes) == 2 * filtering.PAIRS_PER_PAGE + 9
    assert heard(anna) == [{"genre": "rock", "volume": 9}]
    assert home.topics.routes.filter_bytes > 0


def slow(cluster: Cluster, operation: str, seconds: float) -> None:
    """Delay the store's answer to each call of this operation."""
    world, call_store = cluster.world, cluster.world.call_store

    def call(node: Node, call: StoreCall) -> None:
        world.at(seconds if call.operation == operation else 0.0, call_store, node, call)

    def none_at_once(node: Node) -> None:
        for each in node.router.asks(world.now):
            call(node, each)

    world.call_store, world.tell_at_once = call, none_at_once  # type: ignore[method-assign]


def test_a_peer_waits_longer_while_they_are_read(pair: Cluster) -> None:
    """The pages take a second each, and together as long as the time-out of the peer's request."""
    topic = pair.topic_at("a")
    pages = int(TIMEOUT_S) + 2
    crowd = many(pair, "a", topic, pages * filtering.PAIRS_PER_PAGE, ROCK)
    pair.nodes["a"].router.topics.routes.drop(topic)
    bert = pair.listener("bert", "b")
    slow(pair, "filtered", 1.0)
    bert.send(command="publish", topic=topic, payload={"genre": "rock"}, ack=True)
    assert bert.hear(TIMEOUT_S + 0.5) == []
    assert bert.hear(TIMEOUT_S + 2.0) == ["ok"]
    assert len(crowd.notes) == pages * filtering.PAIRS_PER_PAGE


def test_a_home_that_cannot_read_them_says_so_and_reads_them_again(pair: Cluster) -> None:
    topic = pair.topic_at("a")
    anna = pair.listener("anna", "b")
    subscribe(anna, topic, ROCK)
    pair.nodes["a"].router.topics.routes.drop(topic)
    pair.world.store.down = True
    anna.send(command="publish", topic=topic, payload={"genre": "rock"}, ack=True)
    assert anna.hear(6.0) == ["error store_unavailable"]
    pair.world.store.down = False
    publish(anna, topic, {"genre": "rock"})
    assert heard(anna) == [{"genre": "rock"}]


def test_many_whose_filters_hold_are_a_list_of_their_own_that_is_kept() -> None:
    sizes = Sizes(delivery_slice=3, clients_per_slice=4, places_per_turn=10)
    cluster = Cluster("a", "b", sizes=sizes)
    topic = cluster.topic_at("a")
    plain = cluster.client("p0", "b")
    for fields in ({"command": "listen"}, {"command": "subscribe", "topic": topic}):
        for number in range(5):
            plain.send(**fields, client_id=f"p{number}")
        plain.hear()
    rock, loud = many(cluster, "b", topic, 6, ROCK), cluster.listener("anna", "b")
    subscribe(loud, topic, LOUD)
    sent = cluster.nodes["a"].router.counters.counts
    for number in range(3):
        publish(loud, topic, {"genre": "rock", "number": number})
    assert sent["lists_sent"] == 2
    publish(loud, topic, {"genre": "rock", "volume": 9})  # other clients match: another list
    publish(loud, topic, {"genre": "rock", "number": 4})
    assert sent["lists_sent"] == 3
    assert len(plain.notes) == 5 * 5
    assert len(rock.notes) == 6 * 5
    assert heard(loud) == [{"genre": "rock", "volume": 9}]


def test_what_nobody_has_a_filter_for_any_more_costs_nothing(pair: Cluster) -> None:
    topic = pair.topic_at("a")
    anna = pair.listener("anna", "a")
    routes = pair.nodes["a"].router.topics.routes
    subscribe(anna, topic, EVERYTHING)
    publish(anna, topic, 1)
    route = routes.get(topic)
    assert route is not None
    assert route.filters is not None
    assert ask(anna, command="unsubscribe", topic=topic)["result"] == "success"
    assert route.filters is None
    assert routes.filter_bytes == 0


def test_routes_go_when_their_filters_take_too_much() -> None:
    cluster = Cluster("a", limits=Limits(filter_bytes=1))
    anna = cluster.listener("anna", "a")
    routes = cluster.nodes["a"].router.topics.routes
    for number in range(20):
        subscribe(anna, f"t{number}", ROCK)
        publish(anna, f"t{number}", {"genre": "rock"})
    assert len(heard(anna)) == 20
    assert routes.evicted
    assert len(routes) == 1


def test_more_filters_than_a_client_may_have_are_refused(pair: Cluster) -> None:
    topic = pair.topic_at("b")
    anna = pair.listener("anna", "a")
    for number in range(64):
        anna.send(command="subscribe", topic=topic, filter={"number": [number]})
    anna.hear(3.0)
    refused = ask(anna, command="subscribe", topic=topic, filter={"number": [64]})
    assert refused["error"] == "too_many_topics"
    publish(anna, topic, {"number": 63})
    publish(anna, topic, {"number": 64})
    assert heard(anna) == [{"number": 63}]


def test_with_lookup_routing_there_are_none() -> None:
    anna = Cluster("a", routing="lookup").listener("anna", "a")
    refused = ask(anna, command="subscribe", topic="t", filter=ROCK)
    assert refused["error"] == "bad_state"
    assert "lookup" in refused["info"]


def test_who_looks_sees_them(pair: Cluster) -> None:
    topic = pair.topic_at("b")
    anna, bert = pair.listener("anna", "a"), pair.listener("bert", "b", topic)
    subscribe(anna, topic, ROCK)
    subscribe(bert, topic, LOUD)
    rows = ask(bert, command="subscribers", topic=topic)["subscribers"]
    assert rows == [
        {"client_id": "anna", "online": True, "filtered": True, "endpoint": "a", "subscriptions": [{"filter": ROCK}]},
        {"client_id": "bert", "online": True, "endpoint": "b", "subscriptions": [{}, {"filter": LOUD}]},
    ]


def test_a_page_has_as_many_filters_as_a_reply_may(pair: Cluster) -> None:
    anna = pair.listener("anna", "a")
    long = "x" * 3_900
    topics = [f"t{number}" for number in range(12)]
    for number in range(30):
        anna.send(command="subscribe", topic=topics, filter={"a": [f"{number}{long}"]})
    anna.hear(5.0)
    assert [reply["result"] for _, reply in anna.replies[-30:]] == ["success"] * 30
    found: dict[str, list[Any]] = {}
    cursor, pages = None, 0
    while pages == 0 or cursor is not None:
        page = ask(anna, command="subscriptions", **({"cursor": cursor} if cursor else {}))
        assert 0 < len(page["topic"]) < 12
        found |= page["subscriptions"]
        cursor, pages = page["cursor"], pages + 1
    assert {topic: len(filters) for topic, filters in found.items()} == dict.fromkeys(topics, 30)


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("first", ["plain", "filtered"])
def test_who_changes_from_one_to_the_other_while_a_message_waits_gets_it_once(
    pair: Cluster, first: str, replace: bool
) -> None:
    world, home, topic = pair.world, pair.nodes["a"].router, pair.topic_at("a")
    anna, bert = pair.listener("anna", "b"), pair.listener("bert", "b", topic)
    subscribe(bert, topic, LOUD)
    subscribe(anna, topic, None if first == "plain" else ROCK)
    publish(anna, topic, {"genre": "pop"})
    anna.notes.clear()
    home.topics.locations.clear()
    call_store = world.call_store

    def slow(node: Node, call: StoreCall) -> None:
        world.at(1.0 if call.operation == "locations" else 0.0, call_store, node, call)

    world.call_store = slow  # type: ignore[method-assign]
    bert.send(command="publish", topic=topic, payload={"genre": "rock"}, ack=True)
    world.run(0.3)
    if first == "plain":
        subscribe(anna, topic, ROCK, replace=replace)
    else:
        subscribe(anna, topic, replace=replace)
    world.run(2.0)
    assert bert.replies[-1][1]["result"] == "success"
    assert heard(anna) == [{"genre": "rock"}]


def test_who_gets_a_filter_while_a_message_waits_for_places_has_it_once() -> None:
    """The search includes the client, and so does the match of the filters after the search."""
    cluster = Cluster("a")
    anna, bert = cluster.listener("anna", "a", "t"), cluster.listener("bert", "a", "t")
    publish(anna, "t", 1)
    assert (heard(anna), heard(bert)) == ([1], [1])
    cluster.nodes["a"].router.topics.locations.clear()
    slow(cluster, "locations", 0.3)
    anna.send(command="publish", topic="t", payload={"volume": 9}, ack=True)
    cluster.world.run(0.1)
    bert.send(command="subscribe", topic="t", filter=LOUD, replace=True)
    anna.hear(1.0)
    assert bert.replies[-1][1]["result"] == "success"
    assert (heard(anna), heard(bert)) == ([{"volume": 9}], [{"volume": 9}])


def test_a_change_at_many_topics_is_told_in_slices(pair: Cluster) -> None:
    topics = [f"t{number}" for number in range(60)]
    anna = pair.listener("anna", "a", *topics)
    for topic in topics:
        publish(anna, topic, {"volume": 1})
    heard(anna)
    assert ask(anna, command="subscribe", topic=topics, filter=LOUD, replace=True)["result"] == "success"
    for topic in topics:
        publish(anna, topic, {"volume": 2})
        publish(anna, topic, {"volume": 9})
    assert heard(anna) == [{"volume": 9}] * 60
    assert ask(anna, command="unsubscribe", topic=topics)["result"] == "success"
    for topic in topics:
        publish(anna, topic, {"volume": 10})
    assert heard(anna) == []


def test_a_slice_has_few_filters_where_each_has_many_alternatives() -> None:
    pairs = [(f"client {number}", many_ways(number)) for number in range(40)]
    filters, slices, done = TopicFilters(loading=True), 0, 0
    while done < len(pairs):
        before = filters.index.rows
        done = filters.read(pairs, done)
        assert filters.index.rows - before <= ROWS_PER_SLICE + 64
        slices += 1
    assert len(filters.index) == 40
    assert slices == 10


def many_ways(number: int) -> str:
    return canonical_filter({name: [f"{number} {value}" for value in range(8)] for name in "ab"})


def test_what_changed_while_filters_were_read_is_done_again_in_slices() -> None:
    filters = TopicFilters(loading=True)
    for number in range(40):
        filters.change((f"client {number}", many_ways(number), True, False))
    assert not len(filters.index)
    slices = 1
    while not filters.complete():
        slices += 1
    assert slices == 10
    assert len(filters.index) == 40
