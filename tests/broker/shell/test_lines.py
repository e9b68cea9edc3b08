"""Several commands and messages in one frame: SPEC section 1.6."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from ingeborg.broker.core.clients.sessions import READ_AHEAD
from ingeborg.broker.core.codec import COPIED_BYTES
from ingeborg.broker.shell.fairness import QUANTUM_BYTES
from ingeborg.broker.store.embedded.store import EmbeddedStore
from ingeborg.protocol.client import Client
from ingeborg.protocol.lines import LINES, LINES_BYTES_MAX

from ..running import PATIENCE_S, Gated, Plain, Raw, Running, plain, raw, raw_frame, running

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.usefixtures("transport", "logged"),
    pytest.mark.above_sockets,
]

TEXT, CLOSE = 0x81, 0x88
SUCCESS = {"result": "success"}
OFFER = f"Sec-WebSocket-Protocol: {LINES}\r\n"


def lined(commands: Iterable[Any]) -> bytes:
    return b"\n".join(each if isinstance(each, bytes) else orjson.dumps(each) for each in commands)


def publishes(count: int, topic: str, **fields: Any) -> Iterator[dict[str, Any]]:
    for number in range(count):
        yield {"command": "publish", "client_id": "p", "topic": topic, "payload": number, **fields}


@asynccontextmanager
async def of_lines(url: str) -> AsyncIterator[Raw]:
    async with raw(url) as connection:
        assert f"sec-websocket-protocol: {LINES}".encode() in (await connection.upgrade(headers=OFFER)).lower()
        yield connection


async def heard(connection: Raw, count: int) -> tuple[list[Any], int]:
    """Return this many lines, and the number of their frames."""
    found: list[Any] = []
    frames = 0
    while len(found) < count:
        first, payload = await connection.frame()
        assert first == TEXT
        assert len(payload) <= LINES_BYTES_MAX
        found += [orjson.loads(line) for line in payload.split(b"\n")]
        frames += 1
    return found, frames


@asynccontextmanager
async def subscriber(url: str, topic: str) -> AsyncIterator[Plain]:
    async with plain(url) as client:
        for command in ({"command": "listen"}, {"command": "subscribe", "topic": topic}):
            assert await client.ask({"client_id": topic, **command}) == SUCCESS
        yield client


# -- Which clients use lines


@pytest.mark.parametrize(
    ("offer", "taken"),
    [("", False), ("chat", False), (f"chat, {LINES}", True), (f"chat\r\nSec-WebSocket-Protocol: {LINES}", True)],
)
async def test_lines_are_spoken_where_both_do(shared: Running, offer: str, taken: bool) -> None:
    headers = f"Sec-WebSocket-Protocol: {offer}\r\n" if offer else ""
    async with raw(shared.url) as connection:
        response = (await connection.upgrade(headers=headers)).lower()
        assert response.startswith(b"http/1.1 101")
        assert (f"sec-websocket-protocol: {LINES}".encode() in response) is taken
        connection.writer.write(raw_frame(TEXT, lined(publishes(2, "t", ack=True))))
        replies = (await heard(connection, 2 if taken else 1))[0]
        assert ["error" in reply for reply in replies] == ([False, False] if taken else [True])


# -- Lines that come


async def test_each_line_is_answered_by_itself_and_in_order(shared: Running) -> None:
    async with of_lines(shared.url) as connection:
        commands = [
            {"command": "listen", "client_id": "order", "id": 0},
            b"{",
            b"",
            {"command": "publish", "client_id": "order", "topic": "", "payload": 1, "id": 3},
            {"command": "nothing", "client_id": "order", "id": 4},
            {"command": "subscribe", "client_id": "order", "topic": "order", "id": 5},
            {"command": "publish", "client_id": "order", "topic": "order", "payload": "ä", "ack": True, "id": 6},
        ]
        connection.writer.write(raw_frame(TEXT, lined(commands) + b"\n"))
        found = (await heard(connection, 8))[0]
    replies = [line for line in found if "broadcast" not in line]
    assert [reply.get("error") for reply in replies] == [
        None,
        "bad_json",
        "bad_json",
        "bad_topic",
        "bad_command",
        None,
        None,
    ]
    assert [reply.get("id") for reply in replies] == [0, None, None, 3, 4, 5, 6]
    assert [line["broadcast"] for line in found if "broadcast" in line] == ["ä"]


@pytest.mark.parametrize("how", ["whole", "fragments", "binary"])
async def test_a_megabyte_of_commands_counts_whole(shared: Running, how: str) -> None:
    topic = f"megabyte {how}"
    most = LINES_BYTES_MAX // len(lined(publishes(1, topic))) - 1
    data = lined(publishes(most, topic))[: LINES_BYTES_MAX - 10].rpartition(b"\n")[0]
    count = data.count(b"\n") + 1
    async with subscriber(shared.url, topic) as listener, of_lines(shared.url) as connection:
        if how == "fragments":
            half = len(data) // 2 + 7
            connection.writer.write(raw_frame(0x01, data[:half]) + raw_frame(0x80, data[half:]))
        else:
            connection.writer.write(raw_frame(TEXT if how == "whole" else 0x82, data))
        # Later commands wait.
        last = {"command": "publish", "client_id": "p", "topic": topic, "payload": "last", "ack": True}
        connection.writer.write(raw_frame(TEXT, orjson.dumps(last)))
        for number in range(count):
            assert (await listener.hear())["broadcast"] == number
        assert (await listener.hear())["broadcast"] == "last"
        assert (await heard(connection, 1))[0] == [{**SUCCESS, "duplicate": False}]


@pytest.mark.parametrize("behind", [[], [{"command": "unlisten", "client_id": "f", "id": 2_000}]])
async def test_a_last_fragment_in_two_chunks_is_taken_at_once(shared: Running, behind: list[dict[str, Any]]) -> None:
    commands = [{"command": "unlisten", "client_id": "f", "id": number} for number in range(2_000)]
    data = lined(commands)
    last = raw_frame(0x80, data[100:])
    async with of_lines(shared.url) as connection:
        connection.writer.write(raw_frame(0x01, data[:100]) + last[:-50])
        await connection.writer.drain()
        await asyncio.sleep(0.1)
        connection.writer.write(last[-50:] + b"".join(raw_frame(TEXT, orjson.dumps(command)) for command in behind))
        async with asyncio.timeout(PATIENCE_S):
            found = (await heard(connection, 2_000 + len(behind)))[0]
    assert [reply["id"] for reply in found] == list(range(2_000 + len(behind)))


async def test_others_come_between_the_lines_of_one(shared: Running) -> None:
    """Another client's command gets its answer before a megabyte of lines is done."""
    async with of_lines(shared.url) as connection, plain(shared.url) as other:
        counts = shared.server.router.counters.counts
        before = counts["publishes_received"]
        connection.writer.write(raw_frame(TEXT, lined(publishes(12_000, "between"))))
        while counts["publishes_received"] == before:
            assert "result" in await other.ask({"command": "unlisten", "client_id": "other"})
        assert counts["publishes_received"] < before + 12_000
        await shared.until(lambda metrics: metrics["ingeborg_publishes_received_total"] == before + 12_000)


