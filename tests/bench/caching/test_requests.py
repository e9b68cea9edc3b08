"""Plain requests: the same for the same seed, spread by Zipf's law."""

from __future__ import annotations

from collections import Counter

import pytest

from ingeborg.bench.caching.requests import following, zipf


def test_the_same_seed_gives_the_same_requests_and_another_others() -> None:
    assert zipf(1.0, 1, 50, 200) == zipf(1.0, 1, 50, 200) != zipf(1.0, 2, 50, 200)
    # Pinned, because published figures depend on these.
    assert zipf(1.0, 1)[:10] == [1027, 1773, 284, 13, 172, 0, 1, 548, 175, 42]


@pytest.mark.parametrize("exponent", [0.8, 1.2])
def test_shares_are_those_of_zipfs_law(exponent: float) -> None:
    often = Counter(zipf(exponent, 1, 1_000, 200_000))
    whole = sum(rank**-exponent for rank in range(1, 1_001))
    for item in (0, 1, 9, 49):
        assert often[item] / 200_000 == pytest.approx((item + 1) ** -exponent / whole, rel=0.08)


def test_what_follows_is_the_next_request_for_the_same() -> None:
    assert following([5, 6, 5, 5, 6]) == [2, 4, 3, 5, 5]
    assert following([]) == []
