"""Subscriptions with filters, in random histories with every fault: whoever has one that holds gets the message once,
nobody else does, and what was confirmed is in the store; and each fault that would break this is found when planted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from ingeborg.broker.core.filters import index as indexes
from ingeborg.broker.core.filters.held import numbers_of
from ingeborg.broker.core.filters.index import Index
from ingeborg.broker.core.limits import Limits, Sizes
from ingeborg.broker.core.links.requests import DeliverToListRequest
from ingeborg.broker.core.messages.delivery import Delivery
from ingeborg.broker.core.messages.home import Home
from ingeborg.broker.core.model import FilterPage, Shape, Subscribe, Subscription
from ingeborg.broker.core.topics.filtering import Filtering
from ingeborg.broker.core.topics.routes import READY, Route
from ingeborg.broker.core.topics.topic_filters import Change, TopicFilters
from tests import wants
from tests.planted import fault, search
from tests.proof import seeds

from .filters import BY_TEXT, FilterHistory, met_by
from .store import Store
from .world import World

IN_SLICES = Sizes(delivery_slice=1, clients_per_slice=1, recipients_max=3, list_ids_max=6)
IN_TURNS = Sizes(topics_at_once=0, backlog_bytes_per_turn=1)
SMALL_CACHE = Limits(routes_topics=2)

#: Of a kind: the options, how many histories, and, at least, how many deliveries have to be, and filters have taken the
#: place of all else.
KINDS: dict[str, tuple[dict[str, Any], int, int, int]] = {
    "in peace": ({"faults": False}, 25, 300, 70),
    "alone": ({"endpoints": 1}, 10, 15, 15),
    "faults": ({}, 25, 80, 50),
    "drains": ({"faults": False, "drains": True}, 15, 150, 40),
    "drains, faults": ({"drains": True}, 15, 40, 30),
    "cuts": ({"faults": False, "cuts": True, "drains": True}, 12, 100, 30),
    "crashes": ({"replication": True, "crashes": True}, 10, 25, 20),
    "slices": ({"sizes": IN_SLICES}, 12, 40, 20),
    "slices, in peace": ({"sizes": IN_SLICES, "faults": False, "endpoints": 2}, 10, 100, 20),
    "turns": ({"sizes": IN_TURNS, "faults": False, "drains": True}, 10, 100, 25),
    "memory": ({"shape": Shape(reads_memory=True), "limits": SMALL_CACHE}, 12, 25, 20),
    "memory, in peace": ({"shape": Shape(reads_memory=True), "limits": SMALL_CACHE, "faults": False}, 10, 100, 25),
}


@pytest.mark.parametrize(("options", "histories", "due", "replaced"), KINDS.values(), ids=KINDS)
def test_whoever_has_a_filter_that_holds_gets_the_message_once_and_nobody_else(
    options: dict[str, Any], histories: int, due: int, replaced: int
) -> None:
    drawn = seeds(170_000, histories, 5)
    found = took_the_place = 0
    for seed in drawn:
        history = FilterHistory(seed, **options)
        assert not history.run(), f"seed {seed}: {history.violations[:5]}"
        found += history.steady_deliveries
        took_the_place += history.replaced
    assert found >= drawn.enough(due)
    assert took_the_place >= drawn.enough(replaced)


def test_most_payloads_meet_some_filters_and_not_others() -> None:
    history = FilterHistory(170_000, faults=False)
    history.run()
    met = [len(history.met(publication)) for publication in history.publications]
    assert len(met) > 30
    assert sum(0 < number < len(BY_TEXT) for number in met) > 0.9 * len(met)


@pytest.mark.parametrize(
    ("pattern", "payload", "holds"),
    [
        ({"a": ["x"]}, {"a": ["y", "x"]}, True),
        ({"b": [1]}, {"b": True}, False),
        ({"b": [True]}, {"b": 1}, False),
        ({"b": [{"numeric": [">", 0, "<", 3]}]}, {"b": True}, False),
        ({"a": [{"anything-but": "x"}]}, {"a": ["x", "y"]}, True),
        ({"a": [{"anything-but": "x"}]}, {}, False),
        ({"a": [{"exists": False}]}, {}, True),
        ({"$or": [{"a": ["y"]}, {"b": [3]}]}, {"a": "x", "b": 3}, True),
        ({"a": ["x"], "b": [{"numeric": ["<", 2]}]}, {"a": "x"}, False),
    ],
)
def test_the_naive_reading(pattern: dict[str, Any], payload: dict[str, Any], holds: bool) -> None:
    assert met_by(pattern, payload) is holds


# Planted faults


def replace_keeps(patch: pytest.MonkeyPatch, of: Callable[[Subscription], bool]) -> None:
    """The store leaves these where another takes the place of all else."""
    true = Store.begin_subscribe

    def begin(store: Store, batch: Sequence[Subscribe]) -> list[Subscription]:
        replaced = true(store, batch)
        for each in filter(of, replaced):
            store.records[each.topic][each.client].setdefault(each.filter, each)
        return replaced

    patch.setattr(Store, "begin_subscribe", begin)


def replace_keeps_the_plain_one(patch: pytest.MonkeyPatch) -> None:
    """A filter in place of all else leaves the subscription without one."""
    replace_keeps(patch, lambda held: held.filter is None)


def replace_keeps_the_filters(patch: pytest.MonkeyPatch) -> None:
    """A subscription in place of all else leaves those with filters."""
    replace_keeps(patch, lambda held: held.filter is not None)


def replace_is_an_addition(patch: pytest.MonkeyPatch) -> None:
    """A home adds what the store has put in place of all else."""
    wants.interpreted()
    true = TopicFilters.change

    def change(filters: TopicFilters, change: Change) -> int:
        return true(filters, (*change[:3], False))

    patch.setattr(TopicFilters, "change", change)


def missed_between_two_pages(patch: pytest.MonkeyPatch) -> None:
    """Who goes from a filter of a page that is yet to come to one of a page before it is not looked for."""
    wants.interpreted()

    class Nothing(dict[object, tuple[str, Sequence[str], str | None]]):
        def __setitem__(self, key: object, value: object) -> None:
            pass

    true = Filtering.__init__

    def init(filtering: Filtering, *arguments: Any) -> None:
        true(filtering, *arguments)
        filtering.replacing = Nothing()

    patch.setattr(Filtering, "__init__", init)
    patch.setattr(World, "delay", lambda world: world.random.uniform(0.0, 0.3))


def changes_while_reading_are_lost(patch: pytest.MonkeyPatch) -> None:
    """What is confirmed while filters are being read is taken to be in them."""
    wants.interpreted()
    true = TopicFilters.change
    patch.setattr(TopicFilters, "change", lambda filters, change: filters.loading or true(filters, change))
    patch.setattr(World, "delay", lambda world: world.random.uniform(0.0, 0.3))  # and there is time for that


def a_first_filter_is_lost(patch: pytest.MonkeyPatch) -> None:
    """A filter that is confirmed while the topic's subscribers are being read is taken to be among those that were
    read."""
    wants.interpreted()
    true = Filtering.change

    def change(filtering: Filtering, client: str, topics: Sequence[str], *changed: Any) -> int:
        routes = {topic: filtering._routes.get(topic) for topic in topics}
        known = [topic for topic, route in routes.items() if route is None or route.subscribers is not None]
        return true(filtering, client, known, *changed)

    patch.setattr(Filtering, "change", change)
    patch.setattr(World, "delay", lambda world: world.random.uniform(0.0, 0.3))


def not_read(patch: pytest.MonkeyPatch) -> None:
    """A home that has not had a topic before knows of those filters only that come from then on."""
    wants.interpreted()

    def read(filtering: Filtering, found: Sequence[tuple[str, Route, FilterPage]]) -> None:
        for topic, route, _ in found:
            route.stage = READY
            filtering._routes.ready.append((topic, route, None))

    patch.setattr(Filtering, "read", read)


def kept_through_a_lapse(patch: pytest.MonkeyPatch) -> None:
    """What a home had read before others may have acted for it is used on."""
    wants.interpreted()
    true_lapsed, true_read = Home.lapsed, Filtering.read
    kept: dict[tuple[int, str], TopicFilters] = {}

    def lapsed(home: Home) -> None:
        for topic in home._routes.topics():
            route = home._routes.get(topic)
            if route is not None and route.filters is not None and not route.filters.loading:
                kept[id(home._filtering), topic] = route.filters
        true_lapsed(home)

    def read(filtering: Filtering, found: Sequence[tuple[str, Route, FilterPage]]) -> None:
        others = []
        for topic, route, page in found:
            filters = kept.get((id(filtering), topic))
            if filters is None:
                others.append((topic, route, page))
                continue
            route.filters, route.stage = filters, READY
            filtering._routes.ready.append((topic, route, None))
        if others:
            true_read(filtering, others)

    patch.setattr(Home, "lapsed", lapsed)
    patch.setattr(Filtering, "read", read)


def of_another_topic(patch: pytest.MonkeyPatch) -> None:
    """A message is matched with the index that was made before its topic's."""
    wants.interpreted()
    true_init, true_match = Index.__init__, Index.match
    made: list[Index] = []

    def init(index: Index, *arguments: Any) -> None:
        true_init(index, *arguments)
        made.append(index)

    patch.setattr(Index, "__init__", init)
    patch.setattr(Index, "match", lambda index, payload: true_match(made[made.index(index) - 1], payload))


