"""A rule decides admissions, and LRU decides evictions."""

from __future__ import annotations

from ingeborg.bench.caching.policies.ruled import Ruled
from ingeborg.bench.caching.policies.rules import Mean, Nothing
from ingeborg.broker.core.caches.cache import Cache
from ingeborg.broker.core.caches.policy import Entry


def test_what_the_rule_lets_in_goes_by_lru() -> None:
    cache = Cache(Ruled(Mean(3)), 2)
    taken = [cache.put(Entry(key, 1, utility)) for key, utility in enumerate([5, 5, 5, 4, 6])]
    assert taken == [True, True, False, False, True]
    assert (0 in cache, 1 in cache, 4 in cache) == (False, True, True)
    assert cache.get(1) is not None
    assert cache.put(Entry(9, 1, 8))
    assert (1 in cache, 4 in cache) == (True, False)
    assert cache.drop(1)
    assert (cache.counts.refused, cache.counts.evicted, cache.counts.dropped) == (2, 2, 1)


def test_nothing_is_refused_once_for_each() -> None:
    cache = Cache(Ruled(Nothing()), None)
    assert not any(cache.put(Entry(key, 1, 100)) for key in range(7))
    assert (cache.counts.refused, cache.counts.admitted, len(cache)) == (7, 0, 0)
