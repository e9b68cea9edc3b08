"""Large frames: the reader judges one as the loop judges a small one, and their order is the same."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ingeborg.broker.core.clients.sessions import AFTER_CLOSE_S, BYTES_PER_COMMAND
from ingeborg.broker.core.connections.grants import Grant
from ingeborg.broker.core.connections.hub import Connection
from ingeborg.broker.core.connections.large import (
    COMMAS_MAX,
    CONTAINERS_MAX,
    TOPICS_PER_PART,
    Outcome,
    pack_arguments,
    read_packed,
    unpack_outcome,
    unread,
)
from ingeborg.broker.core.effects import Close, Forget, Read
from ingeborg.broker.core.limits import Limits
from ingeborg.broker.core.model import Endpoint
from ingeborg.broker.core.router import Router
from ingeborg.protocol.errors import HELD_TOO_MUCH, NOT_UTF8, ProtocolError
from ingeborg.protocol.frames import LargeMessage, masked_text_frame
from ingeborg.protocol.messages import Command, check
from ingeborg.protocol.wire import decode

PAYLOAD_MAX = 1000


def read(data: bytes, *, is_text: bool = True, grant: Grant | None = None) -> Outcome:
    """Read the frame as the reader's process does."""
    return unpack_outcome(read_packed(pack_arguments(is_text, PAYLOAD_MAX, grant), data))


@pytest.mark.parametrize(
    ("frame", "number", "name"),
    [
        ('{"command":"publish","topic":"t","id":7}', 7, "publish"),
        ('{"command":"listen","client_id":"a","id":"é-1"}', "é-1", None),
        (' { "command" : "broadcast" , "id" : -3 } \n', -3, "broadcast"),
        ('{"id":7,"command":"publish","topic":"t"}', None, None),  # only reading it all would show that
        ('{"command":"publish","payload":{"id":7}}', None, "publish"),
        ('{"command":"publish","payload":[{"id":7}],"ack":true}', None, "publish"),
        (r'{"command":"publish","payload":",\"id\":7}"}', None, "publish"),
        (r'{"command":"publish","payload,\"id":7}', None, "publish"),
        (r'{"command":"listen","id":"a\"b"}', None, None),
        ('{"command":"listen","id":1.5}', None, None),
        ('{"command":"listen","id":%d}' % 2**64, None, None),  # noqa: UP031
        ('{"command":"listen","id":"%s"}' % ("x" * 1025), None, None),
        ("", None, None),
    ],
)
@pytest.mark.parametrize("cut", [0, 1, 3])
def test_who_could_not_be_read_learns_which_command_it_was_where_that_is_sure(
    frame: str, number: Any, name: str | None, cut: int
) -> None:
    data, error = frame.encode(), ProtocolError("peer_unavailable", "x")
    pieces = [data[: len(data) - cut], data[len(data) - cut :]] if cut else [data]
    outcome = unread(pieces, error)
    assert (outcome.error, outcome.id, outcome.name) == (error, number, name)


@pytest.mark.parametrize(
    "fields",
    [
        {"command": "publish", "topic": "t", "payload": 1, "item": "x", "weight": 2.0},
        {"command": "subscribe", "topic": "t", "ttl_s": 5},
        {"command": "listen", "bounds": "wall", "window": 3},
        {"command": "revoke", "jti": "x"},
        {"command": "credit", "count": 7},
    ],
)
def test_a_command_is_the_same_after_it_has_crossed_to_the_endpoint(fields: dict[str, Any]) -> None:
    value = {**fields, "client_id": "ann"}
    command = read(json.dumps(value).encode()).command
    assert command is not None
    assert command._replace(topics=tuple(command.topics)) == check(value, PAYLOAD_MAX)


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
commands = st.fixed_dictionaries(
    {"command": st.sampled_from(["listen", "subscribe", "unsubscribe", "publish", "broadcast", "subscriptions", "no"])},
    optional={
        "client_id": st.sampled_from(["a", "b", 7, "", None]),
        "id": st.sampled_from([1, 2**64 - 1, -(2**63), "x", None, 1.5]),
        "topic": st.sampled_from(["t", "", 5]) | st.lists(st.sampled_from(["t", "u", "u/a/", "é"]), max_size=4),
        "payload": values,
        "ack": st.booleans(),
        "dedup": st.sampled_from([True, False, 1]),
        "cursor": st.sampled_from([None, "c", 1]),
        "limit": st.sampled_from([1, 10_000, 0, "x"]),
        "until": st.sampled_from(["disconnect", 1]),
        "ttl_s": st.sampled_from([1, 0]),
        "filter": st.just({"a": [1]}),
        "recover": st.sampled_from([True, "an-epoch.1"]),
        "keep_s": st.just(5),
    },
)
grants = st.none() | st.builds(
    lambda client, subscribe, broadcast: Grant(client, ("t",), subscribe, broadcast, 1e12).prepared(),
    st.sampled_from(["a", "*"]),
    st.sampled_from([("t", "u"), ("t", "u/{sub}/")]),
    st.booleans(),
)


