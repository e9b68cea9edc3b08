"""The locations of a message's recipients. First the part alone, which asks the store once per client, for all topics
that wait for it; then an endpoint, while more messages come all the time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingeborg.broker.core.cluster.membership import Membership
from ingeborg.broker.core.effects import StoreCall
from ingeborg.broker.core.limits import SIZES, Sizes
from ingeborg.broker.core.messages.location_resolver import LocationResolver
from ingeborg.broker.core.model import Location, StoreUnavailable
from ingeborg.broker.core.topics.locations import NEVER_LISTENED, LocationGroups, Locations
from ingeborg.broker.core.topics.routes import LOCATING, READY, LocationSearch, Routes
from tests.simulator.world import Node

from ..fake_desk import ME, FakeDesk
from ..talk import Cluster
from ..way import ANN, BOB, at

ROCK = {"genre": ["rock"]}


class Seeker:
    """A home's part, and the topics that it has resumed."""

    def __init__(self, sizes: Sizes = SIZES) -> None:
        self.desk = FakeDesk()
        self.locations, self.routes = Locations(100), Routes(100, 1_000)
        location_groups = LocationGroups(self.locations, Membership(ME, self.desk.now), self.desk.drops)
        self.resolver = LocationResolver(self.desk.real, self.routes, self.locations, location_groups, sizes)

    @property
    def told(self) -> list[tuple[str, Exception | None]]:
        """Return the topics that have resumed, or for which the store cannot locate a client."""
        return [(topic, error) for topic, _, error in self.routes.ready]

    def search(self, topic: str, *clients: str) -> LocationSearch:
        """Look for these clients on behalf of the topic's first message."""
        route = self.routes.add(topic)
        self.resolver.search(topic, route, list(clients), list(clients))
        assert route.search is not None
        assert route.stage == LOCATING
        return route.search

    def asked(self) -> list[list[str]]:
        return [stored.arguments[0] for stored in self.desk.stored if stored.operation == "locations"]


@pytest.fixture
def seeker() -> Seeker:
    return Seeker()


def test_the_store_is_asked_at_the_end_of_the_turn_once_for_all_of_it(seeker: Seeker) -> None:
    seeker.search("x", "anna", "bert")
    seeker.search("y", "bert", "carl")
    assert seeker.asked() == []
    seeker.resolver.ask()
    assert seeker.asked() == [["anna", "bert", "carl"]]
    seeker.resolver.ask()
    assert len(seeker.desk.stored) == 1  # the part looks for nobody else


def test_a_search_is_over_when_nobody_is_left_to_be_found(seeker: Seeker) -> None:
    x = seeker.search("x", "anna")
    seeker.resolver.ask()
    y = seeker.search("y", "anna", "bert")  # the part is already asking for anna
    seeker.resolver.ask()
    assert seeker.asked() == [["anna"], ["bert"]]
    seeker.desk.stored[0].end([at(ANN)])
    assert seeker.told == [("x", None)]
    assert x.found == {"anna": at(ANN)}
    seeker.desk.stored[1].end([None])
    assert seeker.told == [("x", None), ("y", None)]
    assert y.found == {"anna": at(ANN), "bert": None}


def test_what_the_store_says_is_learnt_even_that_a_client_has_never_listened(seeker: Seeker) -> None:
    seeker.search("x", "anna", "bert")
    seeker.resolver.ask()
    seeker.desk.stored[0].end([at(ANN), None])
    assert seeker.locations.get("anna") == at(ANN)
    assert seeker.locations.get("bert") == NEVER_LISTENED


def test_what_was_announced_meanwhile_is_not_undone_by_the_stores_older_answer(seeker: Seeker) -> None:
    seeker.search("x", "anna")
    seeker.resolver.ask()
    seeker.locations.learn("anna", at(BOB, number=2))
    seeker.desk.stored[0].end([at(ANN, number=1)])
    assert seeker.locations.get("anna") == at(BOB, number=2)


def test_when_the_store_does_not_answer_every_search_for_these_is_told_and_nothing_is_learnt(seeker: Seeker) -> None:
    seeker.search("x", "anna", "bert")
    seeker.search("y", "bert")
    seeker.resolver.ask()
    seeker.search("z", "carl")
    seeker.resolver.ask()
    error = StoreUnavailable("down")
    seeker.desk.stored[0].end(error=error)
    assert seeker.told == [("x", error), ("y", error)]
    assert len(seeker.locations) == 0
    seeker.search("x again", "anna")
    seeker.resolver.ask()
    assert seeker.asked()[-1] == ["anna"]
    seeker.desk.stored[1].end([at(ANN)])
    assert seeker.told[2:] == [("z", None)]


