"""Subscriptions with filters, in random histories with every fault. A client gets a message once if one of its filters
matches, and never otherwise, and the store has every confirmed subscription. Each planted fault that would break this
is found."""

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

#: By kind: the options, the number of histories, and the least number of required deliveries, and of subscriptions that
#: replace all others.
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
    """A replacing subscription leaves these in the store."""
    true = Store.begin_subscribe

    def begin(store: Store, batch: Sequence[Subscribe]) -> list[Subscription]:
        replaced = true(store, batch)
        for each in filter(of, replaced):
            store.records[each.topic][each.client].setdefault(each.filter, each)
        return replaced

    patch.setattr(Store, "begin_subscribe", begin)


def replace_keeps_the_plain_one(patch: pytest.MonkeyPatch) -> None:
    """A replacing subscription with a filter leaves the one without a filter."""
    replace_keeps(patch, lambda held: held.filter is None)


def replace_keeps_the_filters(patch: pytest.MonkeyPatch) -> None:
    """A replacing subscription leaves those with filters."""
    replace_keeps(patch, lambda held: held.filter is not None)


def replace_is_an_addition(patch: pytest.MonkeyPatch) -> None:
    """A home adds a subscription that has replaced all others in the store."""
    wants.interpreted()
    true = TopicFilters.change

    def change(filters: TopicFilters, change: Change) -> int:
        return true(filters, (*change[:3], False))

    patch.setattr(TopicFilters, "change", change)


def missed_between_two_pages(patch: pytest.MonkeyPatch) -> None:
    """A home misses a client whose filter moves from a later page to an earlier one."""
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
    """A home believes that its pages of filters have the changes confirmed while it reads them."""
    wants.interpreted()
    true = TopicFilters.change
    patch.setattr(TopicFilters, "change", lambda filters, change: filters.loading or true(filters, change))
    patch.setattr(World, "delay", lambda world: world.random.uniform(0.0, 0.3))  # with time for that


def a_first_filter_is_lost(patch: pytest.MonkeyPatch) -> None:
    """A home believes that its read of a topic's subscribers has a filter confirmed during that read."""
    wants.interpreted()
    true = Filtering.change

    def change(filtering: Filtering, client: str, topics: Sequence[str], *changed: Any) -> int:
        routes = {topic: filtering._routes.get(topic) for topic in topics}
        known = [topic for topic, route in routes.items() if route is None or route.subscribers is not None]
        return true(filtering, client, known, *changed)

    patch.setattr(Filtering, "change", change)
    patch.setattr(World, "delay", lambda world: world.random.uniform(0.0, 0.3))


def not_read(patch: pytest.MonkeyPatch) -> None:
    """A home that is new to a topic knows only the filters that come from then on."""
    wants.interpreted()

    def read(filtering: Filtering, found: Sequence[tuple[str, Route, FilterPage]]) -> None:
        for topic, route, _ in found:
            route.stage = READY
            filtering._routes.ready.append((topic, route, None))

    patch.setattr(Filtering, "read", read)


def kept_through_a_lapse(patch: pytest.MonkeyPatch) -> None:
    """A home goes on with what it read before others may have acted in its place."""
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
    """A home matches a message with the index of an earlier topic."""
    wants.interpreted()
    true_init, true_match = Index.__init__, Index.match
    made: list[Index] = []

    def init(index: Index, *arguments: Any) -> None:
        true_init(index, *arguments)
        made.append(index)

    patch.setattr(Index, "__init__", init)
    patch.setattr(Index, "match", lambda index, payload: true_match(made[made.index(index) - 1], payload))


def second_list_as_the_first(patch: pytest.MonkeyPatch) -> None:
    """An endpoint takes the list of clients with matching filters for the topic's list."""
    wants.interpreted()
    true = Delivery.deliver_to_list_requested

    def requested(delivery: Delivery, peer: str, number: int, request: DeliverToListRequest) -> None:
        true(delivery, peer, number, replace(request, list_name=request.message.topic))

    patch.setattr(Delivery, "deliver_to_list_requested", requested)


def one_is_left(patch: pytest.MonkeyPatch) -> None:
    """One filter of a client with several stays in the index."""
    wants.interpreted()

    def remove_all(index: Index, client: str) -> int:
        texts = [index._texts[number] for number in numbers_of(index._of.get(client))]
        return sum(index.remove(client, text) for text in texts[: max(len(texts) - 1, 1)])

    patch.setattr(Index, "remove_all", remove_all)


def first_alternative_only(patch: pytest.MonkeyPatch) -> None:
    """The index ignores the second alternative of a filter."""
    wants.interpreted()
    true = indexes._ways
    patch.setattr(indexes, "_ways", lambda text: true(text)[:1])


TWO_DRAINED = {"faults": False, "drains": True, "endpoints": 2, "limits": SMALL_CACHE}
TWO_IN_SLICES = {"faults": False, "endpoints": 2, "sizes": Sizes(delivery_slice=1)}


@pytest.mark.parametrize(
    ("plant", "options", "seed"),
    [
        fault(replace_keeps_the_plain_one, {"faults": False}, seed=171_000),
        fault(replace_keeps_the_filters, {"faults": False}, seed=171_002),
        fault(replace_is_an_addition, {"faults": False}, seed=171_002),
        fault(missed_between_two_pages, TWO_DRAINED, seed=171_037),
        fault(changes_while_reading_are_lost, TWO_DRAINED, seed=171_000),
        fault(a_first_filter_is_lost, {"faults": False, "limits": SMALL_CACHE}, seed=171_068),
        fault(not_read, {"faults": False, "drains": True}, seed=171_001),
        fault(kept_through_a_lapse, {}, seed=171_023),
        fault(of_another_topic, {"faults": False}, seed=171_000),
        fault(second_list_as_the_first, TWO_IN_SLICES, seed=171_003),
        fault(one_is_left, {"faults": False}, seed=171_002),
        fault(first_alternative_only, {"faults": False}, seed=171_000),
    ],
)
def test_a_planted_fault_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], options: dict[str, Any], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    search(plant, seed, range(171_000, 171_250), lambda seed: FilterHistory(seed, **options).run())
