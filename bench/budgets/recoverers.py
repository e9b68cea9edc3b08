"""Clients that recover missed messages over bare connections, and the publisher of these messages.

Owns: the measurement of a recovery, from `listen` to `recovered`, with all frames in between. Must never: parse a
message while the time of a recovery is measured.

The clients here do not use ``OutgoingSocket``, because a core would need ten seconds to connect ten thousand outgoing
sockets. The measurement is about the endpoint, and not about its clients. A client only understands whole text frames,
pings and close frames.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast
from urllib.parse import urlsplit

import orjson
import uvloop

from ingeborg.bench.errors import BenchError
from ingeborg.bench.starting import Child, awaited, environment, python
from ingeborg.protocol.frames import masked_text_frame
from ingeborg.protocol.outgoing import OutgoingSocket
from ingeborg.protocol.pages import fetch, samples
from ingeborg.protocol.sockets import next_mask

from .light import dial

#: Time limit of every wait except the wait for an import, in seconds.
PATIENCE_S = 60.0
IMPORT_S = 600.0
#: Maximum number of unanswered publishes on one connection.
WINDOW = 256
#: Number of topics in one line of an import.
TOPICS_PER_LINE = 1_000
#: Messages are retained for this number of seconds, which is longer than any measurement takes.
KEEP_S = 3_600

#: Memory for all retained messages of one measurement, in bytes.
HISTORY_BYTES = 2 << 30

_TEXT, _CLOSE, _PING = 0x81, 0x88, 0x89
_PONG = bytes((0x8A, 0x80, 0, 0, 0, 0))

Message = tuple[str, str]
"""Topic and payload."""


def message(topic: str, number: int) -> Message:
    """Return the topic's message with this number. The message has 100 bytes."""
    return topic, f"{number:08} of {topic} ".ljust(98, ".")


class Recovery(NamedTuple):
    """One recovery. ``frames`` are all frames that arrived, in order. `listen` was sent at ``began``, and `recovered`
    arrived at ``ended``, in monotonic seconds."""

    frames: list[bytes]
    began: float
    ended: float

    @property
    def took_s(self) -> float:
        """Return the seconds from ``began`` to ``ended``."""
        return self.ended - self.began

    def messages(self) -> set[Message]:
        """Return the missed messages. Raises ``BenchError`` if there was a gap."""
        found: set[Message] = set()
        for frame in self.frames:
            value = orjson.loads(frame)
            if "gap" in value:
                raise BenchError(f"a recovery without a gap was expected: {frame[:200]!r}")
            if "key" in value:
                found.add((value["key"], value["broadcast"]))
        return found


class Lean(asyncio.Protocol):
    """One connection of one client. It calls ``opened`` when it can send, and ``came`` with each message. It calls
    ``over`` with the reason when the connection ends, unless this side has cut it."""

    def __init__(
        self,
        url: str,
        opened: Callable[[], None],
        came: Callable[[bytes], None],
        over: Callable[[str], None],
    ) -> None:
        self._host = urlsplit(url).netloc
        self._opened, self._came, self._over = opened, came, over
        self._is_open = self._ends = False
        self._rest = b""
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Request the upgrade. All connections use the same key, because there is no proxy that could answer from a
        cache."""
        self.transport = cast(asyncio.Transport, transport)
        self.transport.write(
            f"GET / HTTP/1.1\r\nHost: {self._host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )

    def send(self, message: bytes) -> None:
        """Send a text message."""
        self.transport.write(masked_text_frame(message, next_mask()))

    def cut(self) -> None:
        """End the connection without a close, as if the client had vanished."""
        self._ends = True
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Process received bytes, which may end in the middle of a frame."""
        if self._rest:
            data, self._rest = self._rest + data, b""
        at, end = 0, len(data)
        if not self._is_open:
            at = data.find(b"\r\n\r\n") + 4
            if at < 4:
                self._rest = data
                return
            if not data.startswith(b"HTTP/1.1 101 "):
                self._fail(f"no WebSocket: {data[:100]!r}")
                return
            self._is_open = True
            self._opened()
        while end - at >= 2:
            size, body = data[at + 1], at + 2
            if size >= 126:
                body += 2 if size == 126 else 8
                size = int.from_bytes(data[at + 2 : body]) if body <= end else end
            if body + size > end:
                break
            kind = data[at]
            at = body + size
            if kind == _TEXT:
                self._came(data[body:at])
            elif kind == _PING and size == 0:
                self.transport.write(_PONG)
            elif kind == _CLOSE:
                self._fail(f"the endpoint has closed the connection: {data[body + 2 : at]!r}")
                return
            else:
                self._fail(f"a frame that this client does not know: {data[at - size - 2 : at][:20]!r}")
                return
        self._rest = data[at:]

    def _fail(self, why: str) -> None:
        if not self._ends:
            self._ends = True
            self._over(why)
        self.transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        """Note the end of the connection."""
        if not self._ends:
            self._ends = True
            self._over(str(error) if error is not None else "the connection was lost")