async def test_more_than_a_megabyte_is_one_command(shared: Running) -> None:
    topics = [f"{number:0100}" for number in range(11_000)]
    command = orjson.dumps({"command": "subscribe", "client_id": "large", "topic": topics}, option=orjson.OPT_INDENT_2)
    assert len(command) > LINES_BYTES_MAX
    many = lined(publishes(20_000, "many"))
    assert len(many) > LINES_BYTES_MAX
    async with of_lines(shared.url) as connection:
        connection.writer.write(raw_frame(TEXT, command) + raw_frame(TEXT, many))
        found = (await heard(connection, 2))[0]
    assert found[0] == SUCCESS
    assert found[1]["error"] == "bad_json"


async def test_a_line_of_more_than_64_kib_is_read_elsewhere_and_holds_its_place(shared: Running) -> None:
    subscribe = {
        "command": "subscribe",
        "client_id": "l",
        "topic": [f"{number:0100}" for number in range(2_000)],
        "id": 1,
    }
    commands = [subscribe, {"command": "unlisten", "client_id": "l", "id": 2}]
    async with of_lines(shared.url) as connection:
        connection.writer.write(raw_frame(TEXT, lined(commands)))
        assert (await heard(connection, 2))[0] == [{**SUCCESS, "id": 1}, {**SUCCESS, "id": 2}]


async def test_lines_that_have_to_wait_stay_one_object(tmp_path: Path) -> None:
    """While the first command waits for the store, few later ones leave their frame."""
    gate = Gated(EmbeddedStore(tmp_path, timeout_s=PATIENCE_S))
    async with running(tmp_path, store=gate) as endpoint, of_lines(endpoint.url) as connection:
        gate.shut()
        first = {"command": "subscribe", "client_id": "w", "topic": "waits"}
        rest = [{"command": "unlisten", "client_id": "w"}] * 15_000
        connection.writer.write(raw_frame(TEXT, lined([first, *rest])))
        (waits,) = endpoint.server.router.sessions.connections.values()
        held = await endpoint.until(lambda _: waits.backpressure)
        assert READ_AHEAD <= len(waits.backlog) <= READ_AHEAD + QUANTUM_BYTES // 30
        assert held["ingeborg_held_bytes"] <= 2 * LINES_BYTES_MAX
        gate.reopen()
        assert (await heard(connection, 15_001))[0] == [SUCCESS] * 15_001


