"""The cache stays within its room, and counts every refused or removed entry."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingeborg.broker.core.caches.cache import COUNTED, Cache
from ingeborg.broker.core.caches.lru import Lru
from ingeborg.broker.core.caches.pending_readers import PendingReaders
from ingeborg.broker.core.caches.policy import Entry, Policy
from ingeborg.broker.core.caches.sieve import Sieve


class Small(Policy):
    """LRU that admits a utility of 3 at most."""

    def __init__(self) -> None:
        self.lru = Lru()

    def admit(self, entry: Entry) -> bool:
        return entry.utility <= 3 and self.lru.admit(entry)

    def used(self, entry: Entry) -> None:
        self.lru.used(entry)

    def victim(self) -> Entry:
        return self.lru.victim()

    def forget(self, entry: Entry) -> None:
        self.lru.forget(entry)


def counted(cache: Cache) -> dict[str, int]:
    """Return all counters that are not 0."""
    return {name: value for name in COUNTED if (value := getattr(cache.counts, name))}


def test_each_way_in_and_out_has_its_counter() -> None:
    cache = Cache(Small(), 10)
    assert cache.put(Entry("a", 4, 1))
    assert cache.put(Entry("b", 4, 1))
    assert cache.get("a") is not None
    assert not cache.put(Entry("large", 11, 1))
    assert not cache.put(Entry("refused", 1, 4))
    assert cache.put(Entry("c", 3, 1))  # b goes, which had no use
    assert cache.get("b") is None
    assert cache.drop("a")
    assert not cache.drop("a")
    assert (len(cache), cache.bytes) == (1, 3)
    assert "c" in cache
    assert counted(cache) == {
        "hits": 1,
        "misses": 1,
        "admitted": 3,
        "too_large": 1,
        "refused": 1,
        "evicted": 1,
        "dropped": 1,
    }


def test_a_large_one_has_several_go_and_may_be_the_one_that_goes() -> None:
    cache = Cache(PendingReaders(), 10)
    for key, utility in (("a", 1), ("b", 2), ("c", 9)):
        assert cache.put(Entry(key, 3, utility))
    assert cache.put(Entry("d", 6, 10))
    assert [key for key in "abcd" if key in cache] == ["c", "d"]
    assert not cache.put(Entry("e", 5, 1))  # a fifth of a reader for a byte: less than any other
    assert [key for key in "abcde" if key in cache] == ["c", "d"]
    assert counted(cache) == {"admitted": 5, "evicted": 2, "passed_over": 1}
    assert cache.bytes == 9


def test_as_much_as_there_is_room_for_stays() -> None:
    cache = Cache(Lru(), 10)
    assert [cache.put(Entry(key, size, 0)) for key, size in ((1, 4), (2, 6))] == [True, True]
    assert (len(cache), cache.bytes) == (2, 10)
    assert cache.put(Entry(3, 10, 0))
    assert (len(cache), cache.bytes) == (1, 10)


def test_what_was_dropped_is_no_victim_and_may_come_again() -> None:
    cache = Cache(Lru(), 2)
    for key in "ab":
        cache.put(Entry(key, 1, 0))
    assert cache.drop("a")
    for key in "cad":
        cache.put(Entry(key, 1, 0))
    assert [key for key in "abcd" if key in cache] == ["a", "d"]
    assert counted(cache) == {"admitted": 5, "dropped": 1, "evicted": 2}


def test_without_a_limit_nothing_goes() -> None:
    cache = Cache(Lru(), None)
    assert all(cache.put(Entry(key, 1 << 40, 0)) for key in range(100))
    assert len(cache) == 100
    assert counted(cache) == {"admitted": 100}


def test_a_key_is_put_once() -> None:
    cache = Cache(Lru(), None)
    cache.put(Entry("a", 1, 0))
    with pytest.raises(AssertionError):
        cache.put(Entry("a", 1, 0))


@given(
    st.sampled_from([Lru, Sieve, PendingReaders, Small]),
    st.integers(0, 12),
    st.lists(st.tuples(st.integers(0, 12), st.integers(1, 6), st.integers(0, 5), st.booleans()), max_size=80),
)
def test_it_keeps_to_its_room_and_every_entry_is_counted(
    kind: type[Policy], room: int, taken: list[tuple[int, int, int, bool]]
) -> None:
    cache = Cache(kind(), room)
    inside: dict[int, int] = {}
    asked = offered = 0
    for key, size, utility, drop in taken:
        if drop:
            assert cache.drop(key) == (key in inside)
        else:
            asked += 1
            assert (cache.get(key) is not None) == (key in inside)
            if key not in inside:
                offered += 1
                assert cache.put(Entry(key, size, utility)) == (key in cache)
                inside[key] = size
        inside = {key: size for key, size in inside.items() if key in cache}
        assert len(cache) == len(inside)
        assert cache.bytes == sum(inside.values()) <= room
    counts = cache.counts
    assert counts.hits + counts.misses == asked
    assert counts.admitted + counts.refused + counts.too_large == offered
    assert counts.admitted - counts.evicted - counts.passed_over - counts.dropped == len(cache)
