"""Clients' connections: this module turns bytes into the core's events, and the core's effects into bytes.

Owns: the clients' sockets, the order in which they are read, and how to handle each request. Must never: make a
decision that the core could make.
"""

from __future__ import annotations

import asyncio
import http
import itertools
import logging
import time
from collections import deque
from dataclasses import dataclass
from functools import partial

from websockets.extensions.permessage_deflate import ServerPerMessageDeflateFactory
from websockets.http11 import Request, Response
from websockets.protocol import OPEN
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from ingeborg.protocol.errors import CLOSES, GOING_AWAY, HELD_TOO_MUCH, TOKEN_REVOKED, CloseCode
from ingeborg.protocol.frames import LargeMessage, text_frame
from ingeborg.protocol.lines import LINES, LINES_BYTES_MAX, Lined
from ingeborg.protocol.sockets import Socket, library_log

from ..access.admission import Access, Refused, is_loopback
from ..access.callback import Question
from ..core.codec import BareLines, Codec, Lines, TextFrames
from ..core.connections.grants import Grant
from ..core.connections.hub import Connection
from ..core.connections.large import Large
from ..core.connections.outbox import PIECE_BYTES
from ..core.effects import Close, PauseOrResume, Ping
from ..web.pages import Later, Pages, path_of, refusal
from .driver import Driver
from .fairness import QUANTUM_BYTES, RoundRobin
from .logs import request_id
from .peer_socket import HANDSHAKE_BYTES_MAX, PEER_PATH, Peers, PeerSocket
from .requests import RequestProtocol
from .status import Status

log = logging.getLogger("ingeborg.endpoint")

#: Maximum number of bytes written to a connection with compression in one turn, which takes 2 ms. Longer frames are not
#: compressed.
COMPRESS_BYTES = 64 << 10

#: Number of connections from which one pass of the loop reads a chunk of a large message. Each chunk has up to 256 KiB,
#: and together they take 1 ms.
LARGE_AT_ONCE = 8

#: Number of connections refused in one pass of the loop, which takes 1 ms.
ANSWERS_AT_ONCE = 16

#: The largest message on a connection with permessage-deflate, in bytes after inflation. About 2 KiB can inflate to
#: this size, in about 8 ms, before any check sees the message.
INFLATED_BYTES_MAX = 2 << 20


_SUBPROTOCOLS = [Subprotocol(LINES)]

#: The codecs. The first item of a key says whether the client sends lines, and the second whether the endpoint
#: compresses messages to it.
_CODECS: dict[tuple[bool, bool], Codec] = {
    (False, False): TextFrames(),
    (False, True): Codec(),
    (True, False): Lines(),
    (True, True): BareLines(),
}


@dataclass(frozen=True)
class Terms:
    """Limits and options of clients' connections. A separate process parses messages of more than ``large_bytes``."""

    frame_bytes_max: int
    large_bytes: int
    compression: bool