def second_list_as_the_first(patch: pytest.MonkeyPatch) -> None:
    """An endpoint keeps the list of those whose filters have matched as that of the topic."""
    wants.interpreted()
    true = Delivery.deliver_to_list_requested

    def requested(delivery: Delivery, peer: str, number: int, request: DeliverToListRequest) -> None:
        true(delivery, peer, number, replace(request, list_name=request.message.topic))

    patch.setattr(Delivery, "deliver_to_list_requested", requested)


def one_is_left(patch: pytest.MonkeyPatch) -> None:
    """Of a client's several filters one stays in the index."""
    wants.interpreted()

    def remove_all(index: Index, client: str) -> int:
        texts = [index._texts[number] for number in numbers_of(index._of.get(client))]
        return sum(index.remove(client, text) for text in texts[: max(len(texts) - 1, 1)])

    patch.setattr(Index, "remove_all", remove_all)


def first_alternative_only(patch: pytest.MonkeyPatch) -> None:
    """The second of several ways in which a filter holds is not looked at."""
    wants.interpreted()
    true = indexes._ways
    patch.setattr(indexes, "_ways", lambda text: true(text)[:1])


TWO_IN_SLICES = {"faults": False, "endpoints": 2, "sizes": Sizes(delivery_slice=1)}


@pytest.mark.parametrize(
    ("plant", "options", "seed"),
    [
        fault(replace_keeps_the_plain_one, {"faults": False}, seed=171_000),
        fault(replace_keeps_the_filters, {"faults": False}, seed=171_001),
        fault(replace_is_an_addition, {"faults": False}, seed=171_002),
        fault(missed_between_two_pages, {"faults": False, "drains": True, "limits": SMALL_CACHE}, seed=171_151),
        fault(changes_while_reading_are_lost, {"faults": False, "drains": True}, seed=171_151),
        fault(a_first_filter_is_lost, {"faults": False, "limits": SMALL_CACHE}, seed=171_017),
        fault(not_read, {"faults": False, "drains": True}, seed=171_000),
        fault(kept_through_a_lapse, {}, seed=171_124),
        fault(of_another_topic, {"faults": False}, seed=171_000),
        fault(second_list_as_the_first, TWO_IN_SLICES, seed=171_003),
        fault(one_is_left, {"faults": False}, seed=171_001),
        fault(first_alternative_only, {"faults": False}, seed=171_000),
    ],
)
def test_a_planted_fault_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], options: dict[str, Any], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    search(plant, seed, range(171_000, 171_200), lambda seed: FilterHistory(seed, **options).run())
