"""The CPU time of an endpoint for a publish over HTTP, compared with a publish with `ack` over a WebSocket.

    python -m ingeborg.bench.budgets.over_http [--rounds 5]

One client publishes to a topic with one subscriber, and waits for each outcome before it sends more. It sends one
message at a time, or 100 messages together: over a WebSocket in one write, and over HTTP as a list. All messages are
different. The rounds alternate between the two ways. The program takes a minute, on an idle machine.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from statistics import median
from urllib.parse import urlsplit

import orjson
import psutil

from ingeborg.bench.errors import BenchError
from ingeborg.protocol.outgoing import OutgoingSocket

from .light import TIMEOUT_S, ask, cpu_s, dial, started
from .model import Check, command

ROUNDS = 5

#: The number of messages of a round, by the number of messages that the client sends together.
MESSAGES = {1: 3_000, 100: 20_000}
#: Goals: the maximum CPU time of a publish over HTTP, as a multiple of the CPU time over a WebSocket.
RATIOS = {1: 3.0, 100: 1.1}

TOPIC = "requests"


class Publisher:
    """Publishes at an endpoint, and measures the CPU time of its process."""

    def __init__(self, process: psutil.Process) -> None:
        self._process = process
        self._number = 0

    def _message(self) -> dict[str, object]:
        self._number += 1
        payload = f"{type(self).__name__} {self._number:09} ".ljust(120, "x")
        return {"client_id": "p", "topic": TOPIC, "payload": payload}

    async def cost_us(self, at_once: int) -> float:
        """Return the CPU time per message, in microseconds."""
        batches = [[self._message() for _ in range(at_once)] for _ in range(MESSAGES[at_once] // at_once)]
        encoded = [self._encoded(batch) for batch in batches]
        before_s = cpu_s(self._process)
        async with asyncio.timeout(TIMEOUT_S):
            for data in encoded:
                await self._publish(data, at_once)
        return (cpu_s(self._process) - before_s) / MESSAGES[at_once] * 1e6

    def _encoded(self, batch: Sequence[dict[str, object]]) -> list[bytes]:
        raise NotImplementedError

    async def _publish(self, data: list[bytes], at_once: int) -> None:
        raise NotImplementedError


class OverWebSocket(Publisher):
    """Publishes over a WebSocket, with `ack`."""

    def __init__(self, process: psutil.Process, socket: OutgoingSocket) -> None:
        super().__init__(process)
        self._socket = socket
        self._missing = 0
        self._came = asyncio.Event()
        socket.on_message = self._replied

    def _replied(self, _: OutgoingSocket, data: bytes) -> None:
        if b'"duplicate":false' not in data:
            raise BenchError(f"the endpoint refused a publish: {data.decode()}")
        self._missing -= 1
        if not self._missing:
            self._came.set()

    def _encoded(self, batch: Sequence[dict[str, object]]) -> list[bytes]:
        return [orjson.dumps({"command": "publish", **message, "ack": True}) for message in batch]

    async def _publish(self, data: list[bytes], at_once: int) -> None:
        self._missing = at_once
        self._came.clear()
        self._socket.write(*data)
        await self._came.wait()


class OverHttp(Publisher):
    """Publishes with requests over one connection."""

    def __init__(self, process: psutil.Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        super().__init__(process)
        self._reader, self._writer = reader, writer

    def _encoded(self, batch: Sequence[dict[str, object]]) -> list[bytes]:
        body = orjson.dumps(batch if len(batch) > 1 else batch[0])
        head = (
            "POST /publish HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: python-httpx/0.28.1\r\nAccept: */*\r\n"
            f"Accept-Encoding: gzip\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return [head.encode() + body]

    async def _publish(self, data: list[bytes], at_once: int) -> None:
        self._writer.write(data[0])
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        size = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        body = await self._reader.readexactly(size)
        if body.count(b'"duplicate":false') != at_once:
            raise BenchError(f"the endpoint refused a publish: {body.decode()}")


async def measure(rounds: int) -> list[Check]:
    """Measure both ways. Raises ``BenchError`` if the endpoint refuses a message."""
    found: dict[int, list[tuple[float, float]]] = {at_once: [] for at_once in MESSAGES}
    with (
        tempfile.TemporaryDirectory() as folder,
        started("ingeborg.broker.command.cli", "serve", "--port", "0", "--store", f"lmdb:{folder}/store") as (url, it),
    ):
        subscriber = await dial(url)
        await ask(subscriber, orjson.dumps({"command": "listen", "client_id": "s"}))
        await ask(subscriber, orjson.dumps({"command": "subscribe", "client_id": "s", "topic": TOPIC}))
        reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(url).port, limit=2**20)
        over_websocket, over_http = OverWebSocket(it, await dial(url)), OverHttp(it, reader, writer)
        for at_once, pairs in found.items():
            for _ in range(rounds):
                pairs.append((await over_http.cost_us(at_once), await over_websocket.cost_us(at_once)))
        writer.close()
        await writer.wait_closed()
    return [check(at_once, pairs) for at_once, pairs in found.items()]


def check(at_once: int, pairs: Sequence[tuple[float, float]]) -> Check:
    """Compare the CPU time of a publish over HTTP with that over a WebSocket. Each pair has both times in
    microseconds."""
    most = RATIOS[at_once]
    ratios = [http_us / websocket_us for http_us, websocket_us in pairs]
    http_us, websocket_us = (median(each) for each in zip(*pairs, strict=True))
    text = (
        f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}) times as much: {http_us:.1f} us instead of "
        f"{websocket_us:.1f} us"
    )
    figure = f"CPU per publish over HTTP, in batches of {at_once}"
    return Check(figure, f"at most {most:g} times a publish with ack over a WebSocket", text, median(ratios) <= most)


if __name__ == "__main__":
    command(__doc__, measure, "rounds", ROUNDS)
