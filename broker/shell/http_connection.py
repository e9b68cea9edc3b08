"""A client's connection while it speaks HTTP: it gives the commands of the requests to the core, and answers with the
core's replies. SPEC 1.7.

Owns: the order of requests and responses on one connection, and when the connection closes. Must never: make a decision
that the core could make, or begin a request before it has answered the one before.

An HTTP connection is a connection of the core like any other, with bare messages as its codec. Each command of a
request gets one reply, and the replies come in the order of the commands. So the connection needs no identifiers.
"""

from __future__ import annotations

import email.utils
import http
import time
from functools import partial
from typing import Final

from websockets.http11 import Request

from ingeborg.protocol.errors import GOING_AWAY, HELD_TOO_MUCH, TOKEN_EXPIRED, TOKEN_REVOKED, CloseCode

from ..access.admission import Refused
from ..access.callback import Question
from ..core.codec import MESSAGES
from ..core.connections.grants import Grant
from ..core.connections.large import Large
from ..http.commands import EVENTS, JSON, ROUTES, Replies, Route, batch_of, key_of, route_of
from ..http.events import EVENT_STREAM, stream_of
from ..http.parsing import BadRequest, HttpRequest, RequestParser
from ..http.responses import CONTINUE, cross_origin, preflight, refusal, response
from .clients import Client, Clients, HttpSide
from .event_stream import EventStream
from .fairness import QUANTUM_BYTES
from .logs import request_id

#: Bytes of a body to parse in one turn. Copying them takes a few microseconds.
BODY_BYTES: Final = 64 << 10

#: Memory of a decoded command in addition to its text, in bytes.
DECODED_BYTES: Final = 600

#: The endpoint closes a connection when a ping is due after this number of pings without a request.
IDLE_PINGS: Final = 2

#: Seconds after which a client may repeat a request that got 503.
RETRY_AFTER: Final = "1"

_CLOSES: Final = {
    GOING_AWAY: (http.HTTPStatus.SERVICE_UNAVAILABLE, "The endpoint is shutting down; the commands may have begun"),
    TOKEN_EXPIRED: (http.HTTPStatus.UNAUTHORIZED, "The token has expired; the commands may have begun"),
    TOKEN_REVOKED: (http.HTTPStatus.UNAUTHORIZED, "The token has been revoked; the commands may have begun"),
    HELD_TOO_MUCH: (http.HTTPStatus.SERVICE_UNAVAILABLE, "The endpoint is out of memory; the commands may have begun"),
}
_SLOW: Final = http.HTTPStatus.REQUEST_TIMEOUT, "The request did not arrive in time"


class _Dates:
    """The current time in HTTP's format, formatted at most once a second."""

    def __init__(self) -> None:
        self._second = 0
        self._text = ""

    def now(self) -> str:
        second = int(time.time())
        if second != self._second:
            self._second, self._text = second, email.utils.formatdate(second, usegmt=True)
        return self._text


_DATES: Final = _Dates()


class _Exchange:
    """A request under way."""

    __slots__ = ("count", "frames", "headers", "replies", "request", "size")

    def __init__(
        self, request: HttpRequest, frames: list[bytes | Large], is_list: bool, headers: dict[str, str]
    ) -> None:
        self.request = request
        self.count = len(frames)
        self.frames = frames[::-1]  # commands that the core does not have yet; the last one is next
        self.headers = headers  # of the response
        self.replies = Replies(is_list)
        self.size = sum(map(len, frames)) + DECODED_BYTES * len(frames)  # commands in memory, at most


