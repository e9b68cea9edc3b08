"""Presence in random histories. Without faults, endpoints announce every change of a set once, in order, and nothing
else. With faults, they announce no client that has not come or gone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ingeborg.broker.core.model import Shape, Subscription
from ingeborg.broker.core.topics import expiry
from ingeborg.broker.core.topics.expiry import Expiry, Held
from ingeborg.broker.core.topics.presence import Look
from ingeborg.broker.core.topics.writing import Writing
from tests import wants
from tests.planted import fault, search
from tests.proof import seeds

from .presence import PresenceHistory

#: By kind: the options, the number of histories, and the least number of announcements in them.
KINDS: dict[str, tuple[dict[str, Any], int, int]] = {
    "in peace": ({"faults": False}, 8, 600),
    "memory": ({"faults": False, "shape": Shape(reads_memory=True)}, 8, 600),
    "alone": ({"faults": False, "endpoints": 1}, 8, 500),
    "drains": ({"faults": False, "drains": True}, 8, 500),
    "faults": ({}, 15, 900),
    "five": ({"endpoints": 5}, 5, 250),
}


@pytest.mark.parametrize(("options", "histories", "least"), KINDS.values(), ids=KINDS)
def test_what_is_told_has_happened(options: dict[str, Any], histories: int, least: int) -> None:
    drawn = seeds(160_000, histories)
    told = 0
    for seed in drawn:
        history = PresenceHistory(seed, **options)
        assert not history.run(), f"seed {seed}: {history.violations[:5]}"
        assert all(node.router.topics.presence.waiting == 0 for node in history.world.live())  # type: ignore[union-attr]
        told += len(history.told())
    assert told >= drawn.enough(least)


# Planted faults


def each_subscribe(patch: pytest.MonkeyPatch) -> None:
    """Every subscribe counts as a join, and every unsubscribe as a leave, even if the client has other
    subscriptions."""
    wants.interpreted()
    patch.setattr(Look, "is_changed", lambda look, held: True)


def a_second_joins_again(patch: pytest.MonkeyPatch) -> None:
    """A client that subscribes with a second filter joins once more."""
    wants.interpreted()
    true = Look.is_changed

    def is_changed(look: Look, held: list[Subscription]) -> bool:
        same = [each for each in held if each.filter == look.filter]
        return true(look, same if look.added else held)

    patch.setattr(Look, "is_changed", is_changed)


def one_of_two_leaves(patch: pytest.MonkeyPatch) -> None:
    """A client that takes one of several subscriptions back has left."""
    wants.interpreted()
    true = Look.is_changed

    def is_changed(look: Look, held: list[Subscription]) -> bool:
        return true(look, held if look.added else [each for each in held if each.filter == look.filter])

    patch.setattr(Look, "is_changed", is_changed)


def before_it_is_written(patch: pytest.MonkeyPatch) -> None:
    """Endpoints announce changes that could not be written."""
    wants.interpreted()
    true = Writing._tell
    patch.setattr(Writing, "_tell", lambda writing, changed, write, error: true(writing, changed, write, None))


def one_of_two_ends(patch: pytest.MonkeyPatch) -> None:
    """A client has left when one of its subscriptions at a topic has ended, even if others remain."""
    wants.interpreted()
    true = expiry._left

    def left(held: Held, over: list[list[Subscription]]) -> list[tuple[str, str]]:
        gone = {(client, topic, filter) for records in over for topic, client, filter, *_ in records}
        return true({pair: [one for one in had if (*pair, one.filter) in gone] for pair, had in held.items()}, over)

    patch.setattr(expiry, "_left", left)


def ends_untold(patch: pytest.MonkeyPatch) -> None:
    """A client whose subscription has ended has not left."""
    wants.interpreted()
    patch.setattr(Expiry, "_tell", lambda *_: None)


class Unwritable(PresenceHistory):
    """One write of a subscription in five fails. Endpoints do not announce such writes, so they announce fewer changes
    than happen."""

    def __init__(self, seed: int, **options: Any) -> None:
        super().__init__(seed, **options)
        answers = self.world.store.answers

        def answers_some(incarnation: str, operation: str) -> bool:
            fails = operation in ("subscribe", "unsubscribe") and self.random.random() < 0.2
            return not fails and answers(incarnation, operation)

        self.world.store.answers = answers_some  # type: ignore[method-assign]

    compare_all = PresenceHistory.compare_kinds

    def compare_counts(self) -> None:
        """Accept that some announcements are missing."""


def test_a_write_that_failed_is_not_told() -> None:
    told = 0
    for seed in range(161_000, 161_005):
        history = Unwritable(seed, faults=False)
        assert not history.run(), f"seed {seed}: {history.violations[:5]}"
        told += len(history.told())
    assert told > 100


@pytest.mark.parametrize(
    ("plant", "kind", "seed"),
    [
        fault(each_subscribe, PresenceHistory, seed=161_000),
        fault(before_it_is_written, Unwritable, seed=161_000),
        fault(a_second_joins_again, PresenceHistory, seed=161_000),
        fault(one_of_two_leaves, PresenceHistory, seed=161_000),
        fault(one_of_two_ends, PresenceHistory, seed=161_000),
        fault(ends_untold, PresenceHistory, seed=161_000),
    ],
)
def test_a_planted_fault_is_found(
    plant: Callable[[pytest.MonkeyPatch], None],
    kind: type[PresenceHistory],
    seed: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(monkeypatch)
    search(plant, seed, range(161_000, 161_010), lambda seed: kind(seed, faults=False).run())
