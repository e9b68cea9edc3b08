"""One process of idle clients, which ``idle`` and ``streams`` start. A client is either a bare connection that has sent
`listen` and answers pings, or an event stream, which only reads."""

from __future__ import annotations

import asyncio
import os
from urllib.parse import urlsplit

import orjson
import uvloop

from ingeborg.bench.errors import BenchError
from ingeborg.protocol.outgoing import OutgoingSocket

from .clients import assignment, commands, each, say
from .light import TIMEOUT_S, ask, dial

#: The kinds of clients: a WebSocket that listens, a WebSocket that listens and subscribes to the topic, and an event
#: stream.
KINDS = ("websocket", "subscriber", "stream")

TOPIC = "idle"


class Idle(asyncio.Protocol):
    """An event stream. Only the beginning of its response is kept."""

    def __init__(self) -> None:
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.begun: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        """Note the response."""
        if not self.begun.done():
            self.begun.set_result(data)

    def connection_lost(self, _: Exception | None) -> None:
        """Note the end of the stream."""
        if not self.over.done():
            self.over.set_result(None)


async def stream(url: str) -> Idle:
    """Open an event stream. Raises ``BenchError``."""
    parts = urlsplit(url)
    transport, idle = await asyncio.get_running_loop().create_connection(Idle, parts.hostname or "", parts.port or 0)
    transport.write(f"GET /events?topic={TOPIC} HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n".encode())
    async with asyncio.timeout(TIMEOUT_S):
        answer = await idle.begun
    if not answer.startswith(b"HTTP/1.1 200"):
        raise BenchError(f"/events: {answer.decode()}")
    return idle


async def websocket(url: str, client: str, *, subscribes: bool) -> OutgoingSocket:
    """Open a WebSocket that listens. Raises ``BenchError``."""
    socket = await dial(url)
    commands: list[dict[str, object]] = [{"command": "listen"}]
    if subscribes:
        commands.append({"command": "subscribe", "topic": TOPIC, "until": "disconnect"})
    for command in commands:
        answer = await ask(socket, orjson.dumps({**command, "client_id": client}))
        if b'"success"' not in answer:
            raise BenchError(f"{command['command']}: {answer.decode()}")
    return socket


async def main() -> None:
    """For each command, connect the given number of further clients, possibly none. Report how many are connected."""
    given = assignment()
    urls: list[str] = given["urls"]
    first, stop = given["numbers"]
    kind: str = given["kind"]
    sockets: list[OutgoingSocket | Idle] = []

    async def one(number: int) -> None:
        url = urls[number % len(urls)]
        if kind == "stream":
            sockets.append(await stream(url))
        else:
            sockets.append(await websocket(url, f"idle {number}", subscribes=kind == "subscriber"))

    async for command in commands():
        if (more := command.get("connect")) is not None:
            begin = first + len(sockets)
            try:
                await each(range(begin, min(begin + more, stop)), one)
            except (BenchError, OSError) as error:
                say(failed=str(error) or type(error).__name__)
                return
        say(connected=sum(not socket.over.done() for socket in sockets))
    os._exit(0)  # the system closes the connections at exit


if __name__ == "__main__":
    uvloop.run(main())
