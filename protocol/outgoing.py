"""The client's side of a WebSocket connection: its handshake, masked frames, keepalive and close.

Owns: one connection from its start to its end. Must never: know what a message means, or connect again.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable

from websockets.client import ClientProtocol
from websockets.exceptions import InvalidStatus
from websockets.http11 import Request, Response
from websockets.protocol import OPEN, Protocol
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from .credentials import shown
from .errors import NORMAL, PROTOCOL_VIOLATION
from .frames import masked_text_frame
from .lines import LINES, Lined, together
from .sockets import Socket, as_protocol, library_log, next_mask

#: Keepalive: an endpoint pings every 25 s. At this interval, in seconds, the client checks whether anything has
#: arrived, and probes the connection if not. The endpoint disconnects a program that does not consume its messages:
#: with a full queue the client stops reading, and then sends no pongs either.
_LOOK_S = 25.0
#: Seconds that an endpoint has to answer a probe. A silent connection is therefore cut within a minute.
_PROBE_S = 10.0
_CLOSE_TIMEOUT_S = 2.0


class OutgoingSocket(Socket):
    """A connection to a WebSocket server.

    Args:
        ws: the library's protocol.
        url: the server's URL, for error messages.
        on_message: gets the connection and each message as it arrives. It is not called after the connection was cut.
        token: the token for the request's ``Authorization``, or ``None``.
    """

    def __init__(
        self,
        ws: ClientProtocol,
        url: str,
        *,
        on_message: Callable[[OutgoingSocket, bytes], None],
        token: str | None = None,
    ) -> None:
        super().__init__(ws)
        self._token = token
        self.on_message = on_message
        self._url = url
        loop = asyncio.get_running_loop()
        #: Completes when the handshake is done. If the handshake fails, the exception says why.
        self.opened: asyncio.Future[None] = loop.create_future()
        #: Completes when the connection ends, with the peer's close code, if it sent one, and the reason in words.
        self.over: asyncio.Future[tuple[int | None, str]] = loop.create_future()
        self._why = ""  # the reason why this side ended the connection
        self._paused = False
        self._opened_s = 0.0  # by the loop's clock
        self._cut = False
        self._drained: asyncio.Future[None] | None = None
        self._looking: asyncio.TimerHandle | None = None
        self._probing: asyncio.TimerHandle | None = None

    # Called by its owner

    @property
    def is_open(self) -> bool:
        """Return whether messages may still be written."""
        return self.ws.state is OPEN

    @property
    def takes_more(self) -> bool:
        """Return whether the connection is open and its write buffer has room."""
        return self.is_writable and self.is_open

    def write(self, *messages: bytes) -> None:
        """Send text messages in one write. If both sides have agreed on lines (SPEC section 1.6), messages share
        frames, and none may contain a line feed."""
        frames = messages if self.lined is None else together(messages)
        self.transport.write(b"".join([masked_text_frame(frame, next_mask()) for frame in frames]))

    def drained(self) -> asyncio.Future[None]:
        """Return a future that completes when the connection accepts more data."""
        if self._drained is None:
            self._drained = asyncio.get_running_loop().create_future()
        return self._drained

    def pause(self) -> None:
        """Pause reading."""
        if not self._paused and not self.transport.is_closing():
            self._paused = True
            self.transport.pause_reading()

    def go_on(self) -> None:
        """Resume reading."""
        if self._paused:
            self._paused = False
            self.heard = True  # data that arrived meanwhile is about to be read
            if not self.transport.is_closing():
                self.transport.resume_reading()

    @property
    def age_s(self) -> float:
        """Return the seconds since the handshake."""
        return asyncio.get_running_loop().time() - self._opened_s

    def probe(self) -> None:
        """Ping the peer, and cut the connection if nothing arrives within ``_PROBE_S``."""
        if self._probing is None and not self._paused and self.ws.state is OPEN:
            self.heard = False
            self.ping()
            self._probing = asyncio.get_running_loop().call_later(_PROBE_S, self._probed)

    def _probed(self) -> None:
        self._probing = None
        if not self.heard and not self._paused:  # while paused, this side does not read an answer
            self._why = f"no answer to a ping within {_PROBE_S:g} s"
            self.abort()

    def give_up(self, why: str) -> None:
        """Close the connection, since the peer does not speak our protocol. ``why``: the reason in words."""
        self._why = why
        self.fail(PROTOCOL_VIOLATION._replace(reason="not a frame of this protocol"))

    def abort(self) -> None:
        """Cut the connection, if it exists."""
        self._cut = True
        if (transport := getattr(self, "transport", None)) is not None:
            transport.abort()

    async def end(self) -> None:
        """Close the connection with a closing handshake, and cut it after ``_CLOSE_TIMEOUT_S``."""
        self.close(NORMAL)
        self.go_on()
        await asyncio.wait((self.over,), timeout=_CLOSE_TIMEOUT_S)
        self.abort()

    # Called by the transport and the protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the upgrade request."""
        super().connection_made(transport)
        self.settled()  # the caller that waits for ``opened`` has a time-out
        assert isinstance(self.ws, ClientProtocol)
        request = self.ws.connect()
        if self._token is not None:
            request.headers["Authorization"] = f"Bearer {self._token}"
        self.ws.send_request(request)
        self.send_protocol()

    def handshake(self, event: Request | Response) -> None:
        """Handle the peer's response to the upgrade request."""
        if self.ws.state is OPEN and not self.opened.done():
            if self.ws.subprotocol == LINES:
                self.lined = Lined()
            self.opened.set_result(None)
            self._opened_s = asyncio.get_running_loop().time()
            self._look()

    def chunk_ends(self) -> None:
        """Fail ``opened`` if the protocol rejects the response, since it does not call ``handshake`` then."""
        if self.ws.handshake_exc is not None and not self.opened.done():
            self.opened.set_exception(self.ws.handshake_exc)
            self.opened.exception()  # mark the exception as retrieved, in case nobody waits any more

    def rest_waits(self) -> None:
        """Handle all lines now, even if they exceed a quantum, because a client has no other connections to serve."""
        while self.waits:
            self.next_quantum()

    def message(self, data: bytes) -> None:
        """Handle a message, or a line of a message."""
        if not self._cut:
            self.on_message(self, data)

    def writable(self) -> None:
        """Wake the caller of ``drained``, since the transport accepts data again."""
        if self._drained is not None:
            if not self._drained.done():
                self._drained.set_result(None)
            self._drained = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the end of the connection to the protocol, which then knows the reason."""
        self.ws.receive_eof()
        super().connection_lost(exc)

    def closed(self) -> None:
        """Wake the callers that wait for ``opened`` or ``over``."""
        for timer in (self._looking, self._probing):
            if timer is not None:
                timer.cancel()
        received = self.ws.close_rcvd
        if not self.opened.done():
            self.opened.set_exception(ConnectionResetError("the connection was closed before the handshake was done"))
            self.opened.exception()
        if not self.over.done():
            why = self._why or _ending(self.ws)
            self.over.set_result((received.code if received is not None else None, f"{shown(self._url)}: {why}"))

    def _look(self) -> None:
        self._looking = asyncio.get_running_loop().call_later(_LOOK_S, self._look)
        if self._probing is None:
            if not self.heard:
                self.probe()
            self.heard = False


def _ending(ws: Protocol) -> str:
    """Return a text that says how a connection ended. The text gives the reason of the side that closed the connection
    first."""
    by, said = "the endpoint", ws.close_rcvd
    if ws.close_sent is not None and not ws.close_rcvd_then_sent:
        by, said = "this client", ws.close_sent
    if said is None:
        return "the connection was cut"
    return f"closed by {by}, {said.code}{': ' if said.reason else ''}{said.reason}"


async def connect(
    url: str,
    on_message: Callable[[OutgoingSocket, bytes], None],
    *,
    message_bytes_max: int | None = None,
    token: str | None = None,
    lines: bool = False,
) -> OutgoingSocket:
    """Connect, and complete the handshake, without a time-out. A ``wss`` server has to have a certificate that the
    system trusts.

    Args:
        url: a ws:// or wss:// URL.
        on_message: gets the connection and each message.
        message_bytes_max: maximum number of bytes of a message; ``None``: no limit.
        token: the token for the request's ``Authorization``, or ``None``.
        lines: whether to send and receive several messages per frame if the peer supports it (SPEC section 1.6).

    Returns:
        The open connection.

    Raises:
        OSError: the connection cannot be made.
        WebSocketException: the handshake failed.
    """
    uri = parse_uri(url)
    subprotocols = [Subprotocol(LINES)] if lines else None
    ws = ClientProtocol(uri, subprotocols=subprotocols, max_size=message_bytes_max, logger=library_log)
    socket = OutgoingSocket(ws, url, on_message=on_message, token=token)
    try:
        await asyncio.get_running_loop().create_connection(
            lambda: as_protocol(socket), uri.host, uri.port, ssl=ssl.create_default_context() if uri.secure else None
        )
        await socket.opened
    except BaseException:
        socket.abort()
        raise
    return socket


def explained(error: OSError) -> str:
    """Explain why a connection could not be made, and what to do about it."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"its certificate is not trusted here: {error.verify_message}. Set SSL_CERT_FILE to the authority that "
            "issued it, and use a host name that it covers"
        )
    if isinstance(error, ssl.SSLError):
        return f"it does not speak TLS ({error.reason}); without TLS the URL begins with ws://"
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens there (connection refused): is the endpoint up, and the port right?"
    if isinstance(error, socket.gaierror):
        return f"the host is not known ({error.strerror}): is the name right?"
    if isinstance(error, ConnectionResetError):
        return "the server closed the connection: does it use TLS (wss://) or not (ws://), as the URL says?"
    return error.strerror or str(error) or type(error).__name__


def is_refused(error: BaseException | None) -> bool:
    """Return whether the endpoint refused the connection because of its token."""
    return isinstance(error, InvalidStatus) and error.response.status_code == 401


def is_revoked(error: BaseException | None) -> bool:
    """Return whether the endpoint refused the connection because its token has been revoked. SPEC section 1.5."""
    if not isinstance(error, InvalidStatus) or not is_refused(error):
        return False
    challenges = error.response.headers.get_all("WWW-Authenticate")
    return any('error_description="revoked"' in challenge for challenge in challenges)


def refusal(error: InvalidStatus) -> str:
    """Return the HTTP response that refused the upgrade, as text for people."""
    response = error.response
    said = (response.body or b"").decode(errors="replace").strip()[:500]
    return f"HTTP {response.status_code}{': ' if said else ''}{said}"