class Recoverer:
    """A client and its successive connections, of which only one is open at a time. It calls ``on_lost`` when a
    connection is lost while no recovery is in progress."""

    def __init__(self, name: str, on_lost: Callable[[Recoverer], None] | None = None) -> None:
        self.name = name
        self.position = ""
        self._on_lost = on_lost
        self._lean: Lean | None = None
        self._done: asyncio.Future[float] | None = None
        self._frames: list[bytes] = []
        self._wanted = b""  # the last frame of the recovery contains these bytes
        self.began = 0.0

    async def introduce(self, url: str) -> None:
        """Listen for the first time, and wait until the client has a position."""
        found = await self._listen(url, True, b'"position":')
        self.position = orjson.loads(found.frames[-1])["position"]

    async def recover(self, url: str, room: asyncio.Semaphore | None = None) -> Recovery:
        """Listen with the position from ``introduce``. The client holds the semaphore ``room`` while it connects.
        Raises ``BenchError``."""
        return await self._listen(url, self.position, b'"recovered":true', room)

    def go(self) -> None:
        """End the client's connection."""
        if self._lean is not None:
            self._lean.cut()
            self._lean = None

    async def _listen(
        self, url: str, recover: str | bool, wanted: bytes, room: asyncio.Semaphore | None = None
    ) -> Recovery:
        loop = asyncio.get_running_loop()
        self._wanted, self._frames = wanted, []
        done = self._done = loop.create_future()
        listen = orjson.dumps({"command": "listen", "client_id": self.name, "recover": recover})
        connected = loop.create_future()

        def opened() -> None:
            self.began = time.monotonic()
            lean.send(listen)
            connected.set_result(None)

        lean = Lean(url, opened, self._came, self._lost)
        self._lean = lean
        where = urlsplit(url)
        try:
            async with asyncio.timeout(PATIENCE_S):
                async with room or contextlib.nullcontext():
                    await loop.create_connection(lambda: lean, where.hostname or "", where.port or 80)
                    await asyncio.wait((connected, done), return_when=asyncio.FIRST_COMPLETED)
                ended = await done
        except TimeoutError:
            text = f"{len(self._frames):,} frames arrived, the last {self._frames[-1:]!r}"
            raise BenchError(f"{self.name}: no {wanted.decode()} within {PATIENCE_S:g} s: {text}") from None
        finally:
            self._done = None
        return Recovery(self._frames, self.began, ended)

    def _came(self, frame: bytes) -> None:
        done = self._done
        if done is None or done.done():
            return
        self._frames.append(frame)
        if self._wanted in frame:
            done.set_result(time.monotonic())
        elif frame.startswith(b'{"error"'):
            done.set_exception(BenchError(f"{self.name}: {frame.decode()}"))

    def _lost(self, why: str) -> None:
        done = self._done
        if done is not None and not done.done():
            done.set_exception(BenchError(f"{self.name}: {why}"))
        elif done is None and self._on_lost is not None:
            self._on_lost(self)


class Publisher:
    """Publishes retained messages, and checks each reply."""

    def __init__(self) -> None:
        self._error = b""
        self._replies = 0
        self._came = asyncio.Event()

    async def publish(self, url: str, messages: Sequence[Message]) -> None:
        """Publish the messages, and wait until all are confirmed. Raises ``BenchError`` if the endpoint refused a
        message or counted it as a duplicate."""
        socket = await dial(url, self._replied)
        sent, self._replies = 0, 0
        head = {"command": "publish", "client_id": "publisher", "ack": True, "keep_s": KEEP_S}
        try:
            async with asyncio.timeout(PATIENCE_S + len(messages) / 500):
                while self._replies < len(messages) and not self._error:
                    free = WINDOW - (sent - self._replies)
                    frames = [
                        orjson.dumps({**head, "topic": topic, "payload": payload})
                        for topic, payload in messages[sent : sent + free]
                    ]
                    if frames:
                        socket.write(*frames)
                        sent += len(frames)
                    self._came.clear()
                    await self._came.wait()
        except TimeoutError:
            raise BenchError(f"{url}: {self._replies:,} of {len(messages):,} publishes are confirmed") from None
        finally:
            socket.transport.close()
        if self._error:
            raise BenchError(f"{url}: a publish failed: {self._error.decode()}")

    def _replied(self, _: OutgoingSocket, data: bytes) -> None:
        self._replies += 1
        if not data.startswith(b'{"result":"success","duplicate":false'):
            self._error = bytes(data)
        self._came.set()


async def load_subscriptions(folder: Path, store: str, wanted: dict[str, list[str]]) -> None:
    """Import the topics of each client into the store, which no endpoint uses yet. Raises ``BenchError``."""
    file = folder / "subscriptions.jsonl"
    with file.open("wb") as lines:
        for client, topics in wanted.items():
            for start in range(0, len(topics), TOPICS_PER_LINE):
                part = topics[start : start + TOPICS_PER_LINE]
                lines.write(orjson.dumps({"client_id": client, "topic": part}) + b"\n")
    command = python("ingeborg.broker.command.cli", "import", str(file), "--store", store)
    child = Child("import", command, folder / "import.log", environment=environment())
    try:
        if code := await awaited(child.ended(IMPORT_S)):
            raise BenchError(f"the import ended with {code}{child.tail()}")
    finally:
        await awaited(child.end())


async def metrics(url: str) -> dict[str, float]:
    """Return an endpoint's metrics that have no labels. Raises ``BenchError``."""
    page = await fetch(url, "/metrics", timeout_s=PATIENCE_S)
    return {sample.name: sample.value for sample in samples(page.text) if not sample.labels}


def run(measurement: Any) -> Any:
    """Run the measurement on a separate event loop."""
    return uvloop.run(measurement)
