"""How a connection ends, over TCP and over TLS: written data arrives, and nothing stays behind. SPEC section 1.1."""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import orjson
import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Response

from ingeborg.broker.access.tokens import new_keys
from ingeborg.broker.command import commands
from ingeborg.broker.shell import fairness, reading
from ingeborg.protocol import sockets
from ingeborg.protocol.pages import fetch, samples
from tests import wants
from tests.conftest import Logged

from ..running import (
    PATIENCE_S,
    Raw,
    Running,
    certificate,
    ingeborg,
    plain,
    raw,
    raw_frame,
    round_trip,
    running,
    scheme,
    serving,
)
from ..transports import TlsStream

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("transport", "logged")]

SUCCESS = {"result": "success"}
TEXT, CLOSE = 0x81, 0x88
PING = 0x89
GOODBYE = raw_frame(CLOSE, (1000).to_bytes(2, "big"))

#: Count of topics of 1,000 bytes: their list is more than the kernel takes for a client that does not read.
TOPICS = 8_000


@pytest.fixture(autouse=True)
def brief_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that reads large frames has open files as well: it ends soon, and ``gone`` need not wait for it."""
    monkeypatch.setattr(reading, "IDLE_S", 0.2)


@asynccontextmanager
async def unread(url: str) -> AsyncIterator[Raw]:
    """A client whose kernel holds next to nothing for it."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", urlsplit(url).port))
    async with raw(url, limit=1024, sock=sock) as connection:
        await connection.upgrade()
        yield connection


async def owed(url: str, connection: Raw) -> None:
    """The endpoint has written 8 MB to this client, which listens and has read none."""
    connection.writer.write(raw_frame(TEXT, b'{"command":"listen","client_id":"slow"}'))
    assert orjson.loads((await connection.frame())[1]) == SUCCESS
    for at in range(0, TOPICS, 500):
        topics = [f"{number:06}{'x' * 994}" for number in range(at, at + 500)]
        command = {"command": "subscribe", "client_id": "slow", "topic": topics}
        connection.writer.write(raw_frame(TEXT, orjson.dumps(command)))
        assert orjson.loads((await connection.frame())[1]) == SUCCESS
    before = await answered(url)
    ask = {"command": "subscriptions", "client_id": "slow", "limit": TOPICS}
    connection.writer.write(raw_frame(TEXT, orjson.dumps(ask)))
    async with asyncio.timeout(PATIENCE_S):
        while await answered(url) == before:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def answered(url: str) -> float:
    """Return how many lists of subscriptions it has written so far."""
    series = 'ingeborg_commands_total{command="subscriptions",result="success"}'
    page = await fetch(url, "/metrics")
    return sum(sample.value for sample in samples(page.text) if sample.series == series)


def end_tcp(connection: Raw) -> None:
    """Return this side's TCP stream, without TLS."""
    with socket.socket(fileno=os.dup(connection.writer.transport.get_extra_info("socket").fileno())) as same:
        same.shutdown(socket.SHUT_WR)


async def gone(shared: Running, files: int) -> None:
    """Wait until no connection is left, and as many files are open as before."""
    await shared.until(lambda metrics: not metrics["ingeborg_connections"])
    async with asyncio.timeout(PATIENCE_S):
        while len(os.listdir("/proc/self/fd")) > files:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def open_files(shared: Running) -> int:
    """Once the requested pages are closed as well."""
    await shared.metrics()
    await asyncio.sleep(0.1)
    return len(os.listdir("/proc/self/fd"))