@given(commands | values, grants)
@example({"command": "subscribe", "client_id": "a", "topic": "t", "until": "disconnect", "ttl_s": 1}, None)
def test_it_says_what_is_said_of_a_small_frame(value: Any, grant: Grant | None) -> None:
    frame = orjson.dumps(value)
    outcome = read(frame, grant=grant)
    refused: ProtocolError | None = None
    try:
        command = check(decode(frame), PAYLOAD_MAX)
        if grant is not None:
            grant.check(command)
    except ProtocolError as error:
        refused = error
    if refused is not None:
        assert outcome.command is None
        assert outcome.error is not None
        said = outcome.error
        assert (said.code, said.info, said.extra) == (refused.code, refused.info, refused.extra)
    else:
        assert outcome.error is None
        assert outcome.command is not None
        expected = command._replace(topics=list(command.topics))
        assert outcome.command._replace(topics=list(outcome.command.topics)) == expected


def test_a_long_list_stays_packed() -> None:
    topics = [f"topic {number}" for number in range(2 * TOPICS_PER_PART + 1)]
    outcome = read(orjson.dumps({"command": "subscribe", "client_id": "a", "topic": topics, "id": 3}))
    assert outcome.command is not None
    assert outcome.command.id == 3
    got: Any = outcome.command.topics
    assert len(got) == len(topics)
    assert [len(part) for part in got.slices()] == [TOPICS_PER_PART, TOPICS_PER_PART, 1]
    assert list(got) == topics
    assert got.size > sum(map(len, topics))


@pytest.mark.parametrize("bad", [b"\xff", b"\xed\xa0\x80", b"\xe2\x82"])
def test_a_text_that_is_not_utf8_is_told_from_a_bad_command(bad: bytes) -> None:
    frame = b'{"command":"listen","client_id":"a","x":"' + b"x" * (1 << 20) + bad + b'"}'
    assert not read(frame).is_text
    assert not read(frame[: frame.index(bad)] + bad).is_text
    error = read(frame, is_text=False).error
    assert error is not None
    assert error.code == "bad_json"


def test_containers_are_counted_outside_strings() -> None:
    head = b'{"command":"listen","client_id":"a","x":'
    assert read(head + b'"' + b"[" * (CONTAINERS_MAX + 1) + b'"}').command is not None
    assert read(head + b"[" + b"[]," * (CONTAINERS_MAX - 3) + b"[]]}").command is not None
    outcome = read(head + b"[" + b"[]," * (CONTAINERS_MAX - 2) + b'[]],"id":7}')
    error = outcome.error
    assert error is not None
    assert (error.code, error.info) == (
        "bad_json",
        f"Too many lists and objects: at most {CONTAINERS_MAX:,} are allowed",
    )
    assert outcome.id == 7  # though nobody has read the frame


def test_too_many_values_are_refused_wherever_they_are() -> None:
    head = b'{"command":"listen","client_id":"a","x":'
    commas = COMMAS_MAX - head.count(b",")
    assert read(head + b'"' + b"," * (COMMAS_MAX + 1) + b'"}').command is not None
    assert read(head + b"[0" + b",0" * commas + b"]}").command is not None
    error = read(head + b"[0" + b",0" * (commas + 1) + b"]}").error
    assert error is not None
    assert (error.code, error.info) == (
        "bad_json",
        f"Too many values: at most {COMMAS_MAX:,} commas between them are allowed",
    )


#: A process with little more memory than it uses, and a frame whose values need more.
SHORT_OF_MEMORY = """
import resource, sys
from ingeborg.broker.core.connections.large import pack_arguments, read_packed, unpack_outcome
frame = b'{"command":"publish","client_id":"a","topic":"t","payload":[' + b",".join([b"1.5"] * 400_000) + b"]}"
arguments = pack_arguments(True, 1 << 30, None)
pages = int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (2 << 20),) * 2)
sys.exit(unpack_outcome(read_packed(arguments, frame)).error.code)
"""


def test_too_little_memory_is_the_frames_own_fault() -> None:
    done = subprocess.run([sys.executable, "-c", SHORT_OF_MEMORY], capture_output=True, timeout=60, check=False)
    assert done.stderr.decode().strip() == "too_large"


