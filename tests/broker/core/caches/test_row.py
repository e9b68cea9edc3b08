"""A row behaves like a list."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ingeborg.broker.core.caches.policy import Entry
from ingeborg.broker.core.caches.row import Row


def forwards(row: Row) -> list[int]:
    found, entry = [], row.oldest
    while entry is not None:
        found.append(entry.key)
        entry = entry.newer
    return found


def backwards(row: Row) -> list[int]:
    found, entry = [], row.newest
    while entry is not None:
        found.append(entry.key)
        entry = entry.older
    return found


@given(st.lists(st.integers(0, 9), max_size=60))
def test_it_has_both_its_ends_and_all_between_in_both_directions(keys: list[int]) -> None:
    row, listed = Row(), list[int]()
    entries = [Entry(key, 1, 0) for key in range(10)]
    for key in keys:
        if key in listed:
            row.remove(entries[key])
            listed.remove(key)
            assert entries[key].older is entries[key].newer is None
        else:
            row.append(entries[key])
            listed.append(key)
        assert forwards(row) == listed
        assert backwards(row) == listed[::-1]
