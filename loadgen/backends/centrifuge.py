"""Centrifuge (the Go library) as a system under load, in its JSON protocol over WebSocket.

Owns: how a client's commands and their replies share a connection. Must never: reconnect, because a run has to count a
lost connection.

- **Names**: the name of a channel is the topic, unchanged. The library gives no meaning to the characters of a name.
  (Centrifugo, a server built on the library, does.) A name may have up to 255 bytes, or more if ``ChannelMaxLength``
  allows it. The library refuses longer names with `bad request`.
- **Several commands share a frame**, one per line. Centrifuge's own clients also put commands that they collect into
  one frame. The server sends up to 16 replies and publications in a frame, and here one call reads the whole frame.
- **This project's own socket** (``protocol.outgoing``) is used, not the Python client by Centrifuge's makers. In the
  Python client, a publish is a coroutine that waits for its reply, so a run would measure the client.
- **Subscribed**: each channel has a command and a reply. A call sends 4,096 commands and then waits for the replies.
- **Publishing**: every publish has a reply, because the protocol has no publish without a reply. No call waits for the
  reply, and a refusal goes to ``on_error``. A call waits while the socket accepts no more data.
- **Slow consumers**: the server closes a connection for which more than ``ClientQueueMaxSize`` bytes wait (1 MiB by
  default). The run then gets ``connection_lost``. Until then the server drops nothing.
- **Pings**: the server sends an empty object every 25 s, and disconnects a client that does not send one back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson
from websockets.exceptions import WebSocketException

from ingeborg.protocol.outgoing import OutgoingSocket, connect
from ingeborg.protocol.redaction import redacted

from .base import BackendError, Connection, Counters, OnError, OnMessage, Spread
from .lifeline import Call, Lifeline, no_server

#: Time limit for TCP, the upgrade and the first command. A server that is slower than this cannot be measured.
_CONNECT_TIMEOUT_S = 10.0
#: The longest time without an answer from the server. It applies to each step of a call, because 2 million topics take
#: several seconds.
_PROGRESS_TIMEOUT_S = 30.0
#: The maximum number of commands that a call sends before it waits for all their replies. The number is small, so that
#: each wait is short. (Each wait has its own time-out.) The replies that wait in the server (about 30 bytes each) also
#: stay far below the server's limit.
_COMMANDS_PER_WAIT = 4096
#: A frame is full at this number of bytes. The value is half of the server's default limit, because the last command
#: may be large.
_FRAME_BYTES = 32 * 1024
#: The longest frame from the server: 16 of the largest payloads, even if each character is escaped with six characters.
_FRAME_BYTES_MAX = 16 * 1024 * 1024
#: A number above any id, which means that no call waits for replies.
_NOBODY = 1 << 62


class Centrifuge(Spread):
    """``urls``: ``ws://HOST:PORT[/PATH]`` of one server, or of several that share a broker."""

    async def connect(self, number: int, on_message: OnMessage, on_error: OnError) -> Connection:
        """See ``Backend``."""
        url, name = self.place(number)
        connection = _Connection(url, on_message, on_error)
        await connection.open(name)
        return connection

    async def counters(self) -> list[Counters]:
        """See ``Backend``. This system has no counters: the library has counters for Prometheus, but the program that
        embeds the library decides whether to expose them."""
        return []


