"""Large frames and the memory of connections, over real sockets: with a real reader process, and one bound for all."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
import subprocess
import sys
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from ingeborg.broker.children import spawn
from ingeborg.broker.core.connections.large import pack_arguments
from ingeborg.broker.core.limits import Limits
from ingeborg.broker.shell.client_socket import INFLATED_BYTES_MAX
from ingeborg.broker.shell.clients import COMPRESS_BYTES
from ingeborg.protocol.errors import ERRORS, FRAME_TOO_LARGE, HELD_TOO_MUCH, NOT_UTF8, Next
from ingeborg.protocol.frames import text_frame
from tests.conftest import Logged

from ..running import PATIENCE_S, Raw, Running, alive, children, plain, raw, raw_frame, running, serving

pytestmark = pytest.mark.usefixtures("transport", "logged")

KiB, MiB = 1 << 10, 1 << 20
SUCCESS = {"result": "success"}


@pytest.fixture
async def endpoint(tmp_path: Path) -> AsyncIterator[Running]:
    async with running(tmp_path) as endpoint:
        yield endpoint


def padded(size: int, **fields: Any) -> dict[str, Any]:
    return {"client_id": "a", **fields, "x": "x" * size}


def publish(number: int, size: int = 0) -> dict[str, Any]:
    return {"command": "publish", "client_id": "p", "topic": "t", "payload": [number, "x" * size], "ack": True}


@pytest.mark.over_tcp
async def test_without_large_frames_there_is_no_reader(endpoint: Running) -> None:
    async with plain(endpoint.url) as client:
        assert await client.ask(padded(60 * KiB, command="listen")) == SUCCESS
        assert endpoint.server.reader.pid is None
        assert await client.ask(padded(64 * KiB, command="listen")) == SUCCESS
        assert endpoint.server.reader.pid is not None


async def test_frames_of_all_sizes_take_effect_in_their_order(endpoint: Running) -> None:
    async with plain(endpoint.url) as client, plain(endpoint.url) as publisher:
        await client.send(padded(0, command="listen", id=0), padded(100 * KiB, command="subscribe", topic="t", id=1))
        await client.send(padded(0, command="unsubscribe", topic="u", id=2), padded(MiB, command="listen", id=3))
        assert [(await client.hear())["id"] for _ in range(4)] == [0, 1, 2, 3]
        sizes = [0, 200 * KiB, 10, MiB - 100, 0, 70 * KiB, 15 * KiB, 0]
        await publisher.send(*({**publish(number, size), "id": number} for number, size in enumerate(sizes)))
        for number, size in enumerate(sizes):
            heard = await client.hear()
            assert heard["broadcast"] == [number, "x" * size]
            assert (await publisher.hear())["id"] == number


@pytest.mark.over_tcp
async def test_a_subscribe_of_16_MiB(endpoint: Running) -> None:
    topics = [f"Artist {number} - Some song of theirs" for number in range(400_000)]
    frame = orjson.dumps({"command": "subscribe", "client_id": "a", "topic": topics, "id": 1})
    assert 14 * MiB < len(frame) < 16 * MiB
    async with plain(endpoint.url) as client:
        # A shared disk can take longer than a command can: the client gets an error, and tries again.
        replies = [await client.ask(frame.decode())]
        while replies[-1].get("error") == "store_unavailable" and len(replies) < 5:
            replies.append(await client.ask(frame.decode()))
        assert replies[-1] == {**SUCCESS, "id": 1}
        for topic in (topics[0], topics[-1]):
            reply = await client.ask({"command": "subscribers", "client_id": "a", "topic": topic})
            assert reply["subscribers"] == [{"client_id": "a", "online": False, "endpoint": None}]
        bad = orjson.dumps({"command": "subscribe", "client_id": "a", "topic": [*topics[:300_000], ""], "id": 2})
        reply = await client.ask(bad.decode())
        assert (reply["error"], reply["id"]) == ("bad_topic", 2)
    await endpoint.until(lambda metrics: metrics["ingeborg_held_bytes"] == 0)


async def test_a_large_text_that_is_not_utf8_closes_and_a_binary_one_is_answered(endpoint: Running) -> None:
    bad = b'{"command":"listen","client_id":"' + b"a" * 100 * KiB + b'\xff"}'
    async with raw(endpoint.url) as client:
        await client.upgrade(behind=raw_frame(0x82, bad) + raw_frame(0x81, bad))
        first, payload = await client.frame()
        assert first == 0x81
        assert orjson.loads(payload)["error"] == "bad_json"
        assert await client.close_code() == NOT_UTF8.code
    async with raw(endpoint.url) as client:  # in fragments, the bad one large
        await client.upgrade(behind=raw_frame(0x01, b"{") + raw_frame(0x00, bad) + raw_frame(0x80, b"}"))
        assert await client.close_code() == NOT_UTF8.code


@pytest.mark.parametrize("step", [1 * KiB, 64 * KiB + 1, MiB])
async def test_a_large_frame_in_fragments(endpoint: Running, step: int) -> None:
    text = orjson.dumps(padded(300 * KiB, command="listen", id="é"))
    pieces = [text[start : start + step] for start in range(0, len(text), step)]
    frames = [raw_frame(0x00, piece) for piece in pieces]
    frames[0] = raw_frame(0x01, pieces[0])
    async with raw(endpoint.url) as client:
        await client.upgrade(behind=b"".join(frames) + raw_frame(0x80))
        assert orjson.loads((await client.frame())[1]) == {**SUCCESS, "id": "é"}


async def test_a_frame_over_the_limit_is_closed_upon_before_it_has_come(tmp_path: Path) -> None:
    async with running(tmp_path, frame_bytes_max=MiB) as endpoint, raw(endpoint.url) as client:
        await client.upgrade(behind=raw_frame(0x81, b"", length=MiB + 1))
        assert await client.close_code() == FRAME_TOO_LARGE.code


async def test_a_reader_that_dies_costs_nothing(endpoint: Running) -> None:
    async with plain(endpoint.url) as client:
        assert await client.ask(padded(MiB, command="listen")) == SUCCESS
        reader = endpoint.server.reader
        first = reader.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)  # idle: the endpoint may not have noticed when the next frame comes
        assert await client.ask(padded(MiB, command="listen")) == SUCCESS
        second = reader.pid
        assert second not in (None, first)
        os.kill(second, signal.SIGSTOP)
        await client.send(padded(MiB, command="listen", id=1), padded(0, command="listen", id=2))
        await endpoint.until(lambda metrics: metrics["ingeborg_held_bytes"] > MiB)
        os.kill(second, signal.SIGKILL)  # with this frame before it
        assert await client.hear() == {**SUCCESS, "id": 1}
        assert await client.hear() == {**SUCCESS, "id": 2}
        metrics = await endpoint.metrics()
        assert metrics['ingeborg_large_frames_total{result="failed"}'] == 0
        assert metrics['ingeborg_large_frames_total{result="read"}'] == 3
        assert metrics["ingeborg_reader_starts_total"] == 3


@pytest.mark.parametrize("says", [None, b"nonsense"])
async def test_a_frame_that_every_reader_fails_at_costs_one_answer(
    endpoint: Running, logged: Logged, says: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The frame kills it, or it answers nonsense."""
    logged.expect("The process that reads large frames")
    (tmp_path / "failing.py").write_text(
        "import os, socket\n"
        "with socket.socket(fileno=os.dup(0)) as connection:\n"
        "    connection.recv(1)\n"
        f"    words = {says!r}\n"
        "    if words:\n"
        "        connection.sendall(len(words).to_bytes(4, 'big') + words)\n"
        "        while connection.recv(65536): pass\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    async with plain(endpoint.url) as client:
        with monkeypatch.context() as patched:
            patched.setattr(
                "ingeborg.broker.shell.reading.spawn", lambda module, *arguments: spawn("failing", *arguments)
            )
            await client.send(padded(MiB, command="listen", id=1), padded(0, command="listen", id=2))
            reply = await client.hear()
            assert reply["error"] == "internal"
            assert await client.hear() == {**SUCCESS, "id": 2}
        assert await client.ask(padded(MiB, command="listen", id=3)) == {**SUCCESS, "id": 3}
        metrics = await endpoint.metrics()
        assert metrics['ingeborg_large_frames_total{result="failed"}'] == 1
        assert metrics['ingeborg_large_frames_total{result="read"}'] == 1


@pytest.mark.over_tcp
@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM], ids=errno.errorcode.get)
async def test_a_large_frame_that_finds_no_reader_is_to_be_sent_again(
    endpoint: Running, logged: Logged, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    """No descriptor is left, no process, or no memory."""
    logged.expect("the process that reads large frames cannot be started: .*" + os.strerror(error))

    def none_left(*_: object) -> None:
        raise OSError(error, os.strerror(error))

    async with plain(endpoint.url) as client:
        with monkeypatch.context() as patched:
            patched.setattr("ingeborg.broker.shell.reading.spawn", none_left)
            for number in range(3):
                reply = await client.ask({**padded(MiB, command="listen"), "id": number})
                assert (reply["error"], reply["id"]) == ("peer_unavailable", number)
                assert ERRORS[reply["error"]].next is Next.RETRY
                assert "try again later" in reply["info"]
        assert await client.ask(padded(MiB, command="listen", id=3)) == {**SUCCESS, "id": 3}
    assert caplog.text.count("cannot be started") == 1


@pytest.mark.over_tcp
@pytest.mark.parametrize("sent", [0, 3, 8, -1, None], ids=["nothing", "a-length", "lengths", "nearly-all", "all"])
def test_a_reader_whose_endpoint_was_killed_ends_without_a_word(sent: int | None) -> None:
    arguments, data = pack_arguments(True, MiB, None), orjson.dumps(padded(MiB, command="listen"))
    request = b"".join((len(arguments).to_bytes(4, "big"), len(data).to_bytes(4, "big"), arguments, data))
    ours, theirs = socket.socketpair()
    with theirs:
        reader = subprocess.Popen(
            [sys.executable, "-m", "ingeborg.broker.shell.reader"], stdin=theirs.fileno(), stderr=subprocess.PIPE
        )
    with ours, reader:
        ours.sendall(request[:sent])
        ours.close()
        assert reader.communicate(timeout=PATIENCE_S)[1] == b""
        assert reader.returncode == 0


async def test_a_reader_with_nothing_to_do_ends_and_so_does_that_of_a_killed_endpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ingeborg.broker.shell.reading.IDLE_S", 0.01)
    async with running(tmp_path / "one") as endpoint, plain(endpoint.url) as client:
        assert await client.ask(padded(MiB, command="listen")) == SUCCESS
        async with asyncio.timeout(PATIENCE_S):
            while endpoint.server.reader.pid is not None:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert await client.ask(padded(MiB, command="listen")) == SUCCESS
    async with serving(tmp_path) as (process, url), plain(url) as client:
        assert await client.ask(padded(MiB, command="listen")) == SUCCESS
        readers = [pid for pid in children(process.pid) if b"ingeborg.broker.shell.reader" in _command(pid)]
        assert len(readers) == 1
        await process.end(signal.SIGKILL)
        async with asyncio.timeout(PATIENCE_S):
            while alive(readers[0]):  # noqa: ASYNC110
                await asyncio.sleep(0.01)


def _command(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


@pytest.mark.over_tcp
async def test_a_frame_as_dear_as_may_be_is_read_by_a_process_that_is_the_first_to_be_killed(tmp_path: Path) -> None:
    """When the machine has no memory left. Even with a tiny bound on connections, one frame is read."""
    keys = b",".join(b'"%d":1' % number for number in range(1_000_000, 2_300_000))
    frame = b'{"command":"listen","client_id":"a","x":{' + keys + b"}}"
    async with running(tmp_path, limits=Limits(held_bytes=64 * MiB)) as endpoint, plain(endpoint.url) as client:
        assert await client.ask(frame.decode()) == SUCCESS
        assert endpoint.server.reader.pid is not None
        assert _oom_score(endpoint.server.reader.pid) in (None, 1000)


def _oom_score(pid: int) -> int | None:
    """Return the memory; ``None``: not on Linux."""
    score = Path(f"/proc/{pid}/oom_score_adj")
    return int(score.read_text(encoding="ascii")) if score.exists() else None


# -- The memory of all connections


def crowded(held_bytes: int) -> dict[str, Any]:
    """Limits with that bound, which apply as counted: this process holds more than an endpoint's anyway."""
    return {"limits": Limits(held_bytes=held_bytes)}


async def test_of_unfinished_frames_the_largest_go(tmp_path: Path) -> None:
    async with running(tmp_path, **crowded(10 * MiB)) as endpoint:
        unfinished = raw_frame(0x81, b"x" * 8 * MiB)
        async with raw(endpoint.url) as small, raw(endpoint.url) as large, raw(endpoint.url) as fragments:
            for client, data in ((small, unfinished[: 2 * MiB]), (large, unfinished[: 5 * MiB])):
                await client.upgrade(behind=data)
            await endpoint.until(lambda metrics: metrics["ingeborg_held_bytes"] > 6.9 * MiB)
            await fragments.upgrade(behind=raw_frame(0x01, b"x" * 4 * MiB))
            assert await large.close_code() == HELD_TOO_MUCH.code
            metrics = await endpoint.until(lambda metrics: 5.9 * MiB < metrics["ingeborg_held_bytes"] < 7 * MiB)
            assert metrics["ingeborg_connections_held_too_much_total"] == 1
            fragments.writer.transport.abort()
            await endpoint.until(lambda metrics: metrics["ingeborg_held_bytes"] < 3 * MiB)
            small.writer.write(unfinished[2 * MiB :])
            assert orjson.loads((await small.frame())[1])["error"] == "bad_json"
        metrics = await endpoint.until(lambda metrics: metrics["ingeborg_connections"] == 0)
        assert metrics["ingeborg_held_bytes"] == 0


async def subscriber(client: Raw, number: int) -> None:
    """It listens and is subscribed to the topic `all`; its messages wait from here on until somebody reads."""
    await client.upgrade()
    for command in ("listen", "subscribe"):
        text = orjson.dumps({"command": command, "client_id": number, "topic": "all"})
        client.writer.write(raw_frame(0x81, text))
        assert orjson.loads((await client.frame())[1]) == SUCCESS


async def test_of_readers_that_do_not_read_those_furthest_behind_go(tmp_path: Path) -> None:
    async with (
        running(tmp_path, **crowded(24 * MiB)) as endpoint,
        plain(endpoint.url) as publisher,
        raw(endpoint.url) as one,
        raw(endpoint.url) as two,
        raw(endpoint.url) as reading,
    ):
        for number, client in enumerate((one, two, reading)):
            await subscriber(client, number)
        heard = 0
        for number in range(60):
            await publisher.ask({**publish(number, MiB - 100), "topic": "all"})
            assert orjson.loads((await reading.frame())[1])["broadcast"][0] == number
            heard += 1
            if (await endpoint.metrics())["ingeborg_connections_held_too_much_total"]:
                break
        metrics = await endpoint.metrics()
        assert heard > 12
        assert metrics["ingeborg_connections_held_too_much_total"] in (1, 2)
        assert metrics["ingeborg_held_bytes"] <= 24 * MiB
        assert metrics['ingeborg_drops_total{reason="held_too_much"}'] > 0
        await publisher.ask({**publish(99), "topic": "all"})
        assert orjson.loads((await reading.frame())[1])["broadcast"][0] == 99


async def test_what_is_written_piece_by_piece_comes_before_the_answer_to_a_close(endpoint: Running) -> None:
    """A page of several MiB to a client that has said goodbye before it reads the page."""
    topics = [f"{number:05d}" + "x" * 900 for number in range(6_000)]
    async with plain(endpoint.url) as client:
        for start in range(0, 6_000, 1_000):
            await client.ask({"command": "subscribe", "client_id": "a", "topic": topics[start : start + 1_000]})
    async with raw(endpoint.url) as client:
        await client.upgrade()
        page = b'{"command":"subscriptions","client_id":"a","limit":10000}'
        client.writer.write(raw_frame(0x81, page) * 2)
        first, payload = await client.frame()
        assert sorted(orjson.loads(payload)["topic"]) == topics
        client.writer.write(raw_frame(0x88, (1000).to_bytes(2, "big")))
        first, payload = await client.frame()
        if first == 0x81:  # the second page was ready before the close came
            assert len(orjson.loads(payload)["topic"]) == 6_000
            first, payload = await client.frame()
        assert first == 0x88
        assert await client.rest() == b""


@pytest.mark.over_tcp
async def test_long_messages_to_many_clients_of_one_connection(endpoint: Running) -> None:
    """They go out in pieces, and every client gets its own, in the order of publication."""
    async with plain(endpoint.url) as many, plain(endpoint.url) as publisher:
        for number in range(20):
            await many.ask({"command": "listen", "client_id": number})
            await many.ask({"command": "subscribe", "client_id": number, "topic": "t"})
        for number in range(3):
            await publisher.send(publish(number, MiB - 100))
        heard = [(await many.hear())["broadcast"][0] for _ in range(60)]
        assert heard == [0] * 20 + [1] * 20 + [2] * 20
        for _ in range(3):
            assert (await publisher.hear())["result"] == "success"


# -- Compression


async def test_messages_that_are_inflated_have_a_limit_of_their_own(tmp_path: Path) -> None:
    async with running(tmp_path, compression=True) as endpoint:
        async with plain(endpoint.url, compression="deflate") as client:
            assert await client.ask(padded(MiB, command="listen")) == SUCCESS
            await client.send(padded(INFLATED_BYTES_MAX, command="listen"))
            assert (await client.closed())[0] == FRAME_TOO_LARGE.code
        async with plain(endpoint.url, compression=None) as client:
            assert await client.ask(padded(2 * INFLATED_BYTES_MAX, command="listen")) == SUCCESS


async def test_large_messages_go_out_uncompressed_and_small_ones_do_not_in_their_order(tmp_path: Path) -> None:
    """Even if one turn has more than the endpoint compresses at once."""
    sizes = (0, 200, 70 * KiB, *[30 * KiB] * 6, MiB, 60 * KiB, 1)
    async with running(tmp_path, compression=True) as endpoint, raw(endpoint.url) as client:
        head = await client.upgrade(headers="Sec-WebSocket-Extensions: permessage-deflate\r\n")
        assert b"permessage-deflate" in head
        (connection,) = endpoint.server.router.sessions.connections.values()
        for number, size in enumerate(sizes):
            endpoint.server.router._sending.push(connection, b"%04d" % number + b"x" * size)
        endpoint.server.driver.turn()
        inflating = zlib.decompressobj(-15)
        for number, size in enumerate(sizes):
            first, payload = await client.frame()
            assert first == (0xC1 if size + 4 <= COMPRESS_BYTES else 0x81)
            if first == 0xC1:
                payload = inflating.decompress(payload + b"\0\0\xff\xff")
            assert payload == b"%04d" % number + b"x" * size


async def test_a_ping_does_not_have_all_written_at_once(endpoint: Running) -> None:
    async with raw(endpoint.url) as client:
        await client.upgrade()
        ((connection, socket),) = endpoint.server.clients.sockets.items()
        for _ in range(15):
            endpoint.server.router._sending.push(connection, text_frame(b"x" * MiB))
        endpoint.server.driver._end_turn()
        left = connection.outbox.leaving_bytes
        assert left > 10 * MiB
        socket.data_received(raw_frame(0x89, b"ping"))
        assert connection.outbox.leaving_bytes == left
        socket.data_received(raw_frame(0x88, (1000).to_bytes(2, "big")))
        frames = [await client.frame() for _ in range(17)]
        assert sorted(first for first, _ in frames[:-1]) == [0x81] * 15 + [0x8A]
        assert frames[-1][0] == 0x88
