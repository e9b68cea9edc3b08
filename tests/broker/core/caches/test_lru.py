"""LRU against a list."""

from __future__ import annotations

from hypothesis import given

from ingeborg.broker.core.caches.lru import Lru

from .driven import beside, steps


class Listed:
    """The keys, in the order of their last use."""

    def __init__(self) -> None:
        self.keys: list[int] = []

    def admit(self, key: int, size: int, utility: int) -> None:
        self.keys.append(key)

    def used(self, key: int) -> None:
        self.keys.remove(key)
        self.keys.append(key)

    def victim(self) -> int:
        return self.keys.pop(0)

    def forget(self, key: int) -> None:
        self.keys.remove(key)


@given(steps)
def test_the_victim_is_what_was_not_asked_for_the_longest(taken: list[tuple[int, int, int, int]]) -> None:
    beside(Lru(), Listed(), taken)