class ClientSocket(Socket):
    """A client's connection. Until its request has arrived, it can turn out to be plain HTTP or a peer's link."""

    quantum_bytes = QUANTUM_BYTES

    def __init__(self, clients: Clients, internal: bool = False) -> None:
        terms = clients.terms
        extensions = [ServerPerMessageDeflateFactory()] if terms.compression else None
        self.ws: RequestProtocol = RequestProtocol(
            max_size=terms.frame_bytes_max,
            extensions=extensions,
            subprotocols=_SUBPROTOCOLS,
            logger=library_log,
        )
        super().__init__(self.ws)
        self.large_bytes = terms.large_bytes
        self.compressing = False  # whether messages to the client are compressed
        self.codec = _CODECS[False, False]
        self.internal = internal  # whether it was accepted at the internal address
        self._clients = clients
        self._terms = terms
        self._driver = clients.driver
        self._router = clients.driver.router
        self._reads = True
        self._reads_later = False  # whether reading pauses until its turn for a large chunk
        self._stalled = False  # whether some of the client's lines wait until the router accepts more
        self._asking: asyncio.Task[None] | None = None  # asks the server whether the client may connect
        self.grant: Grant | None = None  # the token's permissions, or None if everything is permitted
        self.address: str | None = None  # the address under which it counts
        self.connection: Connection | None = None

    def handshake(self, event: Request | Response) -> None:
        """Handle a WebSocket client, a GET of a reserved path, or a peer. For a malformed request, ``event`` is the
        response to send."""
        if self.ws.eof_sent:  # bytes after the request, in the same chunk, have already broken the protocol
            return
        if isinstance(event, Response):
            self._count_refused()
            self._respond(event)
            return
        clients = self._clients
        path = path_of(event)
        response = clients.pages.answer(event, path, self.internal)
        if response is None:
            peer = self.transport.get_extra_info("peername")  # None if the peer has already gone
            address = peer[0] if peer else ""
            try:
                if self.ws.has_body:  # frames follow a handshake, and a body could be mistaken for frames
                    raise Refused(http.HTTPStatus.BAD_REQUEST, "A request with a body cannot open a WebSocket")
                if path == PEER_PATH:
                    here = self.transport.get_extra_info("sockname")
                    self._links_come_in(address, here[0] if here else "")
                    self._become_peer(event)
                    return
                response = self._client_comes(event, address)
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
        access = self._clients.access
        admitted = access.admit(request)
        # Count the connection before asking the server, so that an address cannot have more pending questions than
        # connections.
        self.address = access.arrived(request, address)
        response = self.ws.accept(request)
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
        self._count_refused()
        return refusal(refused)

    def _count_refused(self) -> None:
        self._router.counters.counts["connections_refused"] += 1

    def _leaving(self) -> Response:
        return self.ws.reject(503, "This endpoint is shutting down\n")

    def _respond(self, response: Response) -> None:
        clients = self._clients
        if response.status_code == 101 and clients.status.leaving:
            response = self._leaving()
        self.ws.send_response(response)
        if self.ws.state is OPEN:
            self.settled()
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
        self._response_pending = True
        self._clients.asking.add(self)
        self._asking = asyncio.get_running_loop().create_task(self._respond_when_known(later))

    async def _respond_when_known(self, later: Later) -> None:
        try:
            response = await later()
            self._stop_asking()
            self._respond(response)
            self.send_protocol()
        except Exception:
            log.exception("the check whether a client can connect failed; the endpoint cuts its connection")
            self._stop_asking()
            self._rest = None
            self.transport.abort()
        self._clients.wait_for_turn(self)  # to handle the bytes after the request
        self._driver.turn()

    def _stop_asking(self) -> None:
        self._response_pending = False
        self._asking = None  # this socket and the task reference each other
        self._clients.asking.discard(self)

    def turn_away(self) -> None:
        """Refuse the client if the operator's server has not answered about it yet."""
        if self._asking is not None:
            self._asking.cancel()
            self._stop_asking()
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
            request = request_id(data) if isinstance(data, bytes) else None
            self._driver.failed("a client's frame", connection=connection.number, request=request)

    def chunk_ends(self) -> None:
        """Report data that is still unread, pause reading if necessary, and end the turn."""
        connection = self.connection
        if connection is not None and (
            self._rest is not None or self._buffer or self._parts or self._passing or self._large or connection.unread
        ):
            self._router.unread(connection, self.unread, time.monotonic())
            if self._large is not None or self._passing:
                self._read_later()
        if self.ws.state is not OPEN:  # the connection opens or closes
            self._read_later()
        self._driver.turn()

    def _read_later(self) -> None:
        """Pause reading during a large or skipped message, since libuv would otherwise read 32 of its chunks in a
        pass."""
        if not self._reads_later and not self._lost:
            self._reads_later = True
            self.read_or_not()
            self._clients.read_later(self)

    def read_now(self) -> None:
        """Read a chunk, since this connection's turn has come."""
        self._reads_later = False
        self.read_or_not()

    def head_comes(self, data: bytes) -> None:
        """Queue the data, so that connected clients come before clients that still connect."""
        self.take_later(data)

    def rest_waits(self) -> None:
        """Queue the connection for its turn. Reading pauses until then, so TCP holds the sender back."""
        self._clients.wait_for_turn(self)
        self.read_or_not()

    def next_turn(self) -> bool:
        """Handle waiting data for one turn. Return whether the connection needs another turn."""
        if self.lined and self._paused and not self._lost:
            self._stalled = True
            return False
        self.take_on()
        if self.waits:
            return self._asking is None  # it needs no turn while the server's answer is pending
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
            self._stop_asking()
            self._rest = None
        super().connection_lost(exc)
        self.read_or_not()

    def closed(self) -> None:
        """Report that the connection is gone."""
        if self.address is not None:
            self._clients.access.left(self.address)
        if self.connection is not None:
            self._clients.disconnected(self, self.connection)

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

    def write(self, frames: list[bytes]) -> None:
        """Write frames from the outbox: all in one write, or each message separately if it is compressed."""
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

    def let_go(self, code: CloseCode) -> None:
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


