"""MQTT 3.1.1 at QoS 0 as a system under load, through paho-mqtt in the event loop. It is measured with Mosquitto.

Owns: how topics become MQTT's names, and how asyncio serves the socket of a paho client. Must never: reconnect, because
a run has to count a lost connection.

- **Names**: a topic is one level. Percent-encoding replaces level separators, wildcards, ``$`` (which begins the
  server's own topics), ``%``, and the characters that MQTT lets a server refuse (Unicode's non-characters). A topic
  made only of such characters becomes three times as long: 3,072 bytes of the 65,535 allowed.
- **paho's own interface for event loops** is used (`loop_read`, `loop_write`, `on_socket_…`), not aiomqtt, which is
  built on it. aiomqtt publishes one message at a time, each with an event and a turn of the loop, and needs several
  times the CPU.
- **Subscribed**: the call waits for the SUBACK of every 256 filters.
- **Publishing** is at QoS 0, which has no replies. A call queues all its messages, then writes them, and waits until
  the socket has taken them.
- **Slow consumers**: if more than ``max_queued_messages`` wait for a client (1,000 by default; 0 means no limit),
  Mosquitto drops further messages. The protocol cannot report dropped messages to a client. In the run they count as
  lost, and the server counts them in ``publish/messages/dropped``.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from paho.mqtt.client import Client, MQTTMessage, error_string
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.reasoncodes import ReasonCode

from ingeborg.protocol.redaction import redacted

from .base import BackendError, Connection, Counters, OnError, OnMessage, Spread
from .lifeline import Call, Lifeline, no_server

_PORT = 1883
#: Time limit for TCP and CONNACK. A server that is slower than this cannot be measured.
_CONNECT_TIMEOUT_S = 10.0
#: The longest time without an answer from the server. It applies to each packet, because 2 million topics take a
#: minute.
_PROGRESS_TIMEOUT_S = 30.0
#: Filters per SUBSCRIBE. Even with the longest topics, a packet is smaller than a megabyte, which is the limit of other
#: servers. More filters per packet would not be faster.
_FILTERS_PER_PACKET = 256
#: The most messages queued before they are written. The queue holds a second copy of each message in memory.
_MESSAGES_PER_WRITE = 1024
#: A silent server counts as lost after twice ``_KEEPALIVE_S``. paho needs a call every ``_KEEPALIVE_CHECK_S``.
_KEEPALIVE_S = 20
_KEEPALIVE_CHECK_S = 5.0
_COUNTERS_TIMEOUT_S = 2.0

_NONCHARACTERS = [*range(0xFDD0, 0xFDF0), *(plane << 16 | low for plane in range(17) for low in (0xFFFE, 0xFFFF))]
#: The characters to encode: the level separator, the wildcards, the prefix of the server's own topics and of shared
#: subscriptions, the escape, and the non-characters.
_ENCODED = {character: quote(character, safe="") for character in ("/+#$%" + "".join(map(chr, _NONCHARACTERS)))}
_SPECIAL = re.compile(f"[{''.join(_ENCODED)}]")
#: Topics below `$SYS/broker/`: first the counters that only grow, which are logged with `_total` for the readers of the
#: log, then the gauges. The server updates their values only every `sys_interval` (10 s by default).
_GROWING = (
    "messages/received",
    "messages/sent",
    "publish/messages/received",
    "publish/messages/sent",
    "publish/messages/dropped",
    "bytes/received",
    "bytes/sent",
)
_LEVELS = ("clients/connected", "subscriptions/count", "heap/current")


def name(topic: str) -> str:
    """Encode a topic so that ``urllib.parse.unquote`` decodes it."""
    return _SPECIAL.sub(lambda match: _ENCODED[match[0]], topic)


class Mqtt(Spread):
    """``urls``: ``mqtt://[USER:PASSWORD@]HOST:PORT`` of one server, or of several bridged servers."""

    async def connect(self, number: int, on_message: OnMessage, on_error: OnError) -> Connection:
        """See ``Backend``."""
        url, client = self.place(number)

        def hear(message: MQTTMessage) -> None:
            topic = message.topic
            on_message(unquote(topic) if "%" in topic else topic, message.payload.decode(errors="replace"))

        session = _Session(url, client, name, hear, on_error)
        await session.open()
        return session

    async def counters(self) -> list[Counters]:
        """See ``Backend``."""
        found = await asyncio.gather(*map(_counters, self._urls))
        return [counters for counters in found if counters is not None]


