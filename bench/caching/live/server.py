"""The document's broker as a process: its sockets, and its end.

Owns: the connections, and the end of the process with its reason after a fault. Must never: decide what happens to a
record.

``python -m ingeborg.bench.caching.live.server JSON`` prints its address when it is ready, and serves until SIGTERM. If
something fails, it logs the reason, tells all connections, and ends.
"""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import orjson
import uvloop
from websockets.http11 import Request, Response
from websockets.protocol import OPEN
from websockets.server import ServerProtocol

from ingeborg.bench.caching.live.broker import Broker
from ingeborg.bench.caching.live.database import Database, Lmdb
from ingeborg.bench.caching.live.memory import Memory
from ingeborg.bench.caching.live.messages import COUNTERS, MESSAGE_BYTES_MAX, POLL, RECORD, REPORT, SUBSCRIBE
from ingeborg.bench.caching.live.settings import Settings, settings_of
from ingeborg.bench.caching.policies.named import OURS, policy_of
from ingeborg.bench.errors import BenchError
from ingeborg.protocol.errors import GOING_AWAY, PROTOCOL_VIOLATION, CloseCode
from ingeborg.protocol.filters import canonical_filter
from ingeborg.protocol.frames import text_frame
from ingeborg.protocol.sockets import Socket, as_protocol, library_log

HOST: Final = "127.0.0.1"

BACKLOG: Final = 1_024
"""Maximum number of connections that wait to be accepted, which is enough for all subscribers."""

SWITCH_S: Final = 0.000_5
"""How long the loop keeps Python's lock while a thread of the database waits for it. The default is ten times as long.
With the default, writing a batch of 1,000 records took 16 ms while the loop was busy. With this value, it took 4 ms."""

CLOSE_S: Final = 2.0
"""Seconds in which connections can receive the reason why the broker ends."""

LOOK_S: Final = 0.01
"""The pause between two checks whether all connections have received it."""

FAILED: Final = 1011
"""The code of a close: an internal error (RFC 6455, section 7.4.1)."""

REASON_BYTES_MAX: Final = 120
"""Maximum size of a reason. A close frame has at most 125 bytes, and the code takes two."""


class _Accepted(Socket):
    """A connection of a publisher, of a subscriber, or of a reader of counters."""

    def __init__(self, server: Server) -> None:
        super().__init__(ServerProtocol(max_size=MESSAGE_BYTES_MAX, logger=library_log))
        self._server = server
        self._paused = False
        self.subscriber: str | None = None
        self.publishes = False

    def handshake(self, event: Request | Response) -> None:
        """Accept every connection, because the address is local to this machine."""
        assert isinstance(event, Request)
        self.ws.send_response(self.ws.accept(event))
        if self.ws.state is OPEN:
            self.settled()
            self._server.sockets.add(self)

    def rest_waits(self) -> None:
        """Process the rest of the received data immediately, because this server does not limit the work of a turn."""
        while self.waits:
            self.next_quantum()

    def messages_come(self, messages: list[bytes]) -> None:
        """Publish records that arrive together as one batch."""
        if messages[0][:1] == RECORD:
            self.publishes = True
            self._server.broker.publish([message[1:] for message in messages])
            self.pause_if(self._server.broker.full)
        else:
            super().messages_come(messages)

    def message(self, data: bytes) -> None:
        """Handle a message; see ``messages``."""
        broker, kind = self._server.broker, data[:1]
        if kind == POLL and self.subscriber is not None:
            broker.poll(self.subscriber, self.send)
        elif kind == RECORD:
            broker.publish([data[1:]])
        elif kind == SUBSCRIBE:
            asked = orjson.loads(data[1:])
            self.subscriber = str(asked["subscriber"])
            broker.subscribe(self.subscriber, canonical_filter(asked["filter"]))
            self.send(SUBSCRIBE)
        elif kind == COUNTERS:
            self.send(COUNTERS + orjson.dumps({"at_ns": time.monotonic_ns(), "values": broker.counters()}))
        elif kind == REPORT:
            self.send(REPORT + orjson.dumps(self._server.report()))
        else:
            self.fail(PROTOCOL_VIOLATION)

    def send(self, data: bytes) -> None:
        """Send a message, even if the other side is already gone."""
        if self.ws.state is OPEN and not self.transport.is_closing():
            self.transport.write(text_frame(data))

    def pause_if(self, full: bool) -> None:
        """Pause or resume reading, so that TCP holds the publisher back."""
        if self.publishes and full is not self._paused and not self.transport.is_closing():
            self._paused = full
            if full:
                self.transport.pause_reading()
            else:
                self.transport.resume_reading()

    def closed(self) -> None:
        """Drop the subscriber's waiting records."""
        self._server.sockets.discard(self)
        if self.subscriber is not None:
            self._server.broker.leave(self.subscriber)


