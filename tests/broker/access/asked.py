"""An operator's server for the tests of `auth-url`. Each test defines its answers, in HTTP or in something else.

Owns: the connections to it, and the requests that it has received. Must never: share code with the client side.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

Behaviour = Callable[["Server", dict[str, str], asyncio.StreamWriter], Awaitable[None]]


class Server:
    """``behaviour``: handles a request. Headers are in lower case; for a repeated header, the last one."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.url = ""
        self.lines: list[str] = []  # the requests' first lines
        self.requests: list[dict[str, str]] = []
        self.heads: list[bytes] = []
        self.connections = 0
        self.open = 0
        self.came = asyncio.Event()
        self.gone = asyncio.Event()
        self.release = asyncio.Event()  # for behaviours that wait

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        self.connections += 1
        self.open += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                line, *fields = head.decode().rstrip("\r\n").split("\r\n")
                request = {name.lower(): value.strip() for name, _, value in (field.partition(":") for field in fields)}
                self.heads.append(head)
                self.lines.append(line)
                self.requests.append(request)
                self.came.set()
                await self.behaviour(self, request, writer)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.open -= 1
            self.gone.set()
            writer.transport.abort()

    async def asked(self, times: int = 1, patience_s: float = 20.0) -> None:
        """Wait until ``times`` requests have come."""
        async with asyncio.timeout(patience_s):
            while len(self.requests) < times:
                self.came.clear()
                await self.came.wait()

    async def left(self, patience_s: float = 20.0) -> None:
        """Wait until no connection is open."""
        async with asyncio.timeout(patience_s):
            while self.open:
                self.gone.clear()
                await self.gone.wait()


@asynccontextmanager
async def asked_server(behaviour: Behaviour, tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    """Run the server on a free port."""
    made = Server(behaviour)
    tasks: set[asyncio.Task[None]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(made.serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    made.url = f"http{'' if tls is None else 's'}://127.0.0.1:{port}/may-connect"
    try:
        yield made
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        for task in list(tasks):
            with suppress(asyncio.CancelledError):
                await task


def response(status: int, body: bytes = b"", headers: str = "") -> bytes:
    """Return a whole response."""
    head = f"HTTP/1.1 {status} So\r\nContent-Length: {len(body)}\r\n{headers}\r\n"
    return head.encode() + body


def claims(lifetime_s: float = 600, **others: Any) -> bytes:
    """Return a body that admits ``ann``."""
    permissions = {"publish": [""], "subscribe": [""]}
    return json.dumps({"sub": "ann", "ingeborg": permissions, "lifetime_s": lifetime_s, **others}).encode()


def always(data: bytes, *, ends: bool = False) -> Behaviour:
    """Answer every request with these bytes. ``ends``: then close the connection."""

    async def behave(server: Server, request: dict[str, str], writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        if ends:
            await writer.drain()
            raise ConnectionError

    return behave


async def silence(server: Server, request: dict[str, str], writer: asyncio.StreamWriter) -> None:
    """Answer nothing until ``release``, then admit the client."""
    await server.release.wait()
    writer.write(response(200, claims()))


def endless(begin: bytes, part: bytes, pause_s: float = 0.0) -> Behaviour:
    """Send a beginning, then the same part again and again."""

    async def behave(server: Server, request: dict[str, str], writer: asyncio.StreamWriter) -> None:
        writer.write(begin)
        while not writer.is_closing():  # writing to a closed transport of uvloop is an error
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(pause_s)

    return behave


_SECRET = b"s3cr3t"

#: Behaviours of a hostile or broken server. None admits a client, and the log never quotes one.
HOSTILE: dict[str, Behaviour] = {
    "silent": silence,
    "endless body": endless(b"HTTP/1.1 200 OK\r\n\r\n" + claims(), b" " * 65_536),
    "endless chunks": endless(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n" * 1_000),
    "endless head": endless(b"HTTP/1.1 200 OK\r\n", b"X-More: " + _SECRET * 100 + b"\r\n"),
    "endless line": endless(b"HTTP/1.1 200 OK\r\nX: ", b"x" * 65_536),
    "endless interim responses": endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "drip feed of the head": endless(b"HTTP/1.1 200 OK\r\nX: ", b"x", 0.02),
    "drip feed of the body": endless(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n" + claims(), b" ", 0.02),
    "stops in the body": always(response(200, claims())[:-1]),
    "ends in the body": always(response(200, claims())[:-1], ends=True),
    "ends in a chunk": always(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfff\r\n" + claims(), ends=True),
    "ends at once": always(b"", ends=True),
    "ends in the head": always(b"HTTP/1.1 200 OK\r\nX: " + _SECRET, ends=True),
    "huge": always(response(200, claims() + b" " * (65 << 10))),
    "huge, and says so": always(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n" + claims()),
    "negative length": always(b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n" + claims(), ends=True),
    "two lengths": always(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 200\r\n\r\n" + claims(), ends=True),
    "bad chunk": always(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + _SECRET + b"\r\n", ends=True),
    "garbage": always(_SECRET + b"\x00\xff\r\n\r\n" * 100, ends=True),
    "garbage of a status": always(b"HTTP/1.1 2x0 " + _SECRET + b"\r\n\r\n" + claims(), ends=True),
    "another protocol": always(b"220 " + _SECRET + b" ESMTP\r\n", ends=True),
    "compressed": always(response(200, gzip.compress(claims()), "Content-Encoding: gzip\r\n")),
    "an upgrade": always(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n" + claims()),
    "redirect": always(response(302, claims(), "Location: /elsewhere\r\n")),
    "redirect for good": always(response(308, claims(), "Location: http://127.0.0.1:1/\r\n")),
    "no content": always(response(204)),
    "created": always(response(201, claims())),
    "partial": always(response(206, claims())),
    "not found": always(response(404, _SECRET)),
    "too many": always(response(429, _SECRET, "Retry-After: 3600\r\n")),
    "broken": always(response(500, _SECRET)),
    "empty": always(response(200)),
    "no JSON": always(response(200, b"<html>" + _SECRET)),
    "a list": always(response(200, b"[" + claims() + b"]")),
    "deep": always(response(200, b"[" * 60_000)),
    "deep, in a claim": always(response(200, claims()[:-1] + b', "x": ' + b"[" * 30_000 + b"]" * 30_000 + b"}")),
    "wrong types": always(response(200, claims(sub=["ann"], ingeborg={"publish": _SECRET.decode()}))),
    "unknown permission": always(response(200, claims(ingeborg={_SECRET.decode(): True}))),
    "no lifetime": always(response(200, b'{"sub": "ann"}')),
    "lifetime of no time": always(response(200, claims(0))),
    "lifetime for ever": always(response(200, claims(1e12))),
    "lifetime of words": always(response(200, claims(lifetime_s="long"))),  # type: ignore[arg-type]
}
