"""A client's connection while it is an event stream. SPEC 1.8.

Owns: the commands that open a stream, and when it ends. Must never: hold a message back; the core does that.

The stream's client listens over a connection of the core whose codec makes events of notifications. This module handles
everything else that the core sends over the connection: replies, positions and gaps.
"""

from __future__ import annotations

import http
import socket
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Any, Final

from ingeborg.protocol.errors import REPLACED, TOKEN_REVOKED, CloseCode
from ingeborg.protocol.wire import decode, encode

from ..core.codec import Codec, Events
from ..http.commands import status_of
from ..http.events import COMMENT, Stream, beginning, closed_event, gap_event, position_event, retry_event
from .clients import Client, Clients, HttpSide

EVENTS: Final[Codec] = Events()

#: If a client's TCP has acknowledged nothing for this time, in milliseconds, the connection is dead. By then, the
#: endpoint has sent three comments.
DEAD_MS: Final = 75_000

#: A stream's own header, which keeps nginx from buffering the response.
_HEADERS: Final = {"X-Accel-Buffering": "no"}

Steps = Generator[dict[str, Any], dict[str, Any], None]
"""Yields the commands that open a stream, and gets the reply to each command."""

Respond = Callable[[http.HTTPStatus, bytes, dict[str, str], bool], None]
"""Writes a response with a status, a body and further headers. The last argument says whether it is a stream."""


