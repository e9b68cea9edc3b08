"""The clients' connections: from bytes to the core's events, and from its effects to bytes.

Owns: the clients' sockets, whose turn it is to be taken from, and what a request turns out to be. Must never: decide
what the core could decide.
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

#: What a connection is written in one turn where it has to be compressed, in bytes: 2 ms. A longer frame is not.
COMPRESS_BYTES = 64 << 10

#: Connections that bring a chunk of a large message in one pass of the loop: of up to 256 KiB each, 1 ms together.
LARGE_AT_ONCE = 8

#: Connections that are told in one pass of the loop that they are not let in: 1 ms.
ANSWERS_AT_ONCE = 16

#: A message on a connection with permessage-deflate, in bytes when it has been inflated: what a few hundred bytes may
#: become before anybody can look at it, in some 8 ms.
INFLATED_BYTES_MAX = 2 << 20


_SUBPROTOCOLS = [Subprotocol(LINES)]

#: By two facts of a connection: it speaks in lines; the endpoint compresses what it sends there.
_CODECS: dict[tuple[bool, bool], Codec] = {
    (False, False): TextFrames(),
    (False, True): Codec(),
    (True, False): Lines(),
    (True, True): BareLines(),
}


@dataclass(frozen=True)
class Terms:
    """What clients' connections are like. ``large_bytes``: a longer message is read away from the loop."""

    frame_bytes_max: int
    large_bytes: int
    compression: bool


