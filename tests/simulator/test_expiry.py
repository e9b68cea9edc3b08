"""Expiring subscriptions, in random histories with every fault. None ends while its client listens or is within the
grace time, a client learns of each one that it loses, and none is left when its client has gone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from ingeborg.broker.core.model import (
    Ended,
    FilterPage,
    Introduction,
    Location,
    Shape,
    Subscribe,
    Subscribers,
    Subscription,
)
from ingeborg.broker.core.topics.expiry import KEPT_S, Expiry
from ingeborg.broker.core.topics.topic_filters import Change, TopicFilters
from tests import wants
from tests.planted import fault, search
from tests.proof import seeds

from .expiry import ExpiryHistory
from .store import End, SortedSet, Store, key_of
from .world import World

#: By kind: the options, the number of histories, and the least number of subscriptions that end in them, and that stay.
KINDS: dict[str, tuple[dict[str, Any], int, int]] = {
    "in peace": ({"faults": False}, 12, 200),
    "drains": ({"faults": False, "drains": True}, 12, 200),
    "cuts": ({"faults": False, "drains": True, "cuts": True}, 12, 150),
    "faults": ({}, 20, 250),
    "memory": ({"shape": Shape(reads_memory=True)}, 15, 200),
    "alone": ({"endpoints": 1}, 15, 80),
    "five": ({"endpoints": 5}, 6, 60),
}


@pytest.mark.parametrize(("options", "histories", "least"), KINDS.values(), ids=KINDS)
def test_they_end_when_they_should_and_whoever_loses_one_is_told(
    options: dict[str, Any], histories: int, least: int
) -> None:
    drawn = seeds(150_000, histories)
    ended = kept = told = 0
    for seed in drawn:
        history = ExpiryHistory(seed, **options)
        assert not history.run(), f"seed {seed}: {history.violations[:5]}"
        ended += history.ended
        kept += history.kept
        told += sum(believer.told for believer in history.believers)
    assert ended >= drawn.enough(least)
    assert kept >= drawn.enough(least // 5)
    assert told >= drawn.enough(least // 8)


def test_nothing_at_all_is_left_of_clients_that_never_come_back() -> None:
    history = ExpiryHistory(150_500, faults=False)
    assert not history.run()
    store = history.world.store
    assert store.ended_of
    assert store.location_of
    history.world.run(KEPT_S + 30.0)
    assert (store.ended_of, store.location_of) == ({}, {})
    assert all(not node.router.topics.expiry._since for node in history.world.live())


# Planted faults


def whoever_came_back(patch: pytest.MonkeyPatch) -> None:
    """The store ends subscriptions although their client listens again by then."""

    def unbound(batch: Sequence[End]) -> list[End]:
        return [(subscriptions, location, False) for subscriptions, location, _ in batch]

    begin, finish = Store.begin_end, Store.finish_end
    patch.setattr(Store, "begin_end", lambda store, batch: begin(store, unbound(batch)))
    patch.setattr(Store, "finish_end", lambda store, batch: finish(store, unbound(batch)))
    patch.setattr(World, "delay", lambda world: world.random.uniform(0.0, 0.3))  # with time to come back


def whoever_came_back_with_a_filter(patch: pytest.MonkeyPatch) -> None:
    """A home ends subscriptions with filters although their client listens again by then."""
    wants.interpreted()
    true = Expiry._end

    def end(expiry: Expiry, ends: list[Any]) -> None:
        true(expiry, [(each, where, only and all(one.filter is None for one in each)) for each, where, only in ends])

    patch.setattr(Expiry, "_end", end)
    patch.setattr(World, "delay", lambda world: world.random.uniform(0.0, 0.3))


def a_newer_one(patch: pytest.MonkeyPatch) -> None:
    """The store ends a subscription that has been renewed since the home read it."""

    def there(store: Store, batch: Sequence[End]) -> list[End]:
        new: list[End] = []
        for subscriptions, location, only in batch:
            keys = list(map(key_of, subscriptions))
            found = [store.taken.get(key) or store.record(*key[:2]).get(key[2]) for key in keys]
            new.append(([held or each for held, each in zip(found, subscriptions, strict=True)], location, only))
        return new

    begin, finish = Store.begin_end, Store.finish_end
    patch.setattr(Store, "begin_end", lambda store, batch: begin(store, there(store, batch)))
    patch.setattr(Store, "finish_end", lambda store, batch: finish(store, there(store, batch)))
    patch.setattr(World, "delay", lambda world: world.random.uniform(0.0, 0.3))  # with time for that


def too_early(patch: pytest.MonkeyPatch) -> None:
    """Clients get half the grace time."""
    wants.interpreted()
    true = Expiry.__init__

    def impatient(expiry: Expiry, *arguments: Any) -> None:
        true(expiry, *arguments)
        members = expiry._members
        grace_s, settings = members.introduction
        members.introduction = Introduction(grace_s / 2, settings)

    patch.setattr(Expiry, "__init__", impatient)


def never(patch: pytest.MonkeyPatch) -> None:
    """No home looks for expired subscriptions."""
    wants.interpreted()
    patch.setattr(Expiry, "tick", lambda expiry: None)


def who_is_elsewhere(patch: pytest.MonkeyPatch) -> None:
    """A home takes a client that listens at another endpoint for absent."""
    wants.interpreted()

    def listens(expiry: Expiry, client: str, location: Location | None) -> bool:
        return client in expiry._hub.bindings

    patch.setattr(Expiry, "_listens", listens)


def untold(patch: pytest.MonkeyPatch) -> None:
    """The reply to a `listen` does not say what has ended."""
    patch.setattr(Store, "ended", lambda store, clients: [None] * len(clients))


def read_without_terms(patch: pytest.MonkeyPatch) -> None:
    """A home reads only subscriptions without a term."""

    def subscribers(store: Store, topics: Sequence[str]) -> tuple[list[Subscribers], dict[str, FilterPage]]:
        sets, pages = true(store, topics)
        lasting = [
            SortedSet(client for client in found if (held := store.record(topic, client).get(None)) and not held.term)
            for topic, found in zip(topics, sets, strict=True)
        ]
        return list(lasting), pages

    true = Store.subscribers
    patch.setattr(Store, "subscribers", subscribers)


def replaced_filters_stay(patch: pytest.MonkeyPatch) -> None:
    """A home keeps the filters that a plain subscription has replaced, until that one has ended as well."""
    wants.interpreted()
    true = TopicFilters.change

    def change(filters: TopicFilters, change: Change) -> int:
        _, text, added, _ = change
        return 0 if added and text is None else true(filters, change)

    patch.setattr(TopicFilters, "change", change)


def ended_filters_stay(patch: pytest.MonkeyPatch) -> None:
    """A home goes on with filters that have ended."""
    wants.interpreted()
    true = Expiry.__init__

    class Deaf:
        change = staticmethod(lambda *_: 0)

    def init(expiry: Expiry, *arguments: Any) -> None:
        true(expiry, *arguments)
        expiry._filtering = Deaf()  # type: ignore[assignment]

    patch.setattr(Expiry, "__init__", init)


def changed(patch: pytest.MonkeyPatch, of: Callable[[Store, Subscribe, str], bool]) -> None:
    """The store leaves these rows' subscriptions at these topics unchanged."""
    true = Store.begin_subscribe

    def begin(store: Store, batch: Sequence[Subscribe]) -> list[Subscription]:
        return true(
            store,
            [row._replace(topics=[topic for topic in row.topics if not of(store, row, topic)]) for row in batch],
        )

    patch.setattr(Store, "begin_subscribe", begin)


