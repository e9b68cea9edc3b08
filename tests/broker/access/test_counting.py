"""Connections counted by address: in one process, and in several processes over shared memory."""

from __future__ import annotations

import mmap
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingeborg.broker.access import counting
from ingeborg.broker.access.counting import Counting, OwnCount, SharedCount, table_bytes

KEY = bytes(range(16))
COLUMNS = 3


class Table:
    """Shared memory, and the processes that count in it. ``lives``: the life of each column."""

    def __init__(self, buckets: int = 4, columns: int = COLUMNS) -> None:
        self.lives = [1] * columns
        self.memory = mmap.mmap(-1, 64 + table_bytes(buckets, columns))
        self._buckets = buckets
        self.counts = [self.new(column) for column in range(columns)]

    def new(self, column: int) -> SharedCount:
        columns = len(self.lives)
        return SharedCount(self.memory, 64, self._buckets, columns, column, KEY, self.lives.__getitem__)

    def dies(self, column: int) -> None:
        """End the column's process, and let another one take its place."""
        self.lives[column] += 1
        self.counts[column] = self.new(column)


def own() -> Counting:
    return OwnCount()


def shared() -> Counting:
    return Table().counts[1]


@pytest.mark.parametrize("make", [own, shared])
def test_an_address_has_so_many_and_no_more(make: Callable[[], Counting]) -> None:
    count = make()
    assert [count.arrived("10.0.0.1", 3) for _ in range(5)] == [True] * 3 + [False] * 2
    assert count.arrived("10.0.0.2", 3)
    count.left("10.0.0.1")
    assert count.arrived("10.0.0.1", 3)
    assert not count.arrived("10.0.0.1", 3)


class Watched(mmap.mmap):
    """Shared memory that other processes can read between any two writes."""

    looks: Callable[[], None] | None = None

    def __setitem__(self, where: Any, value: Any) -> None:
        super().__setitem__(where, value)
        if self.looks is not None:
            self.looks()


def test_while_an_entry_is_changed_others_read_no_less_than_there_is() -> None:
    table = Table()
    memory = table.memory = Watched(-1, len(table.memory))
    ours, others = table.new(0), table.new(1)
    for _ in range(5):
        assert ours.arrived("a", 5)
    read: list[int] = []
    memory.looks = lambda: read.append(others._of(0, *others._place("a")))
    assert not ours.arrived("a", 5)
    assert read == [6, 5]
    ours.left("a")
    assert read == [6, 5, 4]


def test_the_limit_is_that_of_all_processes_together() -> None:
    table = Table()
    assert [table.counts[number % 3].arrived("a", 4) for number in range(6)] == [True] * 4 + [False] * 2
    table.counts[0].left("a")
    assert table.counts[2].arrived("a", 4)
    assert not table.counts[1].arrived("a", 4)


def test_what_a_dead_process_had_counts_no_more() -> None:
    table = Table()
    for _ in range(4):
        assert table.counts[1].arrived("a", 5)
    table.dies(1)
    assert all(table.counts[number % 3].arrived("a", 5) for number in range(5))
    assert not any(count.arrived("a", 5) for count in table.counts)


def test_of_two_at_the_same_time_none_gets_past_the_limit() -> None:
    """Each process writes its own entry before it reads the others', as if both were at the same instruction."""
    table = Table(columns=2)
    assert table.counts[0].arrived("a", 2)
    first, second = table.counts
    find = first._of
    outcome: list[bool] = []

    def meanwhile(column: int, digest: bytes, bucket: int) -> int:
        outcome.append(second.arrived("a", 2))  # ours is written, but not added up yet
        return find(column, digest, bucket)

    first._of = meanwhile  # type: ignore[method-assign]
    assert first.arrived("a", 2)
    assert outcome == [False]
    assert not second.arrived("a", 2)


def test_one_without_room_in_its_bucket_is_counted_by_each_process(caplog: pytest.LogCaptureFixture) -> None:
    table = Table(buckets=1)
    full = [f"address {number}" for number in range(counting.WAYS)]
    assert all(table.counts[0].arrived(address, 1) for address in full)
    assert [table.counts[0].arrived("one more", 2) for _ in range(3)] == [True, True, False]
    assert [table.counts[0].arrived("another", 2) for _ in range(3)] == [True, True, False]
    assert caplog.text.count("each endpoint counts") == 1
    # The other processes' entries still count, and an address that has room again is in the table again.
    assert table.counts[1].arrived("one more", 2)
    for _ in range(2):
        table.counts[0].left("one more")
    table.counts[0].left(full[3])
    assert table.counts[0].arrived("one more", 2)
    assert not table.counts[1].arrived("one more", 2)


steps = st.lists(
    st.tuples(st.sampled_from(["arrives", "leaves", "dies"]), st.integers(0, COLUMNS - 1), st.integers(0, 9)),
    max_size=200,
)


@given(steps, st.integers(1, 4))
def test_it_counts_as_one_counter_would(story: list[tuple[str, int, int]], most: int) -> None:
    table = Table()
    model = [Counter[str]() for _ in range(COLUMNS)]
    for what, column, number in story:
        address = f"address {number}"
        if what == "dies":
            table.dies(column)
            model[column].clear()
        elif what == "leaves":
            if model[column][address]:
                table.counts[column].left(address)
                model[column][address] -= 1
        else:
            there_is_room = sum(count[address] for count in model) < most
            assert table.counts[column].arrived(address, most) is there_is_room
            model[column][address] += there_is_room
