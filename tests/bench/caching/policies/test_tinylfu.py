"""Compares W-TinyLFU with three lists; both use the same sketch, which has its own tests."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ingeborg.bench.caching.policies.sketch import Sketch
from ingeborg.bench.caching.policies.tinylfu import TinyLfu
from ingeborg.broker.core.caches.cache import Cache
from ingeborg.broker.core.caches.policy import Entry
from tests.broker.core.caches.driven import beside, steps


class Listed:
    """Window, probation, protected: each from the oldest to the newest, as (key, size)."""

    def __init__(self, room: int, entries: int) -> None:
        self.window: list[tuple[int, int]] = []
        self.probation: list[tuple[int, int]] = []
        self.protected: list[tuple[int, int]] = []
        self.window_room = max(1, room // 100)
        self.main_room = room - self.window_room
        self.protected_room = self.main_room * 8 // 10
        self.sketch = Sketch(4 * entries, 10 * entries)

    def admit(self, key: int, size: int, utility: int) -> None:
        self.sketch.add(key)
        self.window.append((key, size))

    def used(self, key: int) -> None:
        self.sketch.add(key)
        if key in dict(self.window):
            self.window.append(self.out(self.window, key))
            return
        self.protected.append(self.out(self.probation if key in dict(self.probation) else self.protected, key))
        while taken(self.protected) > self.protected_room:
            self.probation.append(self.protected.pop(0))

    def victim(self) -> int:
        # Surplus entries of the window go into the main part while that has room.
        while True:
            main = self.probation or self.protected
            if not self.window or (taken(self.window) <= self.window_room and main):
                return main.pop(0)[0]
            newcomer = self.window[0]
            if taken(self.probation) + taken(self.protected) + newcomer[1] > self.main_room:
                break
            self.probation.append(self.window.pop(0))
        self.window.pop(0)
        if main and self.sketch.often(newcomer[0]) > self.sketch.often(main[0][0]):
            loser = main.pop(0)
            self.probation.append(newcomer)
            return loser[0]
        return newcomer[0]

    def forget(self, key: int) -> None:
        for part in (self.window, self.probation, self.protected):
            if key in dict(part):
                self.out(part, key)

    def out(self, part: list[tuple[int, int]], key: int) -> tuple[int, int]:
        found = (key, dict(part)[key])
        part.remove(found)
        return found


def taken(part: list[tuple[int, int]]) -> int:
    return sum(size for _, size in part)


@given(steps, st.integers(1, 300))
def test_victims_are_those_of_lists(found: list[tuple[int, int, int, int]], room: int) -> None:
    beside(TinyLfu(room, 10), Listed(room, 10), found)


def full(*keys: int) -> Cache:
    """Return a cache of five entries, one of which is in the window, after these requests."""
    cache = Cache(TinyLfu(5, 5), 5)
    for key in keys:
        if cache.get(key) is None:
            cache.put(Entry(key, 1, 1))
    return cache


def test_newcomers_that_are_asked_for_once_leave_the_others_alone() -> None:
    cache = full(*[1, 2, 3, 4] * 3, *range(100, 120))
    assert all(key in cache for key in (1, 2, 3, 4))


def test_one_that_is_asked_for_again_and_again_comes_to_stay() -> None:
    cache = full(1, 2, 3, 4, *[9] * 3, *range(100, 120))
    assert 9 in cache
