"""Ranks: they find the least entry, and no step takes long."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from ingeborg.broker.core.caches.policy import Entry
from ingeborg.broker.core.caches.ranks import Ranks
from tests import wants

ADD, CHANGE, REMOVE, LEAST = range(4)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 50), st.integers(-3, 3)), max_size=300))
def test_the_least_is_that_of_a_list(taken: list[tuple[int, int, int]]) -> None:
    ranks = Ranks()
    listed: list[tuple[Entry, int]] = []  # entry and worth, the longest unchanged first
    for step, which, worth in taken:
        if step == ADD or not listed:
            entry = Entry(len(listed), 1, 0)
            ranks.add(entry, worth)
            listed.append((entry, worth))
        elif step == LEAST:
            least = min(listed, key=lambda item: item[1])
            assert ranks.least() is least[0]
            listed.remove(least)
        else:
            entry, _ = listed.pop(which % len(listed))
            if step == CHANGE:
                ranks.change(entry, worth)
                listed.append((entry, worth))
            else:
                ranks.remove(entry)
        assert len(ranks) == len(listed)


def test_each_step_is_a_short_one() -> None:
    """Among 100,000 entries an operation compares only those on the way to its place, 17 levels at most."""
    wants.interpreted()  # the test's numbers count comparisons, which needs the interpreted form
    ranks, numbers = Ranks(), random.Random(1)
    looked_at = 0

    class Seen(float):
        def __lt__(self, other: float) -> bool:
            nonlocal looked_at
            looked_at += 1
            return float(self) < float(other)

    entries = [Entry(number, 1, 0) for number in range(100_000)]
    for entry in entries:
        ranks.add(entry, Seen(numbers.random()))
    numbers.shuffle(entries)
    most = 0
    for number, entry in enumerate(entries[:20_000]):
        before = looked_at
        if number % 3:
            ranks.change(entry, Seen(numbers.random()))
        elif number % 2:
            ranks.remove(entry)
        else:
            ranks.add(ranks.least(), Seen(1.0))
        most = max(most, looked_at - before)
    assert 20 < most <= 3 * 17 + 3


def test_one_that_comes_again_is_ranked_by_what_it_is_worth_now() -> None:
    ranks = Ranks()
    entry, other = Entry("a", 1, 0), Entry("b", 1, 0)
    ranks.add(entry, 1.0)
    ranks.remove(entry)
    ranks.add(other, 2.0)
    ranks.add(entry, 3.0)
    assert [ranks.least(), ranks.least()] == [other, entry]
