"""Ranks: the least is found, and the heap stays small."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from ingeborg.broker.core.caches.policy import Entry
from ingeborg.broker.core.caches.ranks import SPARE, Ranks

ADD, CHANGE, REMOVE, LEAST = range(4)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 50), st.integers(-3, 3)), max_size=300))
def test_the_least_is_that_of_a_list_and_the_heap_has_few_items_that_are_over(
    taken: list[tuple[int, int, int]],
) -> None:
    ranks = Ranks()
    listed: list[tuple[Entry, int]] = []  # since when, by their places
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
        assert ranks.items <= 2 * len(listed) + SPARE


def test_an_entry_that_changes_ever_again_costs_no_memory() -> None:
    ranks, numbers = Ranks(), random.Random(1)
    entries = [Entry(number, 1, 0) for number in range(100)]
    for entry in entries:
        ranks.add(entry, 0.0)
    most = 0
    for _ in range(20_000):
        ranks.change(numbers.choice(entries), numbers.random())
        most = max(most, ranks.items)
    assert 100 < most <= 2 * 100 + SPARE


def test_when_all_have_gone_at_once_nothing_is_left_of_them() -> None:
    ranks = Ranks()
    entries = [Entry(number, 1, 0) for number in range(10_000)]
    for entry in entries:
        ranks.add(entry, 1.0)
    for entry in entries:
        ranks.remove(entry)
    assert len(ranks) == 0
    assert ranks.items <= SPARE


def test_one_that_comes_again_is_ranked_by_what_it_is_worth_now() -> None:
    ranks = Ranks()
    entry, other = Entry("a", 1, 0), Entry("b", 1, 0)
    ranks.add(entry, 1.0)
    ranks.remove(entry)
    ranks.add(other, 2.0)
    ranks.add(entry, 3.0)
    assert [ranks.least(), ranks.least()] == [other, entry]
