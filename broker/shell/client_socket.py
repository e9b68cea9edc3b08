"""Clients' connections: this module turns bytes into the core's events, and the core's effects into bytes.

Owns: the clients' sockets, the order in which they are read, and how to handle each request. Must never: make a
decision that the core could make.
"""

from __future__ import annotations

import asyncio
import http
import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial

from websockets.extensions.permessage_deflate import ServerPerMessageDeflateFactory
from websockets.http11 import Request, Response
from websockets.protocol import OPEN
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from ingeborg.protocol.errors import CLOSES, GOING_AWAY, HELD_TOO_MUCH, TOKEN_REVOKED, CloseCode
from ingeborg.protocol.frames import LargeMessage, text_frame
from ingeborg.protocol.lines import LINES, LINES_BYTES_MAX, Lined
from ingeborg.protocol.sockets import library_log

from ..access.admission import Refused, is_loopback
from ..access.callback import Question
from ..core.codec import BareLines, Codec, Lines, TextFrames
from ..core.connections.grants import Grant
from ..core.connections.hub import Connection
from ..core.connections.large import Large
from ..http.parsing import HttpRequest
from ..web.pages import Later, path_of, refusal
from .clients import COMPRESS_BYTES, Client, Clients, HttpSide
from .fairness import QUANTUM_BYTES
from .http_connection import HttpConnection
from .logs import request_id
from .peer_socket import HANDSHAKE_BYTES_MAX, PEER_PATH, PeerSocket
from .websocket import WebSocketProtocol

log = logging.getLogger("ingeborg.endpoint")

#: The largest message on a connection with permessage-deflate, in bytes after inflation. About 2 KiB can inflate to
#: this size, in about 8 ms, before any check sees the message.
INFLATED_BYTES_MAX = 2 << 20


_SUBPROTOCOLS = [Subprotocol(LINES)]


#: The codecs. The first item of a key says whether the client sends lines, and the second whether the endpoint
#: compresses messages to the client.
_CODECS: dict[tuple[bool, bool], Codec] = {
    (False, False): TextFrames(),
    (False, True): Codec(),
    (True, False): Lines(),
    (True, True): BareLines(),
}


