"""Running endpoints for tests: one in this process on a store of its own, or a real process of `ingeborg serve`.

Owns endpoints of this process: their start, when they are ready, and their end whatever happens. Real processes are
started and ended by ``ingeborg.bench.starting``. Also two ways of talking to one
that know nothing of the project: ``Plain``, on the `websockets` package's client, and ``Raw``, on bare bytes.

All of it is over TCP or, within ``over_tls``, over TLS: the fixture ``transport`` is what says so.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import signal
import ssl
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, cast
from unittest import mock
from urllib.parse import urlsplit

import orjson
from websockets.asyncio.client import ClientConnection, connect

from ingeborg.bench.starting import Child, awaited, environment, python, ready
from ingeborg.broker.command.serve import listen
from ingeborg.broker.core.limits import Patience
from ingeborg.broker.core.model import Endpoint, FilterPage, Location, Subscribers, Subscription
from ingeborg.broker.shell.server import EndpointServer
from ingeborg.broker.shell.tls import Certificate
from ingeborg.broker.store.base import Store
from ingeborg.broker.store.embedded.store import EmbeddedStore
from ingeborg.protocol.pages import fetch, samples
from tests.store.forked import forked

from .transports import Authority, Pair, TlsStream, open_tls

#: Nothing a test waits for takes longer; on a busy machine it takes long enough.
PATIENCE_S = 60.0

#: A stall of this process, with all its endpoints, ends no lease of theirs: `tests/cluster` looks at that.
UNHURRIED = Patience(lease_s=2 * PATIENCE_S, dead_after_s=3 * PATIENCE_S)

SECRET = b"0123456789abcdef0123456789abcdef"


#: What endpoints that are started now show their clients; None: they speak TCP.
_pair: Pair | None = None


@contextmanager
def over_tls(authority: Authority) -> Iterator[None]:
    """Endpoints of this process and others are started with a certificate, and whoever connects trusts it."""
    global _pair
    with mock.patch.dict(os.environ, SSL_CERT_FILE=str(authority.file)):
        _pair = authority.issue(1)
        try:
            yield
        finally:
            _pair = None


def certificate() -> Certificate | None:
    """For an ``EndpointServer`` that a test starts itself."""
    return Certificate(str(_pair.chain), str(_pair.key)) if _pair is not None else None


def scheme() -> str:
    """Of the URL of an endpoint that is started now."""
    return "ws" if _pair is None else "wss"


class Running:
    """An endpoint in this process, ready."""

    def __init__(self, server: EndpointServer, port: int) -> None:
        self.server = server
        self.port = port
        self.url = f"{server.router.me.url}/"

    @property
    def ticks(self) -> int:
        """How often it has ticked, ten times a second; a stall is one."""
        return self.server.driver.loop_lag.buckets()[-1][1]

    async def metrics(self) -> Counter[str]:
        """Its counters and gauges, over HTTP: by series, that is by name and labels."""
        page = await fetch(self.url, "/metrics")
        assert page.status == 200
        return Counter({sample.series: sample.value for sample in samples(page.text)})

    async def until(self, condition: Callable[[Counter[str]], bool]) -> Counter[str]:
        """Wait until the metrics are so; those it was true of. A series that is not there counts as 0."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                metrics = await self.metrics()
                if condition(metrics):
                    return metrics
                await asyncio.sleep(0.02)


@asynccontextmanager
async def running(directory: Path, *, store: Store | Gated | None = None, **options: Any) -> AsyncIterator[Running]:
    """An endpoint on the store, or on an empty embedded one in the directory. ``options``: of ``EndpointServer``."""
    sock = listen("127.0.0.1", 0)
    port = sock.getsockname()[1]
    options = {"secret": SECRET, "store_name": "lmdb", "certificate": certificate(), "patience": UNHURRIED, **options}
    by = "ws" if options["certificate"] is None else "wss"
    me = Endpoint(f"endpoint-{port}", secrets.token_hex(8), f"{by}://127.0.0.1:{port}", 0)
    mine = None if store else forked(EmbeddedStore(directory, timeout_s=PATIENCE_S))
    served = mine or cast(Store, store)  # a gate has all calls
    server = EndpointServer(me, served, **options)
    await server.start(sock)
    try:
        async with asyncio.timeout(PATIENCE_S):
            await server.ready.wait()
        yield Running(server, port)
    finally:
        if not server.status.leaving:  # else the test has ended it
            await server.stop()


