"""The endpoint: the shell around ``core.router`` that reads sockets, keeps time, calls the store and does as told.

Owns: the listening socket, the clients' connections, the turns of the loop. Must never: decide anything that the core
could decide.

A *turn* ends all events that one pass of the loop brought: ``turn()`` is asked for by every event and runs once, so
that what they led to leaves in one write per connection, one frame per link, and one call to the store for all sets,
locations or listens that it is about.
"""

from __future__ import annotations

import asyncio
import http
import itertools
import logging
import math
import socket
import time
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from typing import Any

from websockets.extensions.permessage_deflate import ServerPerMessageDeflateFactory
from websockets.http11 import Request, Response
from websockets.protocol import OPEN
from websockets.server import ServerProtocol

from protocol.errors import CLOSES, GOING_AWAY, HELD_TOO_MUCH, PING_TIMEOUT, TOKEN_EXPIRED, ProtocolError
from protocol.sockets import LINGER_S, LargeMessage, Socket, library_log, text_frame

from . import machine, operating, web
from .access import Access, Refused, is_loopback
from .core.grants import Grant
from .core.histogram import Histogram
from .core.hub import Connection
from .core.large import Large, Outcome
from .core.model import Endpoint, StoreError
from .core.outbox import PIECE_BYTES
from .core.router import Limits, Router, StoreCall
from .draining import send_away
from .fairness import QUANTUM_BYTES, RoundRobin
from .logs import cut, request_id
from .peers import HANDSHAKE_BYTES_MAX, PEER_PATH, Peers, PeerSocket
from .reading import Reader
from .store.base import Store
from .tls import Certificate

log = logging.getLogger("ingeborg.endpoint")

#: Between two ticks of the core, in seconds: what time-outs are exact to.
TICK_S = 0.1

#: A ready endpoint's last sign of life in the store is no older than this, in seconds.
STORE_FRESH_S = 3.0

#: How long an orderly end may take beside the clients' going, in seconds: to hand over; to finish, as long as the
#: slowest request; and then the closing of what has not answered a close.
HAND_OVER_S = 4.0
LEAVE_S = 8.0
CLOSE_S = 2.0

#: How long a TLS handshake may take, in seconds.
TLS_S = 5.0

#: Connections waiting to be accepted: a reconnect storm's worth.
BACKLOG = 4096


#: What a connection is written in one turn where it has to be compressed, in bytes: 2 ms. A longer frame is not.
COMPRESS_BYTES = 64 << 10

#: Connections that bring a chunk of a large message in one pass of the loop: of up to 256 KiB each, 1 ms together.
LARGE_AT_ONCE = 8

#: A message on a connection with permessage-deflate, in bytes when it has been inflated: what a few hundred bytes may
#: become before anybody can look at it, in some 8 ms.
INFLATED_BYTES_MAX = 2 << 20