class ClientSocket(Socket):
    """A client's connection. Until its request has come it may turn out to be HTTP, or a peer."""

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
        self.compressing = False  # what it is sent
        self.codec = _CODECS[False, False]
        self.internal = internal  # it came to the internal address
        self._clients = clients
        self._terms = terms
        self._driver = clients.driver
        self._router = clients.driver.router
        self._reads = True
        self._reads_later = False  # it is read again when it is its turn to bring a large chunk
        self._stalled = False  # lines of it wait until the router takes more of it
        self._asking: asyncio.Task[None] | None = None  # whether it may connect
        self.grant: Grant | None = None  # what its token permits; None: everything
        self.address: str | None = None  # under which it is counted
        self.connection: Connection | None = None

    def handshake(self, event: Request | Response) -> None:
        """A WebSocket client, a GET of a reserved path, or a peer. A response: to what is no request."""
        if self.ws.eof_sent:  # what came behind the request, in the same chunk, has broken the protocol already
            return
        if isinstance(event, Response):
            self._count_refused()
            self._respond(event)
            return
        clients = self._clients
        path = path_of(event)
        response = clients.pages.answer(event, path, self.internal)
        if response is None:
            peer = self.transport.get_extra_info("peername")  # None: it is gone already
            address = peer[0] if peer else ""
            try:
                if self.ws.has_body:  # what follows a handshake are frames, and nobody is to take the body for these
                    raise Refused(http.HTTPStatus.BAD_REQUEST, "A request with a body opens no WebSocket")
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
        """Raises ``Refused``."""
        access = self._clients.access
        admitted = access.admit(request)
        # Before somebody is asked: one address has no more questions under way than it may have connections.
        self.address = access.arrived(request, address)
        response = self.ws.accept(request)
        if response.status_code == 400:
            response.headers["Sec-WebSocket-Version"] = "13"  # RFC 6455 section 4.4: it may be why
        if not isinstance(admitted, Question):
            self.grant = admitted
            return response
        # Nor is anybody asked about what is no handshake.
        return partial(self._let_in, admitted, response) if response.status_code == 101 else response

    async def _let_in(self, question: Question, response: Response) -> Response:
        """The response, if the client may connect."""
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
        """Nothing is read meanwhile. The time for the handshake goes on, and ends the connection."""
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
            log.exception("whether a connection may be made could not be found out; it is cut")
            self._stop_asking()
            self._rest = None
            self.transport.abort()
        self._clients.wait_for_turn(self)  # what has come behind the request
        self._driver.turn()

    def _stop_asking(self) -> None:
        self._response_pending = False
        self._asking = None  # they hold each other
        self._clients.asking.discard(self)

    def turn_away(self) -> None:
        """Nobody who is still asked about is let in any more."""
        if self._asking is not None:
            self._asking.cancel()
            self._stop_asking()
            self._respond(self._leaving())
            self.send_protocol()
            self._clients.wait_for_turn(self)

    def _links_come_in(self, address: str, here: str) -> None:
        """At our address ``here``, and from that one? A machine that connects to an address of its own comes from
        it. Raises ``Refused``."""
        if not self.internal and self._clients.status.internal:
            raise Refused(http.HTTPStatus.NOT_FOUND, "Links come in at this endpoint's internal address only")
        if not self.internal and not is_loopback(address) and address != here:
            text = "Links of other machines come in at an internal address: give the endpoints --internal-address"
            raise Refused(http.HTTPStatus.FORBIDDEN, text)

    def _become_peer(self, request: Request) -> None:
        self.ws.send_response(self.ws.accept(request))
        self.send_protocol()
        if self.ws.state is OPEN:
            self.settled()
            # The request has been read; from here on it is frames, with a limit of their own.
            ws = ServerProtocol(state=OPEN, max_size=HANDSHAKE_BYTES_MAX, logger=library_log)
            PeerSocket(self._clients.peers, ws, None).adopt(self.transport)

    def large_message(self, message: LargeMessage) -> None:
        """A command in a large frame."""
        self.message(Large(message.blocks, message.size, message.is_text))

    def messages_come(self, messages: list[bytes]) -> None:
        """Commands."""
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
        """A command that came in a frame of its own kind: large, in fragments, or compressed."""
        connection = self.connection
        if connection is None:
            return
        try:
            self._router.frame(connection, data, time.monotonic(), self._text)
        except Exception:
            request = request_id(data) if isinstance(data, bytes) else None
            self._driver.failed("a client's frame", connection=connection.number, request=request)

    def chunk_ends(self) -> None:
        """End the turn."""
        connection = self.connection
        if connection is not None and (
            self._rest is not None or self._buffer or self._parts or self._passing or self._large or connection.unread
        ):
            self._router.unread(connection, self.unread, time.monotonic())
            if self._large is not None or self._passing:
                self._read_later()
        if self.ws.state is not OPEN:  # it is on its way in or out
            self._read_later()
        self._driver.turn()

    def _read_later(self) -> None:
        """A large message comes, or what is passed over: else libuv reads 32 chunks of it in one pass of the loop."""
        if not self._reads_later and not self._lost:
            self._reads_later = True
            self.read_or_not()
            self._clients.read_later(self)

    def read_now(self) -> None:
        """Its turn has come to bring a chunk."""
        self._reads_later = False
        self.read_or_not()

    def head_comes(self, data: bytes) -> None:
        """Those who are connected come before those who want to be."""
        self.take_later(data)

    def rest_waits(self) -> None:
        """It gets on in its turn, and TCP makes it wait so long."""
        self._clients.wait_for_turn(self)
        self.read_or_not()

    def next_turn(self) -> bool:
        """It has come. True: it wants another one."""
        if self.lined and self._paused and not self._lost:
            self._stalled = True
            return False
        self.take_on()
        if self.waits:
            return self._asking is None  # else it waits for an answer first
        self.read_or_not()
        return False

    @property
    def _paused(self) -> bool:
        return self.connection is not None and self.connection.paused

    def read_or_not(self) -> None:
        """Read on, or not: as long as something read before waits for its turn, or the router has had enough."""
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
        """What had come of it before is taken all the same, if it was let in."""
        if self._asking is not None:
            self._asking.cancel()
            self._stop_asking()
            self._rest = None
        super().connection_lost(exc)
        self.read_or_not()

    def closed(self) -> None:
        """The connection is gone."""
        if self.address is not None:
            self._clients.access.left(self.address)
        if self.connection is not None:
            self._clients.disconnected(self, self.connection)

    def ponged(self) -> None:
        """The client has answered a ping."""
        if self.connection is not None:
            self._router.ponged(self.connection, time.monotonic())

    def pause_writing(self) -> None:
        """The client does not take what it is sent as fast as it comes."""
        super().pause_writing()
        if self.connection is not None:
            self._router.blocked(self.connection, self.transport.get_write_buffer_size(), time.monotonic())

    def writable(self) -> None:
        """It takes more again."""
        if self.connection is not None:
            self._router.drained(self.connection, time.monotonic())
            self._driver.turn()

    def write(self, frames: list[bytes]) -> None:
        """Frames of its outbox, in one write, or one for each message that is compressed."""
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
            self.transport.writelines(frames)  # few, and long ones are not to be copied

    def send_protocol(self) -> None:
        """What is out of the outbox comes before a close, or the answer to one; a pong may overtake it."""
        if self.connection is not None and self.connection.outbox.leaving_bytes and self.ws.state is not OPEN:
            for buffer in self.codec.written(self._router.rest(self.connection, time.monotonic())):
                self.transport.write(text_frame(buffer) if self.compressing else buffer)
        super().send_protocol()

    def let_go(self, code: CloseCode) -> None:
        """Close it, and hold nothing for it. Where the client does not read what it has been sent, it will not read the
        close either."""
        self.fail(code)
        self.discard()
        if self.connection is not None:
            self._router.let_go(self.connection, time.monotonic())
        if not self.is_writable:
            self.transport.abort()

    @property
    def close_code(self) -> str:
        """What ended the connection: a code of ours or of the client's library, else ``other``; 1006: none was said."""
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
        self.asking: set[ClientSocket] = set()  # those of which somebody is asked whether they may connect
        self._numbers = itertools.count(1)
        self._read_later: deque[ClientSocket] = deque()  # connections that bring large chunks, until it is their turn
        self._waiting = RoundRobin[ClientSocket](ClientSocket.next_turn, time.monotonic)
        self._all_gone: asyncio.Event = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        driver.write_with(self._write)
        driver.carry_out(Close, self._close)
        driver.carry_out(PauseOrResume, self._pause_or_resume)
        driver.carry_out(Ping, self._ping)

    def connected(self, client: ClientSocket) -> Connection:
        """A client's handshake is done."""
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
        """A client's connection is gone."""
        self.sockets.pop(connection, None)
        code = client.close_code
        self.status.closes[code] += 1
        log.debug("closed", extra={"connection": connection.number, "code": code})
        self.driver.router.disconnected(connection, time.monotonic())
        if not self.sockets:
            self._all_gone.set()
        self.driver.turn()

    async def turn_away(self) -> None:
        """Whoever waits to be let in is told that this endpoint is shutting down; a few in each pass of the loop."""
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
        """End the connections that are still there."""
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
            # What a client has sent before it hears that it is to go still counts, though it gets no reply.
            client.close(close.code, deaf=close.code is not GOING_AWAY)

    def _pause_or_resume(self, act: PauseOrResume) -> None:
        client = self.sockets.get(act.connection)
        if client is not None:
            client.read_or_not()

    def _ping(self, ping: Ping) -> None:
        client = self.sockets.get(ping.connection)
        if client is not None:
            client.ping()

    # Whose turn it is

    def wait_for_turn(self, client: ClientSocket) -> None:
        """More has come of the client than it may have taken at once."""
        if self._waiting.add(client):
            self._loop.call_soon(self._next_turns)

    def _next_turns(self) -> None:
        if self._waiting.run():
            self._loop.call_soon(self._next_turns)

    def read_later(self, client: ClientSocket) -> None:
        """It brings large chunks: of a few connections one each in a pass of the loop."""
        self._read_later.append(client)
        if len(self._read_later) == 1:
            self._loop.call_soon(self._read_some)

    def _read_some(self) -> None:
        later = self._read_later
        for _ in range(min(len(later), LARGE_AT_ONCE)):
            later.popleft().read_now()
        if later:
            self._loop.call_soon(self._read_some)