class Server:
    """The server of one broker. ``serve`` runs it until it is stopped or fails."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.sockets: set[_Accepted] = set()
        self._database = _database(settings)
        policy = policy_of(settings.strategy, settings.parameters, settings.bytes_max, settings.entries)
        self.memory = Memory(policy, settings.bytes_max, told=settings.strategy in OURS)
        self.broker = Broker(
            self.memory,
            self._database,
            time.monotonic_ns,
            waits=settings.waits,
            either=settings.either,
            changed=self._go_on,
        )

    def _go_on(self) -> None:
        full = self.broker.full
        for accepted in self.sockets:
            accepted.pause_if(full)

    def report(self) -> dict[str, Any]:
        """Return the number of subscribers of each record, and the times at which it arrived, was matched and was safe
        (see ``parts``)."""
        broker = self.broker
        return {
            "came_ns": list(broker.came_ns),
            "matched_ns": list(broker.matched_ns),
            "safe_ns": list(broker.safe_ns),
            "readers": list(broker.readers),
        }

    async def serve(self, ready: Callable[[str], None], stopped: asyncio.Event) -> None:
        """Serve until stopped. After a fault, tell all connections, and raise ``BenchError``."""
        loop = asyncio.get_running_loop()
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._database.close)
            await self._database.open()
            stack.push_async_callback(self.broker.close)
            works = [asyncio.ensure_future(self.broker.write()), self.broker.failed]
            if self._settings.kafka is not None:
                from ingeborg.bench.caching.live import kafka  # imported only if needed: aiokafka belongs to an extra

                consumer = await stack.enter_async_context(kafka.consuming(*self._settings.kafka))
                works.append(asyncio.ensure_future(kafka.consume(consumer, self.broker)))
            works.append(asyncio.ensure_future(stopped.wait()))  # type: ignore[arg-type]
            stack.push_async_callback(_end, works)
            listening = await loop.create_server(lambda: as_protocol(_Accepted(self)), HOST, 0, backlog=BACKLOG)
            stack.callback(listening.close)
            stack.push_async_callback(self._tell)
            gc.freeze()
            ready(f"ws://{HOST}:{listening.sockets[0].getsockname()[1]}")
            done, _ = await asyncio.wait(works, return_when=asyncio.FIRST_COMPLETED)
            for work in done:
                try:
                    work.result()
                except BenchError as error:
                    await self._tell(str(error))
                    raise

    async def _tell(self, why: str = "") -> None:
        """Tell all connections that the server ends."""
        reason = why.encode()[:REASON_BYTES_MAX].decode(errors="ignore")
        everyone = list(self.sockets)
        for accepted in everyone:
            accepted.close(CloseCode(FAILED, reason, reconnect=False) if why else GOING_AWAY)
        ends = time.monotonic() + CLOSE_S
        while self.sockets and time.monotonic() < ends:  # noqa: ASYNC110 - a handful of looks, at the end
            await asyncio.sleep(LOOK_S)
        for accepted in list(self.sockets):
            accepted.transport.abort()


async def _end(works: list[asyncio.Future[None]]) -> None:
    for work in works:
        work.cancel()
    await asyncio.wait(works)
    for work in works:
        if not work.cancelled():
            work.exception()  # mark the exception as retrieved


def _database(settings: Settings) -> Database:
    kind, _, nodes = settings.database.partition(":")
    if kind != "riak":
        return Lmdb(Path(settings.database))
    from ingeborg.bench.caching.live import riak  # imported only if needed: it brings Protocol Buffers

    return riak.Riak(riak.nodes_of(nodes))


async def _main(settings: Settings) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    await Server(settings).serve(lambda url: print(f"ready at {url}", flush=True), stopped)


def main() -> int:
    """Run the server. Return 0 if it was stopped, or 1 if it failed. The log has the reason."""
    sys.setswitchinterval(SWITCH_S)
    try:
        uvloop.run(_main(settings_of(sys.argv[1])))
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