class ClientSocket(Socket):
    """A client's connection. Until its request has come it may turn out to be HTTP, or a peer."""

    quantum_bytes = QUANTUM_BYTES

    def __init__(self, server: EndpointServer, internal: bool = False) -> None:
        extensions = [ServerPerMessageDeflateFactory()] if server.compression else None
        self.ws: ServerProtocol = ServerProtocol(
            max_size=server.frame_bytes_max, extensions=extensions, logger=library_log
        )
        super().__init__(self.ws)
        self.large_bytes = server.router.limits.large_bytes
        self.server = server
        self.compressing = False  # what it is sent
        self.internal = internal  # it came to the internal address
        self.quiet = False  # it is not read: it is told to go as soon as its commands are done
        self.going = False  # it is told to go, and read for its close only
        self._reads = True
        self._reads_later = False  # it is read again when it is its turn to bring a large chunk
        self.grant: Grant | None = None  # what its token permits; None: everything
        self.address: str | None = None  # under which it is counted
        self.expires_s = 0  # the second of Unix time in which that is over
        self.connection: Connection | None = None

    def handshake(self, event: Request | Response) -> None:
        """A WebSocket client, a GET of a reserved path, or a peer."""
        assert isinstance(event, Request)
        if self.ws.eof_sent:  # what came behind the request, in the same chunk, has broken the protocol already
            return
        server = self.server
        path = web.path_of(event)
        response = web.answer(server, event, path, self.internal)
        if response is None:
            peer = self.transport.get_extra_info("peername")  # None: it is gone already
            address = peer[0] if peer else ""
            try:
                if path == PEER_PATH:
                    here = self.transport.get_extra_info("sockname")
                    self._links_come_in(address, here[0] if here else "")
                    self._become_peer(event)
                    return
                self.grant = server.access.admit(event)
                self.address = server.access.arrived(event, address)
                response = self.ws.accept(event)
                if response.status_code == 400:
                    response.headers["Sec-WebSocket-Version"] = "13"  # RFC 6455 section 4.4: it may be why
            except Refused as refused:
                server.router.counts["connections_refused"] += 1
                response = web.refusal(refused)
        if response.status_code == 101 and server.leaving:
            response = self.ws.reject(503, "This endpoint is shutting down\n")
        self.ws.send_response(response)
        if self.ws.state is OPEN:
            self.settled()
            if self.ws.extensions:
                self.compressing = True
                self.ws.max_message_size = min(server.frame_bytes_max, INFLATED_BYTES_MAX)
            self.connection = server.client_connected(self)

    def _links_come_in(self, address: str, here: str) -> None:
        """At our address ``here``, and from that one? A machine that connects to an address of its own comes from
        it. Raises ``Refused``."""
        if not self.internal and self.server.internal:
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
            PeerSocket(self.server, ws, None).adopt(self.transport)

    def large_message(self, message: LargeMessage) -> None:
        """A command in a large frame."""
        self.message(Large(message.blocks, message.size, message.is_text))

    def message(self, data: bytes | Large) -> None:
        """A command."""
        connection = self.connection
        if connection is None:
            return
        if self.going and connection.held:  # what it may not send now it never will
            self.server.router.drops["command_of_closed_connection"] += 1
        else:
            self.server.client_frame(connection, data, self._text)

    def chunk_ends(self) -> None:
        """End the turn."""
        connection = self.connection
        if connection is not None and (
            self._rest is not None or self._buffer or self._parts or self._passing or self._large or connection.unread
        ):
            connection.unread = self.unread
            self.server.router.memory.weigh(connection)
            if self._large is not None or self._passing:
                self._read_later()
        if self.ws.state is not OPEN:  # it is on its way in or out
            self._read_later()
        self.server.turn()

    def _read_later(self) -> None:
        """A large message comes, or what is passed over: else libuv reads 32 chunks of it in one pass of the loop."""
        if not self._reads_later and not self._lost:
            self._reads_later = True
            self.read_or_not()
            self.server.read_later(self)

    def read_now(self) -> None:
        """Its turn has come to bring a chunk."""
        self._reads_later = False
        self.read_or_not()

    def head_comes(self, data: bytes) -> None:
        """Those who are connected come before those who want to be."""
        self.take_later(data)

    def rest_waits(self) -> None:
        """It gets on in its turn, and TCP makes it wait so long."""
        self.server.wait_for_turn(self)
        self.read_or_not()

    def next_turn(self) -> bool:
        """It has come. True: it wants another one."""
        self.take_on()
        if self.waits:
            return True
        self.read_or_not()
        return False

    def read_or_not(self) -> None:
        """Read on, or not: as long as something read before waits for its turn, or the router has had enough."""
        held = self.connection is not None and self.connection.held and not self.going
        reads = not (held or self.quiet or self.waits or self._reads_later)
        if reads is not self._reads and not self.transport.is_closing():
            self._reads = reads
            if reads:
                self.transport.resume_reading()
            else:
                self.transport.pause_reading()

    def closed(self) -> None:
        """The connection is gone."""
        if self.address is not None:
            self.server.access.left(self.address)
        if self.connection is not None:
            self.server.client_disconnected(self)

    def pause_writing(self) -> None:
        """The client does not take what it is sent as fast as it comes."""
        super().pause_writing()
        if self.connection is not None:
            self.server.router.blocked(self.connection, self.transport.get_write_buffer_size())

    def writable(self) -> None:
        """It takes more again."""
        if self.connection is not None:
            self.server.client_drained(self.connection)

    def write(self, frames: list[bytes]) -> None:
        """Frames of its outbox, in one write."""
        if self.ws.state is not OPEN:
            self.server.router.drops["connection_closed"] += len(frames)
        elif not self.server.compression:
            self.transport.write(frames[0] if len(frames) == 1 else b"".join(frames))
        else:
            for frame in frames:
                if self.compressing and len(frame) <= COMPRESS_BYTES:
                    self.ws.send_text(frame)
                    self.send_protocol()
                else:
                    self.transport.write(text_frame(frame))

    def send_protocol(self) -> None:
        """What is out of the outbox comes before a close, or the answer to one; a pong may overtake it."""
        if self.connection is not None and self.connection.outbox.leaving_bytes and self.ws.state is not OPEN:
            for frame in self.server.router.rest(self.connection):
                self.transport.write(text_frame(frame) if self.server.compression else frame)
        super().send_protocol()

    def let_go(self) -> None:
        """It holds too much: close it, and hold nothing. Where the client does not read what it has been sent, it
        will not read the close either."""
        self.fail(HELD_TOO_MUCH)
        self.discard()
        connection = self.connection
        if connection is not None:
            connection.unread = connection.unsent = 0
            self.server.router.memory.weigh(connection)
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


