"""The WebSocket itself: limits, violations, silence, readers that do not read. RFC 6455; SPEC sections 1, 6 and 8."""

from __future__ import annotations

import asyncio
import gc
import secrets
import socket
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import orjson
import pytest
import pytest_asyncio

from ingeborg.broker.core.limits import Limits
from ingeborg.broker.store.embedded.store import EmbeddedStore
from ingeborg.protocol import sockets

from ..running import PATIENCE_S, Gated, Raw, Running, plain, raw, raw_frame, round_trip, running

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("transport", "logged")]

SUCCESS = {"result": "success"}
FRAME_BYTES_MAX = 5_000
LISTEN = b'{"command":"listen","client_id":"c"}'

TEXT, BINARY, CLOSE, PING = 0x81, 0x82, 0x88, 0x89


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(
    tmp_path_factory: pytest.TempPathFactory, transport: str, module_log: object
) -> AsyncIterator[Running]:
    """The usual endpoint, but with a limit on frames that is easy to exceed."""
    async with running(tmp_path_factory.mktemp("store"), frame_bytes_max=FRAME_BYTES_MAX) as endpoint:
        yield endpoint


@pytest.fixture
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "PATIENCE_S", 1.0)


def padded(size: int) -> bytes:
    """Return a good command of this many bytes."""
    return LISTEN[:-1] + b" " * (size - len(LISTEN)) + b"}"


async def no_connections(endpoint: Running) -> None:
    await endpoint.until(lambda metrics: not metrics["ingeborg_connections"])


# -- The limit on frames


@pytest.mark.parametrize("first", [TEXT, BINARY], ids=["text", "binary"])
async def test_a_frame_of_exactly_the_limit_is_accepted_and_one_of_a_byte_more_closes(
    shared: Running, first: int
) -> None:
    async with raw(shared.url) as connection:
        await connection.upgrade()
        connection.writer.write(raw_frame(first, padded(FRAME_BYTES_MAX)))
        assert orjson.loads((await connection.frame())[1]) == SUCCESS
        connection.writer.write(raw_frame(first, padded(FRAME_BYTES_MAX + 1)))
        assert await connection.close_code() == 1009
        assert await connection.rest() == b""
    await round_trip(shared.url)


async def test_fragments_count_together(shared: Running) -> None:
    whole = padded(FRAME_BYTES_MAX)
    async with raw(shared.url) as connection:
        await connection.upgrade()
        pieces = [raw_frame(0x01, whole[:2000]), raw_frame(0x00, whole[2000:4000]), raw_frame(0x80, whole[4000:])]
        connection.writer.write(b"".join(pieces))
        assert orjson.loads((await connection.frame())[1]) == SUCCESS
        connection.writer.write(b"".join(pieces[:2]) + raw_frame(0x80, whole[4000:] + b" "))
        assert await connection.close_code() == 1009


async def test_a_frame_is_refused_by_what_it_says_it_has(shared: Running) -> None:
    async with raw(shared.url) as connection:
        await connection.upgrade()
        connection.writer.write(raw_frame(TEXT, length=2**62))
        assert await connection.close_code() == 1009


async def test_the_sender_of_an_enormous_frame_learns_why_it_was_closed(tmp_path: Path) -> None:
    """It is still sending when the endpoint has had enough: the endpoint cannot just reset its connection."""
    async with running(tmp_path) as endpoint:
        async with plain(endpoint.url) as connection:
            await connection.send(padded(16 << 20))
            assert await connection.hear() == SUCCESS
            sending = asyncio.create_task(connection.socket.send(padded((16 << 20) + 1)))
            code, reason = await connection.closed()
            await asyncio.gather(sending, return_exceptions=True)
            assert code == 1009
            assert "16777217" in reason
        async with raw(endpoint.url) as slow:
            await slow.upgrade()
            slow.writer.write(raw_frame(TEXT, b"", length=(16 << 20) + 1))
            assert await slow.close_code() == 1009
            # Most of the frame comes only now; a reset would end this, and on other systems also drop the close frame.
            slow.writer.write(bytes(16 << 20))
            await slow.writer.drain()
            assert await slow.rest() == b""
            assert slow.reader.exception() is None
        await round_trip(endpoint.url)