def not_written_anew(patch: pytest.MonkeyPatch) -> None:
    """A client that subscribes again keeps the former term."""
    changed(patch, lambda store, row, topic: bool(row.term) and row.filter in store.record(topic, row.client))


def no_term_does_not_win(patch: pytest.MonkeyPatch) -> None:
    """A subscribe without a term leaves the existing subscription's term."""
    changed(patch, lambda store, row, topic: not row.term and row.filter in store.record(topic, row.client))


def a_term_wins(patch: pytest.MonkeyPatch) -> None:
    """A subscribe with a term gives the term to a subscription that has none."""
    true = Store.begin_subscribe

    def begin(store: Store, batch: Sequence[Subscribe]) -> list[Subscription]:
        for row in batch:
            for topic in row.topics:
                held = store.record(topic, row.client).get(row.filter)
                if held is not None and row.term is not None:
                    store.records[topic][row.client][row.filter] = held._replace(term=row.term)
        return true(store, batch)

    patch.setattr(Store, "begin_subscribe", begin)


def ended_without_its_filter(patch: pytest.MonkeyPatch) -> None:
    """The reply to a `listen` names only the topics of ended subscriptions."""
    true = Store.ended

    def ended(store: Store, clients: Sequence[str]) -> list[Ended | None]:
        found = true(store, clients)
        return [each and Ended([(topic, None) for topic, _ in each.subscriptions], each.total) for each in found]

    patch.setattr(Store, "ended", ended)


@pytest.mark.parametrize(
    ("plant", "seed"),
    [
        fault(whoever_came_back, seed=151_000),
        fault(whoever_came_back_with_a_filter, seed=151_000),
        fault(a_newer_one, seed=151_000),
        fault(too_early, seed=151_000),
        fault(never, seed=151_000),
        fault(who_is_elsewhere, seed=151_000),
        fault(untold, seed=151_005),
        fault(ended_without_its_filter, seed=151_002),
        fault(read_without_terms, seed=151_010),
        fault(replaced_filters_stay, seed=151_008),
        fault(ended_filters_stay, seed=151_004),
        fault(not_written_anew, seed=151_000),
        fault(no_term_does_not_win, seed=151_001),
        fault(a_term_wins, seed=151_001),
    ],
)
def test_a_planted_fault_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    search(plant, seed, range(151_000, 151_030), lambda seed: ExpiryHistory(seed, faults=False).run())