class EventStream(HttpSide):
    """One stream. ``respond`` writes the head of the response and the beginning of its body."""

    def __init__(self, client: Client, clients: Clients, stream: Stream, respond: Respond) -> None:
        self._client = client
        self._clients = clients
        self._name = stream.client
        self._respond: Respond | None = respond  # None once the response has begun
        self._closed = False
        self._position = ""  # the client's position for the beginning of the response
        self._has_gap = False  # whether the response begins with a gap
        #: Gaps and positions that wait until the client has all subscriptions. After a gap, a page reads the messages
        #: that it may have missed, and must not miss later messages.
        self._held: list[bytes] = []
        self._steps: Steps | None = self._open(stream)

    # HttpSide

    @property
    def is_closed(self) -> bool:
        """See ``HttpSide``."""
        return self._closed

    def receive(self, data: bytes) -> bytes:
        """See ``HttpSide``. Ignore the data, because a stream's client sends no more requests."""
        return b""

    def pinged(self) -> bool:
        """See ``HttpSide``."""
        if self._respond is None and not self._closed and not self._client.transport.is_closing():
            self._client.transport.write(COMMENT)
        return True

    def end(self, code: CloseCode) -> None:
        """See ``HttpSide``. A client that was replaced, or whose token was revoked, must not reconnect."""
        if self._closed:
            return
        if self._respond is not None:
            self._fail(code.reason)
            return
        if (code is REPLACED or code is TOKEN_REVOKED) and not self._client.transport.is_closing():
            self._client.transport.write(closed_event(code))
        self._finish()

    def _finish(self) -> None:
        self._closed = True
        self._steps = None
        self._client.end_http()

    # The opening

    def begin(self) -> None:
        """Send the first command."""
        client = self._client
        client.codec = EVENTS
        self._clients.renew(client)
        sock = client.transport.get_extra_info("socket")
        if sock is not None and hasattr(socket, "TCP_USER_TIMEOUT"):
            with suppress(OSError):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, DEAD_MS)
        assert self._steps is not None
        self._send(next(self._steps))

    def _send(self, command: dict[str, Any]) -> None:
        connection = self._client.connection
        assert connection is not None
        frame = encode({**command, "client_id": self._name})
        self._clients.driver.router.frames(connection, [frame], time.monotonic(), False)
        self._clients.driver.turn()

    def _open(self, stream: Stream) -> Steps:
        """Open the stream. A client that reconnects listens first, because the reply tells which of its subscriptions
        have ended. A new client subscribes first. The response begins when the client has all subscriptions, or earlier
        if a message arrives."""
        subscribe: dict[str, Any] = {"command": "subscribe", "until": "disconnect"}
        if stream.filter is not None:
            subscribe["filter"] = stream.filter
        listen: dict[str, Any] = {"command": "listen"}
        if stream.bounds is not None:
            listen["bounds"] = stream.bounds
        keeps = self._clients.driver.router.retained.on
        position = stream.position if keeps else None
        # A client that had no position yet may have missed messages.
        self._has_gap = stream.is_lost or not keeps or position == ""
        topics = stream.topics
        if position:
            self._position = position
            reply = yield {**listen, "recover": position}
            if reply.get("error") == "bad_state":  # not a position
                self._has_gap, position, self._position = True, None, ""
            elif "error" not in reply:
                self._position = reply.get("position", position)
                if ended := _ended(reply, topics):
                    reply = yield {**subscribe, "topic": ended, "since": position}
                    topics = [topic for topic in topics if topic not in ended]
                if topics and "error" not in reply:
                    reply = yield {**subscribe, "topic": topics}
        if not position:
            reply = yield {**subscribe, "topic": topics}
            if "error" not in reply:
                reply = yield {**listen, "recover": True} if keeps else listen
                self._position = reply.get("position", "")
        if "error" in reply:
            self._refuse(reply)
        else:
            self._begin_response()

    def replies(self, frames: list[bytes]) -> None:
        """See ``HttpSide``."""
        events = []
        for frame in frames:
            if not frame.startswith(b"{"):
                events.append(frame)
                continue
            message = decode(frame)
            if "result" in message or "error" in message:
                self._write(events)
                events = []
                self._next(message)
            else:
                gap = "gap" in message
                event = gap_event(message["gap"]) if gap else position_event(self._name, message["position"])
                (events if self._steps is None else self._held).append(event)
        self._write(events)

    def _next(self, reply: dict[str, Any]) -> None:
        """Send the command that follows this reply."""
        if self._steps is None:
            return
        try:
            command = self._steps.send(reply)
        except StopIteration:
            self._steps = None
            self._write(self._held)
        else:
            self._send(command)

    def _begin_response(self) -> None:
        gap = gap_event(None) if self._has_gap else b""
        self._answer(http.HTTPStatus.OK, beginning(self._name, self._position) + gap, True)

    def _answer(self, status: http.HTTPStatus, body: bytes, is_stream: bool) -> None:
        """Write the response, or the beginning of a stream, unless the response has begun."""
        respond, self._respond = self._respond, None
        if respond is not None:
            respond(status, body, _HEADERS if is_stream else {}, is_stream)

    def _write(self, events: list[bytes]) -> None:
        if not events or self._closed or self._client.transport.is_closing():
            return
        if self._respond is not None:  # a message comes before the reply to the `listen`
            self._begin_response()
        self._client.transport.write(b"".join(events))

    def _refuse(self, reply: dict[str, Any]) -> None:
        """End the stream because a command has failed."""
        if self._respond is None:
            self._finish()  # the client reconnects with its last position
            return
        status = status_of(encode(reply))
        if status is http.HTTPStatus.SERVICE_UNAVAILABLE:
            self._fail(reply["info"])
        else:
            self._answer(status, encode(reply), False)
            self._finish()

    def _fail(self, why: str) -> None:
        """Have the client try again later. A browser does so only after a successful response."""
        self._answer(http.HTTPStatus.OK, retry_event(why), True)
        self._finish()


def _ended(reply: dict[str, Any], topics: list[str]) -> list[str]:
    """Return the topics whose subscriptions have ended, according to the reply to a `listen`. If the reply does not
    name all ended subscriptions, return all topics."""
    ended = reply.get("ended", [])
    if reply.get("ended_count", 0) > len(ended):
        return topics
    names = {one["topic"] for one in ended}
    return [topic for topic in topics if topic in names]
