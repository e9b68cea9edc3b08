"""The Centrifuge adapter, against the program around the library, and against the test's own server for messages that
the program never sends."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import orjson
import pytest
from websockets.asyncio.server import ServerConnection, serve

from ingeborg.loadgen.backends import centrifuge
from ingeborg.loadgen.backends.base import BackendError
from ingeborg.loadgen.backends.centrifuge import Centrifuge

from .contract import Contract, Member

Join = Callable[[str], Awaitable[Member]]
REFUSED = {"code": 103, "message": "permission denied"}


class Alike:
    """A server that refuses a channel with `shut` in its name; ``frames``: the commands of each incoming frame."""

    def __init__(self) -> None:
        self.frames: list[list[dict[str, Any]]] = []
        self.connections: list[ServerConnection] = []
        self.url = ""

    @property
    def commands(self) -> list[dict[str, Any]]:
        return [command for frame in self.frames for command in frame]

    async def handle(self, connection: ServerConnection) -> None:
        self.connections.append(connection)
        async for message in connection:
            assert isinstance(message, str)
            commands = [orjson.loads(line) for line in message.split("\n")]
            self.frames.append(commands)
            replies = []
            for command in filter(None, commands):
                (kind,) = set(command) - {"id"}
                shut = "shut" in command[kind].get("channel", "")
                replies.append({"id": command["id"], **({"error": REFUSED} if shut else {kind: {}})})
                if kind == "publish" and not shut:
                    replies.append({"push": {"channel": command[kind]["channel"], "pub": command[kind]}})
            if replies:
                await connection.send("\n".join(orjson.dumps(reply).decode() for reply in replies))


@pytest.fixture
async def alike() -> AsyncIterator[Alike]:
    made = Alike()
    async with serve(made.handle, "127.0.0.1", 0, max_size=None) as server:
        made.url = f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}"
        yield made


@contextlib.asynccontextmanager
async def joined(url: str) -> AsyncIterator[Member]:
    member = Member()
    member.connection = await Centrifuge([url], "run").connect(7, member.on_message, member.on_error)
    yield member
    await member.connection.close()


class TestCentrifuge(Contract):
    system = "centrifuge"

    async def test_a_topic_that_is_too_long_is_refused_and_the_others_are_subscribed_to(
        self, url: str, join: Join
    ) -> None:
        member = await join(url)
        with pytest.raises(BackendError) as caught:
            await member.connection.subscribe(["a", "x" * 1025, "b"])
        assert caught.value.code == "bad request"
        await member.connection.publish([("a", "1"), ("b", "2")])
        await member.has(2)
        assert member.received == [("a", "1"), ("b", "2")]
        assert member.errors == []

    async def test_more_channels_than_the_librarys_default_allows(self, url: str, join: Join) -> None:
        member = await join(url)
        await member.connection.subscribe([str(number) for number in range(129)])
        await member.connection.publish([("128", "x" * 60_000)])
        await member.has(1)
        assert member.received == [("128", "x" * 60_000)]

    async def test_there_are_no_counters(self, url: str) -> None:
        assert await Centrifuge([url], "run").counters() == []


async def test_commands_share_frames_and_none_is_larger_than_a_server_takes(alike: Alike) -> None:
    async with joined(alike.url) as member:
        await member.connection.publish([("topic", f"{number:09}".ljust(200, "x")) for number in range(1000)])
        await member.connection.publish([("topic", "x" * 40_000)])
        await member.has(1001)
    assert alike.commands[0] == {"id": 1, "connect": {"name": "run-7"}}
    assert [command["id"] for command in alike.commands] == list(range(1, 1003))
    sizes = [len(b"\n".join(map(orjson.dumps, frame))) for frame in alike.frames]
    assert all(size < centrifuge._FRAME_BYTES + 256 for size in sizes[:-1])
    assert len(alike.frames) == 2 + -(-sum(sizes[1:-1]) // centrifuge._FRAME_BYTES)


async def test_a_large_subscribe_waits_now_and_then(alike: Alike, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(centrifuge, "_COMMANDS_PER_WAIT", 10)
    async with joined(alike.url) as member:
        await member.connection.subscribe([str(number) for number in range(25)])
        await member.connection.unsubscribe([str(number) for number in range(25)])
    assert [len(frame) for frame in alike.frames] == [1, 10, 10, 5, 10, 10, 5]


async def test_refusals_go_to_the_call_that_waits_or_are_told(alike: Alike) -> None:
    async with joined(alike.url) as member:
        await member.connection.publish([("shut", "1"), ("open", "2"), ("shut", "3")])
        with pytest.raises(BackendError, match="permission denied") as caught:
            await member.connection.subscribe(["open", "shut"])
        assert caught.value.code == "permission denied"
        # A waiting call takes only its own replies: those of publishes came before.
        await member.until(lambda: len(member.errors) == 2)
        await member.connection.subscribe(["open too"])
        assert member.errors == ["permission denied"] * 2
        assert member.received == [("open", "2")]


async def test_pings_are_answered_and_what_is_no_publication_is_none(alike: Alike) -> None:
    async with joined(alike.url) as member:
        (connection,) = alike.connections
        await connection.send(
            '{}\n{"push":{"channel":"a","join":{"info":{}}}}\n{"push":{"channel":"a","pub":{"data":1}}}'
        )
        await member.has(1)
        await connection.send('{"push":{"channel":"a","unsubscribe":{"code":2500,"reason":"gone"}}}')
        await member.until(lambda: member.errors)
        await member.connection.subscribe(["b"])  # its reply says that the server has read everything before
        assert member.received == [("a", "")]
        assert member.errors == ["unsubscribed"]
    assert alike.frames[1] == [{}]


@pytest.mark.parametrize("said", ["no JSON", '{"push":'])
async def test_a_server_that_speaks_something_else_is_lost(alike: Alike, said: str) -> None:
    async with joined(alike.url) as member:
        (connection,) = alike.connections
        await connection.send(said)
        await member.until(lambda: member.errors)
        with pytest.raises(BackendError, match="does not speak Centrifuge's JSON protocol"):
            await member.connection.publish([("a", "b")])
    assert member.errors == ["connection_lost"]


async def test_a_server_that_hangs_up_at_once_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    async def handle(connection: ServerConnection) -> None:
        await connection.recv()
        await connection.close(3501, "bad request")

    async with serve(handle, "127.0.0.1", 0) as server:
        url = f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}"
        errors: list[str] = []
        with pytest.raises(BackendError, match=r"3501.*bad request.*bench rivals up centrifuge") as caught:
            await Centrifuge([url], "run").connect(0, lambda topic, payload: None, errors.append)
    assert caught.value.code == "connect"
    assert errors == []