async def test_what_unpacks_to_more_than_the_limit_closes(tmp_path: Path) -> None:
    options = {"compression": True, "frame_bytes_max": FRAME_BYTES_MAX}
    async with (
        running(tmp_path, store=None, **options) as endpoint,
        plain(endpoint.url, compression="deflate") as connection,
    ):
        assert await connection.ask(padded(FRAME_BYTES_MAX)) == SUCCESS
        await connection.send(padded(10_000_000))
        assert (await connection.closed())[0] == 1009


# -- Violations


async def test_text_that_is_not_utf8_closes(shared: Running) -> None:
    for bad in (b"\xff", LISTEN + b"\xed\xa0\x80", b'"\xc3'):
        for frames in (raw_frame(TEXT, bad), raw_frame(0x01, bad[:1]) + raw_frame(0x80, bad[1:])):
            async with raw(shared.url) as connection:
                await connection.upgrade()
                connection.writer.write(raw_frame(TEXT, LISTEN) + frames + raw_frame(TEXT, LISTEN))
                assert await connection.close_code() == 1007
                assert await connection.rest() == b""
    assert (await shared.metrics())["ingeborg_turns_failed_total"] == 0


@pytest.mark.parametrize(
    "frames",
    [
        raw_frame(TEXT, LISTEN, masked=False),
        raw_frame(0xC1, LISTEN),
        raw_frame(0xA1, LISTEN),
        raw_frame(0x91, LISTEN),
        raw_frame(0x83, LISTEN),
        raw_frame(0x8B),
        raw_frame(0x80, LISTEN),
        raw_frame(0x01, LISTEN) + raw_frame(TEXT, LISTEN),
        raw_frame(0x09, b"half a ping"),
        raw_frame(PING, b"x" * 126),
        raw_frame(CLOSE, b"\x03"),
        raw_frame(CLOSE, (1005).to_bytes(2, "big")),
        raw_frame(CLOSE, (99).to_bytes(2, "big")),
    ],
    ids=[
        *("unmasked", "rsv1", "rsv2", "rsv3", "opcode-3", "opcode-11", "continues-nothing", "not-continued"),
        *("fragmented-ping", "long-ping", "close-of-one-byte", "close-code-1005", "close-code-99"),
    ],
)
async def test_a_violation_closes_with_1002(shared: Running, frames: bytes) -> None:
    async with raw(shared.url) as connection:
        await connection.upgrade()
        connection.writer.write(frames)
        assert await connection.close_code() == 1002
        assert await connection.rest() == b""
    await round_trip(shared.url)


async def test_a_close_is_answered_with_its_code(shared: Running) -> None:
    async with raw(shared.url) as connection:
        await connection.upgrade()
        connection.writer.write(raw_frame(CLOSE, (4444).to_bytes(2, "big") + b"bye"))
        assert await connection.close_code() == 4444
        assert await connection.rest() == b""


async def test_a_ping_is_answered_with_its_data(shared: Running) -> None:
    async with raw(shared.url) as connection:
        await connection.upgrade()
        connection.writer.write(raw_frame(PING, b"\0\xff" * 60))
        assert await connection.frame() == (0x8A, b"\0\xff" * 60)


