"""Compares Belady's policy with all possible ways, for short streams."""

from __future__ import annotations

import random
from functools import cache as remembered
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from ingeborg.bench.caching import replay, requests
from ingeborg.bench.caching.policies.belady import Belady
from ingeborg.broker.core.caches.lru import Lru
from ingeborg.broker.core.caches.sieve import Sieve


def most_hits(items: list[int], room: int) -> int:
    """Try all ways to keep some of the items after each request; return the most hits."""

    @remembered
    def from_here(at: int, inside: frozenset[int]) -> int:
        if at == len(items):
            return 0
        candidates = inside | {items[at]}
        kept = [candidates] if len(candidates) <= room else map(frozenset, combinations(sorted(candidates), room))
        return (items[at] in inside) + max(from_here(at + 1, one) for one in kept)

    return from_here(0, frozenset())


@settings(max_examples=60)
@given(st.lists(st.integers(0, 5), max_size=14), st.integers(1, 3))
def test_no_way_has_more_hits(items: list[int], room: int) -> None:
    policy = Belady(requests.following(items))
    assert replay.requests(items, policy, room).hits == most_hits(items, room)


@given(st.integers(0, 1_000), st.integers(1, 20))
def test_lru_and_sieve_have_fewer(seed: int, room: int) -> None:
    numbers = random.Random(seed)
    items = numbers.choices(range(40), [1 / (rank + 1) for rank in range(40)], k=400)
    best = replay.requests(items, Belady(requests.following(items)), room).hits
    assert all(replay.requests(items, policy, room).hits <= best for policy in (Lru(), Sieve()))
