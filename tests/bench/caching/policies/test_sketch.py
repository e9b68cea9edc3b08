"""The sketch counts, never too low, and halves."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from ingeborg.bench.caching.policies.sketch import FULL, Sketch


@given(st.lists(st.integers(0, 1 << 40), max_size=200))
def test_it_says_at_least_how_often_and_at_most_what_a_counter_holds(keys: list[int]) -> None:
    sketch, often = Sketch(64, 10_000), Counter(keys)
    for key in keys:
        sketch.add(key)
    assert all(min(FULL, count) <= sketch.often(key) <= FULL for key, count in often.items())


def test_of_few_keys_it_is_exact() -> None:
    sketch = Sketch(4_096, 1_000_000)
    for key in range(200):
        for _ in range(key % 12):
            sketch.add(key)
    assert [sketch.often(key) for key in range(200)] == [key % 12 for key in range(200)]


def test_it_is_halved_when_so_much_was_counted() -> None:
    sketch = Sketch(1_024, 16)
    for key in [1] * 9 + [2] * 6:
        sketch.add(key)
    assert (sketch.often(1), sketch.often(2)) == (9, 6)
    sketch.add(2)  # the sixteenth
    assert (sketch.often(1), sketch.often(2)) == (4, 3)
    for _ in range(8):  # half of the sample is in the counts already
        sketch.add(3)
    assert (sketch.often(1), sketch.often(2), sketch.often(3)) == (2, 1, 4)


def test_keys_that_follow_each_other_do_not_meet_more_than_by_chance() -> None:
    sketch = Sketch(4_096, 1_000_000)
    for key in range(4_096):
        sketch.add(key)
    least = [sketch.often(key) for key in range(4_096)]
    others = [sketch.often(key) for key in random.Random(1).sample(range(1 << 20, 1 << 30), 4_096)]
    # A counter is empty with probability 1/e. Four in a row are all taken with (1 - 1/e)^4 = 0.16.
    assert 0.12 < sum(map(bool, others)) / 4_096 < 0.2
    assert sum(count > 1 for count in least) / 4_096 < 0.25