def test_many_are_asked_for_in_parts_and_the_search_ends_with_the_last() -> None:
    seeker = Seeker(Sizes(clients_per_slice=2))
    search = seeker.search("x", *"abcde")
    seeker.resolver.ask()
    assert seeker.asked() == [["a", "b"], ["c", "d"], ["e"]]
    for part in reversed(seeker.desk.stored):
        assert seeker.told == []
        part.end([at(ANN) for _ in part.arguments[0]])
    assert seeker.told == [("x", None)]
    assert sorted(search.found) == list("abcde")


def test_a_search_has_failed_as_soon_as_one_part_of_it_has() -> None:
    seeker = Seeker(Sizes(clients_per_slice=1))
    seeker.search("x", "anna", "bert")
    seeker.resolver.ask()
    error = StoreUnavailable("down")
    seeker.desk.stored[0].end(error=error)
    assert seeker.told == [("x", error)]


def test_a_topic_that_was_dropped_meanwhile_does_not_go_on(seeker: Seeker) -> None:
    seeker.search("x", "anna")
    seeker.search("y", "anna")
    seeker.resolver.ask()
    seeker.routes.drop("x")
    seeker.routes.add("x")
    seeker.desk.stored[0].end([at(ANN)])
    assert seeker.told == [("y", None)]
    route = seeker.routes.get("y")
    assert route is not None
    assert route.stage == READY


STEPS = st.lists(
    st.one_of(
        st.sets(st.sampled_from("abcdef"), min_size=1).map(lambda clients: ("search", sorted(clients))),
        st.just(("flush", [])),
        st.integers(0, 5).map(lambda number: ("answer", [str(number)])),
    ),
    max_size=30,
)


@given(STEPS)
def test_nobody_is_asked_for_twice_at_once_and_every_search_ends_once_with_all_it_wanted(
    steps: list[tuple[str, list[str]]],
) -> None:
    seeker = Seeker()
    wanted: dict[str, tuple[LocationSearch, list[str]]] = {}
    true: dict[str, Location | None] = {client: at(ANN) if client < "d" else None for client in "abcdef"}

    def answer(number: int) -> None:
        call = seeker.desk.stored.pop(number)
        call.end([true[client] for client in call.arguments[0]])

    for what, words in steps:
        if what == "search":
            name = f"search {len(wanted)}"
            wanted[name] = (seeker.search(name, *words), words)
        elif what == "flush":
            seeker.resolver.ask()
        elif int(words[0]) < len(seeker.desk.stored):
            answer(int(words[0]))
        under_way = [client for call in seeker.desk.stored for client in call.arguments[0]]
        assert len(under_way) == len(set(under_way))
        for name, error in seeker.told:
            assert error is None
            assert sorted(wanted[name][0].found) == wanted[name][1]
    seeker.resolver.ask()
    while seeker.desk.stored:
        answer(0)
    assert sorted(name for name, _ in seeker.told) == sorted(wanted)


# Among endpoints


def locations_take(cluster: Cluster, seconds: float) -> None:
    """Make the store take this long to locate clients."""
    world, call_store = cluster.world, cluster.world.call_store

    def call(node: Node, call: StoreCall) -> None:
        world.at(seconds if call.operation == "locations" else 0.0, call_store, node, call)

    def none_at_once(node: Node) -> None:
        for each in node.router.asks(world.now):
            call(node, each)

    world.call_store, world.tell_at_once = call, none_at_once  # type: ignore[method-assign]


@pytest.mark.parametrize("filtered", [False, True])
@pytest.mark.parametrize("sizes", [SIZES, Sizes(clients_per_slice=2)], ids=["at once", "in slices"])
def test_a_message_goes_out_while_new_clients_subscribe_all_the_time(sizes: Sizes, filtered: bool) -> None:
    cluster = Cluster("a", sizes=sizes)
    anna = cluster.listener("anna", "a", "hot")
    crowd = cluster.client("0", "a")
    options = {"filter": ROCK} if filtered else {}
    for number in range(40):
        crowd.send(command="subscribe", topic="hot", client_id=str(number), **options)
    crowd.hear(2.0)
    locations_take(cluster, 0.1)
    anna.notes.clear()
    anna.send(command="publish", topic="hot", payload={"genre": "rock"}, ack=True)
    begun = len(anna.heard)
    for number in range(100):  # a second and more, one each 20 ms
        crowd.send(command="subscribe", topic="hot", client_id=f"new {number}", **options)
        cluster.world.run(0.02)
        if "ok" in anna.heard[begun:]:
            break
    assert number < 50
    assert [payload for _, _, payload in anna.notes] == [{"genre": "rock"}]
