"""The table that the processes of a supervisor share: each writes its entry, the others and the supervisor read it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from ingeborg.broker.shell import status_table
from ingeborg.broker.shell.status_table import Other, State, StatusTable

NOW = 5000.0


@pytest.fixture
def made() -> Iterator[StatusTable]:
    made = status_table.make(3, 1000)
    for entry in range(3):
        made.begin(entry)
    yield made
    made.close()


@pytest.fixture
def read(made: StatusTable) -> Iterator[StatusTable]:
    """Return the same table, as another process sees it."""
    read = StatusTable(os.dup(made.fd))
    yield read
    read.close()


def test_others_are_those_that_accept_and_move(made: StatusTable, read: StatusTable) -> None:
    mine, one, two = (made.entry(number) for number in range(3))
    assert mine.others(NOW) == []
    one.show(State.ACCEPTING, NOW)
    one.show_counts(7, 9)
    two.show(State.WAITING, NOW)
    assert read.entry(0).others(NOW) == [Other(7, 9)]
    assert read.entry(1).others(NOW) == []
    assert read.entry(0).others(NOW + status_table.FRESH_S + 0.01) == []  # it stands still
    two.show(State.LEAVING, NOW)
    one.show(State.ACCEPTING, NOW + 1)
    assert read.entry(0).others(NOW + 1) == [Other(7, 9)]


def test_a_supervisor_sees_who_accepts_and_a_new_life_begins_with_nothing(made: StatusTable, read: StatusTable) -> None:
    entry = read.entry(1)
    counting = entry.counting()
    entry.show(State.ACCEPTING, NOW)
    entry.show_counts(3, 3)
    assert made.accepts(1, NOW)
    assert not made.accepts(0, NOW)
    assert all(counting.arrived("a", 3) for _ in range(3))
    assert not made.entry(2).counting().arrived("a", 3)
    life = made.life(1)
    made.begin(1)
    assert made.life(1) == life + 1
    assert not made.accepts(1, NOW)
    assert made.entry(2).counting().arrived("a", 3)
    entry.show(State.ACCEPTING, NOW)
    assert made.entry(0).others(NOW) == [Other(0, 0)]


def test_processes_hash_addresses_with_one_key_and_tables_with_another(made: StatusTable, read: StatusTable) -> None:
    other = status_table.make(3, 1000)
    try:
        places = [each.counting()._place("10.0.0.1") for each in (made.entry(0), read.entry(1), other.entry(0))]
        assert places[0] == places[1] != places[2]
    finally:
        other.close()


def test_a_table_takes_no_memory_before_it_is_used() -> None:
    made = status_table.make(256, 1 << 30)
    try:
        assert os.fstat(made.fd).st_size > 1 << 30
        assert os.fstat(made.fd).st_blocks * 512 < 1 << 20
    finally:
        made.close()


@pytest.mark.parametrize("content", [b"", b"x" * 4096, bytes(1 << 16)], ids=["empty", "of another", "zeros"])
def test_what_is_no_status_table_is_refused(content: bytes) -> None:
    fd = os.memfd_create("another")
    os.write(fd, content)
    with pytest.raises(ValueError, match="it is"):
        StatusTable(fd)
    os.close(fd)


def test_there_is_no_entry_beyond_those_that_were_made(made: StatusTable) -> None:
    for number in (-1, 3):
        with pytest.raises(ValueError, match=f"no entry {number}"):
            made.entry(number)
