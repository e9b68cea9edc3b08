"""Replies in the order of their commands, against a list; and their counters."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingeborg.broker.core.codec import TextFrames
from ingeborg.broker.core.connections.hub import Connection, Reply
from ingeborg.broker.core.connections.outbox import Outbox
from ingeborg.broker.core.outgoing.memory import Memory
from ingeborg.broker.core.outgoing.replies import REPLIES_MAX, SHORT_REPLY_BYTES, Replies
from ingeborg.broker.core.outgoing.sending import Sending
from ingeborg.protocol.errors import ProtocolError
from ingeborg.protocol.frames import text_frame
from ingeborg.protocol.messages import failure

from ..fake_desk import FakeDesk


class Row:
    """One connection, and the frames written to it."""

    def __init__(self) -> None:
        self.desk = FakeDesk()
        self.memory = Memory(1 << 30, lambda: 0)
        self.sending = Sending(self.desk.real, self.memory)
        self.replies = Replies(self.desk.real, self.sending, self.memory, self.desk.counters)
        self.connection = Connection(7, Outbox(1 << 20), TextFrames())
        self.connection.kind = "subscribe"
        self.connection.tally = self.replies.tally("subscribe")

    def expect(self) -> Reply:
        return self.replies.expect(self.connection)

    def reply(self, place: Reply | None, data: bytes | None = b"ok") -> None:
        self.replies.reply(self.connection, place, data)

    def written(self) -> list[bytes]:
        return [frame for _, frames in self.sending.write() for frame in frames]


@pytest.fixture
def row() -> Row:
    return Row()


STEPS = st.lists(
    st.one_of(
        st.just(("expect", 0, 0)),
        st.tuples(st.just("reply"), st.integers(0, 9), st.sampled_from([-1, 1, 300])),
        st.tuples(st.just("at once"), st.just(0), st.sampled_from([-1, 1, 300])),
    ),
    max_size=40,
)


@given(STEPS)
def test_whatever_order_they_are_known_in_they_leave_in_the_order_of_their_commands(
    steps: list[tuple[str, int, int]],
) -> None:
    """A size of -1: the command has no reply."""
    row = Row()
    commands: list[tuple[Reply | None, bytes | None, bool]] = []  # place, reply, known?
    written: list[bytes] = []
    for count, (what, index, size) in enumerate(steps):
        data = None if size < 0 else count.to_bytes(2) + bytes(size)
        if what == "expect":
            commands.append((row.expect(), None, False))
        elif what == "at once":
            row.reply(None, data)
            commands.append((None, data, True))
        else:
            open_ones = [at for at, (_, _, known) in enumerate(commands) if not known]
            if not open_ones:
                continue
            at = open_ones[index % len(open_ones)]
            place = commands[at][0]
            row.reply(place, data)
            commands[at] = (place, data, True)
        written += row.written()
        first_open = next((at for at, (_, _, known) in enumerate(commands) if not known), len(commands))
        assert written == [text_frame(data) for _, data, _ in commands[:first_open] if data is not None]
        behind = [data for _, data, known in commands[first_open:] if known and data is not None]
        assert row.memory.total == sum(len(data) for data in behind if len(data) > SHORT_REPLY_BYTES)
    known_ones = sum(known for _, _, known in commands)
    assert row.desk.counters.commands["subscribe"].get("success", 0) == known_ones


def test_a_refusal_is_a_reply_like_any_other_and_is_counted_told_and_named(row: Row) -> None:
    heard = []
    row.replies.on_refusal = lambda *what: heard.append(what)
    first, second = row.expect(), row.expect()
    error = ProtocolError("store_unavailable", "down")
    row.replies.refuse(row.connection, second, 2, error)
    assert row.written() == []
    row.reply(first)
    assert row.written() == [text_frame(b"ok"), text_frame(failure(2, error))]
    assert heard == [(7, 2, "subscribe", error)]
    assert row.desk.counters.errors == {"store_unavailable": 1}
    assert row.desk.counters.commands["subscribe"] == {"success": 1, "store_unavailable": 1}


def test_a_refusal_of_what_never_became_a_command_is_not_counted_for_those_under_way(row: Row) -> None:
    first = row.expect()
    error = ProtocolError("bad_command", "No command 'dance'")
    row.replies.refuse_as(row.connection, None, None, error, None, "unknown", "unknown")
    assert row.desk.counters.commands == {"subscribe": {}, "unknown": {"bad_command": 1}}
    row.reply(first)
    assert row.written() == [text_frame(b"ok"), text_frame(failure(None, error))]


def test_replies_to_a_connection_that_is_gone_are_drops(row: Row) -> None:
    first, second = row.expect(), row.expect()
    row.connection.closed = True
    row.reply(second, b"long" * SHORT_REPLY_BYTES)
    row.reply(first)
    assert row.written() == []
    assert row.desk.drops["connection_closed"] == 2
    assert row.memory.total == 0


def ready(row: Row) -> bool:
    """Can commands that wait behind those under way go on? The answer empties, as at the end of a turn."""
    was = bool(row.replies.ready)
    row.replies.ready.clear()
    return was


def test_what_waits_goes_on_when_half_of_a_full_row_is_done_and_when_all_is(row: Row) -> None:
    places = [row.expect() for _ in range(REPLIES_MAX)]
    row.connection.backlog.append(b"the next one")
    for count, place in enumerate(places, 1):
        row.reply(place)
        assert ready(row) == (count in (REPLIES_MAX // 2, REPLIES_MAX))


def test_what_waits_goes_on_when_more_than_half_of_a_full_row_leaves_at_once(row: Row) -> None:
    first, *others = [row.expect() for _ in range(REPLIES_MAX)]
    row.connection.backlog.append(b"the next one")
    for place in others[: REPLIES_MAX * 3 // 4]:
        row.reply(place)
    assert not ready(row)
    row.reply(first)
    assert ready(row)


def test_where_nothing_waits_nobody_is_told_to_go_on(row: Row) -> None:
    row.reply(row.expect())
    assert not ready(row)
