"""Legal but hostile HTTP clients, as scenarios for ``hostile``."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Callable

from .hostile_connections import Hostile, MiB, connect

#: Connections of the scenarios that send as fast as the endpoint reads, that send slowly, and that only listen.
BUSY, SLOW, STREAMS = 50, 1_000, 10_000

#: Connections to open at the same time.
AT_ONCE = 100

#: Interval between two bytes of a slow request, in seconds.
BYTE_S = 0.2


def post(path: str, body: bytes, *headers: bytes) -> bytes:
    """Return a request with a JSON body."""
    lines = (b"POST %b HTTP/1.1" % path.encode(), b"Host: 127.0.0.1", b"Content-Type: application/json", *headers)
    length = b"Content-Length: %d" % len(body)
    return b"\r\n".join((*lines, length, b"", body))


_ITEM = b'{"client_id":"h","topic":"t","payload":1}'


async def posts(url: str) -> None:
    """Send pipelined publishes."""
    await _busily(url, post("/publish", _ITEM) * 100)


async def lists(url: str) -> None:
    """Send lists of 1,000 publishes, which are as long as a list may be."""
    await _busily(url, post("/publish", b"[%b]" % b",".join([_ITEM] * 1_000)))


async def nested_lists(url: str) -> None:
    """Send lists that contain as many containers as possible."""
    item = b'{"client_id":"h","topic":"t","payload":[%b]}' % b",".join([b"[]"] * 21_000)
    await _busily(url, post("/publish", b"[%b]" % item))


async def chunks(url: str) -> None:
    """Send bodies in chunks of one byte."""
    head = post("/publish", b"").replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    body = b"".join(b"1\r\n%c\r\n" % byte for byte in _ITEM.ljust(10_000)) + b"0\r\n\r\n"
    await _busily(url, head + body)


async def bodies(url: str) -> None:
    """Send payloads of 1 MiB, which another process reads."""
    body = b'{"client_id":"h","topic":"t","payload":[%b]}' % b",".join([b"[]"] * (MiB // 3 - 100))
    await _busily(url, post("/publish", body))


async def deaf_posts(url: str) -> None:
    """Request long answers, and do not read them."""
    topics = b",".join(b'"%b %d"' % (b"x" * 400, number) for number in range(5_000))
    first = await connect(url)
    await first.write(post("/subscribe", b'{"client_id":"h","topic":[%b]}' % topics))
    await first.reader.readuntil(b"\r\n\r\n")
    ask = b"GET /subscriptions?client_id=h&limit=10000 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"

    async def play(connection: Hostile) -> None:
        connection.stop_reading()
        await connection.write(ask * 1_000)
        await asyncio.Event().wait()

    await _each(url, BUSY, play)


async def slow_bodies(url: str) -> None:
    """Send a body byte by byte on each of many connections."""
    await _slowly(url, post("/publish", b" " * 10_000)[:-10_000], b" ")


async def slow_heads(url: str) -> None:
    """Send the head of a request byte by byte on each of many connections."""
    await _slowly(url, b"POST /publish HTTP/1.1\r\nX: ", b"x")


async def streams(url: str) -> None:
    """Open event streams, and keep them."""
    numbers = itertools.count()

    async def play(connection: Hostile) -> None:
        await connection.write(b"GET /events?topic=quiet%d HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" % next(numbers))
        await connection.reader.readuntil(b"\r\n\r\n")

    await _each(url, STREAMS, play)
    await asyncio.Event().wait()


async def passing_streams(url: str) -> None:
    """Open event streams, and leave each at once."""

    async def play(connection: Hostile) -> None:
        while True:
            await connection.write(b"GET /events?topic=quiet HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            with contextlib.suppress(asyncio.IncompleteReadError):
                await connection.reader.readuntil(b"\r\n\r\n")
            connection.writer.transport.abort()
            connection = await connect(url)

    await _each(url, BUSY, play)


async def _busily(url: str, data: bytes) -> None:
    async def play(connection: Hostile) -> None:
        reading = connection.read_on()
        while not reading.done():
            await connection.write(data)

    await _each(url, BUSY, play)


async def _slowly(url: str, head: bytes, byte: bytes) -> None:
    async def play(connection: Hostile) -> None:
        reading = connection.read_on()
        await connection.write(head)
        while not reading.done():
            await asyncio.sleep(BYTE_S)
            await connection.write(byte)

    await _each(url, SLOW, play)


async def _each(url: str, count: int, play: Callable[[Hostile], Awaitable[None]]) -> None:
    """Run this on each of many connections."""
    opening = asyncio.Semaphore(AT_ONCE)
    connections = []

    async def one() -> None:
        with contextlib.suppress(OSError):
            async with opening:
                connection = await connect(url)
            connections.append(connection)  # keep it open
            await play(connection)

    await asyncio.gather(*(one() for _ in range(count)))


#: The scenarios, each with the function that sends its requests to an endpoint.
PLAYS: dict[str, Callable[[str], Awaitable[None]]] = {
    "posts": posts,
    "lists": lists,
    "nested-posts": nested_lists,
    "chunks": chunks,
    "bodies": bodies,
    "deaf-posts": deaf_posts,
    "slow-bodies": slow_bodies,
    "slow-heads": slow_heads,
    "streams": streams,
    "passing-streams": passing_streams,
}