class HttpConnection(HttpSide):
    """The HTTP part of a client's socket, until a request opens a WebSocket."""

    def __init__(self, socket: Client, clients: Clients) -> None:
        self._socket = socket
        self._clients = clients
        self._parser = RequestParser(clients.terms.frame_bytes_max)
        self._exchange: _Exchange | None = None
        self._unread: HttpRequest | None = None  # a request with a long body, whose commands are read in a turn
        self._closed = False
        self._idle_pings = 0
        self._admitted: HttpRequest | None = None  # the last request that was admitted
        self._route: Route | None = None  # the route of that request
        self._headers: dict[str, str] = {}  # of the responses to requests with the same head
        self._forwarded: list[str] = []  # the `X-Forwarded-For` from which the client's address was read

    @property
    def held(self) -> int:
        """See ``HttpSide``."""
        exchange = self._exchange
        held = self._parser.held + (0 if self._unread is None else len(self._unread.body))
        return held if exchange is None else held + exchange.size + exchange.replies.size

    @property
    def has_frames(self) -> bool:
        """See ``HttpSide``."""
        return self._unread is not None or (self._exchange is not None and bool(self._exchange.frames))

    @property
    def is_closed(self) -> bool:
        """See ``HttpSide``."""
        return self._closed

    @property
    def is_busy(self) -> bool:
        """See ``HttpSide``."""
        return self._exchange is not None or self._unread is not None

    @property
    def waits(self) -> bool:
        """See ``HttpSide``."""
        return self.is_busy or (bool(self._parser.complete) and not self._closed)

    @property
    def _next(self) -> HttpRequest | None:
        """The next request, if its head is complete."""
        return self._parser.complete[0] if self._parser.complete else self._parser.arriving

    # Requests

    def receive(self, data: bytes) -> bytes:
        """See ``HttpSide``."""
        if self._closed:
            return b""
        parser, rest = self._parser, data
        if not self.waits:
            size = QUANTUM_BYTES if parser.arriving is None else BODY_BYTES
            fed = parser.feed(data if len(data) <= size else data[:size])
            rest = b"" if parser.error is not None else data[fed:]
        self._go_on()
        return rest

    def _go_on(self) -> None:
        """Handle the requests that have arrived. Stop when a request has to wait for the previous request, or until the
        client reads the responses."""
        parser = self._parser
        while self._socket.is_writable and not (self.is_busy or self._closed or self._socket.is_asking):
            request = self._next
            if request is None:
                if parser.error is not None:
                    self._malformed(parser.error)
                return
            if request is not self._admitted and not self._begin(request):
                continue
            if not parser.complete:
                self._expects(request)
                return
            parser.complete.popleft()
            self._carry_out(request)

    def _begin(self, request: HttpRequest) -> bool:
        """Handle the head of a request. Return whether the request's commands may begin when it is complete."""
        former = self._admitted
        if former is not None and request.is_like(former):
            self._admitted = request
            return True
        if request.path not in ROUTES or self._socket.internal:
            self._closed = self.is_page = True
            self._socket.page_comes(request)
            return False
        try:
            if request.method == "OPTIONS":
                self._preflight(request)
                return False
            route_of(request)
            question = self._admit(request.head)
        except (BadRequest, Refused) as refused:
            self._refuse(request, refused)
            return False
        if question is not None:
            self._ask(request, question)
            return False
        self._let_in(request)
        return True

    def _admit(self, request: Request) -> Question | None:
        """Admit a request, or return the question that the operator's server has to answer. Raises ``Refused``."""
        client, clients = self._socket, self._clients
        client.check_room()
        if client.connection is None and clients.status.leaving:
            raise Refused(http.HTTPStatus.SERVICE_UNAVAILABLE, "This endpoint is shutting down")
        admitted = clients.access.admit_http(request, client.here)
        forwarded = request.headers.get_all("X-Forwarded-For")
        if client.connection is None or forwarded != self._forwarded:
            former, client.address = client.address, clients.access.arrived(request, client.there)
            self._forwarded = forwarded
            if former is not None:
                clients.access.left(former)
        if isinstance(admitted, Question):
            return admitted
        self._use(admitted)
        return None

    def _ask(self, request: HttpRequest, question: Question) -> None:
        """Ask the operator's server about a request. The connection reads nothing until the answer."""

        async def ask() -> None:
            try:
                grant = await self._clients.access.answer(question)
            except Refused as refused:
                self._socket.stop_asking()
                self._refuse(request, refused)
            else:
                self._socket.stop_asking()
                self._use(grant)
                self._let_in(request)

        self._socket.ask(ask)

    def _use(self, grant: Grant | None) -> None:
        """Let the following commands have these rights."""
        client, clients = self._socket, self._clients
        if client.connection is None:
            client.settled()
            client.grant, client.codec = grant, MESSAGES
            client.connection = clients.connected(client)
        elif grant != client.grant:
            client.grant = grant
            clients.renew(client)

    def _let_in(self, request: HttpRequest) -> None:
        """Let the request's commands begin when it is complete."""
        origin = request.head.headers.get("Origin")
        self._headers = cross_origin(origin, self._clients.access.may_use_cookies(origin))
        self._route = ROUTES[request.path]
        self._admitted = request

    def _preflight(self, request: HttpRequest) -> None:
        """Answer whether a page of another origin may send a request. Raises ``Refused``."""
        access = self._clients.access
        access.check_page(request.head, self._socket.here)
        origin = request.head.headers.get("Origin")
        headers = {
            **cross_origin(origin, access.may_use_cookies(origin)),
            **preflight(ROUTES[request.path].methods),
        }
        self._answer(request, http.HTTPStatus.NO_CONTENT, b"", headers)

    def _expects(self, request: HttpRequest) -> None:
        """Ask for the body if the client sends it only on request (RFC 9110 section 10.1.1)."""
        if request.version == "1.1" and not request.body and not request.asked_for_body:
            request.asked_for_body = True
            if "100-continue" in ",".join(request.head.headers.get_all("Expect")).lower():
                self._socket.transport.write(CONTINUE)

    def _carry_out(self, request: HttpRequest) -> None:
        """Begin the commands of a complete request."""
        self._idle_pings = 0
        route = self._route
        assert route is not None
        if route.command == EVENTS or len(request.body) > QUANTUM_BYTES:
            self._unread = request
            self._socket.response_pends(True)
            self._clients.wait_for_turn(self._socket)
        else:
            self._read_commands(request, route)

    def _read_commands(self, request: HttpRequest, route: Route) -> None:
        """Read the commands of a request, and begin them."""
        if route.command == EVENTS:
            self._open_stream(request)
            return
        socket = self._socket
        ttl_s, limits = self._clients.terms.dedup_ttl_s, self._clients.driver.router.base.limits
        try:
            key = key_of(request, route, ttl_s)
            batch = batch_of(request, route, socket.grant, key, limits.large_bytes)
        except BadRequest as refused:
            self._refuse(request, refused)
            return
        finally:
            request.body = bytearray()  # this connection keeps the request longer
        headers = self._headers if key is None else {**self._headers, "Idempotency-Key-Lifetime": f"{ttl_s:g}"}
        frames = batch.frames(limits.payload_bytes, socket.grant)
        self._exchange = _Exchange(request, frames, batch.is_list, headers)
        self._socket.response_pends(True)
        self.hand_on()

    def _open_stream(self, request: HttpRequest) -> None:
        """Let the connection be an event stream from now on."""
        client, clients = self._socket, self._clients
        try:
            stream = stream_of(request, client.grant)
        except BadRequest as refused:
            self._refuse(request, refused)
            return
        if stream is None:
            self._answer(request, http.HTTPStatus.NO_CONTENT, b"", self._headers)
            return
        self._closed = True
        client.http = side = EventStream(client, clients, stream, partial(self._stream, request))
        self.release()
        side.begin()

    def _stream(
        self, request: HttpRequest, status: http.HTTPStatus, body: bytes, headers: dict[str, str], is_stream: bool
    ) -> None:
        """Answer a request for a stream. ``body`` is the beginning of the stream, or an error."""
        headers = {**self._headers, **headers}
        self._write(request, status, body, headers, keeps_alive=False, is_stream=is_stream)

    def hand_on(self) -> None:
        """See ``HttpSide``."""
        unread, self._unread = self._unread, None
        if unread is not None:
            assert self._route is not None
            self._socket.response_pends(False)
            self._read_commands(unread, self._route)
            return
        exchange = self._exchange
        assert exchange is not None
        frames: list[bytes | Large] = []
        size = 0
        while exchange.frames and size < QUANTUM_BYTES:
            frame = exchange.frames.pop()
            frames.append(frame)
            size += len(frame)
        router, connection = self._clients.driver.router, self._socket.connection
        assert connection is not None
        try:
            router.frames(connection, frames, time.monotonic(), False)  # as binary frames, so bad UTF-8 gets an error
        except Exception:
            request = request_id(router.frame_under_way)
            self._clients.driver.failed("a request's command", connection=connection.number, request=request)

    # Responses

    def replies(self, frames: list[bytes]) -> None:
        """See ``HttpSide``. If these are the last replies to a request, answer the request."""
        exchange = self._exchange
        if exchange is None:
            return
        exchange.replies.add(frames)
        if exchange.replies.count < exchange.count:
            return
        self._exchange = None
        self._socket.response_pends(False)
        status, body = exchange.replies.answer()
        self._answer(exchange.request, status, body, exchange.headers)
        self._socket.answered(self._parser.error is not None)

    def _malformed(self, error: BadRequest) -> None:
        """Answer bytes that are not a request."""
        self._socket.count_refused()
        text = f"{error}\n".encode()
        self._write(None, error.status, text, {}, keeps_alive=False, content_type="text/plain; charset=utf-8")
        self._close()

    def _refuse(self, request: HttpRequest, refused: BadRequest | Refused) -> None:
        """Refuse a request. Close the connection if the client may not connect."""
        is_final = isinstance(refused, Refused)
        if is_final:
            self._socket.count_refused()
        body = refusal(refused.status, str(refused))
        self._answer(request, refused.status, body, refused.headers, is_final=is_final)

    def _answer(
        self,
        request: HttpRequest,
        status: http.HTTPStatus,
        body: bytes,
        headers: dict[str, str],
        *,
        is_final: bool = False,
    ) -> None:
        """Answer the request. Close the connection afterwards if the request is incomplete, or is the last on the
        connection."""
        parser = self._parser
        if parser.complete and parser.complete[0] is request:
            parser.complete.popleft()
        keeps_alive = request.keeps_alive and request is not parser.arriving and not is_final
        if status is http.HTTPStatus.SERVICE_UNAVAILABLE:
            headers = {"Retry-After": RETRY_AFTER, **headers}
        self._write(request, status, body, headers, keeps_alive=keeps_alive)
        if not keeps_alive:
            self._close()

    def _write(
        self,
        request: HttpRequest | None,
        status: http.HTTPStatus,
        body: bytes,
        headers: dict[str, str],
        *,
        keeps_alive: bool,
        content_type: str = JSON,
        is_stream: bool = False,
    ) -> None:
        if self._socket.transport.is_closing():  # the client has gone
            return
        if is_stream:
            content_type = EVENT_STREAM
        path = "none" if request is None else request.path
        self._clients.status.http_requests[path, str(status.value)] += 1
        date = _DATES.now()
        self._socket.transport.write(
            response(
                *(request, status, body, date, headers),
                keeps_alive=keeps_alive,
                content_type=content_type,
                has_length=not is_stream,
            )
        )

    # Ends

    def pinged(self) -> bool:
        """See ``HttpSide``. End the connection if no complete request has come during the last ``IDLE_PINGS`` pings."""
        self._idle_pings += 1
        if self._idle_pings <= IDLE_PINGS or self.is_busy:
            return True
        self._end(_SLOW if self._parser.has_begun else None)
        return False

    def end(self, code: CloseCode) -> None:
        """See ``HttpSide``. A request under way gets an answer."""
        self._end(_CLOSES.get(code) if self.waits or self._parser.has_begun else None)

    def _end(self, answer: tuple[http.HTTPStatus, str] | None) -> None:
        if self._closed:
            return
        if answer is not None:
            request = self._unread or (self._next if self._exchange is None else self._exchange.request)
            status, text = answer
            self._write(request, status, refusal(status, text), {}, keeps_alive=False)
        self._close()

    def drop(self) -> None:
        """See ``HttpSide``. Count a request whose commands have not been read, and those commands of a request that the
        core did not get."""
        if self.is_busy:
            self._socket.response_pends(False)
        drops = self._clients.driver.router.counters.drops
        if self._unread is not None:
            self._unread = None
            drops["request_of_closed_connection"] += 1
        exchange, self._exchange = self._exchange, None
        if exchange is not None and exchange.frames:
            drops["command_of_closed_connection"] += len(exchange.frames)

    def release(self) -> None:
        """See ``HttpSide``."""
        self._parser.close()

    def _close(self) -> None:
        self._closed = True
        self.drop()
        self._parser.complete.clear()
        self._parser.arriving = None
        self._socket.end_http()
