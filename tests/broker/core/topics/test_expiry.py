"""Expiry of subscriptions: which ones a home finds expired, when, and its calls to the store."""

from __future__ import annotations

from typing import Any

import pytest

from ingeborg.broker.core.connections.hub import Binding
from ingeborg.broker.core.dispatch import Dispatch
from ingeborg.broker.core.message import Message
from ingeborg.broker.core.model import Introduction, Location, Shape, StoreUnavailable, Subscription, Term
from ingeborg.broker.core.topics.expiry import (
    EMPTY_S,
    KEPT_S,
    PAUSE_S,
    RECORDS_PER_TICK,
    REQUESTS_PER_TICK,
    SLOT_REQUESTS_PER_TICK,
    SLOTS_PER_TICK,
    WALK_S_MAX,
)
from ingeborg.broker.core.topics.routes import Route
from ingeborg.broker.core.topics.topic_filters import TopicFilters
from ingeborg.protocol.filters import canonical_filter
from ingeborg.protocol.hashes import SLOTS, slot_of

from ..fake_desk import Stored
from ..surroundings import GRACE_S, Surroundings, peer

DOWN = StoreUnavailable("no quorum")
UNTIL, UNIX_S = Term(True, 0.0), 1_000_000.0
LOUD = canonical_filter({"volume": [{"numeric": [">", 7]}]})


