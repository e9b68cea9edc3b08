"""The bounded map against a list of pairs, which is slow and plainly right."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingeborg.protocol.bounded import BoundedMap

KEYS = st.integers(0, 7)


@given(
    st.integers(1, 5),
    st.lists(st.one_of(st.tuples(st.just("put"), KEYS), st.tuples(st.just("discard"), KEYS)), max_size=40),
)
def test_it_is_a_list_whose_first_goes_when_there_is_no_room(entries_max: int, steps: list[tuple[str, int]]) -> None:
    made: BoundedMap[int, int] = BoundedMap(entries_max)
    model: list[tuple[int, int]] = []  # key, value; the oldest first
    for value, (step, key) in enumerate(steps):
        model = [entry for entry in model if entry[0] != key]
        if step == "put":
            model.append((key, value))
            assert made.put(key, value) is (len(model) > entries_max)
            model = model[-entries_max:]
        else:
            made.discard(key)
        assert len(made) == len(model)
        for each in range(8):
            assert made.get(each) == dict(model).get(each)
            assert (each in made) is (each in dict(model))


def test_a_look_makes_nothing_younger() -> None:
    made: BoundedMap[str, int] = BoundedMap(2)
    made.put("a", 1)
    made.put("b", 2)
    assert made.get("a") == 1
    assert made.put("c", 3) is True
    assert "a" not in made


def test_a_map_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match="at most 0 entries"):
        BoundedMap(0)
