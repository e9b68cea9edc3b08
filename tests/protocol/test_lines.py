"""Splitting and joining lines, against `split` and `join`."""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.protocol import CLOSED, OPEN
from websockets.server import ServerProtocol

from ingeborg.protocol.frames import masked_text_frame
from ingeborg.protocol.lines import LINES_AT_ONCE, LINES_BYTES_MAX, Lined, is_short, lines_of, together
from ingeborg.protocol.sockets import Socket

#: A client's close frame, RFC 6455 section 5.5.1, with a mask of zeros.
CLOSING = b"\x88\x82\0\0\0\0\x03\xe8"

TEXT = st.binary(max_size=40).map(lambda data: data.replace(b"\r", b"\n"))


def plainly(message: bytes) -> list[bytes]:
    split = message.split(b"\n")
    return split[:-1] if len(split) > 1 and not split[-1] else split


@given(message=TEXT)
def test_a_line_feed_is_between_two_lines_and_may_end_the_last(message: bytes) -> None:
    assert lines_of(message) == plainly(message)


@given(messages=st.lists(TEXT.filter(bool), min_size=1, max_size=5), enough=st.integers(1, 20))
def test_frames_are_taken_apart_some_lines_at_a_time(messages: list[bytes], enough: int) -> None:
    lined = Lined()
    for message in messages:
        lined.push(message)
    found: list[bytes] = []
    while lined:
        before = lined.size
        taken = lined.take(enough)
        assert lined.size < before
        # The lines end at the first one that reaches enough, or at the limit.
        assert len(taken) <= LINES_AT_ONCE
        assert sum(map(len, taken[:-1])) + len(taken) - 1 <= enough
        found += taken
    assert found == [line for message in messages for line in plainly(message)]
    assert lined.size == 0


def test_however_short_they_are_no_more_than_so_many_are_taken_at_once() -> None:
    lined = Lined()
    lined.push(b"\n" * 1_000)
    taken = []
    while lined:
        taken.append(lined.take(1 << 20))
    assert [len(each) for each in taken] == [LINES_AT_ONCE] * 7 + [1_000 - 7 * LINES_AT_ONCE]
    assert all(line == b"" for each in taken for line in each)
    for count in (LINES_AT_ONCE - 1, LINES_AT_ONCE):
        assert is_short(b"\n" * count, 1_000) is (count < LINES_AT_ONCE)
    assert not is_short(b"x" * 1_001, 1_000)


class Taken(Socket):
    """A socket that keeps the lines of each turn."""

    def __init__(self) -> None:
        super().__init__(ServerProtocol(state=OPEN))
        self.quantum_bytes = 4096
        self.lined = Lined()
        self.turns: list[list[bytes]] = []

    def messages_come(self, messages: list[bytes]) -> None:
        self.turns.append(messages)


def test_of_a_connection_so_many_lines_are_taken_in_a_turn_and_none_is_lost() -> None:
    lines = [b"%d" % number + b"x" * (number % 90) for number in range(9_000)]
    message = b"\n".join(lines)
    socket = Taken()
    socket.data_received(masked_text_frame(message, b"abcd") + masked_text_frame(b"last", b"abcd"))
    turns = 1
    while socket.waits:
        assert len(socket.turns) <= turns
        assert socket.unread > 0
        socket.next_quantum()
        turns += 1
    assert turns >= len(message) // (4096 + 100)
    assert all(len(each) <= LINES_AT_ONCE and sum(map(len, each)) < 4096 + 100 for each in socket.turns)
    assert [line for each in socket.turns for line in each] == [*lines, b"last"]
    assert socket.unread == 0


def test_many_short_frames_of_many_lines_are_no_more_in_a_turn_either() -> None:
    socket = Taken()
    frames = [b"\n".join(b"%d" % (10 * frame + line) for line in range(90)) for frame in range(10)]
    socket.data_received(b"".join(masked_text_frame(frame, b"abcd") for frame in frames))
    turns = 1
    while socket.waits:
        socket.next_quantum()
        turns += 1
    # One turn for each 128 lines, and one for the rest of a frame.
    assert turns >= 900 / LINES_AT_ONCE
    assert all(len(each) <= LINES_AT_ONCE for each in socket.turns)
    assert len(socket.turns) <= turns + 1
    assert [line for each in socket.turns for line in each] == [line for frame in frames for line in plainly(frame)]


class Silent:
    """A transport that takes everything, and whose loop has closed it."""

    def write(self, data: bytes) -> None:
        pass

    def close(self) -> None:
        pass

    def abort(self) -> None:
        pass

    def is_closing(self) -> bool:
        return True

    def can_write_eof(self) -> bool:
        return False


@pytest.mark.parametrize("closes", [False, True])
def test_what_stands_behind_many_lines_counts_where_the_peer_half_closes_at_once(closes: bool) -> None:
    """Over TLS the end comes with the data."""
    socket = Taken()
    socket.transport = cast(Any, Silent())
    many = b"\n".join(b"%d" % number for number in range(1_000))
    data = masked_text_frame(many, b"abcd") + masked_text_frame(b"behind", b"abcd")
    socket.data_received(data + (CLOSING if closes else b""))
    assert socket.waits
    socket.eof_received()
    assert socket.waits
    while socket.waits:
        assert socket.ws.state is OPEN
        socket.next_quantum()
    assert [line for each in socket.turns for line in each] == [*plainly(many), b"behind"]
    assert socket.ws.state is CLOSED


def test_more_than_a_megabyte_is_one_line() -> None:
    lined = Lined()
    most = b"a\n" * (LINES_BYTES_MAX // 2)
    for message in (most + b"a", most):
        lined.push(message)
    assert lined.take(10) == [most + b"a"]
    assert lined.take(10) == [b"a"] * 6
    lined.clear()
    assert (bool(lined), lined.size) == (False, 0)


@given(sizes=st.lists(st.sampled_from([1, 2, 124, 125, 126, 127, 65_534, 65_535, 65_536, 65_537]), max_size=12))
def test_messages_are_put_together_in_their_order(sizes: list[int]) -> None:
    messages = [bytes([65 + index]) * size for index, size in enumerate(sizes)]
    made = together(messages)
    assert [line for message in made for line in message.split(b"\n")] == messages
    assert len(made) <= 1


def test_no_more_than_may_be_is_put_together() -> None:
    messages = [b"aaaaa", b"bbbbb", b"c", b"d" * 50, b"e", b"f"]
    made = together(messages, 11)
    assert made == [b"aaaaa\nbbbbb", b"c", b"d" * 50, b"e\nf"]
    assert made[2] is messages[3], "what stays by itself is not copied"