class Endpoint(Surroundings):
    """A home, and a store whose content the test sets: ``records``, ``places``."""

    def __init__(self, *peers: str, joined: bool = True, reads_memory: bool = True) -> None:
        super().__init__(*peers, joined=joined, unix_s=UNIX_S, shape=Shape(reads_memory=reads_memory))
        topics = self.make_topics()
        self.part, self.terms, self.writing = topics.expiry, topics.terms, topics.writing
        self.routes, self.locations, self.writes = topics.routes, topics.locations, self.cluster.writes
        self.records: list[Subscription] = []
        self.places: dict[str, Location] = {}
        self.asked: list[Stored] = []  # all calls to the store
        self.down = False
        self.down_for: set[str] = set()  # operations
        self.held: list[Stored] = []  # ends without the store's answer
        self.hold = False
        self.hold_operation = "end"  # the operation that the store holds
        self.tells_slots = False  # the store names the slots with subscriptions

    def expiring(self, client: str, topic: str | None = None, term: Term = UNTIL, filter: str | None = None) -> str:
        """Add a client's expiring subscription; without ``topic``, to one of ours."""
        topic = topic or self.topics_at("m", 1)[0]
        self.records.append(Subscription(topic, client, filter, term, len(self.records) + 1))
        return topic

    def tick(self, seconds: float = 0.1) -> list[Stored]:
        """Let time pass; return the calls to the store meanwhile, which it answers."""
        self.desk.now += seconds
        self.part.tick()
        asked: list[Stored] = []
        while self.desk.stored:
            call = self.desk.stored.pop(0)
            asked.append(call)
            if self.down or call.operation in self.down_for:
                call.end(error=DOWN)
            elif call.operation == self.hold_operation and (self.hold or call.operation != "end"):
                self.held.append(call)
            else:
                call.end(getattr(self, "_" + call.operation)(*call.arguments))
        self.asked += asked
        return asked

    def walk(self, seconds: float = WALK_S_MAX) -> list[Stored]:
        """Tick often enough for one walk over all slots."""
        asked = self.tick(seconds)
        for _ in range(SLOTS // SLOT_REQUESTS_PER_TICK + 1):
            asked += self.tick(0.0)
        return asked

    def gone(self, seconds: float = WALK_S_MAX) -> list[str]:
        """Return the clients whose subscriptions ended in one more walk."""
        before = self.records[:]
        self.walk(seconds)
        return sorted({record.client for record in before if record not in self.records})

    def _expiring_slots(self) -> list[int] | None:
        return sorted({slot_of(record.topic) for record in self.records}) if self.tells_slots else None

    def _expiring(self, slot: int, cursor: str | None, limit: int) -> Any:
        of_slot = [record for record in self.records if slot_of(record.topic) == slot]
        start = int(cursor or 0)
        page = of_slot[start : start + limit]
        return page, str(start + limit) if start + limit < len(of_slot) else None

    def _locations(self, clients: list[str]) -> Any:
        return [self.places.get(client) for client in clients]

    def _end(self, ends: Any) -> Any:
        out: list[list[Subscription]] = []
        for records, location, conditional in ends:
            keep = conditional and self.places.get(records[0].client) != location
            out.append([] if keep else [record for record in records if record in self.records])
            self.records = [record for record in self.records if record not in out[-1]]
        return out

    def _tidy(self, kept_s: float) -> int:
        assert kept_s == KEPT_S
        return 0


def of(asked: list[Stored], operation: str) -> list[Any]:
    return [call.arguments for call in asked if call.operation == operation]


@pytest.fixture
def endpoint() -> Endpoint:
    return Endpoint()


@pytest.mark.parametrize("place", [None, Location(7, "m", False), Location(7, "dead", True)])
def test_one_ends_when_its_client_has_been_away_for_the_grace_time(endpoint: Endpoint, place: Location | None) -> None:
    endpoint.expiring("anna")
    endpoint.locations.learn("anna", Location(6, "m", False))
    if place is not None:
        endpoint.places["anna"] = place
    assert endpoint.gone() == []
    for _ in range(5):
        assert endpoint.gone(WALK_S_MAX) == []
    assert (endpoint.part.found, endpoint.part.away) == (1, 1)
    assert endpoint.gone(WALK_S_MAX) == ["anna"]
    assert of(endpoint.asked, "end")[-1][0][0][1:] == (place, True)
    assert endpoint.desk.counts["subscriptions_ended"] == 1
    assert endpoint.locations.get("anna") is None  # clients with a fresh id each time would fill the cache
    endpoint.walk()
    assert (endpoint.part.found, endpoint.part.away) == (0, 0)


def test_where_endpoints_differ_the_least_grace_time_counts() -> None:
    endpoint = Endpoint("p")
    endpoint.members.connected(peer("p"), endpoint.desk.now, Introduction(GRACE_S / 4))
    endpoint.expiring("anna")
    assert endpoint.gone() == endpoint.gone(GRACE_S / 4 - 3) == []
    assert endpoint.gone(3) == ["anna"]
    endpoint.members.left("p")
    endpoint.expiring("bert")
    assert endpoint.gone() == endpoint.gone(GRACE_S - WALK_S_MAX) == []
    assert endpoint.gone() == ["bert"]


def test_who_is_said_to_be_here_and_is_not_is_looked_for_first(endpoint: Endpoint) -> None:
    endpoint.expiring("anna")
    endpoint.places["anna"] = Location(7, "m", True)
    assert endpoint.gone() == endpoint.gone(GRACE_S) == endpoint.gone(GRACE_S) == []
    assert set(endpoint.hub.missed) == {"anna"}
    endpoint.places["anna"] = Location(7, "m", False)
    assert endpoint.gone() == []
    assert endpoint.gone(GRACE_S) == ["anna"]


@pytest.mark.parametrize(("seen_s", "gone"), [(KEPT_S - WALK_S_MAX, ["anna"]), (KEPT_S, [])])
def test_a_location_that_the_store_has_forgotten_is_no_sign_of_life(seen_s: float, gone: list[str]) -> None:
    """After a longer time, the store could also have forgotten a newer location that the home never saw."""
    endpoint = Endpoint()
    endpoint.expiring("anna")
    endpoint.places["anna"] = Location(7, "m", False)
    endpoint.gone()
    del endpoint.places["anna"]
    assert endpoint.gone(seen_s) == gone


def test_who_came_back_and_went_again_is_away_from_then_on(endpoint: Endpoint) -> None:
    endpoint.expiring("anna")
    endpoint.places["anna"] = Location(7, "m", False)
    endpoint.gone()
    endpoint.places["anna"] = Location(8, "m", False)
    assert endpoint.gone(GRACE_S) == []
    assert endpoint.gone(GRACE_S) == ["anna"]


def test_who_comes_back_while_it_is_being_ended_keeps_it(endpoint: Endpoint) -> None:
    endpoint.expiring("anna")
    endpoint.gone()
    endpoint.hold = True
    endpoint.walk(GRACE_S)
    endpoint.places["anna"] = Location(8, "m", True)
    (end,) = endpoint.held
    end.end(endpoint._end(*end.arguments))
    assert len(endpoint.records) == 1


def test_one_whose_client_listens_stays() -> None:
    endpoint = Endpoint("p")
    topic = endpoint.expiring("anna")
    endpoint.expiring("bert", topic)
    endpoint.hub.bindings["anna"] = Binding(endpoint.client(), 1)
    endpoint.places["bert"] = Location(3, "p", True)
    for _ in range(5):
        assert endpoint.gone(GRACE_S) == []
    assert of(endpoint.asked, "end") == []
    assert {client for (clients,) in of(endpoint.asked, "locations") for client in clients} == {"bert"}


def test_who_was_at_an_endpoint_that_was_taken_for_dead_is_not_away_when_that_is_back() -> None:
    endpoint = Endpoint("p")
    endpoint.expiring("anna")
    endpoint.places["anna"] = Location(3, "p", True)
    p = endpoint.members.peers["p"]
    p.dead_since = endpoint.desk.now
    endpoint.gone(GRACE_S / 2)
    p.dead_since = None
    endpoint.gone(GRACE_S / 4)
    p.dead_since = endpoint.desk.now
    assert endpoint.gone(GRACE_S / 4) == []
    assert endpoint.gone(GRACE_S - 1) == []
    assert endpoint.gone(1.0) == []  # no walk yet
    assert endpoint.gone(WALK_S_MAX) == ["anna"]


def test_one_with_a_time_ends_then_whoever_listens(endpoint: Endpoint) -> None:
    topic = endpoint.expiring("anna", term=Term(False, UNIX_S + 30.0))
    endpoint.expiring("bert", topic, Term(True, UNIX_S + 30.0))
    endpoint.expiring("carl", topic, Term(True, UNIX_S + 3_000.0))
    for client in ("anna", "bert"):
        endpoint.hub.bindings[client] = Binding(endpoint.client(), 1)
    assert endpoint.gone(29.0) == []
    assert endpoint.gone(WALK_S_MAX) == ["anna", "bert"]
    assert of(endpoint.asked, "end")[0][0] == [
        ([Subscription(topic, "anna", None, Term(False, UNIX_S + 30.0), 1)], None, False),
        ([Subscription(topic, "bert", None, Term(True, UNIX_S + 30.0), 2)], None, False),
    ]
    assert endpoint.gone(GRACE_S) == ["carl"]


def test_all_of_a_client_in_a_page_end_together(endpoint: Endpoint) -> None:
    first = endpoint.expiring("anna")
    second = next(f"x{n}" for n in range(100_000) if slot_of(f"x{n}") == slot_of(first))
    endpoint.expiring("anna", second)
    endpoint.gone()
    endpoint.gone(GRACE_S)
    ((ends,),) = of(endpoint.asked, "end")
    assert [[record.topic for record in records] for records, _, _ in ends] == [[first, second]]


def test_only_those_of_our_slots_are_looked_at() -> None:
    endpoint = Endpoint("p")
    endpoint.expiring("anna", endpoint.topics_at("p", 1)[0])
    endpoint.walk()
    slots = {slot for slot, _, _ in of(endpoint.asked, "expiring")}
    assert slots == {slot for slot in range(SLOTS) if endpoint.members.table[slot] == "m"}


def test_an_endpoint_that_may_not_act_looks_at_nothing() -> None:
    waiting = Endpoint("p", joined=False)
    assert waiting.walk() == []
    endpoint = Endpoint("p")
    endpoint.expiring("anna")
    endpoint.tick()
    endpoint.desk.now += 10.0
    endpoint.lose_lease()
    assert endpoint.walk() == []
    endpoint = Endpoint("p")
    endpoint.members.leave()
    assert endpoint.walk() == []


# The amount of work at once


@pytest.mark.parametrize(
    ("reads_memory", "slots", "records"),
    [(True, SLOTS_PER_TICK, RECORDS_PER_TICK), (False, SLOT_REQUESTS_PER_TICK, REQUESTS_PER_TICK)],
)
def test_a_tick_looks_at_so_many(reads_memory: bool, slots: int, records: int) -> None:
    endpoint = Endpoint(reads_memory=reads_memory)
    assert len(of(endpoint.tick(), "expiring")) == slots
    endpoint = Endpoint(reads_memory=reads_memory)
    topic = next(f"x{n}" for n in range(100_000) if slot_of(f"x{n}") == 0)
    for number in range(records * 2 + 1):
        endpoint.expiring(f"c{number}", topic)
    for expected in (records, records, 1):
        read = of(endpoint.tick(), "locations")
        assert [len(clients) for (clients,) in read] == [expected]


def test_a_slot_without_any_is_left_alone_for_a_while(endpoint: Endpoint) -> None:
    endpoint.walk()
    assert of(endpoint.walk(), "expiring") == []
    assert len(of(endpoint.walk(EMPTY_S), "expiring")) == SLOTS


def test_a_slot_that_is_written_into_is_looked_at_again(endpoint: Endpoint) -> None:
    endpoint.walk()
    endpoint.expiring("anna", "t")
    endpoint.terms.wrote(["t"])
    endpoint.tick()
    assert of(endpoint.walk(), "expiring") == [(slot_of("t"), None, RECORDS_PER_TICK)]
    endpoint.records.clear()
    assert of(endpoint.walk(), "expiring") == [(slot_of("t"), None, RECORDS_PER_TICK)]
    assert of(endpoint.walk(), "expiring") == []


@pytest.mark.parametrize("tells_slots", [False, True])
def test_one_that_is_written_during_a_walk_is_found_by_the_next(endpoint: Endpoint, tells_slots: bool) -> None:
    """This walk finds nothing, because it has passed the slot, or the store did not name it."""
    endpoint.tells_slots = tells_slots
    endpoint.hold_operation = "expiring_slots" if tells_slots else "expiring"
    endpoint.tick(WALK_S_MAX)
    (read,) = endpoint.held
    endpoint.hold_operation = ""
    topic = next(f"x{n}" for n in range(100_000) if slot_of(f"x{n}") == 0)
    endpoint.expiring("anna", topic)
    endpoint.terms.wrote([topic])
    read.end([] if tells_slots else ([], None))
    endpoint.walk(0.0)
    endpoint.walk()
    assert (endpoint.part.found, endpoint.part.away) == (1, 1)


def test_where_the_store_says_which_slots_have_any_no_other_is_looked_into(endpoint: Endpoint) -> None:
    endpoint.tells_slots = True
    assert of(endpoint.walk(), "expiring") == []
    topic = endpoint.expiring("anna")
    endpoint.terms.wrote([topic])
    endpoint.tick()
    assert of(endpoint.walk(), "expiring") == [(slot_of(topic), None, RECORDS_PER_TICK)]
    endpoint.expiring("bob", "of a home before")
    endpoint.part.view_changed()
    assert {slot for slot, _, _ in of(endpoint.walk(), "expiring")} == {slot_of(topic), slot_of("of a home before")}
    endpoint.records.clear()
    assert of(endpoint.walk(), "expiring") == []
    asked = len(of(endpoint.asked, "expiring_slots"))
    endpoint.walk()
    assert len(of(endpoint.asked, "expiring_slots")) == asked  # the home asks again in a while
    endpoint.walk(EMPTY_S)
    assert len(of(endpoint.asked, "expiring_slots")) == asked + 1


def test_where_it_cannot_say_so_it_is_asked_again_a_moment_later(endpoint: Endpoint) -> None:
    endpoint.down_for = {"expiring_slots"}
    assert of(endpoint.tick(), "expiring") == []
    endpoint.down_for = set()
    assert len(of(endpoint.walk(PAUSE_S), "expiring")) == SLOTS


def test_slots_that_come_are_looked_into() -> None:
    endpoint = Endpoint("p")
    endpoint.walk()
    endpoint.members.left("p")
    endpoint.part.view_changed()
    assert len(of(endpoint.walk(), "expiring")) == SLOTS


# The store


def test_a_store_that_fails_is_left_alone_for_a_moment_and_nothing_ends(endpoint: Endpoint) -> None:
    endpoint.expiring("anna")
    endpoint.gone()
    endpoint.down = True
    assert [call.operation for call in endpoint.tick(GRACE_S)] == ["tidy", "expiring_slots"]
    assert of(endpoint.tick(PAUSE_S / 2), "expiring_slots") == []
    endpoint.down = False
    assert endpoint.gone(PAUSE_S) == ["anna"]


def in_use(endpoint: Endpoint, topic: str) -> Route:
    """Subscribe Anna to all messages of the topic, and to those of a filter, with one message under way."""
    route = endpoint.routes.add(topic)
    endpoint.routes.filled(topic, route, ("anna",))
    route.filters = TopicFilters(loading=False)
    route.filters.change(("anna", LOUD, True, False))
    route.put(Dispatch(Message(topic, b"1", "m", 1, endpoint.desk.now), slot_of(topic), None, None))
    return route


def test_the_caches_have_what_has_ended(endpoint: Endpoint) -> None:
    topic = endpoint.expiring("anna", filter=LOUD)
    endpoint.expiring("anna", topic)
    route = in_use(endpoint, topic)
    endpoint.gone()
    endpoint.hold = True
    endpoint.walk(GRACE_S)
    assert not endpoint.writing.hold("anna")  # it blocks other writes meanwhile
    (end,) = endpoint.held
    assert (route.subscribers, route.filters is None) == (("anna",), False)
    end.end(endpoint._end(*end.arguments))
    assert endpoint.routes.get(topic) is route
    assert route.subscribers == ()
    assert route.filters is not None
    assert len(route.filters.index) == 0
    assert endpoint.writing.hold("anna")


@pytest.mark.parametrize("why", ["a write of the client is under way", "the store fails", "the lease has lapsed"])
def test_where_it_is_not_certain_what_is_there_it_is_read_again_as_soon_as_it_is_not_in_use(
    endpoint: Endpoint, why: str
) -> None:
    topic = endpoint.expiring("anna")
    route = in_use(endpoint, topic)
    endpoint.gone()
    if why == "a write of the client is under way":
        assert endpoint.writing.hold("anna")
    endpoint.hold = True
    endpoint.walk(GRACE_S)
    (end,) = endpoint.held
    if why == "the lease has lapsed":
        endpoint.lose_lease()
    if why == "the store fails":
        end.end(error=DOWN)
    else:
        end.end(endpoint._end(*end.arguments))
    assert endpoint.routes.get(topic) is route
    assert route.subscribers == ("anna",)
    assert route.take()
    endpoint.tick()
    assert endpoint.routes.get(topic) is None


def test_a_newcomer_waits_for_what_is_being_ended(endpoint: Endpoint) -> None:
    endpoint.expiring("anna")
    endpoint.gone()
    endpoint.hold = True
    endpoint.walk(GRACE_S)
    let_in: list[bool] = []
    endpoint.writes.after(lambda: let_in.append(True))
    assert let_in == []
    endpoint.held[0].end(error=DOWN)
    assert let_in == [True]


def test_a_walk_that_is_overtaken_by_a_newcomer_begins_anew() -> None:
    endpoint = Endpoint("p")
    endpoint.tick()
    endpoint.members.connected(peer("q"), endpoint.desk.now)
    endpoint.members.joined_by("q", 1, 1)
    endpoint.part.view_changed()
    first = next(slot for slot in range(SLOTS) if endpoint.members.table[slot] == "m")
    assert of(endpoint.tick(), "expiring")[0][0] == first


def test_the_home_of_the_first_slot_clears_up() -> None:
    endpoint = Endpoint()
    assert of(endpoint.tick(), "tidy") == [(KEPT_S,)]
    assert of(endpoint.tick(0.5), "tidy") == []
    assert of(endpoint.tick(0.6), "tidy") == [(KEPT_S,)]
    other = Endpoint("p")
    owner = other.members.table[0]
    assert bool(of(other.tick(), "tidy")) == (owner == "m")
