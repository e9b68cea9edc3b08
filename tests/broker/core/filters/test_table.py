"""A table of small dictionaries against one dictionary: the same contents, while it grows and shrinks part by part."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ingeborg.broker.core.filters.table import Table

KEYS = st.one_of(st.integers(0, 60), st.tuples(st.integers(0, 3), st.text(max_size=1)), st.text(max_size=1))


@given(st.lists(st.tuples(KEYS, st.booleans()), max_size=100), st.integers(1, 4))
def test_it_holds_what_a_dictionary_holds(steps: list[tuple[Any, bool]], small: int) -> None:
    table, plain = Table(small=small), dict[Any, Any]()
    for number, (key, is_put) in enumerate(steps):
        if is_put:
            table.put(key, number)
            plain[key] = number
        else:
            assert table.pop(key) == plain.pop(key, None)
        assert len(table) == len(plain)
        assert table.get(key) == plain.get(key)
    assert sorted(map(repr, table.all_keys())) == sorted(map(repr, plain))
    for key in plain:
        assert table.get(key) == plain[key]


def test_parts_stay_small_and_go_again() -> None:
    table = Table(small=8)
    empty_bytes = table.bytes
    for key in range(1_000):
        table.put(key, key)
    sizes = [len(part) for part in table._parts]
    assert len(sizes) == 1_000 // 8
    assert max(sizes) < 8 * 6
    for key in range(1_000):
        assert table.pop(key) == key
    assert len(table._parts) == 1
    assert table.bytes == empty_bytes
