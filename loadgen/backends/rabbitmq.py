"""RabbitMQ as a system under load (thesis 6.2.3): a topic exchange, one queue per client, a binding per topic.

Owns: how topics become routing keys, and the connections, queues and bindings of the run's clients. Must never: use
confirms or acknowledgements, or leave anything on the server.

The adapter uses aiormq, the protocol layer of aio-pika, and not aio-pika itself. For each publish, aio-pika makes a
message object, a UUID and a task, and for each delivery another message object. aio-pika also waits for the reply to
each binding, and writes messages one by one. This adapter writes a batch of publishes in one call. The remaining cost
(figures in docs/systems.md) is nearly all in pamqp's framing.

- Nothing is stored: the exchange and the queues are not durable, and the messages are transient (delivery mode 1).
- Publisher confirms are off, and consumers do not acknowledge. RabbitMQ calls this mode "fire and forget", and it is
  the fastest mode. Without acknowledgements, RabbitMQ ignores prefetch. Messages that a client does not read in time
  pile up in its socket and then in its queue, until RabbitMQ's memory limit stops the publishers.
- Only the last binding of a batch has a reply. The other bindings are sent with ``nowait``. RabbitMQ serves a channel
  in order, so this reply confirms the whole batch. An unbind always has a reply (AMQP 0-9-1 1.7.2.7), so it takes a
  round trip per topic. With four or sixteen parallel channels, unbinding was only 15 % faster, so one channel is used.
- RabbitMQ deletes the exchange with its last binding, and a queue with its connection. Each queue has one binding from
  the beginning. So the exchange exists exactly as long as the run has a client, even if the run crashes.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

import aiormq
from aiormq.abc import ChannelFrame, DeliveredMessage, FrameType
from aiormq.connection import TCPTransportFactory
from aiormq.exceptions import (
    AMQPError,
    AuthenticationError,
    ChannelAccessRefused,
    ChannelInvalidStateError,
    ChannelLockedResource,
    ChannelNotFoundEntity,
    ChannelPreconditionFailed,
    ProbableAuthenticationError,
)
from pamqp.body import ContentBody
from pamqp.commands import Basic, Queue
from pamqp.exceptions import PAMQPException
from pamqp.header import ContentHeader
from yarl import URL

from ingeborg.protocol.hashes import digest
from ingeborg.protocol.redaction import redacted

from .base import BackendError, Connection, Counters, OnError, OnMessage
from .lifeline import Call, Lifeline, no_server

# The library also raises or reports the errors that it logs, so the generator's display should not show its log. A
# handler that is configured for the root logger still gets the log.
logging.getLogger("aiormq").addHandler(logging.NullHandler())

#: A loaded server may be slow to accept. A server that takes longer than this cannot be measured.
_CONNECT_TIMEOUT_S = 30.0
#: Time limit for one batch of bindings or publishes. It does not apply to a whole call, because millions of bindings
#: take a long time. However, a server that needs this long for a thousand bindings is stuck, or is out of memory and
#: blocks its publishers.
_PROGRESS_TIMEOUT_S = 30.0
#: Time limit for closing. A server that still answers closes a connection immediately.
_CLOSE_TIMEOUT_S = 3.0
#: One reply confirms this number of bindings. Round trips then cost little, and the adapter still notices a stuck
#: server.
_BIND_BATCH = 1000
#: Publishes per write. The number is small, so that heartbeats and replies can be sent between two writes. With
#: payloads of 200 bytes, a write has 80 KB.
_PUBLISH_BATCH = 256
#: After this number of written bytes, a publish waits for the socket. This limits the data that waits outside the
#: socket.
_UNDRAINED_BYTES = 1 << 16
#: The most frames that wait between the reader of a connection and the reader of its channel. With the library's
#: default of 10, the two readers take turns every third message. 1,000 frames are about 300 messages.
_FRAMES_MAX = 1000
#: Bytes read ahead from a socket, so that there are fewer and larger reads under load.
_READ_AHEAD_BYTES = 1 << 20

#: The longest routing key (AMQP 0-9-1 4.2.5.3, short strings).
_KEY_BYTES_MAX = 255
_SPECIAL = re.compile("[%.*#]")
_HASHED = "%="
_KEEPER_KEY = "%"  # no topic has this key, because "%" is always followed by two digits or "=" there

_TRANSIENT = Basic.Properties(delivery_mode=1)

_CODES: dict[type[BaseException | None], str] = {
    ChannelAccessRefused: "access_refused",
    ChannelNotFoundEntity: "not_found",
    ChannelLockedResource: "resource_locked",
    ChannelPreconditionFailed: "precondition_failed",
}


def routing_key(topic: str) -> str:
    """Encode a topic as one word for a topic exchange. Different topics get different words. Percent-encoding replaces
    separators, wildcards and percent signs. If the key is longer than 255 bytes, the topic's 128-bit BLAKE2b hash
    replaces it, and the message has its topic in a header."""
    key = _SPECIAL.sub(lambda match: f"%{ord(match[0]):02X}", topic)
    if len(key) * 4 > _KEY_BYTES_MAX and len(key.encode()) > _KEY_BYTES_MAX:
        return _HASHED + digest(topic.encode()).hex()
    return key


def _topic(key: str, properties: Basic.Properties) -> str:
    if "%" not in key:
        return key
    if key.startswith(_HASHED):
        return str((properties.headers or {})["topic"])
    return unquote(key)


class RabbitMq:
    """``urls``: ``amqp://[USER:PASSWORD@]HOST:PORT[/VHOST][?heartbeat=SECONDS]``. Clients are spread over the URLs
    round-robin. ``run``: part of the names of the exchange and the queues, so that runs do not interfere."""

    deduplicates = False

    def __init__(self, urls: Sequence[str], run: str) -> None:
        self._urls = list(urls)
        self._run = run

    async def connect(self, number: int, on_message: OnMessage, on_error: OnError) -> Connection:
        """See ``Backend``. The returned client has its queue and consumes from it."""
        url = self._urls[number % len(self._urls)]
        client = _Connection(url, f"loadgen.{self._run}", f"loadgen.{self._run}.{number}", on_message, on_error)
        await client.open()
        return client

    async def counters(self) -> list[Counters]:
        """See ``Backend``. This system has no counters, because RabbitMQ exposes counters only by plugins over HTTP,
        which take CPU."""
        return []

    async def close(self) -> None:
        """See ``Backend``. Clients share nothing, and RabbitMQ deletes queues and exchange with the connections."""


class _Transports(TCPTransportFactory):
    """Makes the only transport of a connection. It can end the transport if the server does not end it."""

    def __init__(self) -> None:
        self._writer: asyncio.StreamWriter | None = None

    async def create(self, url: URL, **kwargs: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, self._writer = await super().create(url, **kwargs)
        return reader, self._writer

    def abort(self) -> None:
        """End the transport immediately. Nothing more is written, and no caller waits for the end."""
        if self._writer is not None:
            self._writer.transport.abort()


class _Connection:
    """One client: a connection, a channel, a queue."""

    def __init__(self, url: str, exchange: str, queue: str, on_message: OnMessage, on_error: OnError) -> None:
        self._url = url
        self._where = redacted(url)
        self._exchange = exchange
        self._queue = queue
        self._on_message = on_message
        self._lifeline = Lifeline(self._where, on_error)
        self._transports = _Transports()
        self._undrained = 0  # bytes written since the socket was last drained
        self._connection: aiormq.Connection
        self._channel: aiormq.Channel

    async def open(self) -> None:
        self._connection = aiormq.Connection(self._url, transport_factory=self._transports, limit=_READ_AHEAD_BYTES)
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT_S):
                await self._connection.connect()
        except (AuthenticationError, ProbableAuthenticationError) as error:
            raise BackendError("access_refused", f"{self._where} refuses the user or the password: {error}") from error
        except (AMQPError, PAMQPException, OSError) as error:
            self._transports.abort()
            raise no_server(self._where, "RabbitMQ", "rabbitmq", error) from error
        self._connection.closing.add_done_callback(self._on_connection_closed)
        try:
            await self._make_queue()
        except BaseException:
            await self.close()
            raise

    async def _make_queue(self) -> None:
        async with self._call("make the queue"):
            channel = await self._connection.channel(publisher_confirms=False, frame_buffer_size=_FRAMES_MAX)
            assert isinstance(channel, aiormq.Channel)
            self._channel = channel
            channel.closing.add_done_callback(self._on_channel_closed)
            channel.on_consumer_cancel_callbacks.add(self._on_cancelled)
            await channel.exchange_declare(self._exchange, exchange_type="topic", auto_delete=True)
            await channel.queue_declare(self._queue, exclusive=True, auto_delete=True)
            await channel.queue_bind(self._queue, self._exchange, _KEEPER_KEY)
            await channel.basic_consume(self._queue, self._deliver, no_ack=True)

    async def _deliver(self, message: DeliveredMessage) -> None:
        topic = _topic(message.routing_key or "", message.header.properties)
        self._on_message(topic, message.body.decode(errors="replace"))

    async def subscribe(self, topics: Sequence[str]) -> None:
        keys = [routing_key(topic) for topic in topics]
        async with self._call("bind topics") as call:
            for start in range(0, len(keys), _BIND_BATCH):
                *pipelined, last = keys[start : start + _BIND_BATCH]
                await self._write([Queue.Bind(0, self._queue, self._exchange, key, nowait=True) for key in pipelined])
                await self._channel.queue_bind(self._queue, self._exchange, last)
                call.progress()

    async def unsubscribe(self, topics: Sequence[str]) -> None:
        async with self._call("unbind topics") as call:
            for topic in topics:
                await self._channel.queue_unbind(self._queue, self._exchange, routing_key(topic))
                call.progress()

    async def publish(self, messages: Sequence[tuple[str, str]]) -> None:
        async with self._call("publish") as call:
            for start in range(0, len(messages), _PUBLISH_BATCH):
                frames: list[FrameType] = []
                for topic, payload in messages[start : start + _PUBLISH_BATCH]:
                    self._add_publish(frames, topic, payload.encode())
                await self._write(frames)
                call.progress()

    def _add_publish(self, frames: list[FrameType], topic: str, body: bytes) -> None:
        key = routing_key(topic)
        properties = _TRANSIENT
        if key.startswith(_HASHED):
            properties = Basic.Properties(delivery_mode=1, headers={"topic": topic})
        frames.append(Basic.Publish(0, self._exchange, key))
        frames.append(ContentHeader(body_size=len(body), properties=properties))
        room = self._channel.max_content_size
        frames.extend(ContentBody(body[start : start + room]) for start in range(0, len(body), room))

    async def _write(self, frames: list[FrameType], drain: bool = False) -> None:
        """Write frames with one call. Wait for the socket after each full buffer, or if ``drain`` is set."""
        written = ChannelFrame.marshall(self._channel.number, frames)
        self._undrained += len(written.payload)
        if drain or self._undrained >= _UNDRAINED_BYTES:
            self._undrained = 0
            drained = self._channel.create_future()  # fails when the connection is lost
            await self._channel.write_queue.put(replace(written, drain_future=drained))
            await drained
        else:
            await self._channel.write_queue.put(written)

    @asynccontextmanager
    async def _call(self, what: str) -> AsyncIterator[Call]:
        async with self._lifeline.call(what, _PROGRESS_TIMEOUT_S) as call:
            try:
                yield call
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is None or task.cancelling():  # cancelled by the time-out, or by the caller
                    raise
                raise self._lifeline.lose("closed") from None  # the library cancels calls that wait for a reply
            except (AMQPError, ChannelInvalidStateError, OSError) as error:
                if self._connection.is_closed:
                    raise self._lifeline.lose(str(error)) from error
                raise BackendError(_code(error), f"{self._where}: {what}: {error}") from error

    def _on_connection_closed(self, closing: asyncio.Future[Any]) -> None:
        error = None if closing.cancelled() else closing.exception()
        self._lifeline.lose(str(error or "closed"))

    def _on_channel_closed(self, closing: asyncio.Future[Any]) -> None:
        error = None if closing.cancelled() else closing.exception()
        if not self._connection.is_closed:  # otherwise, the end of the connection is reported as the reason
            self._stop(_code(error), f"the server closed the channel: {error}")

    def _on_cancelled(self, _: object) -> None:
        self._stop("cancelled", "the server stopped delivering because the queue was deleted")

    def _stop(self, code: str, text: str) -> None:
        self._lifeline.end(code, text)
        self._lifeline.report(code)

    async def close(self) -> None:
        if not self._lifeline.close():
            return
        self._on_message = _ignore
        closing = asyncio.ensure_future(self._flush_and_close())
        # If closing takes too long, do not cancel it, because the library would still wait for the transport. Closing
        # ends when the transport is closed.
        if not (await asyncio.wait([closing], timeout=_CLOSE_TIMEOUT_S))[0]:
            self._transports.abort()
            await asyncio.wait([closing], timeout=_CLOSE_TIMEOUT_S)

    async def _flush_and_close(self) -> None:
        # The library would drop frames that it has not written yet, so write these frames first. They are lost if the
        # write fails.
        with suppress(AMQPError, ChannelInvalidStateError, OSError, AttributeError):
            if not self._channel.is_closed:
                await self._write([], drain=True)
        await self._connection.close()


def _code(error: BaseException | None) -> str:
    return _CODES.get(type(error), "channel_closed")


def _ignore(topic: str, payload: str) -> None:
    """Drop a message that arrives after ``close``."""
