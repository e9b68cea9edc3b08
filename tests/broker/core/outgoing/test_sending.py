"""Frames on their way out: the writes of a turn, and frames that a client does not take."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingeborg.broker.core.connections.grants import Grant
from ingeborg.broker.core.connections.hub import Connection
from ingeborg.broker.core.connections.outbox import BURST, Outbox
from ingeborg.broker.core.effects import Act, Close
from ingeborg.broker.core.outgoing.memory import Memory
from ingeborg.broker.core.outgoing.sending import SENT_AGAIN_PER_SLICE, Sending
from ingeborg.protocol.errors import HELD_TOO_MUCH, SLOW_CONSUMER

from ..fake_desk import FakeDesk

BYTES_MAX = 1_000


@pytest.fixture
def desk() -> FakeDesk:
    return FakeDesk()


@pytest.fixture
def memory() -> Memory:
    return Memory(1 << 30, lambda: 0)


@pytest.fixture
def sending(desk: FakeDesk, memory: Memory) -> Sending:
    return Sending(desk.real, memory)


def connection(number: int = 1, piece_bytes: int = BYTES_MAX) -> Connection:
    return Connection(number, Outbox(BYTES_MAX, piece_bytes))


def closes(desk: FakeDesk) -> list[Act]:
    return [act for act in desk.acts if isinstance(act, Close)]


def test_a_turns_frames_for_a_connection_are_written_together_and_once(sending: Sending) -> None:
    anna, bert = connection(1), connection(2)
    for to, frame in ((anna, b"1"), (bert, b"2"), (anna, b"3")):
        sending.push(to, frame)
    assert sending.write() == [(anna, [b"1", b"3"]), (bert, [b"2"])]
    assert sending.write() == []
    sending.push(anna, b"4")
    assert sending.write() == [(anna, [b"4"])]


def test_a_connection_that_takes_everything_holds_nothing(sending: Sending, memory: Memory) -> None:
    anna = connection()
    sending.push(anna, b"x" * 500)
    assert sending.write()
    assert memory.total == 0
    assert not sending.dirty


def test_a_full_socket_is_written_nothing_until_it_has_drained(sending: Sending, memory: Memory) -> None:
    anna = connection()
    sending.blocked(anna, 70)
    sending.push(anna, b"x" * 30)
    assert sending.write() == []
    assert not sending.dirty  # the socket reports when to go on
    assert memory.of(anna) == 100
    sending.drained(anna)
    assert sending.dirty
    assert sending.write() == [(anna, [b"x" * 30])]
    assert memory.total == 0


def test_what_drains_with_nothing_waiting_is_not_written_to(sending: Sending) -> None:
    anna = connection()
    sending.blocked(anna, 10)
    sending.drained(anna)
    assert not sending.dirty


def test_much_leaves_in_pieces_one_each_turn_and_other_connections_between_them(
    sending: Sending, memory: Memory
) -> None:
    anna, bert = connection(1, piece_bytes=10), connection(2)
    for frame in (b"a" * 10, b"b" * 10, b"c" * 5):
        sending.push(anna, frame)
    assert sending.write() == [(anna, [b"a" * 10])]
    assert sending.dirty
    assert memory.of(anna) == 15  # not given to the socket yet
    sending.push(bert, b"x")
    sending.push(anna, b"d")
    assert sending.write() == [(anna, [b"b" * 10]), (bert, [b"x"])]
    assert sending.write() == [(anna, [b"c" * 5])]
    assert sending.write() == [(anna, [b"d"])]
    assert not sending.dirty
    assert memory.total == 0


def test_what_was_leaving_in_pieces_when_the_socket_filled_is_held_with_what_that_did_not_take(
    sending: Sending, memory: Memory
) -> None:
    anna = connection(piece_bytes=10)
    for frame in (b"a" * 10, b"b" * 10):
        sending.push(anna, frame)
    sending.write()
    sending.blocked(anna, 7)
    assert memory.of(anna) == 17
    sending.drained(anna)
    assert memory.of(anna) == 10
    assert sending.write() == [(anna, [b"b" * 10])]
    assert memory.total == 0


def test_what_goes_past_the_outbox_comes_behind_the_pieces_that_are_leaving(sending: Sending) -> None:
    anna = connection(piece_bytes=10)
    for frame in (b"a" * 10, b"b" * 10, b"c" * 10):
        sending.push(anna, frame)
    assert sending.write() == [(anna, [b"a" * 10])]
    assert sending.rest(anna) == [b"b" * 10, b"c" * 10]
    assert anna.unsent == 0
    assert sending.write() == []


def test_an_outbox_that_overflows_ends_its_connection_once_and_every_frame_is_counted(
    sending: Sending, desk: FakeDesk
) -> None:
    anna = connection()
    sending.blocked(anna, 0)
    for _ in range(5):
        sending.push(anna, b"x" * (BYTES_MAX // 4))
    assert closes(desk) == [Close(anna, SLOW_CONSUMER)]
    assert desk.drops["slow_consumer"] == 5
    sending.push(anna, b"y")
    assert desk.drops["slow_consumer"] == 6
    assert closes(desk) == [Close(anna, SLOW_CONSUMER)]
    sending.drained(anna)
    assert sending.write() == []


def test_a_burst_that_one_turn_brings_ends_nobody(sending: Sending, desk: FakeDesk) -> None:
    anna = connection()
    for _ in range(BURST):
        sending.push(anna, b"x" * BYTES_MAX)
    assert closes(desk) == []
    sending.push(anna, b"x")
    assert closes(desk) == [Close(anna, SLOW_CONSUMER)]


def test_a_connection_that_is_closed_is_told_of_once_and_begins_nothing_more(sending: Sending) -> None:
    anna, bert = connection(1), connection(2)
    sending.push(anna, b"last words")
    sending.close(anna, HELD_TOO_MUCH)
    bert.ends_at = 5.0
    sending.close(bert, HELD_TOO_MUCH)
    assert (anna.ends_at, bert.ends_at) == (math.inf, 5.0)  # an end set before stays
    assert sending.closing == [anna, bert]
    assert sending.write() == [(anna, [b"last words"])]  # the close comes behind the frames


def test_what_is_sent_to_a_connection_that_is_gone_is_counted(sending: Sending, desk: FakeDesk) -> None:
    anna = connection(piece_bytes=1)
    sending.push(anna, b"1")
    sending.push(anna, b"2")
    sending.push(anna, b"3")
    sending.write()
    sending.push(anna, b"4")
    anna.closed = True
    sending.drop(anna, "connection_closed")
    assert desk.drops["connection_closed"] == 3
    sending.push(anna, b"5")
    assert desk.drops["connection_closed"] == 4
    assert sending.write() == []


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["push", "push", "write", "block", "drain", "rest"]), st.integers(0, 1), st.integers(1, 9)
    ),
    max_size=50,
)


@given(STEPS)
def test_whatever_the_sockets_do_each_gets_all_its_frames_in_order_and_none_while_it_is_full(
    steps: list[tuple[str, int, int]],
) -> None:
    desk, memory = FakeDesk(), Memory(1 << 30, lambda: 0)
    sending = Sending(desk.real, memory)
    both = [connection(number, piece_bytes=12) for number in range(2)]
    pushed: list[list[bytes]] = [[], []]
    got: list[list[bytes]] = [[], []]
    full = [False, False]

    def write() -> None:
        for to, frames in sending.write():
            assert not full[to.number]
            got[to.number] += frames

    for count, (what, index, size) in enumerate(steps):
        one = both[index]
        if what == "push":
            frame = bytes([count]) * size
            sending.push(one, frame)
            pushed[index].append(frame)
        elif what == "write":
            write()
        elif what == "block":
            sending.blocked(one, size)
            full[index] = True
        elif what == "drain":
            sending.drained(one)
            full[index] = False
        else:
            got[index] += sending.rest(one)
    for index in (0, 1):
        full[index] = False
        sending.drained(both[index])
    turns = 0
    while sending.dirty:
        write()
        turns += 1
        assert turns <= 2 * len(steps) + 2
    assert got == pushed
    assert memory.total == 0
    assert not desk.drops


# Held back


def with_token(number: int = 1) -> Connection:
    held = connection(number)
    held.grant = Grant("anna", (), (), False, 0.0)
    return held


def go_on(sending: Sending) -> None:
    for _ in sending.send_again():
        pass


def test_who_has_a_token_is_written_nothing_until_all_may_again(sending: Sending, memory: Memory) -> None:
    anna, bert = with_token(1), connection(2)
    sending.hold_back()
    for to in (anna, bert):
        sending.push(to, b"1")
    assert sending.write() == [(bert, [b"1"])]
    sending.push(anna, b"2")
    assert sending.write() == []
    assert memory.of(anna) == 2
    go_on(sending)
    assert sending.write() == [(anna, [b"1", b"2"])]
    assert memory.total == 0
    sending.push(anna, b"3")
    assert sending.write() == [(anna, [b"3"])]


def test_what_is_held_back_has_the_bound_of_a_slow_readers_outbox(sending: Sending, desk: FakeDesk) -> None:
    anna = with_token()
    sending.hold_back()
    sending.push(anna, b"x" * BYTES_MAX)
    assert sending.write() == []
    sending.push(anna, b"x")
    assert closes(desk) == [Close(anna, SLOW_CONSUMER)]
    assert desk.drops == {"slow_consumer": 2}


def test_a_socket_that_is_full_meanwhile_says_by_itself_when_it_is_not(sending: Sending) -> None:
    anna, bert, chris = with_token(1), with_token(2), with_token(3)
    sending.push(anna, b"1")
    sending.write()
    sending.blocked(anna, 5)
    sending.hold_back()
    for to in (anna, bert, chris):
        sending.push(to, b"2")
    assert sending.write() == []
    sending.blocked(bert, 5)  # by a pong, which is not held back
    sending.drained(anna)
    assert sending.write() == []
    go_on(sending)
    assert sending.write() == [(chris, [b"2"]), (anna, [b"2"])]
    sending.drained(bert)
    assert sending.write() == [(bert, [b"2"])]


def test_what_was_leaving_in_pieces_is_held_back_too_and_not_put_before_a_close(
    sending: Sending, desk: FakeDesk
) -> None:
    anna, bert = with_token(1), with_token(2)
    for to in (anna, bert):
        for _ in range(3):
            sending.push(to, b"x" * BYTES_MAX)
    assert len(sending.write()) == 2
    sending.hold_back()
    assert sending.write() == []
    assert sending.rest(anna) == []
    assert desk.drops == {"connection_closed": 2}
    go_on(sending)
    assert sending.write() == [(bert, [b"x" * BYTES_MAX])]


def test_of_many_who_may_go_on_none_is_forgotten_when_all_are_held_back_again_meanwhile(sending: Sending) -> None:
    many = [with_token(number) for number in range(2 * SENT_AGAIN_PER_SLICE + 1)]
    sending.hold_back()
    for to in many:
        sending.push(to, b"1")
    assert sending.write() == []
    first = sending.send_again()
    next(first)
    sending.hold_back()
    assert sending.write() == []
    second = sending.send_again()
    for job in (second, first):
        assert not any(job)
    assert sorted(connection.number for connection, _ in sending.write()) == [each.number for each in many]


def test_who_has_gone_is_not_remembered(sending: Sending) -> None:
    anna, bert = with_token(1), with_token(2)
    sending.hold_back()
    for to in (anna, bert):
        sending.push(to, b"1")
    sending.write()
    sending.drop(anna, "connection_closed")
    sending.shut(bert)
    go_on(sending)
    assert sending.write() == []


def test_who_is_revoked_is_written_nothing_more(sending: Sending, desk: FakeDesk, memory: Memory) -> None:
    anna = with_token()
    sending.push(anna, b"1")
    anna.revoked = True
    sending.shut(anna)
    sending.push(anna, b"2")
    assert sending.write() == []
    assert desk.drops == {"token_revoked": 2}
    assert (closes(desk), memory.total) == ([], 0)