class _Session:
    """A paho client whose socket the event loop serves. ``encode`` converts a topic to MQTT's topic. ``on_message``
    gets paho's message."""

    def __init__(
        self,
        url: str,
        client_id: str,
        encode: Callable[[str], str],
        on_message: Callable[[MQTTMessage], None],
        on_error: OnError,
    ) -> None:
        self._url = url
        self._where = redacted(url)
        self._encode = encode
        self._lifeline = Lifeline(self._where, on_error)
        self._loop = asyncio.get_running_loop()
        self._greeted: asyncio.Future[None] = self._loop.create_future()
        #: By packet id of a SUBSCRIBE or UNSUBSCRIBE under way: whether the server refuses any part of it.
        self._answers: dict[int, asyncio.Future[bool]] = {}
        self._written = asyncio.Event()
        self._writing = False
        self._fd = -1
        self._timer: asyncio.TimerHandle | None = None
        self._client = client = Client(
            CallbackAPIVersion.VERSION2, client_id, protocol=MQTTProtocolVersion.MQTTv311, reconnect_on_failure=False
        )
        client.connect_timeout = _CONNECT_TIMEOUT_S
        client.on_connect = self._on_connect
        client.on_subscribe = self._on_answer
        client.on_unsubscribe = self._on_answer
        client.on_message = lambda _, __, message: on_message(message)

    async def open(self) -> None:
        parts = urlsplit(self._url)
        client = self._client
        if parts.username is not None:
            client.username_pw_set(unquote(parts.username), unquote(parts.password or ""))
        try:
            # This call blocks until there is a TCP connection, for at most `connect_timeout`. It writes CONNECT
            # immediately.
            await asyncio.to_thread(client.connect, parts.hostname or "", parts.port or _PORT, _KEEPALIVE_S)
            sock = client.socket()
            if sock is None:
                raise ConnectionError("the server closed the connection")
            self._fd = sock.fileno()
            # From here on, all work happens in this thread.
            client.on_disconnect = self._on_disconnect
            client.on_socket_close = self._on_socket_close
            # With this callback, paho queues its writes, so that `_write` can write many packets at a time.
            client.on_socket_register_write = _ignore
            self._loop.add_reader(self._fd, client.loop_read)
            async with asyncio.timeout(_CONNECT_TIMEOUT_S):
                await self._greeted
        except OSError as error:
            await self.close()
            raise no_server(self._where, "MQTT server", "mosquitto", error) from error
        self._check_keepalive()

    async def subscribe(self, topics: Sequence[str]) -> None:
        async with self._lifeline.call("subscribe", _PROGRESS_TIMEOUT_S) as call:
            for start in range(0, len(topics), _FILTERS_PER_PACKET):
                filters = [(self._encode(topic), 0) for topic in topics[start : start + _FILTERS_PER_PACKET]]
                if await self._answer(*self._client.subscribe(filters), call):
                    raise BackendError("refused", f"{self._where}: subscribe: the server refused a topic")

    async def unsubscribe(self, topics: Sequence[str]) -> None:
        async with self._lifeline.call("unsubscribe", _PROGRESS_TIMEOUT_S) as call:
            for start in range(0, len(topics), _FILTERS_PER_PACKET):
                filters = [self._encode(topic) for topic in topics[start : start + _FILTERS_PER_PACKET]]
                await self._answer(*self._client.unsubscribe(filters), call)

    async def _answer(self, result: MQTTErrorCode, packet_id: int | None, call: Call) -> bool:
        """Wait for the server's answer to a packet. Return whether the server refused any part of the packet."""
        if packet_id is None:
            raise self._lifeline.lose(error_string(result))
        self._answers[packet_id] = answer = self._loop.create_future()
        try:
            await self._flush()
            refused: bool = await answer
        finally:
            del self._answers[packet_id]
        call.progress()
        return refused

    async def publish(self, messages: Sequence[tuple[str, str]]) -> None:
        async with self._lifeline.call("publish", _PROGRESS_TIMEOUT_S) as call:
            publish, encode = self._client.publish, self._encode
            for start in range(0, len(messages), _MESSAGES_PER_WRITE):
                for topic, payload in messages[start : start + _MESSAGES_PER_WRITE]:
                    sent = publish(encode(topic), payload)
                    if sent.rc:
                        raise self._lifeline.lose(error_string(sent.rc))
                await self._flush()
                call.progress()

    async def _flush(self) -> None:
        """Wait until the socket has taken the whole queue."""
        self._written.clear()
        self._write()
        if self._writing:
            await self._written.wait()

    def _write(self) -> None:
        self._client.loop_write()
        if self._client.want_write() and self._client.socket() is not None:
            if not self._writing:
                self._writing = True
                self._loop.add_writer(self._fd, self._write)
        elif self._writing:
            self._writing = False
            self._loop.remove_writer(self._fd)
            self._written.set()

    async def close(self) -> None:
        # Close immediately. Messages that the socket does not accept now are not sent.
        if not self._lifeline.close():
            return
        if self._timer is not None:
            self._timer.cancel()
        self._client.on_message = None
        self._client.disconnect()
        self._client.loop_write()  # paho closes the socket now if only DISCONNECT was left to write
        sock = self._client.socket()
        if sock is not None and self._fd >= 0:
            self._forget_socket()
            sock.close()
        self._client.on_socket_close = None

    def _check_keepalive(self) -> None:
        self._client.loop_misc()
        self._write()
        if self._client.socket() is not None:
            self._timer = self._loop.call_later(_KEEPALIVE_CHECK_S, self._check_keepalive)

    def _on_connect(self, client: Client, userdata: Any, flags: Any, reason: ReasonCode, properties: Any) -> None:
        if self._greeted.done():
            return
        if reason.is_failure:
            self._greeted.set_exception(ConnectionError(str(reason)))
        else:
            self._greeted.set_result(None)

    def _on_disconnect(self, client: Client, userdata: Any, flags: Any, reason: ReasonCode, properties: Any) -> None:
        if not self._greeted.done():
            self._greeted.set_exception(ConnectionError("the server closed the connection"))
        else:
            self._lifeline.lose(str(reason))

    def _on_answer(self, client: Client, userdata: Any, packet_id: int, reasons: list[ReasonCode], _: Any) -> None:
        answer = self._answers.get(packet_id)
        if answer is not None and not answer.done():
            answer.set_result(any(reason.is_failure for reason in reasons))

    def _on_socket_close(self, client: Client, userdata: Any, sock: Any) -> None:
        self._forget_socket()

    def _forget_socket(self) -> None:
        self._loop.remove_reader(self._fd)
        self._loop.remove_writer(self._fd)
        self._writing = False