@pytest.mark.parametrize("behind", [raw_frame(0x83), raw_frame(CLOSE), raw_frame(TEXT, b"\xff"), b"\r\n\r\n" * 10])
async def test_frames_sent_before_the_handshake_is_answered_hurt_nobody_else(
    shared: Running, behind: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    publish = orjson.dumps({"command": "publish", "client_id": 1, "topic": "t", "payload": 1, "ack": True})
    for path in ("/", "/_peer", "/healthz"):
        async with raw(shared.url) as connection:
            with suppress(asyncio.IncompleteReadError):  # a missing answer is fine
                await connection.upgrade(path, behind=raw_frame(TEXT, publish) + behind)
            connection.writer.write_eof()
            await connection.rest()
    await round_trip(shared.url)
    assert (await shared.metrics())["ingeborg_turns_failed_total"] == 0
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


# -- Silence


@pytest.mark.usefixtures("short_patience")
@pytest.mark.parametrize("said", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: x\r\n"], ids=["nothing", "half", "more"])
async def test_a_handshake_that_is_never_finished_is_cut(shared: Running, said: bytes) -> None:
    async with raw(shared.url) as connection:
        connection.writer.write(said)
        with suppress(ConnectionResetError):  # unread data turns its end into a reset
            assert await connection.rest(cut=True) == b""


@pytest.mark.over_tcp
@pytest.mark.usefixtures("short_patience")
async def test_a_handshake_that_drips_is_cut(shared: Running) -> None:
    async with raw(shared.url) as connection:
        rest = asyncio.create_task(connection.rest(cut=True))
        while not rest.done():
            connection.writer.write(b"G")
            await asyncio.wait([rest], timeout=0.02)
        assert isinstance(rest.exception(), ConnectionError | None)


@pytest.mark.usefixtures("short_patience")
async def test_who_does_not_answer_the_close_is_cut(shared: Running) -> None:
    await no_connections(shared)
    async with raw(shared.url) as connection:
        await connection.upgrade()
        connection.writer.write(raw_frame(TEXT, b"\xff"))
        assert await connection.close_code() == 1007
        await no_connections(shared)  # though this side is still open


@asynccontextmanager
async def pinging(tmp_path: Path, ping_s: float) -> AsyncIterator[tuple[Running, Gated]]:
    store = Gated(EmbeddedStore(tmp_path))
    async with running(tmp_path, store=store, ping_s=ping_s) as endpoint:
        yield endpoint, store


async def test_who_answers_no_pings_is_closed_and_who_does_is_not(tmp_path: Path) -> None:
    async with pinging(tmp_path, 0.2) as (endpoint, _), plain(endpoint.url) as lively, raw(endpoint.url) as silent:
        await silent.upgrade()
        heard = [await silent.frame(pings=True) for _ in range(2)]
        assert heard == [(PING, b"")] * 2
        assert await silent.close_code() == 4003
        # It answers neither the close nor the pings: closed once anyway.
        for _ in range(5):
            await lively.ask({"command": "listen", "client_id": "lively"})
            await asyncio.sleep(0.2)
        assert (await endpoint.metrics())["ingeborg_pings_unanswered_total"] == 1


@pytest.mark.over_tcp
async def test_who_is_not_read_is_not_blamed_for_unanswered_pings(tmp_path: Path) -> None:
    async with pinging(tmp_path, 0.2) as (endpoint, store), plain(endpoint.url) as connection:
        store.shut()
        # The second waits for the first, and the endpoint reads nothing until both are done: not even pongs.
        await connection.send({"command": "subscribe", "client_id": "c", "topic": "t"}, LISTEN.decode())
        await asyncio.sleep(1.5)  # the time of seven pings
        store.reopen()
        assert [await connection.hear() for _ in range(2)] == [SUCCESS, SUCCESS]


# -- Readers that do not read


@asynccontextmanager
async def unread(endpoint: Running) -> AsyncIterator[Raw]:
    """A client whose kernel holds next to nothing for it, so that the endpoint soon notices that it does not read."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", endpoint.port))
    async with raw(endpoint.url, limit=1024, sock=sock) as connection:
        yield connection


@pytest.mark.parametrize("reads_at_last", [False, True], ids=["never", "at-last"])
async def test_a_client_that_never_reads_is_closed_and_slows_nobody(
    tmp_path: Path, reads_at_last: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    payloads = [f"{number} {'x' * 50_000}" for number in range(200)]
    async with running(tmp_path, limits=Limits(outbox_bytes=500_000)) as endpoint:
        async with unread(endpoint) as slow, plain(endpoint.url) as quick, plain(endpoint.url) as publisher:
            await slow.upgrade()
            slow.writer.write(raw_frame(TEXT, b'{"command":"listen","client_id":"slow"}'))
            slow.writer.write(raw_frame(TEXT, b'{"command":"subscribe","client_id":"slow","topic":"t"}'))
            for _ in range(2):
                await slow.frame()
            if not reads_at_last:
                monkeypatch.setattr(sockets, "PATIENCE_S", 1.0)  # the endpoint waits this long
            await quick.ask({"command": "listen", "client_id": "quick"})
            await quick.ask({"command": "subscribe", "client_id": "quick", "topic": "t"})
            for payload in payloads:
                ask = {"command": "publish", "client_id": "p", "topic": "t", "payload": payload, "ack": True}
                assert await publisher.ask(ask) == {**SUCCESS, "duplicate": False}
                assert (await quick.hear())["broadcast"] == payload
            metrics = await endpoint.metrics()
            dropped = metrics['ingeborg_drops_total{reason="slow_consumer"}']
            assert dropped > 0
            if reads_at_last:
                heard = []
                while (frame := await slow.frame())[0] == TEXT:
                    heard.append(orjson.loads(frame[1])["broadcast"])
                assert (frame[0], int.from_bytes(frame[1][:2], "big")) == (CLOSE, 4002)
                assert 0 < len(heard) < len(payloads)
                assert heard == payloads[: len(heard)]  # no gap before the end
                slow.writer.transport.abort()
            metrics = await endpoint.until(lambda metrics: metrics["ingeborg_connections"] == 2)
            assert metrics["ingeborg_clients"] == 1
        await round_trip(endpoint.url)


@pytest.mark.usefixtures("short_patience")
async def test_pings_of_a_client_that_never_reads_do_not_fill_the_memory(tmp_path: Path) -> None:
    async with running(tmp_path) as endpoint, unread(endpoint) as connection:
        await connection.upgrade()
        before = (await endpoint.metrics())["process_resident_memory_bytes"]
        flood = raw_frame(PING, secrets.token_bytes(125)) * 1000
        async with asyncio.timeout(PATIENCE_S):
            with suppress(OSError):  # either a reset or a broken pipe
                while True:
                    connection.writer.write(flood)
                    await connection.writer.drain()
        await no_connections(endpoint)
        assert (await endpoint.metrics())["process_resident_memory_bytes"] - before < 30_000_000


async def test_a_message_may_come_in_very_many_fragments(shared: Running) -> None:
    async with raw(shared.url) as connection:
        await connection.upgrade()
        pieces = [raw_frame(0x00, bytes([byte])) + raw_frame(0x00) * 3 for byte in padded(FRAME_BYTES_MAX)]
        connection.writer.write(raw_frame(0x01) + b"".join(pieces) + raw_frame(0x80))
        assert orjson.loads((await connection.frame())[1]) == SUCCESS


async def test_a_closed_connection_is_gone_without_the_collectors_help(tmp_path: Path) -> None:
    async with running(tmp_path / "store") as endpoint:
        gc.collect()
        gc.disable()
        try:
            async with plain(endpoint.url) as connection:
                await connection.ask({"command": "listen", "client_id": "c"})
                (socket,) = endpoint.server.clients.sockets.values()
                left = weakref.ref(socket.ws)  # the socket refers to it
                del socket
            await no_connections(endpoint)
            for _ in range(3):
                await asyncio.sleep(0)  # runs its scheduled callbacks
            assert left() is None
        finally:
            gc.enable()