async def test_all_that_was_written_arrives_however_slowly_it_is_read(
    shared: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client says goodbye behind a large reply, and takes several times as long to read it as a connection that reads
    nothing can stay."""
    monkeypatch.setattr(sockets, "PATIENCE_S", 1.0)
    files = await open_files(shared)
    async with unread(shared.url) as connection:
        await owed(shared.url, connection)
        connection.writer.write(GOODBYE)
        first, length = await connection.reader.readexactly(2)
        while (first, length) == (PING, 0):  # on a slow machine a ping can come before
            first, length = await connection.reader.readexactly(2)
        assert (first, length) == (TEXT, 127)
        size = int.from_bytes(await connection.reader.readexactly(8), "big")
        assert size > 1_000 * TOPICS
        reply = bytearray()
        async with asyncio.timeout(PATIENCE_S):
            while len(reply) < size:
                reply += await connection.reader.readexactly(min(100_000, size - len(reply)))
                await asyncio.sleep(0.04)
        assert len(orjson.loads(reply)["topic"]) == TOPICS
        assert await connection.close_code() == 1000
        assert await connection.rest() == b""
    await gone(shared, files)


async def test_who_reads_nothing_after_the_end_is_cut(shared: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "PATIENCE_S", 0.5)
    files = await open_files(shared)
    async with unread(shared.url) as connection:
        await owed(shared.url, connection)
        connection.writer.write(GOODBYE)
        await shared.until(lambda metrics: not metrics["ingeborg_connections"])  # this side is still open
    await gone(shared, files)


async def test_who_reads_a_little_now_and_then_is_cut_in_the_end(
    shared: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets, "PATIENCE_S", 1.0)
    monkeypatch.setattr(sockets, "LINGER_S", 2.0)
    files = await open_files(shared)
    async with unread(shared.url) as connection:
        await owed(shared.url, connection)
        connection.writer.write(GOODBYE)

        async def read_a_little() -> None:
            with suppress(ConnectionError):
                while await connection.reader.read(4_000):  # noqa: ASYNC110
                    await asyncio.sleep(0.02)

        reading = asyncio.create_task(read_a_little())
        await shared.until(lambda metrics: not metrics["ingeborg_connections"])
        assert not reading.done()  # the kernel has some left for it
        reading.cancel()
    await gone(shared, files)


async def test_who_never_ends_its_own_side_is_cut(shared: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "PATIENCE_S", 0.5)
    files = await open_files(shared)
    requests = (b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /none HTTP/1.1\r\n\r\n", b"nonsense\r\n\r\n")
    for request in requests:
        async with raw(shared.url) as connection:
            connection.writer.write(request)
            assert (await connection.rest()).startswith(b"HTTP/1.1 ")
            await gone(shared, files + 1)
    for frames in (raw_frame(0x83), GOODBYE):
        async with raw(shared.url) as connection:
            await connection.upgrade(behind=frames)
            assert await connection.close_code() in (1000, 1002)
            assert await connection.rest() == b""
            await gone(shared, files + 1)


async def test_a_body_without_an_end_is_read_for_a_while_only(shared: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "PATIENCE_S", 0.5)
    files = await open_files(shared)
    async with raw(shared.url) as connection:
        connection.writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        async with asyncio.timeout(PATIENCE_S):
            assert (await connection.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 405 ")
            with suppress(ConnectionError):
                while True:
                    connection.writer.write(b"10000\r\n" + bytes(0x10000) + b"\r\n")
                    await connection.writer.drain()
    await gone(shared, files)


async def test_who_goes_on_sending_behind_a_violation_learns_what_was_wrong(shared: Running) -> None:
    files = await open_files(shared)
    async with raw(shared.url) as connection:
        await connection.upgrade()
        connection.writer.write(raw_frame(0x83))
        for _ in range(100):  # megabytes that nobody needs
            connection.writer.write(raw_frame(TEXT, bytes(100_000)))
            await connection.writer.drain()
        assert await connection.close_code() == 1002
        assert await connection.rest() == b""
        connection.writer.write_eof()
        await gone(shared, files + 1)


@pytest.mark.parametrize("behind", [b"", raw_frame(TEXT, b"{}") * 5, b"\xff" * 500], ids=["nothing", "frames", "junk"])
@pytest.mark.parametrize("upgraded", [False, True], ids=["request", "frames"])
async def test_the_end_comes_in_one_piece_with_what_breaks_the_rules(
    shared: Running, behind: bytes, upgraded: bool
) -> None:
    """With TLS the peer's end can have come when the endpoint begins its own, in the middle of the chunk."""
    async with raw(shared.url) as connection:
        if upgraded:
            await connection.upgrade()
            data = raw_frame(0x83) + behind
        else:
            data = b"POST / HTTP/1.1\r\nHost: x\r\n\r\n" + behind
        writer = connection.writer
        if isinstance(writer, TlsStream):
            writer.write(data, last=True)
        else:
            writer.write(data)
            writer.write_eof()
        if upgraded:
            assert await connection.close_code() == 1002
        else:
            assert (await connection.rest()).startswith(b"HTTP/1.1 4")
        await round_trip(shared.url)
        assert (await shared.metrics())["ingeborg_turns_failed_total"] == 0


@pytest.mark.parametrize("how", ["end of TCP", "reset"])
@pytest.mark.parametrize("said", ["", "half a request", "half a frame", "listen"])
async def test_an_end_without_a_word_says_nothing_in_the_log(shared: Running, how: str, said: str) -> None:
    files = await open_files(shared)
    for _ in range(10):
        async with raw(shared.url) as connection:
            if said == "half a request":
                connection.writer.write(b"GET / HTTP/1.1\r\nHo")
            elif said:
                await connection.upgrade()
                frame = raw_frame(TEXT, b'{"command":"listen","client_id":"c"}')
                connection.writer.write(frame[:9] if said == "half a frame" else frame)
            await asyncio.sleep(0)
            if how == "reset":
                sock = connection.writer.transport.get_extra_info("socket")
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            else:
                end_tcp(connection)
    await gone(shared, files)
    await round_trip(shared.url)


@pytest.mark.over_tls
async def test_what_is_no_tls_is_cut_and_says_nothing_in_the_log(shared: Running) -> None:
    """Plain HTTP at a TLS port, nonsense, half a ClientHello: none was a client yet."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="127.0.0.1").do_handshake()
    hello = outgoing.read()
    files = await open_files(shared)
    said = (
        b"GET /healthz HTTP/1.1\r\n\r\n",
        bytes(1000),
        b"\x16\x03\x01\xff\xff" + bytes(20),
        hello[:-5],
        hello,
        b"",
    )
    for data in said:
        reader, writer = await asyncio.open_connection("127.0.0.1", shared.port)
        writer.write(data)
        writer.write_eof()
        async with asyncio.timeout(PATIENCE_S):
            with suppress(ConnectionError):
                assert b"HTTP" not in await reader.read()
        writer.close()
    await gone(shared, files)
    assert (await fetch(shared.url, "/healthz")).status == 200


@pytest.mark.over_tls
@pytest.mark.parametrize(("version", "key", "said"), [("1_2", "R", "RENEGOTIATING"), ("1_3", "K", "KEYUPDATE")])
async def test_a_second_handshake_or_new_keys_hurt_nobody(shared: Running, version: str, key: str, said: str) -> None:
    """`openssl s_client` does so on the press of a key. The endpoint refuses a renegotiation; TLS 1.3 handles new
    keys."""
    openssl = wants.tool("openssl")
    files = await open_files(shared)
    process = await asyncio.create_subprocess_exec(
        *(openssl, "s_client", "-connect", f"127.0.0.1:{shared.port}", f"-tls{version}"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE_S):
            await process.stdout.readuntil(b"Verify return code")
            process.stdin.write(f"{key}\n".encode())
            await process.stdout.readuntil(said.encode())
            process.stdin.write(b"Q\n")
            process.stdin.close()
            await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    del process
    await gone(shared, files)
    await round_trip(shared.url)


# -- Programs


async def _never(connection: ServerConnection) -> None:
    """Answer every request without a connection."""


@pytest.mark.parametrize("status", [401, 403, 404, 429, 503])
async def test_who_is_refused_says_so_in_a_line(status: int, capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(connection: ServerConnection, _: object) -> Response:
        return connection.respond(status, "No, because\n")

    tls = pair.context if (pair := certificate()) is not None else None
    async with serve(_never, "127.0.0.1", 0, process_request=refuse, ssl=tls) as server:
        url = f"{scheme()}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        for command in (commands.pub(url, "c", "t", "x"), commands.sub(url, "c", ["t"]), commands.status(url)):
            assert await command == 1
            said = capsys.readouterr()
            assert said.out == ""
            assert str(status) in said.err
            assert len(said.err.splitlines()) == 1


@pytest.mark.cluster
async def test_a_client_that_ends_tcp_without_a_word_and_reads_nothing_does_not_flood_the_log(
    tmp_path: Path, logged: Logged
) -> None:
    """With TLS the loop does not report such an end, and complains about each message that it throws away."""
    logged.expect("SSL connection is closed")
    async with serving(tmp_path) as (process, url), plain(url) as publisher, unread(url) as connection:
        await owed(url, connection)
        end_tcp(connection)
        for number in range(50):
            command = {"command": "broadcast", "client_id": "p", "payload": number, "ack": True}
            assert (await publisher.ask(command))["result"] == "success"
        assert process.said().count("SSL connection is closed") <= 1


@pytest.mark.cluster
async def test_health_checks_and_strangers_leave_a_real_endpoints_log_empty(tmp_path: Path) -> None:
    """As `curl`, HAProxy and port scanners come and go."""
    new_keys(tmp_path / "keys")
    async with serving(tmp_path, "--auth-keys", str(tmp_path / "keys")) as (process, url):
        at = url.replace("ws", "http", 1)
        files = len(os.listdir(f"/proc/{process.pid}/fd"))
        for path, status in (
            ("healthz", 200),
            ("readyz", 200),
            ("metrics", 200),
            ("console", 200),
            ("", 302),
            ("x", 401),
        ):
            for version in ("--http1.1", "--http2"):
                assert await curl(version, f"{at}{path}") == (0, status), path
        for linger in (None, b"\1\0\0\0\0\0\0\0"):  # a FIN, a reset
            for said in (b"", b"GET /healthz HTTP/1.1\r\n\r\n", b"\x16\x03\x01"):
                sock = socket.create_connection(("127.0.0.1", urlsplit(url).port))
                if linger is not None:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                sock.sendall(said)
                sock.close()
        for command in (("pub", "t", "x"), ("sub", "t")):
            options = (command[0], "--url", url, "--client-id", "c", *command[1:])
            async with ingeborg(tmp_path, *options) as stranger:
                assert await stranger.ended() == 1
                assert "HTTP 401" in stranger.said()
                assert len(stranger.said().splitlines()) == 1
        async with ingeborg(tmp_path, "status", "--url", url) as status_:
            assert await status_.ended() == 0
        async with asyncio.timeout(PATIENCE_S):
            while len(os.listdir(f"/proc/{process.pid}/fd")) > files:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert await process.end() == 0


async def curl(*arguments: str) -> tuple[int, int]:
    """Return its exit code, and the HTTP status. It objects to a truncated TLS stream."""
    program = wants.tool("curl")
    process = await asyncio.create_subprocess_exec(
        *(program, "--insecure", "--silent", "--output", os.devnull, "--write-out", "%{http_code}", *arguments),
        stdout=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(PATIENCE_S):
        out, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, int(out)


@pytest.mark.parametrize("speaks", ["websocket", "http"])
async def test_the_ends_of_many_connections_are_handled_in_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, speaks: str
) -> None:
    """When thousands of clients leave at once, the endpoint does other work between their ends."""
    monkeypatch.setattr(fairness, "PASS_S", 0.0)  # one turn in each pass of the loop
    async with running(tmp_path) as endpoint, AsyncExitStack() as stack:
        for number in range(20):
            connection = await stack.enter_async_context(raw(endpoint.url))
            if speaks == "websocket":
                await connection.upgrade()
            else:
                connection.writer.write(b"GET /events?topic=t%d HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" % number)
                async with asyncio.timeout(PATIENCE_S):
                    await connection.reader.readuntil(b"\r\n\r\n")
        clients = endpoint.server.clients.sockets
        left = [len(clients)]
        assert left == [20]
        for client in list(clients.values()):
            client.transport.abort()
        async with asyncio.timeout(PATIENCE_S):
            while clients:
                await asyncio.sleep(0)
                left.append(len(clients))
        assert max(before - after for before, after in itertools.pairwise(left)) == 1
