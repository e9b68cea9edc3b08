"""Compares GDSF with a list and its linear search."""

from __future__ import annotations

from hypothesis import given

from ingeborg.bench.caching.policies.gdsf import Gdsf
from ingeborg.broker.core.caches.policy import Entry
from tests.broker.core.caches.driven import beside, steps


class Listed:
    """Key, size, uses and worth; earlier settings of worth come first."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, int, int, float]] = []
        self.last = 0.0

    def admit(self, key: int, size: int, utility: int) -> None:
        self.entries.append((key, size, 1, self.last + 1 / size))

    def used(self, key: int) -> None:
        entry = next(entry for entry in self.entries if entry[0] == key)
        self.entries.remove(entry)
        self.entries.append((key, entry[1], entry[2] + 1, self.last + (entry[2] + 1) / entry[1]))

    def victim(self) -> int:
        entry = min(self.entries, key=lambda entry: entry[3])
        self.entries.remove(entry)
        self.last = entry[3]
        return entry[0]

    def forget(self, key: int) -> None:
        self.entries = [entry for entry in self.entries if entry[0] != key]


@given(steps)
def test_gdsf_has_what_was_used_least_for_its_size_go_above_what_went_last(
    taken: list[tuple[int, int, int, int]],
) -> None:
    beside(Gdsf(), Listed(), taken)


def test_what_is_not_used_any_more_ages() -> None:
    policy = Gdsf()
    often, other = Entry(0, 1, 0), Entry(1, 1, 0)
    policy.admit(often)
    for _ in range(4):
        policy.used(often)
    policy.admit(other)
    victims = [policy.victim().key]
    for key in range(2, 10):
        policy.admit(Entry(key, 1, 0))
        victims.append(policy.victim().key)
    # Each newcomer is worth one more than the last victim. The fifth is worth five uses, and older entries with five
    # uses go.
    assert victims == [1, 2, 3, 4, 0, 5, 6, 7, 8]
