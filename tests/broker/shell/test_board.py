"""The table that the processes of a supervisor share: what one says, the others and the supervisor read."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from ingeborg.broker.shell import board
from ingeborg.broker.shell.board import Board, Other, State

NOW = 5000.0


@pytest.fixture
def made() -> Iterator[Board]:
    made = board.make(3, 1000)
    for place in range(3):
        made.begin(place)
    yield made
    made.close()


@pytest.fixture
def read(made: Board) -> Iterator[Board]:
    """The same one, as another process has it."""
    read = Board(os.dup(made.fd))
    yield read
    read.close()


def test_others_are_those_that_accept_and_move(made: Board, read: Board) -> None:
    mine, one, two = (made.place(number) for number in range(3))
    assert mine.others(NOW) == []
    one.show(State.ACCEPTING, NOW)
    one.hold(7, 9)
    two.show(State.WAITING, NOW)
    assert read.place(0).others(NOW) == [Other(7, 9)]
    assert read.place(1).others(NOW) == []
    assert read.place(0).others(NOW + board.FRESH_S + 0.01) == []  # it stands still
    two.show(State.LEAVING, NOW)
    one.show(State.ACCEPTING, NOW + 1)
    assert read.place(0).others(NOW + 1) == [Other(7, 9)]


def test_a_supervisor_sees_who_accepts_and_a_new_life_begins_with_nothing(made: Board, read: Board) -> None:
    place = read.place(1)
    counting = place.counting()
    place.show(State.ACCEPTING, NOW)
    place.hold(3, 3)
    assert made.accepts(1, NOW)
    assert not made.accepts(0, NOW)
    assert all(counting.arrived("a", 3) for _ in range(3))
    assert not made.place(2).counting().arrived("a", 3)
    life = made.life(1)
    made.begin(1)
    assert made.life(1) == life + 1
    assert not made.accepts(1, NOW)
    assert made.place(2).counting().arrived("a", 3)
    place.show(State.ACCEPTING, NOW)
    assert made.place(0).others(NOW) == [Other(0, 0)]


def test_processes_hash_addresses_with_one_key_and_boards_with_another(made: Board, read: Board) -> None:
    other = board.make(3, 1000)
    try:
        places = [each.counting()._place("10.0.0.1") for each in (made.place(0), read.place(1), other.place(0))]
        assert places[0] == places[1] != places[2]
    finally:
        other.close()


def test_a_table_takes_no_memory_before_it_is_used() -> None:
    made = board.make(256, 1 << 30)
    try:
        assert os.fstat(made.fd).st_size > 1 << 30
        assert os.fstat(made.fd).st_blocks * 512 < 1 << 20
    finally:
        made.close()


@pytest.mark.parametrize("content", [b"", b"x" * 4096, bytes(1 << 16)], ids=["empty", "of another", "zeros"])
def test_what_is_no_board_is_refused(content: bytes) -> None:
    fd = os.memfd_create("another")
    os.write(fd, content)
    with pytest.raises(ValueError, match="it is"):
        Board(fd)
    os.close(fd)


def test_there_is_no_place_beyond_those_that_were_made(made: Board) -> None:
    for number in (-1, 3):
        with pytest.raises(ValueError, match=f"no place {number}"):
            made.place(number)
