"""Subscriptions that end by themselves, in random histories with every fault: none ends while its client listens or is
within the grace time, whoever loses one is told, and none is left when its client has gone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ingeborg.broker.core.model import Introduction, Location, Shape
from ingeborg.broker.core.topics.sweeping import KEPT_S, Sweeping
from tests import wants
from tests.planted import fault, search
from tests.proof import seeds

from .ending import EndingHistory
from .world import SortedSet, Store, World

#: Of a kind: the options, how many histories, and how many subscriptions end in them, and stay, at least.
KINDS: dict[str, tuple[dict[str, Any], int, int]] = {
    "in peace": ({"faults": False}, 12, 200),
    "drains": ({"faults": False, "drains": True}, 12, 200),
    "cuts": ({"faults": False, "drains": True, "cuts": True}, 12, 150),
    "faults": ({}, 20, 250),
    "memory": ({"shape": Shape(reads_memory=True)}, 15, 200),
    "renewed": ({"shape": Shape(renew_s=30.0)}, 10, 100),
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
        history = EndingHistory(seed, **options)
        assert not history.run(), f"seed {seed}: {history.violations[:5]}"
        ended += history.ended
        kept += history.kept
        told += sum(believer.told for believer in history.believers)
    assert ended >= drawn.enough(least)
    assert kept >= drawn.enough(least // 5)
    assert told >= drawn.enough(least // 8)


def test_nothing_at_all_is_left_of_clients_that_never_come_back() -> None:
    history = EndingHistory(150_500, faults=False)
    assert not history.run()
    store = history.world.store
    assert store.ended_of
    assert store.location_of
    history.world.run(KEPT_S + 30.0)
    assert (store.ended_of, store.location_of) == ({}, {})
    assert all(not node.router.sweeping._since for node in history.world.live())


# Planted faults


def whoever_came_back(patch: pytest.MonkeyPatch) -> None:
    """The store takes them out, wherever the client listens by then."""
    true = Store.begin_end

    def begin_end(store: Store, batch: Any) -> None:
        true(store, [(endings, location, False) for endings, location, _ in batch])

    def finish_end(store: Store, batch: Any) -> Any:
        return finish(store, [(endings, location, False) for endings, location, _ in batch])

    finish = Store.finish_end
    patch.setattr(Store, "begin_end", begin_end)
    patch.setattr(Store, "finish_end", finish_end)
    patch.setattr(World, "delay", lambda world: world.random.uniform(0.0, 0.3))  # and there is time to come back


def too_early(patch: pytest.MonkeyPatch) -> None:
    """Half the grace time has to do."""
    wants.interpreted()
    true = Sweeping.__init__

    def impatient(sweeping: Sweeping, *arguments: Any) -> None:
        true(sweeping, *arguments)
        members = sweeping._members
        grace_s, settings = members.introduction
        members.introduction = Introduction(grace_s / 2, settings)

    patch.setattr(Sweeping, "__init__", impatient)


def never(patch: pytest.MonkeyPatch) -> None:
    """Nobody looks."""
    wants.interpreted()
    patch.setattr(Sweeping, "tick", lambda sweeping: None)


def who_is_elsewhere(patch: pytest.MonkeyPatch) -> None:
    """A home takes whoever listens at another endpoint for away."""
    wants.interpreted()

    def listens(sweeping: Sweeping, client: str, location: Location | None) -> bool:
        return client in sweeping._hub.bindings

    patch.setattr(Sweeping, "_listens", listens)


def untold(patch: pytest.MonkeyPatch) -> None:
    """The reply to a `listen` does not say what has ended."""
    patch.setattr(Store, "ended", lambda store, clients: [None] * len(clients))


def read_as_plain(patch: pytest.MonkeyPatch) -> None:
    """A home reads the plain ones only."""
    patch.setattr(
        Store,
        "subscribers",
        lambda store, topics: ([SortedSet(store.subscribers_of.get(topic, ())) for topic in topics], []),
    )


def not_written_anew(patch: pytest.MonkeyPatch) -> None:
    """Whoever subscribes again keeps the former term."""
    true = Store.subscribe_ending

    def subscribe_ending(store: Store, batch: Any) -> None:
        for client, topics, term in batch:
            true(store, [(client, [topic for topic in topics if (topic, client) not in store.endings], term)])

    patch.setattr(Store, "subscribe_ending", subscribe_ending)


def plain_does_not_win(patch: pytest.MonkeyPatch) -> None:
    """A plain subscribe leaves the ending one beside it, and the plain one goes with that."""
    finish = Store.finish_end

    def finish_end(store: Store, batch: Any) -> Any:
        found = finish(store, batch)
        for record in (record for records in found for record in records):
            store.subscribers_of.get(record.topic, set()).discard(record.client)
        return found

    patch.setattr(Store, "_is_plain", lambda store, record: False)
    patch.setattr(Store, "_take_out", lambda store, topic, client: None)
    patch.setattr(Store, "finish_end", finish_end)


@pytest.mark.parametrize(
    ("plant", "seed"),
    [
        fault(whoever_came_back, seed=151_000),
        fault(too_early, seed=151_000),
        fault(never, seed=151_000),
        fault(who_is_elsewhere, seed=151_000),
        fault(untold, seed=151_002),
        fault(read_as_plain, seed=151_000),
        fault(not_written_anew, seed=151_000),
        fault(plain_does_not_win, seed=151_000),
    ],
)
def test_a_planted_fault_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    search(plant, seed, range(151_000, 151_030), lambda seed: EndingHistory(seed, faults=False).run())