class Clients:
    """All clients' connections of one endpoint."""

    def __init__(
        self, driver: Driver, peers: Peers, pages: Pages, access: Access, status: Status, terms: Terms
    ) -> None:
        self.driver = driver
        self.peers = peers
        self.pages = pages
        self.access = access
        self.status = status
        self.terms = terms
        self.sockets: dict[Connection, ClientSocket] = {}
        self.asking: set[ClientSocket] = set()  # sockets that wait for the operator's server to decide about them
        self._numbers = itertools.count(1)
        self._read_later: deque[ClientSocket] = deque()  # connections that wait for their turn to read a large chunk
        self._waiting = RoundRobin[ClientSocket](ClientSocket.next_turn, time.monotonic)
        self._all_gone: asyncio.Event = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        driver.write_with(self._write)
        driver.carry_out(Close, self._close)
        driver.carry_out(PauseOrResume, self._pause_or_resume)
        driver.carry_out(Ping, self._ping)

    def connected(self, client: ClientSocket) -> Connection:
        """Add a client whose handshake has succeeded, and return its connection."""
        number = next(self._numbers)
        router = self.driver.router
        connection = router.connected(
            number,
            time.monotonic(),
            client.grant,
            codec=client.codec,
            throttled=client.address is not None,
            piece_bytes=COMPRESS_BYTES if client.compressing else PIECE_BYTES,
        )
        router.counters.counts["connections_accepted"] += 1
        self.sockets[connection] = client
        log.debug("connected", extra={"connection": number, "address": client.address or "of this machine"})
        return connection

    def disconnected(self, client: ClientSocket, connection: Connection) -> None:
        """Remove a client whose connection has ended."""
        self.sockets.pop(connection, None)
        code = client.close_code
        self.status.closes[code] += 1
        log.debug("closed", extra={"connection": connection.number, "code": code})
        self.driver.router.disconnected(connection, time.monotonic())
        if not self.sockets:
            self._all_gone.set()
        self.driver.turn()

    async def turn_away(self) -> None:
        """Refuse the clients that wait for admission, because this endpoint is shutting down. Each pass of the loop
        refuses a few."""
        while self.asking:
            for client in list(itertools.islice(self.asking, ANSWERS_AT_ONCE)):
                client.turn_away()
            await asyncio.sleep(0)

    async def gone(self) -> None:
        """Wait until no client is connected."""
        while self.sockets:
            self._all_gone.clear()
            await self._all_gone.wait()

    def cut(self) -> None:
        """End the remaining connections."""
        for client in list(self.sockets.values()):
            client.transport.abort()

    # Effects

    def _write(self, writes: list[tuple[Connection, list[bytes]]]) -> None:
        sockets = self.sockets
        for connection, frames in writes:
            client = sockets.get(connection)
            if client is not None:
                client.write(frames)

    def _close(self, close: Close) -> None:
        client = self.sockets.get(close.connection)
        if client is not None and (close.code is HELD_TOO_MUCH or close.code is TOKEN_REVOKED):
            client.let_go(close.code)
        elif client is not None:
            # At a shutdown, commands that a client sends before it receives the close still count, although the client
            # gets no replies.
            client.close(close.code, deaf=close.code is not GOING_AWAY)

    def _pause_or_resume(self, act: PauseOrResume) -> None:
        client = self.sockets.get(act.connection)
        if client is not None:
            client.read_or_not()

    def _ping(self, ping: Ping) -> None:
        client = self.sockets.get(ping.connection)
        if client is not None:
            client.ping()

    # Turns

    def wait_for_turn(self, client: ClientSocket) -> None:
        """Queue a client that has sent more data than the endpoint handles in one turn."""
        if self._waiting.add(client):
            self._loop.call_soon(self._next_turns)

    def _next_turns(self) -> None:
        if self._waiting.run():
            self._loop.call_soon(self._next_turns)

    def read_later(self, client: ClientSocket) -> None:
        """Queue a client that sends large chunks: in each pass of the loop, a few such clients get one chunk each."""
        self._read_later.append(client)
        if len(self._read_later) == 1:
            self._loop.call_soon(self._read_some)

    def _read_some(self) -> None:
        later = self._read_later
        for _ in range(min(len(later), LARGE_AT_ONCE)):
            later.popleft().read_now()
        if later:
            self._loop.call_soon(self._read_some)
