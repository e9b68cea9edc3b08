"""The routing cache: reads that changes overtake, bounds, and locations that only get newer."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from ingeborg.broker.core.dispatch import Dispatch
from ingeborg.broker.core.message import Message
from ingeborg.broker.core.model import Location
from ingeborg.broker.core.topics.locations import Locations
from ingeborg.broker.core.topics.routes import READING, READY, SMALL, Route, Routes

changes = st.lists(st.tuples(st.sampled_from("abcd"), st.booleans()), max_size=8)


# A set being read while it changes


def test_a_change_confirmed_during_the_read_holds_whether_or_not_the_read_saw_it() -> None:
    for seen in ({"old"}, {"old", "new"}):
        route = Route()
        route.change("new", True)
        route.change("old", False)
        route.filled(set(seen))
        assert set(route.subscribers or ()) == {"new"}
        assert not route.changes


@given(st.sets(st.sampled_from("abcd")), changes, changes, st.integers(0, 8))
def test_whenever_the_store_is_read_the_route_ends_up_with_the_truth(
    before: set[str], during: list[tuple[str, bool]], after: list[tuple[str, bool]], read_at: int
) -> None:
    """The read takes effect somewhere among the changes, and every change reaches the route, in order."""

    def applied(subscribers: set[str], some: list[tuple[str, bool]]) -> set[str]:
        for client, added in some:
            subscribers = subscribers | {client} if added else subscribers - {client}
        return subscribers

    route = Route()
    route.stage = READING
    for client, added in during:
        route.change(client, added)
    route.filled(applied(before, during[:read_at]))
    for client, added in after:
        route.change(client, added)
    assert set(route.subscribers or ()) == applied(before, during + after)
    assert route.stage == READY


# Bounds of the routes


def filled(routes: Routes, topic: str, ids: int) -> Route:
    route = routes.add(topic)
    routes.filled(topic, route, {f"{topic}-{number}" for number in range(ids)})
    return route


def test_the_oldest_topic_that_was_not_used_goes_first() -> None:
    routes = Routes(3, 1_000)
    for topic in "abc":
        filled(routes, topic, 1)
    routes.use("a")
    assert routes.get("b") is not None  # a ``get`` does not count as a use
    filled(routes, "d", 1)
    assert routes.topics() == ["a", "c", "d"]
    assert (routes.evicted, routes.ids) == (1, 3)
    assert (routes.admitted, routes.evicted_for) == (4, {"topics": 1, "ids": 0, "filters": 0})


def test_the_ids_are_bounded_too() -> None:
    routes = Routes(1_000, 10)
    for topic in "abcd":
        filled(routes, topic, 4)
    assert routes.topics() == ["c", "d"]
    assert routes.ids == 8
    assert (routes.admitted, routes.evicted_for) == (4, {"topics": 0, "ids": 2, "filters": 0})


def test_one_set_above_the_bound_is_kept_since_the_topic_is_in_use() -> None:
    routes = Routes(1_000, 10)
    filled(routes, "small", 1)
    filled(routes, "large", 100)
    assert routes.topics() == ["large"]
    filled(routes, "next", 1)
    assert routes.topics() == ["next"]
    assert routes.ids == 1


def test_a_topic_that_something_waits_in_does_not_go() -> None:
    routes = Routes(2, 1_000)
    busy = routes.add("busy")
    busy.put(Dispatch(Message("busy", b"1", "a", 1, 0.0), 0, None, None))
    reading = routes.add("reading")
    reading.stage = READING
    for topic in "abc":
        filled(routes, topic, 1)
    assert routes.get("busy") is busy
    assert routes.get("reading") is reading
    busy.take()
    reading.stage = READY
    filled(routes, "d", 1)
    assert len(routes) <= 2


def test_what_was_busy_when_there_was_too_much_goes_later_though_nothing_more_comes() -> None:
    routes = Routes(2, 1_000)
    for topic in "abcdef":
        routes.add(topic).put(Dispatch(Message(topic, b"1", "a", 1, 0.0), 0, None, None))
    assert len(routes) == 6
    routes.trim()
    assert len(routes) == 6
    for topic in "abcdef":
        route = routes.get(topic)
        assert route is not None
        route.take()
        route.filled(set())
    routes.trim()
    assert len(routes) == 2
    assert (routes.admitted, routes.evicted_for["topics"]) == (6, 4)
    routes.drop(routes.topics()[0])
    assert routes.admitted == len(routes) + routes.evicted + routes.dropped


def test_filling_again_counts_the_ids_once() -> None:
    routes = Routes(10, 1_000)
    route = filled(routes, "a", 5)
    routes.filled("a", route, {"only"})
    assert routes.ids == 1
    assert routes.drop("a") is route
    assert (routes.ids, routes.drop("a"), len(routes)) == (0, None, 0)


@given(
    st.integers(1, 4),
    st.integers(1, 8),
    st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from(["use", "fill", "drop"]), st.integers(0, 12))),
    st.booleans(),
)
def test_the_bounds_hold_and_the_count_of_ids_is_true(
    topics_max: int, ids_max: int, steps: list[tuple[str, str, int]], choosy: bool
) -> None:
    routes = Routes(topics_max, ids_max, choosy=choosy)
    for topic, what, ids in steps:
        if what == "drop":
            routes.drop(topic)
        elif what == "use":
            routes.use(topic)
        else:
            route = routes.use(topic) or routes.add(topic)
            routes.filled(topic, route, {str(number) for number in range(ids)})
            if route.passing:
                assert choosy
                assert len(routes) == topics_max
                routes.drop(topic)  # as its home does when no message waits in it
        held = [routes.get(topic) for topic in routes.topics()]
        assert routes.ids == sum(len(route.subscribers or ()) for route in held if route is not None)
        assert len(routes) == len(held) <= topics_max
        assert routes.ids <= ids_max or len(routes) == 1


# Admission of topics


def publish(routes: Routes, topic: str, ids: int = 1) -> bool:
    """Handle one message as its home does; return whether the topic was in the cache."""
    route = routes.use(topic)
    if route is None:
        route = filled(routes, topic, ids)
        if route.passing:
            routes.drop(topic)
        return False
    return True


def test_a_choosy_cache_takes_all_while_it_has_room() -> None:
    routes = Routes(100, 1_000, choosy=True)
    for topic in range(100):
        publish(routes, str(topic))
    assert all(publish(routes, str(topic)) for topic in range(100))


def test_a_round_of_all_topics_there_are_pushes_few_used_ones_out() -> None:
    routes = Routes(1_000, 10_000, choosy=True)
    for topic in range(1_000):
        publish(routes, f"used {topic}")
    for topic in range(1_000):
        publish(routes, f"once {topic}")
    assert 50 < routes.evicted < 250  # one in eight of a thousand


def test_in_a_full_cache_a_topic_with_many_messages_is_soon_chosen() -> None:
    routes = Routes(10, 1_000, choosy=True)
    for topic in range(10):
        publish(routes, f"old {topic}")
    misses = [next(number for number in itertools.count() if publish(routes, f"new {topic}")) for topic in range(100)]
    assert 4 < sum(misses) / 100 < 16  # eight on average
    assert max(misses) < 80


def test_going_round_topics_of_which_not_all_fit_still_finds_some() -> None:
    routes = Routes(1_000, 10_000, choosy=True)
    hits = 0
    for number in range(20 * 1_300):
        hits += publish(routes, str(number % 1_300))
    assert hits > 20 * 1_300 // 3  # LRU eviction would have none


def test_many_subscribers_are_worth_keeping() -> None:
    routes = Routes(2, 1_000, choosy=True)
    publish(routes, "a")
    publish(routes, "b")
    publish(routes, "hit", SMALL + 1)
    assert "hit" in routes.topics()
    assert len(routes) == 2


def test_changes_reach_a_route_that_passes() -> None:
    routes = Routes(1, 1_000, choosy=True)
    filled(routes, "a", 1)
    route = next(route for number in itertools.count() if (route := routes.add(f"b{number}")).passing)
    (topic,) = [topic for topic in routes.topics() if routes.get(topic) is route]
    routes.change("ann", [topic], True)
    routes.filled(topic, route, ("bob",))
    assert set(route.subscribers or ()) == {"ann", "bob"}


# Locations

locations = st.builds(Location, st.integers(1, 4), st.sampled_from(["x", "y"]), st.booleans())


def test_locations_of_a_client_are_ordered_by_number_then_incarnation_then_offline() -> None:
    in_order = [
        Location(1, "x", True),
        Location(1, "x", False),
        Location(1, "y", True),
        Location(2, "a", True),
        Location(2, "a", False),
    ]
    assert sorted(in_order, key=lambda location: location.rank) == in_order


@given(st.lists(locations, max_size=6))
def test_in_whatever_order_news_comes_the_greatest_stays(news: list[Location]) -> None:
    for order in itertools.islice(itertools.permutations(news), 24):
        known = Locations(10)
        for location in order:
            former = known.get("c")
            assert known.learn("c", location) is (former is None or location.rank > former.rank)
        assert known.get("c") == (max(news, key=lambda location: location.rank) if news else None)


def test_the_locations_are_bounded_and_the_longest_unchanged_goes() -> None:
    known = Locations(2)
    known.learn("a", Location(1, "x", True))
    known.learn("b", Location(1, "x", True))
    known.learn("a", Location(2, "x", True))
    known.learn("a", Location(1, "x", True))  # old news is none
    known.learn("c", Location(1, "x", True))
    assert known.get("b") is None
    assert known.get("a") == Location(2, "x", True)
    assert (known.evicted, len(known)) == (1, 2)
    known.clear()
    assert (known.get("a"), len(known)) == (None, 0)


# A client's subscriptions


def test_it_says_where_a_client_has_subscribed_and_where_it_does_not_know() -> None:
    routes = Routes(10, 100)
    for topic, clients in (("hers", ("ann", "bob")), ("his", ("bob",))):
        routes.filled(topic, routes.add(topic), clients)
    routes.add("being read")
    routes.filled("doubted", doubted := routes.add("doubted"), ("ann",))
    doubted.passing = True
    assert routes.subscribed("ann", ["unknown", "his", "hers", "being read", "doubted"]) == ([2], [0, 3, 4])
