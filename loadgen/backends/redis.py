"""Redis pub/sub as a system under load, through redis-py with the hiredis parser.

Owns: how a client's two connections are read and written. Must never: reconnect, because a run has to count a lost
connection.

- **Names**: the name of a channel is the topic, unchanged. Channels may have any bytes in their names, and only
  `PSUBSCRIBE` has patterns.
- **Two connections per client**: a subscribed connection must not publish (RESP2), and redis-py enforces that.
- **redis-py's `Connection`** is used, not its `PubSub` and `Pipeline`. These two classes send the same bytes, but use
  more CPU per message. Also, when a connection is lost, `PubSub` silently connects and subscribes again.
- **Subscribed**: Redis answers each channel of a `SUBSCRIBE`, and the call waits for all the answers.
- **Publishing**: a call makes one pipeline without transaction for every 1,024 messages. It writes all commands in one
  call, and then reads all replies.
- **Slow consumers**: Redis drops no message. It closes a subscriber for which more bytes wait than
  ``client-output-buffer-limit pubsub`` allows (by default 32 MiB, or 8 MiB for a minute). The run then gets
  ``connection_lost``.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from redis.asyncio import Connection as RedisConnection
from redis.asyncio import Redis as RedisClient
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError

from ingeborg.protocol.redaction import redacted

from .base import BackendError, Connection, Counters, OnError, OnMessage, Spread
from .lifeline import Call, Lifeline, no_server

#: Time limit for TCP and, if the URL has a password, the login. A server that is slower than this cannot be measured.
_CONNECT_TIMEOUT_S = 10.0
#: The longest time without an answer from the server. It applies to each step of a call, because 2 million topics take
#: several seconds.
_PROGRESS_TIMEOUT_S = 30.0
#: Channels per SUBSCRIBE. Their confirmations, each as long as its topic, wait in the server's output buffer, and more
#: than 8 MiB there may end the connection. More channels would not be faster.
_CHANNELS_PER_COMMAND = 1024
#: Messages per pipeline. More messages would not be faster. Each message takes memory for a second copy.
_MESSAGES_PER_PIPELINE = 1024
_CLOSE_TIMEOUT_S = 2.0
_COUNTERS_TIMEOUT_S = 2.0

#: Fields of INFO: first the counters that only grow, which are logged with `_total` for the readers of the log, then
#: the gauges. If a version of Redis lacks a field, the log lacks it too.
_GROWING = (
    "total_commands_processed",
    "total_connections_received",
    "total_net_input_bytes",
    "total_net_output_bytes",
    "rejected_connections",
    "client_output_buffer_limit_disconnections",
    "used_cpu_user",
    "used_cpu_sys",
)
_LEVELS = ("connected_clients", "pubsub_channels", "pubsub_clients", "used_memory", "used_memory_rss")


class Redis(Spread):
    """``urls``: ``redis://[USER:PASSWORD@]HOST:PORT`` of one server, because a cluster sends each message to all
    servers."""

    async def connect(self, number: int, on_message: OnMessage, on_error: OnError) -> Connection:
        """See ``Backend``."""
        connection = _Connection(*self.place(number), on_message, on_error)
        await connection.open()
        return connection

    async def counters(self) -> list[Counters]:
        """See ``Backend``."""
        found = await asyncio.gather(*map(_counters, self._urls))
        return [counters for counters in found if counters is not None]


class _Connection:
    def __init__(self, url: str, name: str, on_message: OnMessage, on_error: OnError) -> None:
        self._where = redacted(url)
        self._lifeline = Lifeline(self._where, on_error)
        self._on_message = on_message
        self._subscriber = _connection(url, name)
        self._publisher = _connection(url, name)
        self._reading: asyncio.Task[None] | None = None
        #: For the SUBSCRIBE or UNSUBSCRIBE under way: how many channels Redis still has to answer, and the future that
        #: waits for all answers.
        self._unanswered = 0
        self._answered: asyncio.Future[None] | None = None
        #: The number of replies to publishes that have not been read yet. If a call is cancelled, the next call reads
        #: its replies.
        self._unread = 0

    async def open(self) -> None:
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT_S):
                for connection in (self._subscriber, self._publisher):
                    await connection.connect()  # type: ignore[no-untyped-call]
                    # PING proves that a Redis answers and may be used. A connection alone proves only that TCP works.
                    await connection.send_command("PING")
                    await connection.read_response()
        except (OSError, RedisError) as error:
            await self._disconnect()
            raise no_server(self._where, "Redis", "redis", error) from error
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        read = self._subscriber.read_response
        on_message = self._on_message
        try:
            while True:
                try:
                    kind, channel, value = await read(timeout=math.inf, disconnect_on_error=False)
                except ResponseError as error:
                    self._refuse(error)
                    continue
                if kind == "message":
                    on_message(channel, value)
                else:
                    self._confirm()
        except (OSError, RedisError) as error:
            self._lifeline.lose(str(error))
        except Exception as error:
            self._lifeline.lose(repr(error))
            raise

    def _confirm(self) -> None:
        self._unanswered -= 1
        if self._unanswered <= 0 and self._answered is not None and not self._answered.done():
            self._answered.set_result(None)

    def _refuse(self, error: ResponseError) -> None:
        if self._answered is not None and not self._answered.done():
            self._answered.set_exception(BackendError(_code(error), f"{self._where}: {error}"))
        else:
            self._lifeline.report(_code(error))

    async def subscribe(self, topics: Sequence[str]) -> None:
        async with self._lifeline.call("subscribe", _PROGRESS_TIMEOUT_S) as call:
            await self._ask("SUBSCRIBE", topics, call)

    async def unsubscribe(self, topics: Sequence[str]) -> None:
        async with self._lifeline.call("unsubscribe", _PROGRESS_TIMEOUT_S) as call:
            await self._ask("UNSUBSCRIBE", topics, call)

    async def _ask(self, command: str, topics: Sequence[str], call: Call) -> None:
        for start in range(0, len(topics), _CHANNELS_PER_COMMAND):
            channels = topics[start : start + _CHANNELS_PER_COMMAND]
            self._unanswered = len(channels)
            self._answered = asyncio.get_running_loop().create_future()
            await self._send(self._subscriber, [(command, *channels)])
            await self._answered
            call.progress()

    async def publish(self, messages: Sequence[tuple[str, str]]) -> None:
        async with self._lifeline.call("publish", _PROGRESS_TIMEOUT_S) as call:
            read = self._publisher.read_response
            for start in range(0, len(messages), _MESSAGES_PER_PIPELINE):
                batch = messages[start : start + _MESSAGES_PER_PIPELINE]
                await self._send(self._publisher, [("PUBLISH", *message) for message in batch])
                self._unread += len(batch)
                while self._unread:
                    try:
                        await read(timeout=math.inf, disconnect_on_error=False)
                    except ResponseError as error:
                        self._lifeline.report(_code(error))
                    except (OSError, RedisError) as error:
                        raise self._lifeline.lose(str(error)) from error
                    self._unread -= 1
                call.progress()

    async def _send(self, connection: RedisConnection, commands: list[tuple[str, ...]]) -> None:
        if not connection.is_connected:
            # If a write is cancelled, redis-py disconnects, and would connect again at the next write.
            raise self._lifeline.lose("a call was cancelled while it wrote")
        try:
            await connection.send_packed_command(connection.pack_commands(commands), check_health=False)
        except (OSError, RedisError) as error:
            raise self._lifeline.lose(str(error)) from error

    async def close(self) -> None:
        if not self._lifeline.close():
            return
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading], timeout=_CLOSE_TIMEOUT_S)
        await self._disconnect()

    async def _disconnect(self) -> None:
        for connection in (self._subscriber, self._publisher):
            await connection.disconnect(nowait=True)


def _connection(url: str, name: str) -> RedisConnection:
    # The connection has no time-outs, because a subscriber can be idle for hours. The time-outs of the calls apply.
    options: dict[str, Any] = dict(parse_url(url))
    return RedisConnection(
        **options,
        protocol=2,
        client_name=name,
        driver_info=None,
        decode_responses=True,
        encoding_errors="replace",
        socket_timeout=None,
        socket_connect_timeout=None,
        retry=Retry(NoBackoff(), 0),
    )


def _code(error: ResponseError) -> str:
    # The text of Redis begins with a code in capitals: "NOPERM this user has no permissions …". redis-py cuts off the
    # codes that it knows.
    code: str = getattr(error, "status_code", None) or str(error).partition(" ")[0]
    return code.lower()[:60]


async def _counters(url: str) -> Counters | None:
    client = RedisClient.from_url(url, retry=Retry(NoBackoff(), 0))
    try:
        async with asyncio.timeout(_COUNTERS_TIMEOUT_S):
            told = await client.info()
            at_ns = time.monotonic_ns()
    except (OSError, RedisError):
        return None  # the counters have a gap, but the events show what the outage does to messages
    finally:
        await client.aclose()
    values = {f"{name}_total": float(told[name]) for name in _GROWING if name in told}
    values |= {name: float(told[name]) for name in _LEVELS if name in told}
    return Counters(at_ns, f"redis {urlsplit(url).hostname}:{urlsplit(url).port}", values)
