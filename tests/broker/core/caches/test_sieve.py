"""SIEVE against a list, a set of marks, and a hand; and against the paper's order, which evicts before it admits."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from ingeborg.broker.core.caches.cache import Cache
from ingeborg.broker.core.caches.policy import Entry
from ingeborg.broker.core.caches.sieve import Sieve

from .driven import beside, steps


class Listed:
    """The keys from the oldest to the newest. The hand skips the newest while another exists."""

    def __init__(self) -> None:
        self.keys: list[int] = []
        self.visited: set[int] = set()
        self.hand: int | None = None

    def admit(self, key: int, size: int, utility: int) -> None:
        self.keys.append(key)

    def used(self, key: int) -> None:
        self.visited.add(key)

    def victim(self) -> int:
        if len(self.keys) == 1:
            return self.gone(self.keys[0], None)
        candidates = self.keys[:-1]
        at = candidates.index(self.hand) if self.hand in candidates else 0
        while candidates[at] in self.visited:
            self.visited.remove(candidates[at])
            at = (at + 1) % len(candidates)
        return self.gone(candidates[at], candidates[at + 1] if at + 1 < len(candidates) else None)

    def forget(self, key: int) -> None:
        after = self.keys.index(key) + 1
        if key == self.hand:
            self.hand = self.keys[after] if after < len(self.keys) else None
        self.gone(key, self.hand)

    def gone(self, key: int, hand: int | None) -> int:
        self.keys.remove(key)
        self.visited.discard(key)
        self.hand = hand
        return key


@given(steps)
def test_the_victim_is_the_first_unvisited_one_from_the_hand_on(taken: list[tuple[int, int, int, int]]) -> None:
    beside(Sieve(), Listed(), taken)


def papers(requests: list[int], room: int) -> list[bool]:
    """Return which requests are hits in the paper's algorithm 1: a miss evicts before it inserts at the head."""
    row: list[int] = []  # the head first
    visited: set[int] = set()
    hand: int | None = None
    hits = []
    for key in requests:
        hits.append(key in row)
        if key in row:
            visited.add(key)
            continue
        if len(row) == room:
            at = row.index(hand) if hand is not None else len(row) - 1
            while row[at] in visited:
                visited.remove(row[at])
                at = at - 1 if at else len(row) - 1
            hand = row[at - 1] if at else None
            del row[at]
        row.insert(0, key)
    return hits


@given(st.integers(0, 10_000), st.integers(1, 12))
def test_it_hits_as_the_papers_algorithm_does(seed: int, room: int) -> None:
    numbers = random.Random(seed)
    requests = numbers.choices(range(30), [1 / (rank + 1) for rank in range(30)], k=300)
    cache = Cache(Sieve(), room)
    hits = []
    for key in requests:
        hits.append(cache.get(key) is not None)
        if not hits[-1]:
            cache.put(Entry(key, 1, 1))
    assert hits == papers(requests, room)