class _Connection:
    def __init__(self, url: str, on_message: OnMessage, on_error: OnError) -> None:
        self._url = url
        self._where = redacted(url)
        self._lifeline = Lifeline(self._where, on_error)
        self._on_message = on_message
        self._socket: OutgoingSocket | None = None
        self._open = False
        self._last_id = 0
        #: The call that waits: its first id, the number of replies that are still missing, the first refusal, and its
        #: future.
        self._asked_from = _NOBODY
        self._unanswered = 0
        self._refused: str | None = None
        self._answered: asyncio.Future[None] | None = None

    async def open(self, name: str) -> None:
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT_S):
                self._socket = await connect(self._url, self._on_frame, message_bytes_max=_FRAME_BYTES_MAX)
                self._socket.over.add_done_callback(self._on_over)
                async with self._lifeline.call("connect", _PROGRESS_TIMEOUT_S) as call:
                    await self._ask([{"connect": {"name": name}}], call)
        except (OSError, WebSocketException, BackendError) as error:
            self._lifeline.close()
            if self._socket is not None:
                self._socket.abort()
            raise no_server(self._where, "Centrifuge server", "centrifuge", error) from error
        self._open = True

    async def subscribe(self, topics: Sequence[str]) -> None:
        await self._each("subscribe", topics)

    async def unsubscribe(self, topics: Sequence[str]) -> None:
        await self._each("unsubscribe", topics)

    async def _each(self, command: str, topics: Sequence[str]) -> None:
        async with self._lifeline.call(command, _PROGRESS_TIMEOUT_S) as call:
            for start in range(0, len(topics), _COMMANDS_PER_WAIT):
                channels = topics[start : start + _COMMANDS_PER_WAIT]
                await self._ask([{command: {"channel": channel}} for channel in channels], call)

    async def _ask(self, commands: Sequence[dict[str, Any]], call: Call) -> None:
        """Send commands, and wait until the server has answered all. Raises ``BackendError`` if it refused any."""
        self._asked_from = first = self._last_id + 1
        self._last_id += len(commands)
        self._unanswered, self._refused = len(commands), None
        self._answered = asyncio.get_running_loop().create_future()
        try:
            await self._send([orjson.dumps({"id": id, **each}) for id, each in enumerate(commands, first)], call)
            await self._answered
        finally:
            self._asked_from, self._answered = _NOBODY, None
        call.progress()
        if self._refused is not None:
            raise BackendError(self._refused, f"{self._where}: {self._refused}")

    async def publish(self, messages: Sequence[tuple[str, str]]) -> None:
        async with self._lifeline.call("publish", _PROGRESS_TIMEOUT_S) as call:
            first = self._last_id + 1
            self._last_id += len(messages)
            dumps = orjson.dumps
            await self._send(
                [
                    dumps({"id": id, "publish": {"channel": topic, "data": payload}})
                    for id, (topic, payload) in enumerate(messages, first)
                ],
                call,
            )

    async def _send(self, commands: Sequence[bytes], call: Call) -> None:
        socket = self._socket
        assert socket is not None
        for frame in _frames(commands):
            while not socket.takes_more:
                await socket.drained()
                call.progress()
            socket.write(frame)

    def _on_frame(self, socket: OutgoingSocket, data: bytes) -> None:
        # A string in JSON has no line feed, so every line feed separates two messages.
        try:
            messages: list[dict[str, Any]] = orjson.loads(b"[%b]" % data.replace(b"\n", b","))
        except ValueError:
            socket.give_up("it does not speak Centrifuge's JSON protocol")
            return
        on_message = self._on_message
        for message in messages:
            push = message.get("push")
            if push is None:
                if message:
                    self._replied(message)
                else:
                    socket.write(b"{}")
            elif "pub" in push:
                payload = push["pub"]["data"]
                on_message(push["channel"], payload if type(payload) is str else "")
            elif "unsubscribe" in push:
                self._lifeline.report("unsubscribed")

    def _replied(self, reply: Mapping[str, Any]) -> None:
        error = reply.get("error")
        if reply["id"] < self._asked_from:
            if error is not None:
                self._lifeline.report(_code(error))
            return
        if error is not None and self._refused is None:
            self._refused = _code(error)
        self._unanswered -= 1
        if not self._unanswered and self._answered is not None and not self._answered.done():
            self._answered.set_result(None)

    def _on_over(self, over: asyncio.Future[tuple[int | None, str]]) -> None:
        _, why = over.result()
        if self._open:
            self._lifeline.lose(why)
        else:
            self._lifeline.end("connect", why)

    async def close(self) -> None:
        if self._lifeline.close() and self._socket is not None:
            self._on_message = _ignore
            await self._socket.end()


def _frames(commands: Sequence[bytes]) -> Iterator[bytes]:
    """Yield frames. Each frame has as many commands as fit, one per line."""
    start = size = 0
    for number, command in enumerate(commands, 1):
        size += len(command) + 1
        if size >= _FRAME_BYTES:
            yield b"\n".join(commands[start:number])
            start, size = number, 0
    if start < len(commands):
        yield b"\n".join(commands[start:])


def _code(error: Mapping[str, Any]) -> str:
    # {"code":103,"message":"permission denied"}; a program that embeds the library can have its own codes.
    return str(error.get("message") or error.get("code"))[:60]


def _ignore(topic: str, payload: str) -> None:
    """Drop a message that arrives after ``close``."""