class Gated:
    """A store that stops answering when it is told to, as one whose process was stopped: calls wait at the gate."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._gate = asyncio.Event()
        self._gate.set()
        self.open, self.close = store.open, store.close
        self.counters = getattr(store, "counters", None)
        self.shape = store.shape

    def shut(self) -> None:
        """From now on no call gets any further."""
        self._gate.clear()

    def reopen(self) -> None:
        """Calls go on, those that wait first."""
        self._gate.set()

    def subscribers_now(self, topics: Sequence[str]) -> tuple[list[Subscribers], dict[str, FilterPage]] | None:
        return self._store.subscribers_now(topics) if self._gate.is_set() else None

    def locations_now(self, clients: Sequence[str]) -> list[Location | None] | None:
        return self._store.locations_now(clients) if self._gate.is_set() else None

    def filtered_now(self, topic: str, cursor: str, limit: int) -> FilterPage | None:
        return self._store.filtered_now(topic, cursor, limit) if self._gate.is_set() else None

    def subscriptions_of_now(self, pairs: Sequence[tuple[str, str]]) -> list[list[Subscription]] | None:
        return self._store.subscriptions_of_now(pairs) if self._gate.is_set() else None

    def subscribed_now(self, client: str, topics: Sequence[str]) -> list[bool] | None:
        return self._store.subscribed_now(client, topics) if self._gate.is_set() else None

    def __getattr__(self, operation: str) -> Callable[..., Awaitable[Any]]:
        async def call(*arguments: Any) -> Any:
            await self._gate.wait()
            return await getattr(self._store, operation)(*arguments)

        return call


async def form_of(url: str) -> str:
    """Which form of the code an endpoint runs, as it says itself."""
    page = await fetch(url, "/metrics", timeout_s=PATIENCE_S)
    return next(sample.labels["form"] for sample in samples(page.text) if sample.name == "ingeborg_info")


# -- A client that knows WebSocket and JSON


class Plain:
    """One connection. Every wait has an end."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket

    async def send(self, *frames: Any) -> None:
        """Dictionaries go as JSON in text frames, text in text frames, bytes in binary ones."""
        for frame in frames:
            await self.socket.send(frame if isinstance(frame, str | bytes) else orjson.dumps(frame).decode())

    async def hear(self) -> Any:
        """The next message, which has to be text."""
        async with asyncio.timeout(PATIENCE_S):
            message = await self.socket.recv()
        assert isinstance(message, str), "the endpoint answers in text frames (SPEC section 1)"
        return orjson.loads(message)

    async def ask(self, frame: Any) -> Any:
        """Send, and hear the next message."""
        await self.send(frame)
        return await self.hear()

    async def closed(self) -> tuple[int, str]:
        """Wait until the connection is closed: with which code, and why."""
        async with asyncio.timeout(PATIENCE_S):
            await self.socket.wait_closed()
        assert self.socket.close_code is not None
        return self.socket.close_code, self.socket.close_reason or ""


@asynccontextmanager
async def plain(url: str, **options: Any) -> AsyncIterator[Plain]:
    """A connected client. ``options``: of ``websockets``' ``connect``."""
    options = {"compression": None, "max_size": None, "ping_interval": None, "close_timeout": 1, **options}
    async with connect(url, **options) as socket:
        yield Plain(socket)


async def round_trip(url: str) -> None:
    """Subscribe, listen, publish, hear: the endpoint serves."""
    client = f"round-trip-{secrets.token_hex(8)}"
    async with plain(url) as connection:
        await connection.send(
            {"command": "listen", "client_id": client},
            {"command": "subscribe", "client_id": client, "topic": client},
            {"command": "publish", "client_id": client, "topic": client, "payload": client},
        )
        assert await connection.hear() == {"result": "success"}
        assert await connection.hear() == {"result": "success"}
        assert await connection.hear() == {"key": client, "broadcast": client}


# -- A client that knows nothing

_KEY = "dGhlIHNhbXBsZSBub25jZQ=="  # RFC 6455 section 1.3

