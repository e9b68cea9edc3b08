"""Pending readers against a list scanned in full, with exact fractions."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given

from ingeborg.broker.core.caches.pending_readers import PendingReaders
from ingeborg.broker.core.caches.policy import Entry

from .driven import beside, steps


class Listed:
    """A list of key, size and pending readers. The entry whose worth has not changed for longest comes first."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, int, int]] = []

    def admit(self, key: int, size: int, utility: int) -> None:
        self.entries.append((key, size, utility))

    def used(self, key: int) -> None:
        entry = next(entry for entry in self.entries if entry[0] == key)
        if entry[2]:
            self.entries.remove(entry)
            self.entries.append((key, entry[1], entry[2] - 1))

    def victim(self) -> int:
        entry = min(self.entries, key=lambda entry: Fraction(entry[2], entry[1]))  # the first among equals
        self.entries.remove(entry)
        return entry[0]

    def forget(self, key: int) -> None:
        self.entries = [entry for entry in self.entries if entry[0] != key]


@given(steps)
def test_the_victim_is_owed_to_fewest_for_its_size(taken: list[tuple[int, int, int, int]]) -> None:
    beside(PendingReaders(), Listed(), taken)


class Ageing:
    """A list of key, size, pending readers, and worth, which starts from the worth of the last victim."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, int, int, float]] = []
        self.last = 0.0

    def admit(self, key: int, size: int, utility: int) -> None:
        worth = self.last + utility / size if utility else float("-inf")
        self.entries.append((key, size, utility, worth))

    def used(self, key: int) -> None:
        entry = next(entry for entry in self.entries if entry[0] == key)
        if entry[2]:
            self.entries.remove(entry)
            self.admit(key, entry[1], entry[2] - 1)

    def victim(self) -> int:
        entry = min(self.entries, key=lambda entry: entry[3])  # the first among equals
        self.entries.remove(entry)
        self.last = max(self.last, entry[3])
        return entry[0]

    def forget(self, key: int) -> None:
        self.entries = [entry for entry in self.entries if entry[0] != key]


@given(steps)
def test_one_that_ages_counts_from_the_last_victim(taken: list[tuple[int, int, int, int]]) -> None:
    beside(PendingReaders(ages=True), Ageing(), taken)


def test_what_is_owed_to_those_who_never_come_goes_only_if_it_ages() -> None:
    for ages, stays in ((False, True), (True, False)):
        policy = PendingReaders(ages=ages)
        old = Entry("old", 1, 5)
        policy.admit(old)
        policy.admit(Entry(0, 1, 1))
        victims = []
        for number in range(1, 10):
            policy.admit(Entry(number, 1, 1))
            victims.append(policy.victim())
        assert (old not in victims) == stays


def admitted(policy: PendingReaders, *entries: tuple[int, int]) -> list[Entry]:
    """Admit entries of these sizes and utilities."""
    found = [Entry(number, size, utility) for number, (size, utility) in enumerate(entries)]
    assert all(map(policy.admit, found))
    return found


def test_what_nobody_is_owed_goes_first_however_small_it_is() -> None:
    policy = PendingReaders()
    _, small, _ = admitted(policy, (1_000_000, 1), (1, 1), (1, 5))
    policy.used(small)
    assert policy.victim() is small


def test_equal_worth_of_unequal_sizes_is_equal_and_the_one_that_has_it_longer_goes() -> None:
    policy = PendingReaders()
    first, second, third = admitted(policy, (30, 10), (3, 1), (9, 4))
    policy.used(third)  # 3 of 9, like the others, but later
    assert [policy.victim() for _ in range(3)] == [first, second, third]


def test_it_is_asked_for_by_more_than_were_known_and_is_owed_to_nobody() -> None:
    policy = PendingReaders()
    [entry] = admitted(policy, (1, 1))
    policy.used(entry)
    policy.used(entry)
    assert entry.utility == 0
    assert policy.victim() is entry
