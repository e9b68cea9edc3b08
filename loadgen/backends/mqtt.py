"""MQTT 3.1.1 at QoS 0 as a system under load, over paho-mqtt in the event loop; measured with Mosquitto.

Owns: how topics become MQTT's names, and a paho client's socket in asyncio. Must never: reconnect (a run has to see a
loss as a loss).

- **Names**: characters that separate levels or match there, ``$`` (the server's own), ``%``, and those that MQTT lets a
  server refuse (Unicode's non-characters) are percent-encoded, so a topic is one level. A topic made only of such
  characters becomes three times as long: 3,072 bytes of the 65,535 allowed.
- **paho's own interface for event loops** (`loop_read`, `loop_write`, `on_socket_…`), not aiomqtt, which is built on
  it: aiomqtt publishes one message at a time, each with an event and a turn of the loop, for several times the CPU.
- **Subscribed**: SUBACK, for 256 filters at a time.
- **Publishing**: QoS 0, which has no replies. A call queues all its messages, then writes them, and waits until the
  socket has taken them.
- **Slow consumers**: Mosquitto drops a client's messages beyond ``max_queued_messages`` (1,000 unless set; 0: no limit)
  that wait. The protocol cannot report that to a client: it shows as loss, and in the server's counter
  ``publish/messages/dropped``.
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
#: TCP and CONNACK; a server that is slower than this cannot be measured.
_CONNECT_TIMEOUT_S = 10.0
#: Without any answer from the server. It applies to each packet, since 2 million topics take a minute.
_PROGRESS_TIMEOUT_S = 30.0
#: Filters per SUBSCRIBE: less than a megabyte for any topics, the packet limit of other servers. More filters are not
#: faster.
_FILTERS_PER_PACKET = 256
#: Messages queued before they are written: the queue is a second copy in memory.
_MESSAGES_PER_WRITE = 1024
#: A silent server counts as lost after twice this; paho needs a periodic call.
_KEEPALIVE_S = 20
_KEEPALIVE_CHECK_S = 5.0
_COUNTERS_TIMEOUT_S = 2.0

_NONCHARACTERS = [*range(0xFDD0, 0xFDF0), *(plane << 16 | low for plane in range(17) for low in (0xFFFE, 0xFFFF))]
#: The level separator, the wildcards, the prefixes of the server's own topics and of shared subscriptions, the escape;
#: and the non-characters.
_ENCODED = {character: quote(character, safe="") for character in ("/+#$%" + "".join(map(chr, _NONCHARACTERS)))}
_SPECIAL = re.compile(f"[{''.join(_ENCODED)}]")
#: Below `$SYS/broker/`: counters that only grow, logged with `_total` for the readers of the log, and gauges. They are
#: as old as the server's `sys_interval` (10 s, unless set).
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
    """Encode a topic one to one; ``urllib.parse.unquote`` undoes it."""
    return _SPECIAL.sub(lambda match: _ENCODED[match[0]], topic)


class Mqtt(Spread):
    """``urls``: ``mqtt://[USER:PASSWORD@]HOST:PORT`` of one server, or of bridged ones."""

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
    """A paho client whose socket the event loop serves. ``encode``: turns a topic into MQTT's; ``on_message`` gets
    paho's message."""

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
        #: By packet id of the SUBSCRIBE or UNSUBSCRIBE under way: whether the server has refused anything.
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
            # Blocks until there is a TCP connection, at most `connect_timeout`; writes CONNECT at once.
            await asyncio.to_thread(client.connect, parts.hostname or "", parts.port or _PORT, _KEEPALIVE_S)
            sock = client.socket()
            if sock is None:
                raise ConnectionError("the server closed the connection")
            self._fd = sock.fileno()
            # From here on everything happens in this thread.
            client.on_disconnect = self._on_disconnect
            client.on_socket_close = self._on_socket_close
            # With this set, paho queues its writes: `_write` writes them, many packets at a time.
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
        """Wait for the server's answer to this packet; return whether it refused anything."""
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
        # At once: what the socket does not take now is not sent.
        if not self._lifeline.close():
            return
        if self._timer is not None:
            self._timer.cancel()
        self._client.on_message = None
        self._client.disconnect()
        self._client.loop_write()  # then paho closes the socket, if only DISCONNECT was left to write
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
    """See ``_Session.open``."""


async def _counters(url: str) -> Counters | None:
    told: dict[str, float] = {}
    complete = asyncio.Event()

    def hear(message: MQTTMessage) -> None:
        with contextlib.suppress(ValueError):  # some versions append units to some values; those used here are numbers
            told[message.topic.removeprefix("$SYS/broker/")] = float(message.payload)
        if len(told) == len(_GROWING) + len(_LEVELS):
            complete.set()

    # The server assigns its client id: with a shared one, the run's processes would disconnect each other.
    session = _Session(url, "", str, hear, _ignore)
    try:
        async with asyncio.timeout(_COUNTERS_TIMEOUT_S):
            await session.open()
            await session.subscribe([f"$SYS/broker/{each}" for each in (*_GROWING, *_LEVELS)])
            await complete.wait()
    except (BackendError, TimeoutError):
        pass  # a gap in the counters, or a server that has fewer; the events show what an outage does to messages
    finally:
        await session.close()
    if not told:
        return None
    values = {f"{each}_total": told[each] for each in _GROWING if each in told}
    values |= {each: told[each] for each in _LEVELS if each in told}
    return Counters(time.monotonic_ns(), f"mqtt {urlsplit(url).hostname}:{urlsplit(url).port}", values)