def test_a_large_message_takes_a_block_at_a_time() -> None:
    message = LargeMessage(True, b"", 5 << 19)
    message.take(b"x")
    assert message.held == 1 << 20
    message.take(b"x" * (1 << 20))
    assert message.held == 2 << 20
    message.take(b"x" * message.left)
    assert [len(block) for block in message.blocks] == [1 << 20, 1 << 20, 1 << 19]


@given(st.binary(min_size=1, max_size=60_000), st.binary(min_size=4, max_size=4), st.data())
def test_a_large_message_is_whole_however_it_comes(data: bytes, mask: bytes, draw: st.DataObject) -> None:
    masked = masked_text_frame(data, mask)[-len(data) :]
    message = LargeMessage(True, mask, len(data))
    while message.left:
        at = len(data) - message.left
        size = draw.draw(st.integers(1, message.left))
        message.take(masked[at : at + size])
    assert b"".join(message.blocks) == data
    assert message.held == len(data)


# -- The router

#: Calls of the store whose answer is an empty list.
READS = ("endpoints", "revocations")


class Talk:
    """A router with one connection. The test decides when its large frames are read."""

    def __init__(self, **limits: Any) -> None:
        self.now = 100.0
        limits = {"large_bytes": 100, "payload_bytes": PAYLOAD_MAX, **limits}
        self.router = Router(Endpoint("a", "i", "ws://a", 0), self.now, routing="lookup", limits=Limits(**limits))
        self.connection = self.router.connected(1, self.now, throttled="commands_per_s" in limits)
        self.calls: list[Read] = []
        self.forgotten: list[int] = []
        self.closed: list[Any] = []
        self.stored: list[tuple[str, Any]] = []
        self.written: defaultdict[Connection, list[bytes]] = defaultdict(list)

    def send(self, *frames: bytes) -> None:
        for frame in frames:
            self.router.frame(self.connection, frame, self.now)
        self.turn()

    def turn(self) -> None:
        more = True
        while more:
            effects = self.router.flush(self.now)
            self.calls += [act for act in effects.acts if isinstance(act, Read)]
            self.forgotten += [act.number for act in effects.acts if isinstance(act, Forget)]
            for connection, frames in effects.write:
                self.written[connection] += frames
            self.closed += [act.code for act in effects.acts if isinstance(act, Close)]
            for call in effects.store:
                self.stored.append((call.operation, call.arguments))
                self.router.stored(call.number, [] if call.operation in READS else None, None, self.now)
            more = effects.more or bool(effects.store)
            if effects.more:
                self.router.work(self.now)

    def read(self, *, is_text: bool = True) -> None:
        call = self.calls.pop(0)
        outcome = None
        if self.router.read_wanted(call.number):
            outcome = read(b"".join(call.pieces), is_text=is_text, grant=call.grant)
        self.router.read(call.number, outcome, self.now)
        self.turn()

    def heard(self) -> list[Any]:
        return [orjson.loads(frame) for frame in self.written.pop(self.connection, [])]


def subscribe(number: int, size: int = 200) -> bytes:
    return orjson.dumps({"command": "subscribe", "client_id": "a", "topic": "t", "id": number, "x": "x" * size})


def test_what_comes_behind_a_large_frame_waits_for_it() -> None:
    talk = Talk()
    talk.send(subscribe(1, 0), subscribe(2, 20_000), subscribe(3, 0), subscribe(4))
    assert [reply["id"] for reply in talk.heard()] == [1]
    assert talk.connection.backpressure  # the endpoint does not read it further
    talk.read()
    assert [reply["id"] for reply in talk.heard()] == [2, 3]
    talk.read()
    assert [reply["id"] for reply in talk.heard()] == [4]
    assert not talk.connection.backpressure
    assert talk.connection.waiting == 0
    assert talk.router.memory.total == 0


def test_a_large_frame_that_is_refused_is_answered_as_any_other() -> None:
    talk = Talk()
    bad = {"command": "publish", "client_id": "a", "topic": "", "payload": 1, "id": 7, "x": "x" * 200}
    talk.send(orjson.dumps(bad), b"[" * 200, subscribe(1, 0))
    talk.read()
    talk.read()
    first, second, third = talk.heard()
    assert (first["error"], first["command"], first["id"]) == ("bad_topic", "publish", 7)
    assert (second["error"], "id" in second) == ("bad_json", False)
    assert third == {"result": "success", "id": 1}
    assert talk.router.counters.commands["publish"] == {"bad_topic": 1}