class EndpointServer:
    """One endpoint process. ``secret`` is what the peers share; ``alone_at_url``: nobody else can be at the URL of
    ``me``; ``on_fatal`` is told why the process has to end: its name is another's, or the store is lost."""

    def __init__(
        self,
        me: Endpoint,
        store: Store,
        *,
        secret: bytes,
        store_name: str,
        routing: str = "home",
        dedup_ttl_s: float = 60.0,
        limits: Limits | None = None,
        frame_bytes_max: int = 16 << 20,
        ping_s: float = 25.0,
        compression: bool = False,
        access: Access | None = None,
        certificate: Certificate | None = None,
        drain_s: float = 5.0,
        alone_at_url: bool = True,
        on_fatal: Callable[[str], None] | None = None,
    ) -> None:
        wrap = bytes if compression else text_frame
        now = time.monotonic()
        self.router = Router(
            me,
            now,
            routing=routing,
            dedup_ttl_s=dedup_ttl_s,
            limits=limits,
            wrap=wrap,
            shape=store.shape,
            figures=lambda: operating.figures(self),
            resident=machine.resident_bytes,
            alone_at_url=alone_at_url,
        )
        self.reader = Reader(self.router.read_wanted, self._frame_read)
        if log.isEnabledFor(logging.DEBUG):
            self.router.on_refusal = _log_refusal
        self.store = store
        self.store_name = store_name
        self.secret = secret
        self.frame_bytes_max = frame_bytes_max
        self.compression = compression
        self.access = access or Access()
        self._certificate = certificate
        self.internal = False  # it has an internal address
        self.leaving = False
        self.loop_lag = Histogram()
        self.closes: Counter[str] = Counter()  # clients' connections that are over, by close code
        self.started_unix_s = time.time()
        self.ready = asyncio.Event()
        self.peers = Peers(self)
        self._drain_s = drain_s
        self._on_fatal = on_fatal
        self._sockets: dict[Connection, ClientSocket] = {}
        self._numbers = itertools.count(1)
        # Connections by the tick of the ping period at which they are pinged: staggered, and no scan of all.
        self._ping_slots: list[set[ClientSocket]] = [set() for _ in range(max(1, round(ping_s / TICK_S)))]
        self._ticks = 0
        # Connections by the second of Unix time in which their token has expired, up to the one looked at last.
        self._expiring: dict[int, set[ClientSocket]] = {}
        self._expired_s = int(time.time())
        self._reasons: list[str] | None = None  # what was last logged of ``not_ready``
        self._turn_due = False
        self._read_later: deque[ClientSocket] = deque()
        self._waiting = RoundRobin[ClientSocket](ClientSocket.next_turn, time.monotonic)
        self._written: list[tuple[float, list[tuple[float, int]]]] = []  # since the last tick: when, and what
        self._tick_handle: asyncio.TimerHandle | None = None
        self._tick_due = now
        self._store_tasks: set[asyncio.Task[None]] = set()
        self._servers: list[asyncio.Server] = []
        self._loop = asyncio.get_running_loop()
        self._handed_over = asyncio.Event()
        self._left = asyncio.Event()
        self._all_closed = asyncio.Event()

    # Start and end

    async def start(self, sock: socket.socket, internal: socket.socket | None = None) -> None:
        """Open the store and accept on the listening socket; ``ready`` is set once the others have let this one in.
        ``internal``: a socket for the other endpoints and ``/metrics``, which are only there then.

        Raises ``StoreError`` where the store cannot be used; what was opened is closed again.
        """
        await self.store.open()
        tls: dict[str, Any] = {}
        if self._certificate is not None:
            tls = {"ssl": self._certificate.context, "ssl_handshake_timeout": TLS_S, "ssl_shutdown_timeout": LINGER_S}
        self.internal = internal is not None
        create = partial(self._loop.create_server, backlog=BACKLOG, **tls)
        self._servers.append(await create(lambda: ClientSocket(self), sock=sock))
        if internal is not None:
            self._servers.append(await create(lambda: ClientSocket(self, True), sock=internal))
        self._tick_due = time.monotonic()
        self._tick()

    async def stop(self) -> None:
        """Leave in order: be home of nothing, send the clients away, finish what is under way, close."""
        self.leaving = True
        self.router.joining.leave()
        self.turn()
        try:
            async with asyncio.timeout(HAND_OVER_S):
                await self._handed_over.wait()
        except TimeoutError:
            log.warning("could not hand over to the other endpoints within %.0f s", HAND_OVER_S)
        await send_away(list(self._sockets.values()), self.router, self._drain_s, self.turn)
        self.router.joining.depart()
        self.turn()
        try:
            async with asyncio.timeout(LEAVE_S):
                await self._left.wait()
        except TimeoutError:
            log.warning("could not finish everything within %.0f s of the last client's going", LEAVE_S)
        if not self._sockets:
            self._all_closed.set()
        for server in self._servers:
            server.close()
        await self.peers.close()
        await self.reader.close()
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._all_closed.wait()
        except TimeoutError:
            log.warning("%d clients did not answer the close", len(self._sockets))
        if self._tick_handle is not None:
            self._tick_handle.cancel()
        for client in list(self._sockets.values()):
            client.transport.abort()
        if self._store_tasks:
            await asyncio.wait(self._store_tasks, timeout=1.0)
        await self.store.close()

    def not_ready(self) -> list[str]:
        """Why this endpoint should not be given new clients; nothing: it should."""
        reasons = []
        now = time.monotonic()
        if self.leaving:
            reasons.append("shutting down")
        elif self.router.joining.name_awaited:
            reasons.append(f"another endpoint has had the name {self.router.me.name} until lately, and may still live")
        elif not self.router.members.joined:
            reasons.append("not all other endpoints have let this one in yet")
        if not self.router.joining.name_awaited and not self.router.members.store_fresh(now, STORE_FRESH_S):
            reasons.append("the store does not answer")
        return reasons

    # Clients

    def client_connected(self, client: ClientSocket) -> Connection:
        """A client's handshake is done."""
        number = next(self._numbers)
        connection = self.router.connected(
            number,
            client.grant,
            throttled=client.address is not None,
            piece_bytes=COMPRESS_BYTES if client.compressing else PIECE_BYTES,
        )
        self.router.counts["connections_accepted"] += 1
        self._sockets[connection] = client
        self._ping_slots[number % len(self._ping_slots)].add(client)
        if client.grant is not None:
            client.expires_s = max(math.ceil(client.grant.expires_at), self._expired_s + 1)
            self._expiring.setdefault(client.expires_s, set()).add(client)
        log.debug("connected", extra={"connection": number, "address": client.address or "of this machine"})
        return connection

    def client_frame(self, connection: Connection, data: bytes | Large, is_text: bool) -> None:
        """A client's message."""
        try:
            self.router.frame(connection, data, time.monotonic(), is_text)
        except Exception:
            self._failed(
                "a client's frame",
                connection=connection.number,
                request=request_id(data) if isinstance(data, bytes) else None,
            )

    def client_drained(self, connection: Connection) -> None:
        """A client's socket takes more again."""
        self.router.drained(connection, time.monotonic())
        self.turn()

    def _frame_read(self, number: int, outcome: Outcome | None) -> None:
        try:
            self.router.read(number, outcome, time.monotonic())
        except Exception:
            self._failed("a large frame")
        self.turn()

    def client_disconnected(self, client: ClientSocket) -> None:
        """A client's connection is gone."""
        connection = client.connection
        assert connection is not None
        self._sockets.pop(connection, None)
        self._ping_slots[connection.number % len(self._ping_slots)].discard(client)
        expiring = self._expiring.get(client.expires_s)
        if expiring is not None:
            expiring.discard(client)
            if not expiring:
                del self._expiring[client.expires_s]
        code = client.close_code
        self.closes[code] += 1
        log.debug("closed", extra={"connection": connection.number, "code": code})
        self.router.disconnected(connection, time.monotonic())
        if self.leaving and not self._sockets:
            self._all_closed.set()
        self.turn()

    # Peers

    def link_up(self, peer: PeerSocket) -> None:
        """A peer's connection is authenticated."""
        assert peer.endpoint is not None
        self.peers.up(peer)
        log.info("%s: linked with %s at %s", self.router.me.name, peer.endpoint.name, peer.endpoint.url)
        peer.send([self.router.link_up(peer.endpoint, time.monotonic())])
        self.turn()

    def link_frame(self, peer: PeerSocket, data: bytes) -> None:
        """A frame of a peer's link."""
        assert peer.endpoint is not None
        if self.peers.sockets.get(peer.endpoint.incarnation) is not peer:
            return
        try:
            self.router.link_frame(peer.endpoint.incarnation, data, time.monotonic())
        except Exception:
            self._failed("a peer's frame")
            self.peers.drop(peer.endpoint.incarnation)

    def link_down(self, peer: PeerSocket) -> None:
        """A peer's connection is gone."""
        assert peer.endpoint is not None
        if self.peers.down(peer):
            log.info("%s: the link to %s is down", self.router.me.name, peer.endpoint.name)
            self.router.link_down(peer.endpoint.incarnation, time.monotonic())
            self.turn()

    # The loop

    def turn(self) -> None:
        """Something happened: end the turn when this pass of the loop is over."""
        if not self._turn_due:
            self._turn_due = True
            self._loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        self._turn_due = False
        try:
            effects = self.router.flush()
        except Exception:
            self._failed("the end of a turn")
            return
        for call in effects.store:
            task = self._loop.create_task(self._call_store(call))
            self._store_tasks.add(task)
            task.add_done_callback(self._store_tasks.discard)
        for read in effects.read:
            self.reader.read(read)
        for number in effects.forget:
            self.reader.forget(number)
        for incarnation, frames in effects.links:
            self.peers.send(incarnation, frames)
        sockets = self._sockets
        for connection, frames in effects.write:
            client = sockets.get(connection)
            if client is not None:
                client.write(frames)
        for connection, code in effects.close:
            client = sockets.get(connection)
            if client is not None and code is HELD_TOO_MUCH:
                client.let_go()
            elif client is not None:
                # What a client has sent before it hears that it is to go still counts, though it gets no reply.
                client.close(code, deaf=code is not GOING_AWAY)
        if effects.written:
            self._written.append((time.monotonic(), effects.written))
        for connection in effects.hold:
            client = sockets.get(connection)
            if client is not None:
                client.read_or_not()
        for incarnation in effects.drop_links:
            self.peers.drop(incarnation)
        if effects.more:
            self._loop.call_soon(self._work)

    def wait_for_turn(self, client: ClientSocket) -> None:
        """More has come of the client than it may have taken at once."""
        if self._waiting.add(client):
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

    def _next_turns(self) -> None:
        if self._waiting.run():
            self._loop.call_soon(self._next_turns)

    def _work(self) -> None:
        try:
            self.router.work(time.monotonic())
        except Exception:
            self._failed("a slice of work")
        self.turn()

    async def _call_store(self, call: StoreCall) -> None:
        result: Any = None
        failure: Exception | None = None
        try:
            result = await getattr(self.store, call.operation)(*call.arguments)
        except (StoreError, ValueError) as error:
            failure = error
        except Exception as error:
            log.exception("the store failed in %s", call.operation)
            failure = error
        try:
            self.router.stored(call.number, result, failure, time.monotonic())
        except Exception:
            self._failed(f"the answer to {call.operation}")
        self.turn()

    def _tick(self) -> None:
        now = time.monotonic()
        self.loop_lag.observe(max(now - self._tick_due, 0.0))
        self._tick_due = now + TICK_S
        self._tick_handle = self._loop.call_later(TICK_S, self._tick)
        self.observe()
        router = self.router
        try:
            router.tick(now)
        except Exception:
            self._failed("a tick")
        self._ticks += 1
        for client in list(self._ping_slots[self._ticks % len(self._ping_slots)]):
            if client.ws.state is not OPEN or (client.connection is not None and client.connection.held):
                continue  # closing already; or it is us who do not read its answers
            if client.unanswered_pings >= 2 and client.connection is not None:
                router.counts["pings_unanswered"] += 1
                router.close(client.connection, PING_TIMEOUT)
            else:
                client.ping()
        self._expire_tokens()
        if self._certificate is not None:
            self._certificate.refresh(now)
        self.peers.dial(router.joining.discovered(), now)
        if not self.leaving:
            if router.members.joined:
                self.ready.set()
            self._tell_readiness()
            if router.stopping is not None and self._on_fatal is not None:
                self._on_fatal(router.stopping)
                self._on_fatal = None
        elif router.joining.left:
            self._left.set()
        elif router.joining.handed_over:
            self._handed_over.set()
        self.turn()

    def observe(self) -> None:
        """Put the times since the last tick into the histograms; as they happen that would cost more."""
        self.router.observe_publishes()
        written, self._written = self._written, []
        for at, messages in written:
            self.router.delivery_times.observe_since(at, messages)

    def _expire_tokens(self) -> None:
        """Close the connections whose token has expired since the last look; to the second."""
        now_s = int(time.time())
        since = now_s - self._expired_s
        if since <= 0:
            self._expired_s = now_s  # lower where the clock was set back
            return
        expiring = self._expiring
        seconds = range(self._expired_s + 1, now_s + 1) if since <= len(expiring) else list(expiring)
        self._expired_s = now_s
        for second in seconds:
            if second <= now_s:
                for client in expiring.pop(second, ()):
                    if client.connection is not None:
                        self.router.counts["tokens_expired"] += 1
                        self.router.close(client.connection, TOKEN_EXPIRED)

    def _tell_readiness(self) -> None:
        """Log what ``/readyz`` says, when it changes."""
        reasons = self.not_ready()
        if reasons != self._reasons and self.ready.is_set():
            self._reasons = reasons
            if reasons:
                log.warning("%s: not ready: %s", self.router.me.name, "; ".join(reasons))
            else:
                log.info("%s: ready", self.router.me.name)

    def _failed(self, where: str, **ids: Any) -> None:
        """A fault of ours. The event is lost, said and counted; the endpoint goes on."""
        self.router.counts["turns_failed"] += 1
        log.exception("the handling of %s failed", where, extra=ids)


def _log_refusal(connection: int, request: Any, command: str, error: ProtocolError) -> None:
    log.debug(
        "refused: %s",
        error.info,
        extra={"connection": connection, "request": cut(request), "command": command, "code": error.code},
    )