def _ignore(*_: Any) -> None:
    """Do nothing. This is a callback."""


async def _counters(url: str) -> Counters | None:
    told: dict[str, float] = {}
    complete = asyncio.Event()

    def hear(message: MQTTMessage) -> None:
        with contextlib.suppress(ValueError):  # some versions append units to other values
            told[message.topic.removeprefix("$SYS/broker/")] = float(message.payload)
        if len(told) == len(_GROWING) + len(_LEVELS):
            complete.set()

    # The server assigns a client id. With a shared id, the processes of the run would disconnect each other.
    session = _Session(url, "", str, hear, _ignore)
    try:
        async with asyncio.timeout(_COUNTERS_TIMEOUT_S):
            await session.open()
            await session.subscribe([f"$SYS/broker/{each}" for each in (*_GROWING, *_LEVELS)])
            await complete.wait()
    except (BackendError, TimeoutError):
        pass  # there is a gap, or the server has fewer counters; the events show what an outage does to messages
    finally:
        await session.close()
    if not told:
        return None
    values = {f"{each}_total": told[each] for each in _GROWING if each in told}
    values |= {each: told[each] for each in _LEVELS if each in told}
    return Counters(time.monotonic_ns(), f"mqtt {urlsplit(url).hostname}:{urlsplit(url).port}", values)