@pytest.mark.parametrize("how", ["close", "cut"])
async def test_what_came_before_the_end_counts(shared: Running, how: str) -> None:
    topic = f"before the end: {how}"
    async with subscriber(shared.url, topic) as listener:
        async with of_lines(shared.url) as connection:
            connection.writer.write(raw_frame(TEXT, lined(publishes(5_000, topic))))
            if how == "close":
                connection.writer.write(raw_frame(CLOSE, b"\x03\xe8"))
                assert await connection.close_code() == 1000
            else:
                await listener.hear()
                connection.writer.close()
        async with asyncio.timeout(PATIENCE_S):
            for number in range(0 if how == "close" else 1, 5_000):
                assert (await listener.hear())["broadcast"] == number


async def test_a_frame_that_is_no_text_closes_and_those_before_it_count(shared: Running) -> None:
    async with subscriber(shared.url, "utf") as listener, of_lines(shared.url) as connection:
        good = lined(publishes(3, "utf"))
        connection.writer.write(raw_frame(TEXT, good) + raw_frame(TEXT, good + b"\n\xff"))
        assert await connection.close_code() == 1007
        for number in range(3):
            assert (await listener.hear())["broadcast"] == number


# -- Lines that are sent


async def test_what_there_is_to_say_goes_in_one_frame(shared: Running) -> None:
    async with of_lines(shared.url) as connection, plain(shared.url) as publisher:
        commands = [
            {"command": "listen", "client_id": "one"},
            {"command": "subscribe", "client_id": "one", "topic": "one"},
        ]
        connection.writer.write(raw_frame(TEXT, lined(commands)))
        assert (await heard(connection, 2))[0] == [SUCCESS, SUCCESS]
        connection.writer.write(raw_frame(TEXT, lined(publishes(3_000, "one"))))
        found, frames = await heard(connection, 3_000)
        assert [line["broadcast"] for line in found] == list(range(3_000))
        assert frames < 1_000
        # A single one is an ordinary frame.
        await publisher.send({"command": "publish", "client_id": "p", "topic": "one", "payload": "alone"})
        assert await connection.frame() == (TEXT, b'{"key":"one","broadcast":"alone"}')


async def test_lines_are_compressed_together(tmp_path: Path) -> None:
    async with (
        running(tmp_path, compression=True) as endpoint,
        plain(endpoint.url, compression="deflate", subprotocols=[LINES]) as client,
    ):
        assert client.socket.subprotocol == LINES
        commands = [{"command": "listen", "client_id": "z"}, {"command": "subscribe", "client_id": "z", "topic": "z"}]
        await client.send(lined([*commands, *publishes(2_000, "z")]).decode())
        found: list[Any] = []
        frames = 0
        while len(found) < 2_002:
            async with asyncio.timeout(PATIENCE_S):
                message = await client.socket.recv()
            assert isinstance(message, str)
            found += map(orjson.loads, message.split("\n"))
            frames += 1
        assert found == [SUCCESS, SUCCESS, *({"key": "z", "broadcast": number} for number in range(2_000))]
        assert frames < 1_000


async def test_whoever_subscribes_gets_it_in_the_form_of_its_connection(tmp_path: Path) -> None:
    """Side by side: frames, lines, and both compressed."""
    async with running(tmp_path, compression=True) as endpoint, AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(plain(endpoint.url, compression=compression, subprotocols=subprotocols))
            for compression in (None, "deflate")
            for subprotocols in (None, [LINES])
        ]
        for number, client in enumerate(clients):
            for command in ({"command": "listen"}, {"command": "subscribe", "topic": "all"}):
                assert await client.ask({"client_id": number, **command}) == SUCCESS
        publisher = await stack.enter_async_context(of_lines(endpoint.url))
        payloads = [0, "ä", "x" * COPIED_BYTES, "y" * (LINES_BYTES_MAX - 2), *range(1, 20)]
        for payload in payloads:
            publish = {"command": "publish", "client_id": "p", "topic": "all", "payload": payload}
            publisher.writer.write(raw_frame(TEXT, orjson.dumps(publish)))
        for number, client in enumerate(clients):
            found: list[Any] = []
            while len(found) < len(payloads):
                async with asyncio.timeout(PATIENCE_S):
                    message = await client.socket.recv()
                assert isinstance(message, str)
                lines = message.split("\n")
                assert len(lines) == 1 or number % 2, "only those who ask for lines get several in one"
                found += map(orjson.loads, lines)
            assert found == [{"key": "all", "broadcast": payload} for payload in payloads]


# -- The library


@pytest.mark.parametrize("lines", [True, False])
async def test_the_library_speaks_in_lines_unless_it_is_told_not_to(shared: Running, lines: bool) -> None:
    name = f"library {lines}"
    async with Client(shared.url, name, listen=True, lines=lines) as client:
        assert client.in_lines is lines
        await client.subscribe([name, f"{name}, too"])
        await client.publish_many([(name, number) for number in range(2_000)])
        assert await client.publish(f"{name}, too", "last", ack=True) is False
        async with asyncio.timeout(PATIENCE_S):
            found = [await anext(client) for _ in range(2_001)]
        assert [each.broadcast for each in found] == [*range(2_000), "last"]
    assert client.in_lines is False