class ClientSocket(Client):
    """A client's connection. It speaks HTTP until a request opens a WebSocket or a peer's link."""

    def __init__(self, clients: Clients, internal: bool = False) -> None:
        terms = clients.terms
        extensions = [ServerPerMessageDeflateFactory()] if terms.compression else None
        ws = WebSocketProtocol(
            max_size=terms.frame_bytes_max,
            extensions=extensions,
            subprotocols=_SUBPROTOCOLS,
            logger=library_log,
        )
        super().__init__(ws)
        self.quantum_bytes = QUANTUM_BYTES
        self.large_bytes = terms.large_bytes
        self.compressing = False  # whether messages to the client are compressed
        self.codec = _CODECS[False, False]
        self.internal = internal  # whether it was accepted at the internal address
        self._clients = clients
        self._terms = terms
        self._driver = clients.driver
        self._router = clients.driver.router
        self._reads = True
        self._reads_later = False  # whether reading pauses until this connection's turn for a large chunk
        self._stalled = False  # whether some of the client's lines wait until the router accepts more
        self._asking: asyncio.Task[None] | None = None  # asks the operator's server whether the client may connect
        self.grant: Grant | None = None  # the token's permissions, or None if everything is permitted
        self.address: str | None = None  # the address whose count includes this connection, or None
        self.connection: Connection | None = None
        self.http: HttpSide | None = HttpConnection(self, clients)  # None once the connection is a WebSocket

    # HTTP

    def receive_head(self, data: bytes) -> None:
        """Handle bytes that arrive while the connection speaks HTTP."""
        http = self.http
        assert http is not None
        rest = http.receive(data)
        waits = self._response_pending or (self.http is not None and self.http.waits)
        if self.transport.get_protocol() is self and (rest or waits):
            self._rest = rest, 0  # keep it even if it is empty, to append further data

    def response_pends(self, pends: bool) -> None:
        """See ``Client``."""
        self._response_pending = pends

    def answered(self, is_malformed: bool) -> None:
        """See ``Client``. If nothing has arrived after the request, the next request need not wait for a turn."""
        waits = is_malformed or self._eof or self._lost or (self.http is not None and self.http.waits)
        if self._rest is None or (self._rest[1] == len(self._rest[0]) and not waits):
            self._rest = None
            if self.connection is not None:
                self._router.unread(self.connection, self.unread, time.monotonic())
            self.read_or_not()
        else:
            self._clients.wait_for_turn(self)

    @property
    def is_asking(self) -> bool:
        """See ``Client``."""
        return self._asking is not None

    def page_comes(self, request: HttpRequest) -> None:
        """See ``Client``."""
        self._answer_page(request.head, request.has_body)
        if self.transport.get_protocol() is self:
            self.send_protocol()

    def end_http(self) -> None:
        """See ``Client``."""
        if not self._half_closed and not self.transport.is_closing():
            self._end_stream()

    def _end_stream(self) -> None:
        if self.http is not None and self.connection is not None:
            self._clients.left(self.connection)
            self.connection = None
        super()._end_stream()

    # Requests

    def _answer_page(self, request: Request, has_body: bool) -> None:
        clients = self._clients
        path = path_of(request)
        response = clients.pages.answer(request, path, self.internal)
        if response is None:
            address = self.there
            try:
                if has_body:  # frames follow a handshake, and a body could be mistaken for frames
                    raise Refused(http.HTTPStatus.BAD_REQUEST, "A request with a body cannot open a WebSocket")
                if path == PEER_PATH:
                    self._links_come_in(address, self.here)
                    self._become_peer(request)
                    return
                response = self._client_comes(request, address)
            except Refused as refused:
                response = self._refused(refused)
        if isinstance(response, Response):
            self._respond(response)
        elif clients.status.leaving:
            self._respond(self._leaving())
        else:
            self._respond_later(response)

    def _client_comes(self, request: Request, address: str) -> Response | Later:
        """Admit or refuse the client. If the operator's server has to decide, return a function that asks it. Raises
        ``Refused``."""
        self.check_room()
        access = self._clients.access
        admitted = access.admit(request)
        # Count the connection before asking the server, so that an address cannot have more pending questions than
        # connections.
        if self.address is not None:  # the connection carried commands over HTTP before
            access.left(self.address)
            self.address = None
        self.address = access.arrived(request, address)
        response: Response = self.ws.accept(request)
        if response.status_code == 400:
            response.headers["Sec-WebSocket-Version"] = "13"  # RFC 6455 section 4.4: the version may be the reason
        if not isinstance(admitted, Question):
            self.grant = admitted
            return response
        # The endpoint asks the server only about valid handshakes.
        return partial(self._let_in, admitted, response) if response.status_code == 101 else response

    async def _let_in(self, question: Question, response: Response) -> Response:
        """Wait for the server's answer. Return the response if the client may connect, else a refusal."""
        try:
            self.grant = await self._clients.access.answer(question)
        except Refused as refused:
            return self._refused(refused)
        return response

    def _refused(self, refused: Refused) -> Response:
        self.count_refused()
        return refusal(refused)

    def count_refused(self) -> None:
        """See ``Client``."""
        self._router.counters.counts["connections_refused"] += 1

    def _leaving(self) -> Response:
        response: Response = self.ws.reject(503, "This endpoint is shutting down\n")
        return response

    def _respond(self, response: Response) -> None:
        clients = self._clients
        if response.status_code == 101 and clients.status.leaving:
            response = self._leaving()
        self.ws.send_response(response)
        if self.ws.state is OPEN:
            self.settled()
            self._become_websocket()
            if self.ws.extensions:
                self.compressing = True
                self.ws.max_message_size = min(self._terms.frame_bytes_max, INFLATED_BYTES_MAX)
            if self.ws.subprotocol == LINES:
                self.lined = Lined()
                self.large_bytes = LINES_BYTES_MAX
            self.codec = _CODECS[self.lined is not None, self.compressing]
            self.connection = clients.connected(self)

    def _respond_later(self, later: Later) -> None:
        """Respond when ``later`` has a response, and read nothing until then. The handshake's time limit still applies:
        when it expires, the connection ends."""

        async def respond() -> None:
            response = await later()
            self.stop_asking()
            self._respond(response)
            self.send_protocol()

        self.ask(respond)

    def _leave_http(self) -> None:
        if self.http is not None:
            self.http.release()
            self.http = None

    def _become_websocket(self) -> None:
        self._leave_http()
        self._head = None
        if self.connection is not None:  # the connection carried commands over HTTP before
            self._clients.left(self.connection)
            self.connection = None

    def ask(self, ask: Callable[[], Awaitable[None]]) -> None:
        """See ``Client``."""
        self._response_pending = True
        self._clients.asking.add(self)
        self._asking = asyncio.get_running_loop().create_task(self._run(ask))

    async def _run(self, ask: Callable[[], Awaitable[None]]) -> None:
        try:
            await ask()
        except Exception:
            log.exception("cannot check whether a client may connect; cutting the client's connection")
            self.stop_asking()
            self._rest = None
            self.transport.abort()
        self._clients.wait_for_turn(self)  # to handle the bytes after the request
        self._driver.turn()

    def stop_asking(self) -> None:
        """See ``Client``."""
        self._response_pending = False
        self._asking = None  # break the cycle: this socket and the task reference each other
        self._clients.asking.discard(self)

    def turn_away(self) -> None:
        """Refuse the client if the operator's server has not answered about it yet."""
        if self._asking is not None:
            self._asking.cancel()
            self.stop_asking()
            if self.http is not None and not self.http.is_page:
                self.http.end(GOING_AWAY)
            else:
                self._respond(self._leaving())
                self.send_protocol()
            self._clients.wait_for_turn(self)

    def _links_come_in(self, address: str, here: str) -> None:
        """Check that a peer at ``address`` may open a link to our address ``here``. Raises ``Refused``.

        If a machine connects to one of its own addresses, the connection also comes from that address.
        """
        if not self.internal and self._clients.status.internal:
            raise Refused(http.HTTPStatus.NOT_FOUND, "This endpoint accepts links only at its internal address")
        if not self.internal and not is_loopback(address) and address != here:
            text = "Other machines can open links only to an internal address: give the endpoints --internal-address"
            raise Refused(http.HTTPStatus.FORBIDDEN, text)

    def _become_peer(self, request: Request) -> None:
        self.ws.send_response(self.ws.accept(request))
        self.send_protocol()
        if self.ws.state is OPEN:
            self.settled()
            self._leave_http()
            # The request is complete; from here on frames follow, with their own limit.
            ws = ServerProtocol(state=OPEN, max_size=HANDSHAKE_BYTES_MAX, logger=library_log)
            PeerSocket(self._clients.peers, ws, None).adopt(self.transport)

    def large_message(self, message: LargeMessage) -> None:
        """Handle a command in a large frame."""
        self.message(Large(message.blocks, message.size, message.is_text))

    def messages_come(self, messages: list[bytes]) -> None:
        """Handle commands."""
        connection = self.connection
        if connection is None:
            return
        router = self._router
        try:
            router.frames(connection, messages, time.monotonic(), self._text)
        except Exception:
            request = request_id(router.frame_under_way)
            self._driver.failed("a client's frame", connection=connection.number, request=request)

    def message(self, data: bytes | Large) -> None:
        """Handle a command in an unusual frame: large, fragmented, or compressed."""
        connection = self.connection
        if connection is None:
            return
        try:
            self._router.frame(connection, data, time.monotonic(), self._text)
        except Exception:
            request = request_id(data)
            self._driver.failed("a client's frame", connection=connection.number, request=request)

    def chunk_ends(self) -> None:
        """Report data that is still unread, pause reading if necessary, and end the turn."""
        connection = self.connection
        if connection is not None and (
            self._rest is not None
            or (self._buffer or self._parts or self._passing or self._large or connection.unread)
            or (self.http is not None and self.http.held > QUANTUM_BYTES)
        ):
            self._router.unread(connection, self.unread, time.monotonic())
            if self._large is not None or self._passing:
                self._read_later()
        if self.ws.state is not OPEN and self._is_transient:
            self._read_later()
        self._driver.turn()

    @property
    def _is_transient(self) -> bool:
        """Whether the connection is opening or closing."""
        if self.http is None:
            return self.ws.state is not OPEN
        return self.connection is None or self.http.is_closed

    def _read_later(self) -> None:
        """Pause reading during a large or skipped message, since libuv would otherwise read 32 chunks of the message in
        a pass."""
        if not self._reads_later and not self._lost:
            self._reads_later = True
            self.read_or_not()
            self._clients.read_later(self)

    def read_now(self) -> None:
        """Read a chunk, since this connection's turn has come."""
        self._reads_later = False
        self.read_or_not()

    def head_comes(self, data: bytes) -> None:
        """Queue the data of a client that is not admitted yet, so that admitted clients come first."""
        if self.connection is None:
            self.take_later(data)
        else:
            self.receive_head(data)

    @property
    def unread(self) -> int:
        """See ``Socket``."""
        return super().unread + (0 if self.http is None else self.http.held)

    def rest_waits(self) -> None:
        """Queue the connection for its turn. Reading pauses until then, so TCP holds the sender back."""
        if self._has_turn:
            self._clients.wait_for_turn(self)
        self.read_or_not()

    @property
    def _has_turn(self) -> bool:
        """Whether a turn can handle some of the waiting data. Otherwise, the data waits for a response."""
        if self.http is None:
            return self.waits and not self._response_pending
        return self.http.has_frames or (self.waits and self.is_writable and not self._response_pending)

    def next_turn(self) -> bool:
        """Handle waiting data for one turn. Return whether the connection needs another turn."""
        hands_on = self.http is not None and self.http.has_frames
        if (self.lined or hands_on) and self._paused and not self._lost:
            self._stalled = True
            return False
        if self.http is not None and hands_on:
            try:
                self.http.hand_on()
            except Exception:
                log.exception("handling a request failed; the connection is cut")
                self.transport.abort()
            self.chunk_ends()
        else:
            self.take_on()
        if self._has_turn:
            return True
        if not self.waits:
            self.read_or_not()
        return False

    @property
    def _paused(self) -> bool:
        return self.connection is not None and self.connection.paused

    def read_or_not(self) -> None:
        """Resume reading, or pause it while earlier data waits for its turn or the router is behind."""
        paused = self._paused
        if self._stalled and (self._lost or not paused):
            self._stalled = False
            self._clients.wait_for_turn(self)
        reads = not (paused or self.waits or self._reads_later)
        if reads is not self._reads and not self.transport.is_closing():
            self._reads = reads
            if reads:
                self.transport.resume_reading()
            else:
                self.transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Handle the data that had arrived before the connection was lost, if the client was admitted."""
        if self._asking is not None:
            self._asking.cancel()
            self.stop_asking()
            self._rest = None
        if self.http is not None and self.http.is_busy:
            self.http.drop()
            self._rest = None
        self._end_in_turn()
        super().connection_lost(exc)
        self.read_or_not()

    def _end_in_turn(self) -> None:
        """Let the end of an admitted client's connection wait for the connection's turn, like data. Otherwise, ten
        thousand clients that leave at the same time would delay all others by half a second."""
        if self.connection is not None and self._rest is None:
            self.take_later(b"")
            self._clients.wait_for_turn(self)

    def eof_received(self) -> bool:
        """See ``Socket``. A client may end its side after its last request, and still gets the response."""
        while self.http is not None and self.waits and self.is_writable and not self._response_pending:
            self.next_quantum()
        if self.http is None:
            return super().eof_received()
        self._end_in_turn()
        if self._rest is None:
            self._receive_eof()
            return False
        self._eof = True
        return self.transport.get_extra_info("ssl_object") is None  # TLS has no half-closed connections

    def _receive_eof(self) -> None:
        if self.http is None:
            super()._receive_eof()
        else:
            self._eof = False
            self.end_http()

    def closed(self) -> None:
        """Report that the connection is gone."""
        if self.address is not None:
            self._clients.access.left(self.address)
        if self.connection is not None:
            if self.http is None:
                self._clients.disconnected(self, self.connection)
            else:
                self._clients.left(self.connection)
        self._leave_http()

    def ping(self) -> None:
        """Send a ping. HTTP has no pings. A client that sends requests over HTTP counts as answering."""
        if self.http is None:
            super().ping()
        elif self.http.pinged():
            self.ponged()

    def ponged(self) -> None:
        """Report to the core that the client has answered a ping."""
        if self.connection is not None:
            self._router.ponged(self.connection, time.monotonic())

    def pause_writing(self) -> None:
        """Report to the core that the client reads more slowly than its messages arrive."""
        super().pause_writing()
        if self.connection is not None:
            self._router.blocked(self.connection, self.transport.get_write_buffer_size(), time.monotonic())

    def writable(self) -> None:
        """Report to the core that the client reads fast enough again."""
        if self.connection is not None:
            self._router.drained(self.connection, time.monotonic())
            self._driver.turn()
        if self.http is not None and self._has_turn:
            self._clients.wait_for_turn(self)

    def write(self, frames: list[bytes]) -> None:
        """Write frames from the outbox: all in one write, or each message separately if it is compressed."""
        if self.http is not None:
            self.http.replies(frames)
            return
        if self.ws.state is not OPEN:
            self._router.counters.drops["connection_closed"] += len(frames)
            return
        if self.lined is not None:
            frames = self.codec.written(frames)
        if self.compressing:
            for message in frames:
                if len(message) <= COMPRESS_BYTES:
                    self.ws.send_text(message)
                    self.send_protocol()
                else:
                    self.transport.write(text_frame(message))
        elif len(frames) == 1:
            self.transport.write(frames[0])
        elif self.lined is None:
            self.transport.write(b"".join(frames))
        else:
            self.transport.writelines(frames)  # the buffers are few and long, and joining them would copy them

    def send_protocol(self) -> None:
        """Send the protocol's output. Before a close, or the answer to a close, send the data that has left the outbox.
        A pong can overtake that data."""
        if self.connection is not None and self.connection.outbox.leaving_bytes and self.ws.state is not OPEN:
            for buffer in self.codec.written(self._router.rest(self.connection, time.monotonic())):
                self.transport.write(text_frame(buffer) if self.compressing else buffer)
        super().send_protocol()

    def end(self, code: CloseCode) -> None:
        """See ``Client``."""
        if self.http is not None:
            self.http.end(code)
            if code is HELD_TOO_MUCH and self.connection is not None:
                self._router.let_go(self.connection, time.monotonic())
        elif code is HELD_TOO_MUCH or code is TOKEN_REVOKED:
            self._let_go(code)
        else:
            # At a shutdown, the endpoint still carries out commands that a client sends before it receives the close,
            # although the client gets no replies.
            self.close(code, deaf=code is not GOING_AWAY)

    def _let_go(self, code: CloseCode) -> None:
        """Close the connection, and drop all data held for it. A client that does not read its messages will not read
        the close either."""
        self.fail(code)
        self.discard()
        if self.connection is not None:
            self._router.let_go(self.connection, time.monotonic())
        if not self.is_writable:
            self.transport.abort()

    @property
    def close_code(self) -> str:
        """The close code that ended the connection, or ``1006`` if neither side sent a code. ``other`` stands for all
        codes that neither this program nor WebSocket libraries (1000 to 1015) use."""
        first = (
            self.ws.close_sent if self.ws.close_rcvd is None or not self.ws.close_rcvd_then_sent else self.ws.close_rcvd
        )
        if first is None:
            return "1006"
        return str(first.code) if first.code in CLOSES or 1000 <= first.code < 1016 else "other"
