"""All client connections of one endpoint, and the interface that each client's socket has for this module.

Owns: which connections there are, and the order in which they are read. Must never: know what a connection sends.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from ingeborg.protocol.errors import CloseCode
from ingeborg.protocol.sockets import Socket

from ..access.admission import Access
from ..core.codec import Codec
from ..core.connections.grants import Grant
from ..core.connections.hub import Connection
from ..core.connections.outbox import PIECE_BYTES
from ..core.effects import Close, PauseOrResume, Ping
from ..http.parsing import HttpRequest
from ..web.pages import Pages
from .driver import Driver
from .fairness import RoundRobin
from .peer_socket import Peers
from .status import Status

log = logging.getLogger("ingeborg.endpoint")

#: Maximum number of bytes written to a connection with compression in one turn. Compressing them takes 2 ms. Longer
#: frames are not compressed.
COMPRESS_BYTES: Final = 64 << 10

#: Number of connections from which one pass of the loop reads a chunk of a large message. Each chunk has up to 256 KiB,
#: and together they take 1 ms.
LARGE_AT_ONCE: Final = 8

#: Number of connections refused in one pass of the loop. The refusals take 1 ms.
ANSWERS_AT_ONCE: Final = 16


@dataclass(frozen=True)
class Terms:
    """Limits and options of clients' connections. A separate process parses messages of more than ``large_bytes``.
    ``dedup_ttl_s`` is the time for which homes remember the keys of messages, in seconds."""

    frame_bytes_max: int
    large_bytes: int
    compression: bool
    dedup_ttl_s: float


class HttpSide:
    """The part of a client's socket that handles HTTP. The defaults are for a connection without requests."""

    is_page = False  # the last request is for a page, a WebSocket or a link

    @property
    def has_frames(self) -> bool:
        """Whether the request under way has commands that the core does not have yet."""
        return False

    @property
    def waits(self) -> bool:
        """Whether a request has arrived, but cannot begin yet."""
        return False

    @property
    def is_busy(self) -> bool:
        """Whether a request is under way, so that the next one waits."""
        return False

    @property
    def is_closed(self) -> bool:
        """Whether this side sends nothing more."""
        raise NotImplementedError

    @property
    def held(self) -> int:
        """The number of bytes in memory for requests under way."""
        return 0

    def receive(self, data: bytes) -> bytes:
        """Handle the next bytes of the connection, and return those that have to wait."""
        raise NotImplementedError

    def hand_on(self) -> None:
        """Give the next commands to the core, as many as one turn allows."""

    def replies(self, frames: list[bytes]) -> None:
        """Handle frames from the core."""
        raise NotImplementedError

    def pinged(self) -> bool:
        """Act when a ping is due, since HTTP has no pings. Return whether the connection stays open."""
        raise NotImplementedError

    def end(self, code: CloseCode) -> None:
        """Close the connection with this code, which the core has chosen."""
        raise NotImplementedError

    def drop(self) -> None:
        """Forget the request under way."""

    def release(self) -> None:
        """Break reference cycles, because the connection has ended or no longer speaks HTTP."""


