"""NATS (core, at most once) as a system under load, through nats-py.

Owns: how topics become subjects, and when a subscription counts as confirmed. Must never: reconnect, because a run has
to count a lost connection.

- **Names**: a topic is a subject of one token. Percent-encoding replaces separators, wildcards and ``%``. A topic made
  only of such characters becomes three times as long (3,072 bytes of the 4,096 that the server allows for a command
  line).
- **Subscribed**: the server answers in order, so the PONG to a PING that follows many SUBs confirms all these SUBs.
- **Publishing**: `publish` appends to the client's pending buffer, and a flusher task of nats-py writes the whole
  buffer in one call. A call waits while that buffer is full. So a system that accepts no more data slows the publisher.
- **Receiving**: nats-py makes a task for a subscription with a callback, and a queue for a subscription without one. A
  subscription with a ``future`` has neither a task nor a queue, and its message is passed on immediately. Here, one
  shared future takes the messages of all subscriptions. It needs less CPU per message and less memory per subscription.
- **Slow consumers**: the server closes a connection for which more than ``max_pending`` bytes (64 MiB) wait. The run
  then gets ``connection_lost``. Until then the server drops nothing, and the client's own limits do not apply to
  futures.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit, urlunsplit

import orjson
from nats import errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from ingeborg.protocol.pages import PageError, fetch
from ingeborg.protocol.redaction import redacted

from .base import BackendError, Connection, Counters, OnError, OnMessage, Spread
from .lifeline import Lifeline, no_server

#: Time limit for TCP and the server's greeting. A server that is slower than this cannot be measured.
_CONNECT_TIMEOUT_S = 10.0
#: The longest time without an answer from the server. It applies to each step of a call, because 2 million topics take
#: a minute.
_PROGRESS_TIMEOUT_S = 30.0
#: SUBs between two round trips. With this number, each round trip is short. (Each has its own time-out.) All round
#: trips together take no measurable time.
_TOPICS_PER_FLUSH = 4096
#: Seconds between two pings. After two unanswered pings, a silent connection counts as lost. So the loss is noticed in
#: less than a minute, which is within the drain phase of a run.
_PING_INTERVAL_S = 20
_CLOSE_TIMEOUT_S = 2.0
_COUNTERS_TIMEOUT_S = 2.0

#: Special characters, in this order: the token separator, the two wildcards, the blank that ends a subject in a
#: command, the prefix of the server's own subjects, and the escape character.
_SPECIAL = re.compile(r"[.*> $%]")
#: Fields of /varz: first the counters that only grow, which are logged with `_total` for the readers of the log, then
#: the gauges.
_GROWING = ("in_msgs", "out_msgs", "in_bytes", "out_bytes", "slow_consumers", "total_connections")
_LEVELS = ("connections", "subscriptions", "mem", "cpu")


def subject(topic: str) -> str:
    """Encode a topic so that ``urllib.parse.unquote`` decodes it."""
    return _SPECIAL.sub(lambda match: f"%{ord(match[0]):02X}", topic)


class Nats(Spread):
    """``urls``: ``nats://[USER:PASSWORD@]HOST:PORT[?monitor=PORT]`` of the servers of one cluster. ``monitor``: the
    monitoring port of the server (its ``http_port``), for ``counters``."""

    async def connect(self, number: int, on_message: OnMessage, on_error: OnError) -> Connection:
        """See ``Backend``."""
        url, name = self.place(number)
        connection = _Connection(url, on_message, on_error)
        await connection.open(name)
        return connection

    async def counters(self) -> list[Counters]:
        """See ``Backend``. Only servers whose URL names a ``monitor`` have counters."""
        found = await asyncio.gather(*map(_counters, self._urls))
        return [counters for counters in found if counters is not None]


class _Sink(asyncio.Future[Msg]):
    """A future that takes the messages of all subscriptions of a connection. It is never done."""

    def __init__(self, on_message: OnMessage) -> None:
        super().__init__()
        self.on_message = on_message

    def set_result(self, result: Msg) -> None:
        topic = result.subject
        self.on_message(unquote(topic) if "%" in topic else topic, result.data.decode(errors="replace"))


class _Connection:
    def __init__(self, url: str, on_message: OnMessage, on_error: OnError) -> None:
        self._url = urlunsplit(urlsplit(url)._replace(query=""))
        self._where = redacted(url)
        self._lifeline = Lifeline(self._where, on_error)
        self._client = Client()
        self._sink = _Sink(on_message)
        self._subscriptions: dict[str, Subscription] = {}
        self._open = False
        self._why: Exception | None = None
        self._refused: str | None = None

    async def open(self, name: str) -> None:
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT_S):
                await self._client.connect(
                    self._url,
                    name=name,
                    allow_reconnect=False,
                    max_reconnect_attempts=1,  # with the next option, this also limits the attempts to connect
                    reconnect_time_wait=0,
                    connect_timeout=_CONNECT_TIMEOUT_S,  # type: ignore[arg-type]  # any number of seconds is fine
                    flush_timeout=_PROGRESS_TIMEOUT_S,
                    ping_interval=_PING_INTERVAL_S,
                    error_cb=self._on_error,
                    closed_cb=self._on_closed,
                )
        except (OSError, errors.Error) as error:
            await self._close_client()
            raise no_server(self._where, "NATS server", "nats", self._why or error) from error
        self._open = True

    async def subscribe(self, topics: Sequence[str]) -> None:
        async with self._lifeline.call("subscribe", _PROGRESS_TIMEOUT_S) as call:
            self._refused = None
            for start in range(0, len(topics), _TOPICS_PER_FLUSH):
                try:
                    for topic in topics[start : start + _TOPICS_PER_FLUSH]:
                        self._subscriptions[topic] = await self._client.subscribe(subject(topic), future=self._sink)
                        call.check()
                    await self._round_trip()
                except errors.Error as error:
                    raise self._failed(error) from error
                call.progress()
                if self._refused is not None:
                    raise BackendError(self._refused, f"{self._where}: subscribe: {self._refused}")

    async def unsubscribe(self, topics: Sequence[str]) -> None:
        async with self._lifeline.call("unsubscribe", _PROGRESS_TIMEOUT_S) as call:
            for start in range(0, len(topics), _TOPICS_PER_FLUSH):
                try:
                    for topic in topics[start : start + _TOPICS_PER_FLUSH]:
                        await self._subscriptions.pop(topic).unsubscribe()
                        call.check()
                    await self._round_trip()
                except errors.Error as error:
                    raise self._failed(error) from error
                call.progress()

    async def _round_trip(self) -> None:
        """Wait until the server has answered a PING that was sent after everything else. nats-py writes a PING
        immediately, ahead of commands that wait for its flusher task. So the first answer may not confirm any of these
        commands."""
        waiting = True
        while waiting:
            waiting = self._client.pending_data_size > 0
            await self._client.flush(_PROGRESS_TIMEOUT_S)  # type: ignore[arg-type]

    async def publish(self, messages: Sequence[tuple[str, str]]) -> None:
        async with self._lifeline.call("publish", _PROGRESS_TIMEOUT_S) as call:
            publish = self._client.publish
            try:
                for topic, payload in messages:
                    await publish(subject(topic), payload.encode())
                    call.check()
            except errors.Error as error:
                raise self._failed(error) from error
            # Let the flusher task write the buffer. Otherwise, a busy caller may never give the task time to run.
            await asyncio.sleep(0)

    async def close(self) -> None:
        if self._lifeline.close():
            self._sink.on_message = _ignore
            await self._close_client()
            self._subscriptions.clear()

    async def _close_client(self) -> None:
        # If the server accepts no more data, nats-py waits to write the rest and cannot give up. The socket then closes
        # with the event loop. Only the data that the server does not accept are lost.
        with contextlib.suppress(OSError, errors.Error):
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await self._client.close()

    async def _on_error(self, error: Exception) -> None:
        if not self._open:
            self._why = error  # `connect` itself raises only "no servers available"
        elif isinstance(error, errors.FlushTimeoutError):
            self._lifeline.end("timeout", f"publish: the server has accepted nothing for {_PROGRESS_TIMEOUT_S:g} s")
        elif not isinstance(error, (OSError, errors.StaleConnectionError)):  # `_on_closed` reports these errors
            # For example a permissions violation. It arrives before the PONG of the call that caused it.
            self._refused = _code(error)
            self._lifeline.report(self._refused)

    async def _on_closed(self) -> None:
        if self._open:
            self._lifeline.lose(str(self._client.last_error or "the server closed it"))

    def _failed(self, error: errors.Error) -> BackendError:
        if self._client.is_closed or isinstance(error, errors.StaleConnectionError):
            return self._lifeline.lose(str(self._client.last_error or error))
        if isinstance(error, errors.TimeoutError):
            return self._lifeline.end("timeout", f"no answer within {_PROGRESS_TIMEOUT_S:g} s")
        return BackendError(_code(error), f"{self._where}: {error}")


def _code(error: Exception) -> str:
    # For "nats: permissions violation for publish to …", return the words without the part that varies.
    return str(error).removeprefix("nats: ").partition(" for ")[0][:60]


def _ignore(topic: str, payload: str) -> None:
    """Drop a message that arrives after ``close``."""


async def _counters(url: str) -> Counters | None:
    parts = urlsplit(url)
    monitor = parse_qs(parts.query).get("monitor")
    if monitor is None:
        return None
    try:
        page = await fetch(f"http://{parts.hostname}:{monitor[0]}", "/varz", timeout_s=_COUNTERS_TIMEOUT_S)
        at_ns = time.monotonic_ns()
        told: dict[str, Any] = orjson.loads(page.text)
        values = {f"{name}_total": float(told[name]) for name in _GROWING}
        values |= {name: float(told[name]) for name in _LEVELS}
    except (PageError, ValueError, KeyError):
        return None  # the counters have a gap, but the events show what the outage does to messages
    return Counters(at_ns, f"nats {parts.hostname}:{parts.port}", values)