def test_a_large_text_that_is_not_utf8_ends_the_connection_and_what_came_behind_it() -> None:
    talk = Talk()
    talk.send(b"\xff" * 200, subscribe(1, 0), subscribe(2, 0))
    talk.read()
    assert talk.closed == [NOT_UTF8]
    assert talk.heard() == []
    assert talk.router.counters.drops["command_of_closed_connection"] == 2
    assert talk.router.memory.total == 0


def test_a_large_frame_counts_for_a_while_after_its_connection_is_over_and_then_is_not_read() -> None:
    for after_s, stored in ((AFTER_CLOSE_S / 2, ["subscribe"]), (AFTER_CLOSE_S, [])):
        talk = Talk()
        talk.send(subscribe(1))
        talk.router.disconnected(talk.connection, talk.now)
        talk.now += after_s
        talk.router.tick(talk.now)
        talk.read()
        assert [operation for operation, _ in talk.stored if operation == "subscribe"] == stored
        assert talk.router.counters.drops["command_of_closed_connection"] == 1 - len(stored)
        assert talk.router.memory.total == 0


def test_large_frames_of_a_connection_that_is_let_go_are_forgotten() -> None:
    talk = Talk(held_bytes=2_000)
    other = talk.router.connected(2, talk.now)
    talk.router.frame(other, subscribe(9), talk.now)
    talk.send(subscribe(1), subscribe(2, 3_000))
    (_, dropped) = talk.calls
    assert [talk.router.read_wanted(call.number) for call in talk.calls] == [True, False]
    assert talk.forgotten == [dropped.number]
    assert talk.closed == [HELD_TOO_MUCH]
    assert talk.router.memory.total == len(subscribe(9))
    talk.router.read(dropped.number, Outcome(), talk.now)  # the process was reading it
    talk.read()
    assert talk.written[other]
    assert talk.router.memory.total == 0


def test_what_waits_on_connections_that_are_over_goes_first_to_the_bound_for_all() -> None:
    talk = Talk(held_bytes=2_000)
    staying = talk.router.connected(2, talk.now)
    for _ in range(5):
        talk.send(subscribe(1, 1_000))
        talk.router.disconnected(talk.connection, talk.now)
        talk.turn()
        talk.connection = talk.router.connected(len(talk.calls) + 2, talk.now)
    assert talk.router.memory.total <= 2_000
    assert len(talk.forgotten) == 4
    assert talk.router.counters.drops["command_of_closed_connection"] == 4
    assert talk.closed == []
    assert not staying.closed


@pytest.mark.parametrize("large_bytes", [100, 100_000])
def test_bytes_are_charged_as_commands(large_bytes: int) -> None:
    talk = Talk(commands_per_s=100, large_bytes=large_bytes)
    talk.send(subscribe(1, 60 * BYTES_PER_COMMAND))
    if talk.calls:
        talk.read()
    assert talk.connection.allowance is not None
    assert 39 <= talk.connection.allowance <= 40
    talk.send(b"x" * 60 * BYTES_PER_COMMAND)  # the endpoint charges for refused frames as well
    if talk.calls:
        talk.read()
    assert talk.connection.throttled


def test_a_command_with_many_topics_holds_them_until_it_is_done() -> None:
    talk = Talk()
    topics = [f"topic {number}" for number in range(5000)]
    frame = orjson.dumps({"command": "subscribe", "client_id": "a", "topic": topics})
    talk.router.frame(talk.connection, frame, talk.now)
    (call,) = (act for act in talk.router.flush(talk.now).acts if isinstance(act, Read))
    assert talk.router.memory.total == len(frame)
    talk.router.read(call.number, read(frame), talk.now)
    talk.router.flush(talk.now)
    assert 5000 * 9 < talk.router.memory.total < len(frame)
    talk.turn()
    assert talk.router.memory.total == 0
    assert sum(len(batch[0][1]) for operation, (batch,) in talk.stored if operation == "subscribe") == 5000


def test_more_topics_than_a_client_may_have_are_refused_as_they_are_counted() -> None:
    talk = Talk(subscriptions=1500)
    topics = [f"topic {number}" for number in range(5000)]
    talk.send(orjson.dumps({"command": "subscribe", "client_id": "a", "topic": topics}))
    talk.read()
    assert talk.heard()[0]["error"] == "too_many_topics"
    assert talk.stored == []


def test_a_command_knows_its_fields() -> None:
    """``Outcome`` travels as the list of its fields, in their order."""
    fields: list[Any] = list(Command("listen", "a", 1))
    assert Command(*fields) == Command("listen", "a", 1)