HANDSHAKE = (
    "GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    f"Sec-WebSocket-Key: {_KEY}\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


def raw_frame(first: int, payload: bytes = b"", *, masked: bool = True, length: int | None = None) -> bytes:
    """A client's frame with that first byte (RFC 6455 section 5.2). ``length``: what it says, if that is not so."""
    size = len(payload) if length is None else length
    mask_bit = 0x80 if masked else 0
    if size < 126:
        head = bytes([first, mask_bit | size])
    elif size < 65536:
        head = bytes([first, mask_bit | 126]) + size.to_bytes(2, "big")
    else:
        head = bytes([first, mask_bit | 127]) + size.to_bytes(8, "big")
    return head + (b"\0\0\0\0" if masked else b"") + payload  # masked with zeros: unchanged


class Raw:
    """One connection, of TCP or TLS. Every wait has an end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter | TlsStream) -> None:
        self.reader = reader
        self.writer = writer

    async def upgrade(self, path: str = "/", behind: bytes = b"", headers: str = "") -> bytes:
        """The opening handshake, with bytes right behind it; returns the response's head."""
        request = HANDSHAKE.format(path=path).removesuffix("\r\n") + headers + "\r\n"
        self.writer.write(request.encode() + behind)
        async with asyncio.timeout(PATIENCE_S):
            return await self.reader.readuntil(b"\r\n\r\n")

    async def frame(self, *, pings: bool = False) -> tuple[int, bytes]:
        """The next frame of the endpoint: its first byte, and its payload.

        But for its own (empty) pings, which come when it is their time: only with ``pings``.
        """
        async with asyncio.timeout(PATIENCE_S):
            while True:
                first, length = await self.reader.readexactly(2)
                if length > 125:
                    length = int.from_bytes(await self.reader.readexactly(2 if length == 126 else 8), "big")
                payload = await self.reader.readexactly(length)
                if pings or (first, payload) != (0x89, b""):
                    return first, payload

    async def close_code(self) -> int:
        """Pass over messages until the close frame; its code."""
        while True:
            first, payload = await self.frame()
            if first == 0x88:
                return int.from_bytes(payload[:2], "big")

    async def rest(self, *, cut: bool = False) -> bytes:
        """Everything until the endpoint ends the stream. ``cut``: it does not have to end it as TLS wants it to."""
        async with asyncio.timeout(PATIENCE_S):
            data = await self.reader.read()
        if isinstance(self.writer, TlsStream) and not cut:
            assert self.writer.notified, "the stream was cut: it ended without TLS's close_notify"
        return data


@asynccontextmanager
async def raw(url: str, *, limit: int = 2**16, **options: Any) -> AsyncIterator[Raw]:
    """A connected client of an endpoint's that has said nothing yet. ``options``: of ``create_connection``."""
    parts = urlsplit(url)
    if parts.scheme == "wss":
        stream = await open_tls("127.0.0.1", parts.port or 0, ssl.create_default_context(), limit, **options)
        connection = Raw(stream.reader, stream)
    else:
        where: dict[str, Any] = {} if "sock" in options else {"host": "127.0.0.1", "port": parts.port}
        connection = Raw(*await asyncio.open_connection(**where, limit=limit, **options))
    try:
        yield connection
    finally:
        connection.writer.transport.abort()


# -- Real processes


class Process:
    """A real process, its standard error kept. Every wait has an end."""

    def __init__(self, child: Child) -> None:
        self.child = child
        self.pid = child.pid

    async def line(self, pattern: str) -> str:
        """The next line of standard output that matches."""
        return await awaited(self.child.line(pattern, PATIENCE_S))

    async def ready_url(self) -> str:
        """Wait until an endpoint says that it is ready; where it is."""
        return (await awaited(ready(self.child, PATIENCE_S))).url + "/"

    def said(self) -> str:
        """Its standard error so far."""
        return self.child.said()

    def type_in(self, *lines: str) -> None:
        """As somebody at its terminal."""
        self.child.stdin.write("".join(f"{line}\n" for line in lines).encode())
        self.child.stdin.flush()

    async def ended(self) -> int:
        """Wait for its end; the exit code."""
        return await awaited(self.child.ended(PATIENCE_S))

    async def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send the signal, and wait for the end."""
        self.child.signal(number)
        return await self.ended()


#: A line of a process's standard error that says that something is wrong.
COMPLAINT = re.compile(
    r" (?:WARNING|ERROR|CRITICAL) |\"level\": ?\"(?:WARNING|ERROR|CRITICAL)|Traceback|Exception ignored|never awaited"
)

#: Where the processes' standard errors are, for whoever looks at what they have logged.
started: list[Path] = []


@asynccontextmanager
async def started_by(
    command: Sequence[str | Path],
    directory: Path,
    variables: Mapping[str, str] | None = None,
    stdin: int = subprocess.DEVNULL,
) -> AsyncIterator[Process]:
    """The process of a command line, without options for `ingeborg` in its environment but with these ``variables``;
    ended at the end if it still runs. ``directory``: for what it says."""
    mark = secrets.token_hex(4)
    errors = directory / f"stderr-{mark}"
    started.append(errors)
    child = Child(
        " ".join(map(str, command[1:])),
        command,
        errors,
        output=directory / f"stdout-{mark}",
        environment=environment(variables),
        stdin=stdin,
    )
    try:
        yield Process(child)
    finally:
        await awaited(child.end(PATIENCE_S))


@asynccontextmanager
async def ingeborg(
    directory: Path,
    *arguments: str,
    variables: Mapping[str, str] | None = None,
    stdin: int = subprocess.DEVNULL,
) -> AsyncIterator[Process]:
    """`ingeborg` with these arguments; ended at the end if it still runs. ``directory``: for what it says."""
    async with started_by(python("ingeborg.broker.command.cli", *arguments), directory, variables, stdin) as process:
        yield process


@asynccontextmanager
async def serving(directory: Path, *arguments: str) -> AsyncIterator[tuple[Process, str]]:
    """`ingeborg serve` on a free port and an embedded store in the directory, ready; and its URL."""
    options = ("--port", "0", "--store", f"lmdb:{directory / 'store'}", *serving_tls())
    async with ingeborg(directory, "serve", *options, *arguments) as process:
        yield process, await process.ready_url()


def serving_tls() -> tuple[str, ...]:
    """The options of `ingeborg serve` for the transport that is tested."""
    return () if _pair is None else ("--tls-cert", str(_pair.chain), "--tls-key", str(_pair.key))


def alive(pid: int) -> bool:
    """Is there a process with this id, one that has not ended and only waits to be asked how?"""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return False
    return stat.rpartition(") ")[2][0] != "Z"


def children(pid: int) -> list[int]:
    """The ids of the processes that this one has started and that are alive."""
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in path.read_text(encoding="utf-8").split() if alive(int(child))]