class Client(Socket):
    """A client's socket, which speaks HTTP or is a WebSocket. ``ClientSocket`` implements it."""

    internal: bool  # whether it was accepted at the internal address
    codec: Codec
    compressing: bool  # whether messages to the client are compressed
    grant: Grant | None  # the client's rights, or None if it has all rights
    address: str | None  # the address whose count includes this connection, or None
    connection: Connection | None  # the core's connection, once the client is admitted
    http: HttpSide | None  # None if it is a WebSocket
    is_queued = False  # it waits for its turn

    # For ``Clients``

    def next_turn(self) -> bool:
        """Handle waiting data for one turn. Return whether the connection needs another turn."""
        raise NotImplementedError

    def read_now(self) -> None:
        """Read a chunk, since this connection's turn has come."""
        raise NotImplementedError

    def read_or_not(self) -> None:
        """Resume reading, or pause it."""
        raise NotImplementedError

    def write(self, frames: list[bytes]) -> None:
        """Write frames from the outbox."""
        raise NotImplementedError

    def end(self, code: CloseCode) -> None:
        """Close the connection with this code, which the core has chosen."""
        raise NotImplementedError

    def turn_away(self) -> None:
        """Refuse the client if the operator's server has not answered about it yet."""
        raise NotImplementedError

    @property
    def close_code(self) -> str:
        """The close code that ended the WebSocket."""
        raise NotImplementedError

    # For ``HttpConnection``

    def check_room(self) -> None:
        """Raise ``Refused`` if the process has no descriptor for another client."""

    def count_refused(self) -> None:
        """Count a connection or a request that the endpoint refuses."""
        raise NotImplementedError

    @property
    def is_asking(self) -> bool:
        """Whether the operator's server has to decide about the client's request."""
        raise NotImplementedError

    def ask(self, ask: Callable[[], Awaitable[None]]) -> None:
        """Run the function, which asks the operator's server and then calls ``stop_asking``. Read nothing until
        then."""
        raise NotImplementedError

    def stop_asking(self) -> None:
        """Record that the operator's server has answered."""
        raise NotImplementedError

    def page_comes(self, request: HttpRequest) -> None:
        """Handle a request that opens a WebSocket or a peer's link, or that gets a page."""
        raise NotImplementedError

    def response_pends(self, pends: bool) -> None:
        """Record whether a response is pending. Read nothing while it is."""
        raise NotImplementedError

    def answered(self, is_malformed: bool) -> None:
        """Continue with the bytes after a request that has its response. ``is_malformed``: these bytes are no request,
        and the client has to learn that."""
        raise NotImplementedError

    def end_http(self) -> None:
        """End our side of the connection. The client still receives the data that was written before."""
        raise NotImplementedError

    @property
    def here(self) -> str:
        """The address to which the client has connected, or an empty string if the connection is gone."""
        name = self.transport.get_extra_info("sockname")
        return name[0] if name else ""

    @property
    def there(self) -> str:
        """The address from which the client has connected, or an empty string if the connection is gone."""
        name = self.transport.get_extra_info("peername")
        return name[0] if name else ""


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
        self.sockets: dict[Connection, Client] = {}
        self.asking: set[Client] = set()  # sockets that wait for the operator's server to decide about them
        self._numbers = itertools.count(1)
        self._read_later: deque[Client] = deque()  # connections that wait for their turn to read a large chunk
        self._waiting = RoundRobin[Client](self._turn, time.monotonic)
        self._all_gone: asyncio.Event = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        driver.write_with(self._write)
        driver.carry_out(Close, self._close)
        driver.carry_out(PauseOrResume, self._pause_or_resume)
        driver.carry_out(Ping, self._ping)

    def connected(self, client: Client) -> Connection:
        """Add a client whose handshake has succeeded, and return its connection."""
        self.driver.router.counters.counts["connections_accepted"] += 1
        return self._connect(client)

    def _connect(self, client: Client) -> Connection:
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
        self.sockets[connection] = client
        log.debug("connected", extra={"connection": number, "address": client.address or "of this machine"})
        return connection

    def disconnected(self, client: Client, connection: Connection) -> None:
        """Remove a client whose WebSocket has ended."""
        code = client.close_code
        self.status.closes[code] += 1
        log.debug("closed", extra={"connection": connection.number, "code": code})
        self.left(connection)

    def renew(self, client: Client) -> None:
        """Give a client that speaks HTTP another connection of the core, with the client's current rights and codec.
        The client keeps its allowance of commands."""
        former = client.connection
        assert former is not None
        self.left(former)
        client.connection = self._connect(client)
        client.connection.allowance, client.connection.allowed_at = former.allowance, former.allowed_at

    def left(self, connection: Connection) -> None:
        """Remove a connection that has ended, or that gets other rights."""
        self.sockets.pop(connection, None)
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
        if client is not None:
            client.end(close.code)

    def _pause_or_resume(self, act: PauseOrResume) -> None:
        client = self.sockets.get(act.connection)
        if client is not None:
            client.read_or_not()

    def _ping(self, ping: Ping) -> None:
        client = self.sockets.get(ping.connection)
        if client is not None:
            client.ping()

    # Turns

    def wait_for_turn(self, client: Client) -> None:
        """Queue a client that has sent more data than the endpoint handles in one turn, unless the client is already
        queued."""
        if client.is_queued:
            return
        client.is_queued = True
        if self._waiting.add(client):
            self._loop.call_soon(self._next_turns)

    @staticmethod
    def _turn(client: Client) -> bool:
        client.is_queued = client.next_turn()
        return client.is_queued

    def _next_turns(self) -> None:
        if self._waiting.run():
            self._loop.call_soon(self._next_turns)

    def read_later(self, client: Client) -> None:
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
