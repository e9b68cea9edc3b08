"""A deduplicator's local cache. `test_layer.py` tests it with a real Redis."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ingeborg.loadgen.layer.deduplicator import Seen


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), st.booleans()), max_size=60))
def test_the_local_cache_against_a_plain_table(steps: list[tuple[int, int, bool]]) -> None:
    seen, plain, now_ms = Seen(keys_max=100), dict[bytes, int](), 0
    for number, passed_ms, adds in steps:
        now_ms += passed_ms
        key = bytes([number])
        assert seen.knows(key, now_ms) == (plain.get(key, 0) > now_ms)
        if adds:
            seen.add(key, now_ms + 4)
            plain[key] = now_ms + 4


def test_the_local_cache_forgets_the_oldest() -> None:
    seen = Seen(keys_max=3)
    for number in range(4):
        seen.add(bytes([number]), 10)
    assert len(seen) == 3
    assert [seen.knows(bytes([number]), 0) for number in range(4)] == [False, True, True, True]
