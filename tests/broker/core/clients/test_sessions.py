"""Commands on their way in: which begin, which wait, which connections are read, and what is dropped. The test itself
carries the commands out: it notes each command, and keeps a place for its reply until it gives one."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from ingeborg.broker.core.clients.sessions import AFTER_CLOSE_S, BYTES_PER_COMMAND, READ_AHEAD, Sessions
from ingeborg.broker.core.connections.grants import Grant
from ingeborg.broker.core.connections.hub import Connection, Reply
from ingeborg.broker.core.connections.large import Large, Outcome
from ingeborg.broker.core.connections.outbox import PIECE_BYTES, DroppingOutbox
from ingeborg.broker.core.effects import Act, Close, Forget, PauseOrResume, Read
from ingeborg.broker.core.limits import Limits
from ingeborg.broker.core.outgoing.assembly import Outgoing
from ingeborg.broker.core.outgoing.replies import REPLIES_MAX
from ingeborg.broker.core.part import CommandSpec
from ingeborg.protocol.errors import HELD_TOO_MUCH, NOT_UTF8, ProtocolError
from ingeborg.protocol.messages import Command

from ..fake_desk import FakeDesk

#: The rules of the commands, as the parts that carry them out declare them.
RULES = {
    "publish": {"publishes": True, "after_close": True},
    "broadcast": {"publishes": True, "after_close": True},
    "subscribe": {"after_close": True},
    "unsubscribe": {"after_close": True},
    "listen": {},
    "unlisten": {},
    "subscriptions": {"overlaps": False},
}


class Room:
    """Sessions, and the commands that they have begun."""

    def __init__(self, **limits: Any) -> None:
        self.desk = FakeDesk(limits=Limits(inflight_messages=2, **limits))
        base = self.desk.base
        outgoing = Outgoing(base, None)
        self.memory, self.sending, self.replies = outgoing.memory, outgoing.sending, outgoing.replies
        self.limits, self.inflight = base.limits, base.inflight
        self.sessions = Sessions(base.desk, base.limits, self.sending, self.replies, self.memory, base.inflight)
        self.sessions.bind({name: CommandSpec(self._begin, **rules) for name, rules in RULES.items()})
        self.begun: list[str] = []
        self.places: list[tuple[Connection, Reply]] = []

    def _begin(self, connection: Connection, command: Command) -> None:
        self.begun.append(f"{command.name} {command.id}")
        self.places.append((connection, self.replies.expect(connection)))

    def connection(self, number: int = 1, grant: Grant | None = None, throttled: bool = False) -> Connection:
        return self.sessions.connected(number, grant, throttled, PIECE_BYTES)

    def say(self, connection: Connection, *commands: str, **fields: Any) -> None:
        """Send a command: ``"publish 1"`` is its name and its id."""
        for command in commands:
            self.sessions.frame(connection, frame(command, **fields), True)

    def finish(self, count: int = 1) -> None:
        """Finish the earliest commands under way."""
        for _ in range(count):
            connection, place = self.places.pop(0)
            self.replies.reply(connection, place, None)

    def take_begun(self) -> list[str]:
        """Return the commands begun since the last call."""
        begun, self.begun = self.begun, []
        return begun

    def acts(self) -> list[Act]:
        """Return the acts since the last call."""
        acts = self.desk.acts[:]
        self.desk.acts.clear()
        return acts

    def dropped(self) -> int:
        return self.desk.drops["command_of_closed_connection"]


def frame(command: str, **fields: Any) -> bytes:
    name, number = command.split()
    values = {"command": name, "client_id": "paul", "id": int(number), "topic": "t", "payload": 1}
    return orjson.dumps({**values, **fields})


@pytest.fixture
def room() -> Room:
    return Room()


# In order


def test_commands_of_one_kind_overlap_and_one_of_another_kind_waits_for_them_all(room: Room) -> None:
    one = room.connection()
    room.say(one, "publish 1", "publish 2", "listen 3", "publish 4")
    assert room.take_begun() == ["publish 1", "publish 2"]
    room.finish()
    room.sessions.go_on()
    assert room.take_begun() == []
    room.finish()
    assert room.sessions.ready
    room.sessions.go_on()
    assert room.take_begun() == ["listen 3"]
    room.finish()
    room.sessions.go_on()
    assert room.take_begun() == ["publish 4"]
    assert one.waiting == room.memory.total == 0


def test_nobody_waits_for_the_commands_of_another_connection(room: Room) -> None:
    one, two = room.connection(1), room.connection(2)
    room.say(one, "publish 1", "listen 2")
    room.say(two, "listen 3")
    assert room.take_begun() == ["publish 1", "listen 3"]


def test_of_pages_one_is_under_way_at_a_time(room: Room) -> None:
    one = room.connection()
    room.say(one, "subscriptions 1", "subscriptions 2")
    assert room.take_begun() == ["subscriptions 1"]
    room.finish()
    room.sessions.go_on()
    assert room.take_begun() == ["subscriptions 2"]


def test_a_filter_in_place_of_all_else_overlaps_no_other_subscribe(room: Room) -> None:
    one = room.connection()
    room.say(one, "subscribe 1", "subscribe 2")
    room.say(one, "subscribe 3", filter={"a": ["x"]}, replace=True)
    room.say(one, "subscribe 4", "subscribe 5")
    assert room.take_begun() == ["subscribe 1", "subscribe 2"]
    for begun in ([], ["subscribe 3"], ["subscribe 4", "subscribe 5"]):
        room.finish()
        room.sessions.go_on()
        assert room.take_begun() == begun


def test_what_is_refused_keeps_its_place_among_the_replies_and_nothing_is_begun(room: Room) -> None:
    one = room.connection(grant=Grant("paul", (), (), False, 0.0))
    room.say(one, "unsubscribe 1", "dance 2", "publish 3")
    room.sessions.frame(one, b"{", True)
    assert room.take_begun() == ["unsubscribe 1"]
    assert room.sending.write() == []
    room.finish()
    ((_, replies),) = room.sending.write()
    assert [orjson.loads(reply)["error"] for reply in replies] == ["bad_command", "forbidden", "bad_json"]
    commands = room.desk.counters.commands
    assert commands["unknown"] == {"bad_command": 1, "bad_json": 1}
    assert commands["publish"] == {"forbidden": 1}


def test_a_row_of_replies_has_a_bound_beyond_which_commands_wait(room: Room) -> None:
    one = room.connection()
    for number in range(REPLIES_MAX + 1):
        room.say(one, f"publish {number}")
    assert len(room.take_begun()) == REPLIES_MAX
    room.finish(REPLIES_MAX // 2)
    room.sessions.go_on()
    assert room.take_begun() == [f"publish {REPLIES_MAX}"]


# Paused connections


def test_a_connection_with_much_that_waits_is_not_read_until_all_of_it_has_begun(room: Room) -> None:
    one = room.connection()
    room.say(one, "publish 0", *(f"listen {number}" for number in range(READ_AHEAD - 1)))
    assert room.acts() == []
    room.say(one, "listen 99")
    assert room.acts() == [PauseOrResume(one)]
    assert one.paused
    room.finish()
    room.sessions.go_on()
    assert len(room.take_begun()) == 1 + READ_AHEAD
    assert room.acts() == [PauseOrResume(one)]
    assert not one.paused


def test_who_publishes_while_too_much_is_in_flight_is_not_read_until_it_is_little(room: Room) -> None:
    one, two = room.connection(1), room.connection(2)
    room.inflight.begin(1)
    room.inflight.begin(1)
    assert room.inflight.congested
    room.say(one, "publish 1")
    room.say(two, "subscribe 2")
    assert (one.paused, two.paused) == (True, False)  # only a publish adds to the messages in flight
    room.inflight.end(1)
    room.sessions.go_on()
    assert one.paused  # one of two is still too many
    room.inflight.end(1)
    room.sessions.go_on()
    assert not one.paused
    assert room.acts() == [PauseOrResume(one), PauseOrResume(one)]


def test_who_is_paused_for_its_backlog_stays_so_while_too_much_is_in_flight(room: Room) -> None:
    one = room.connection()
    room.say(one, "publish 0", *(f"listen {number}" for number in range(READ_AHEAD)))
    room.inflight.begin(1)
    room.inflight.begin(1)
    room.finish()
    room.sessions.go_on()
    assert len(room.begun) == 1 + READ_AHEAD
    assert one.paused
    for _ in range(2):
        room.inflight.end(1)
    room.sessions.go_on()
    assert not one.paused


def test_who_sends_too_fast_is_read_again_when_its_debt_is_paid() -> None:
    room = Room(commands_per_s=2)
    one = room.connection(throttled=True)
    room.say(one, "publish 1", "publish 2", "publish 3")
    assert room.take_begun() == ["publish 1", "publish 2", "publish 3"]  # the third is on credit
    assert room.desk.counts["commands_throttled"] == 1
    room.say(one, "publish 4")
    assert room.take_begun() == []
    assert one.paused
    room.desk.now += 0.4
    room.sessions.tick()
    assert not room.sessions.ready
    room.desk.now += 0.1
    room.sessions.tick()
    room.sessions.go_on()
    assert room.take_begun() == ["publish 4"]
    room.desk.now += 0.5
    room.sessions.tick()
    room.sessions.go_on()
    assert not one.paused


def test_a_command_costs_by_its_topics_and_by_its_bytes_even_where_it_is_refused() -> None:
    room = Room(commands_per_s=10)
    one, two, three = (room.connection(number, throttled=True) for number in (1, 2, 3))
    room.say(one, "subscribe 1", topic=[f"t{number}" for number in range(12)])
    assert one.allowance == -2.0
    room.say(two, "publish 1", payload="x" * (3 * BYTES_PER_COMMAND))
    assert two.allowance == 7.0
    room.say(three, "dance 1", payload="x" * (3 * BYTES_PER_COMMAND))
    assert three.allowance == 7.0


def test_an_endpoint_that_ends_reads_nothing_more_until_it_tells_a_client_to_go(room: Room) -> None:
    one = room.connection()
    room.sessions.drain(one)
    assert room.acts() == [PauseOrResume(one)]
    assert one.paused
    room.sessions.send_away(one)
    assert room.acts() == [PauseOrResume(one)]
    assert not one.paused  # the endpoint reads it for its close


def test_what_a_paused_client_that_is_told_to_go_still_sends_is_counted_as_dropped(room: Room) -> None:
    one = room.connection()
    room.say(one, "publish 0", *(f"listen {number}" for number in range(READ_AHEAD)))
    room.sessions.send_away(one)
    room.say(one, "listen 99")
    assert room.dropped() == 1
    assert len(one.backlog) == READ_AHEAD


# Ends


def test_what_waits_on_a_connection_that_is_gone_is_begun_for_a_moment_in_so_far_as_it_changes_no_place(
    room: Room,
) -> None:
    one = room.connection()
    room.say(one, "unlisten 0", "subscribe 1", "listen 2", "publish 3")
    room.sessions.disconnected(one)
    assert room.sessions.connections == {}
    room.finish()
    room.sessions.go_on()
    room.finish()
    room.sessions.go_on()
    assert room.begun == ["unlisten 0", "subscribe 1", "publish 3"]
    assert room.dropped() == 1


def test_later_it_is_not_begun_any_more_and_counted(room: Room) -> None:
    one = room.connection()
    room.say(one, "listen 0", "publish 1", "publish 2")
    room.sessions.disconnected(one)
    room.desk.now += AFTER_CLOSE_S
    room.finish()
    room.sessions.go_on()
    assert room.begun == ["listen 0"]
    assert room.dropped() == 2
    assert room.memory.total == 0


def test_a_connection_that_is_gone_holds_nothing_and_is_not_paused(room: Room) -> None:
    one = room.connection()
    room.sessions.unread(one, 500)
    room.sending.blocked(one, 100)
    room.sending.push(one, b"x" * 10)
    assert room.memory.total == 610
    room.sessions.disconnected(one)
    assert room.memory.total == 0
    assert room.desk.drops["connection_closed"] == 1
    room.say(one, *(f"publish {number}" for number in range(3)))
    assert room.acts() == []


def test_what_a_throttled_client_left_waiting_goes_with_it() -> None:
    room = Room(commands_per_s=1)
    one = room.connection(throttled=True)
    room.say(one, "publish 1", "publish 2", "publish 3")
    room.sessions.disconnected(one)
    assert room.dropped() == 1
    room.desk.now += 10.0
    room.sessions.tick()
    assert not room.sessions.ready


def test_when_all_hold_too_much_the_greatest_goes_with_all_that_waits_on_it() -> None:
    room = Room(held_bytes=1_000)
    one, two = room.connection(1), room.connection(2)
    room.say(one, "publish 0", "listen 1", "listen 2")
    room.sessions.unread(one, 700)
    room.sending.blocked(one, 0)
    room.sending.push(one, b"x" * 100)
    room.sessions.unread(two, 200)
    assert room.memory.full
    room.sessions.let_go()
    assert [act for act in room.acts() if isinstance(act, Close)] == [Close(one, HELD_TOO_MUCH)]
    assert room.dropped() == 2
    assert room.desk.drops["held_too_much"] == 1
    assert room.desk.counts["connections_held_too_much"] == 1
    assert (room.memory.of(one), room.memory.of(two)) == (700, 200)
    room.memory.full = True
    room.sessions.let_go()
    assert room.acts() == []  # it is already closing


def test_who_is_told_to_go_already_gives_up_what_waits_and_is_not_told_again() -> None:
    room = Room(held_bytes=60)
    one = room.connection()
    room.say(one, "publish 0")
    room.sending.close(one, HELD_TOO_MUCH)
    room.say(one, "unsubscribe 1")
    assert room.memory.full
    room.acts()
    room.sessions.let_go()
    assert room.acts() == []
    assert room.dropped() == 1
    assert room.memory.total == 0
    assert room.desk.counts["connections_held_too_much"] == 0


def test_where_operators_wish_it_a_slow_reader_loses_messages_and_not_its_connection() -> None:
    assert isinstance(Room(drop_oldest=True).connection().outbox, DroppingOutbox)


# Large frames


def large(room: Room, connection: Connection, command: str, **fields: Any) -> Read:
    """Send a large frame; return the order to read it."""
    data = frame(command, **fields)
    room.sessions.frame(connection, Large((data,), len(data), True), True)
    (read,) = [act for act in room.acts() if isinstance(act, Read)]
    return read


def test_a_large_frame_is_read_elsewhere_with_what_its_reader_has_to_know() -> None:
    room = Room(large_bytes=100, payload_bytes=50_000)
    grant = Grant("paul", ("",), ("",), True, 0.0)
    one = room.connection(grant=grant)
    data = frame("publish 1", payload="x" * 100)
    room.sessions.frame(one, data, False)
    assert [act for act in room.acts() if isinstance(act, Read)] == [Read(1, len(data), (data,), False, 50_000, grant)]
    assert room.begun == []
    assert one.waiting == len(data)


def test_what_comes_behind_a_large_frame_waits_until_it_is_read(room: Room) -> None:
    one = room.connection()
    read = large(room, one, "publish 1")
    room.say(one, "publish 2")
    room.sessions.go_on()
    assert room.begun == []
    assert room.sessions.read_wanted(read.number)
    room.sessions.read(read.number, Outcome(Command("publish", "paul", 1)))
    assert not room.sessions.read_wanted(read.number)
    room.sessions.go_on()
    assert room.begun == ["publish 1", "publish 2"]
    assert one.waiting == 0


def test_a_large_frame_that_is_refused_is_answered_in_its_place(room: Room) -> None:
    one = room.connection()
    read = large(room, one, "publish 1")
    error = ProtocolError("too_large", "The payload has too many bytes")
    room.sessions.read(read.number, Outcome(error=error, id=1, name="publish", kind="publish"))
    room.sessions.go_on()
    ((_, (reply,)),) = room.sending.write()
    assert orjson.loads(reply)["command"] == "publish"
    assert room.desk.counters.commands["publish"] == {"too_large": 1}


def test_a_large_text_that_is_not_utf8_ends_its_connection_and_what_came_behind_it_is_counted(room: Room) -> None:
    one = room.connection()
    read = large(room, one, "publish 1")
    room.say(one, "publish 2")
    room.sessions.read(read.number, Outcome(is_text=False))
    room.sessions.go_on()
    assert Close(one, NOT_UTF8) in room.acts()
    assert room.begun == []
    assert room.dropped() == 1
    assert room.memory.total == 0


def test_of_a_connection_that_is_gone_a_large_frame_is_wanted_for_a_moment_only(room: Room) -> None:
    one = room.connection()
    read = large(room, one, "publish 1")
    room.sessions.disconnected(one)
    assert room.sessions.read_wanted(read.number)
    room.desk.now += AFTER_CLOSE_S
    assert not room.sessions.read_wanted(read.number)
    room.sessions.read(read.number, None)
    room.sessions.go_on()
    assert room.begun == []
    assert room.dropped() == 1
    assert room.memory.total == 0


def test_a_large_frame_whose_connection_is_let_go_is_forgotten_and_what_it_said_comes_too_late() -> None:
    room = Room(held_bytes=1)
    one = room.connection()
    read = large(room, one, "publish 1")
    room.sessions.let_go()
    assert Forget(read.number) in room.acts()
    assert room.dropped() == 1
    assert not room.sessions.read_wanted(read.number)
    room.sessions.read(read.number, Outcome(Command("publish", "paul", 1)))
    assert not room.sessions.ready
