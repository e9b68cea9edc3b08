"""Parses the head of the HTTP request that begins a client's connection, and answers malformed requests. SPEC 1.2.

Owns: how a request announces a body, and the answer to a malformed request. Must never: read a body. The endpoint
answers when the head has arrived. The socket then reads further bytes for a while and drops them (RFC 9112 section
9.6). If the endpoint closed a connection with unread bytes, TCP would reset it, and the client might never see the
answer.
"""

from __future__ import annotations

import http
import re
from collections.abc import Callable, Generator, Sequence
from typing import Final

from websockets.exceptions import HeaderLineTooLong, RequestLineTooLong, TooManyHeaders
from websockets.http11 import Request
from websockets.protocol import CONNECTING, Protocol
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

#: Maximum number of bytes of a line of the head, including the line end. This is enough for a header with everything
#: that the endpoint forwards to `auth-url` (``access.admission``), or for a first line with a token of that size, and
#: for the rest of the line.
LINE_BYTES_MAX: Final = 17 << 10

#: Maximum number of bytes of a head.
HEAD_BYTES_MAX: Final = 64 << 10

#: The scheme and host that a request to a proxy has before its path (RFC 9112 section 3.2.2).
_SCHEME_AND_HOST: Final = re.compile(r"https?://[^/?#]*", re.IGNORECASE)

#: The headers that announce a body (RFC 9112 section 6.3), in lower case.
_LENGTH: Final = b"content-length"
_CODING: Final = b"transfer-encoding"

#: The value of a Content-Length header, in bytes. The length of a body never needs more digits.
_DIGITS: Final = re.compile(rb"[0-9]{1,18}")

ReadLine = Callable[[int, type[Exception]], Generator[None, None, bytes | bytearray]]


class BadRequest(Exception):
    """The request is malformed, or has an unsupported body. ``str(error)`` is the text of the answer."""

    def __init__(self, status: http.HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


class RequestProtocol(ServerProtocol):
    """The library's server protocol, with three differences. ``handshake`` gets every request, including requests with
    a body. For a malformed request, ``handshake`` gets the ``Response`` to send. And a client that offers no
    subprotocol that the endpoint knows connects without one."""

    has_body = False  # whether the request announces a body

    def select_subprotocol(self, subprotocols: Sequence[Subprotocol]) -> Subprotocol | None:
        """Choose the first of our subprotocols that the client offers."""
        return next((each for each in self.available_subprotocols or () if each in subprotocols), None)

    def parse(self) -> Generator[None]:
        """Parse as the library does, with our own reading of the request's head."""
        if self.state is CONNECTING:
            head = _Head(self.reader.read_line)
            try:
                request = yield from Request.parse(head.read_line)
                self.has_body = head.has_body(request)
            except Exception as error:
                self.handshake_exc = error
                refusal = _refusal(error)
                self.events.append(self.reject(refusal.status, f"{refusal}\n"))
                yield  # never resumed, because after the answer another parser gets the bytes
            request.path = origin_form(request.path)
            self.events.append(request)
        yield from Protocol.parse(self)


def origin_form(target: str) -> str:
    """Return the path and the query of a request's target. If the target is a whole URL, which proxies may send, drop
    its scheme and host."""
    whole = _SCHEME_AND_HOST.match(target)
    if whole is None:
        return target
    rest = target[whole.end() :]
    return rest if rest.startswith("/") else f"/{rest}"


class _Head:
    """Reads the lines of a head, with our own limits on their length. Hides the lines that announce a body from the
    library, which refuses requests with a body."""

    def __init__(self, read_line: ReadLine) -> None:
        self._read_line = read_line
        self._left = HEAD_BYTES_MAX
        self._is_first = True
        self._kept: dict[bytes, bytes] = {}  # value by name in lower case

    def read_line(self, library_max: int, too_long: type[Exception]) -> Generator[None, None, bytes | bytearray]:
        """Return the next line for the library. Raises ``BadRequest``, and the reader's errors."""
        while True:
            line = yield from self._read_line(min(LINE_BYTES_MAX, self._left), too_long)
            self._left -= len(line)
            name, _, value = bytes(line).partition(b":")
            name = name.lower()
            if self._is_first or name not in (_LENGTH, _CODING) or not line.endswith(b"\r\n"):
                self._is_first = False
                return line
            if self._kept:  # a second length, or both headers: parsers could disagree about the request's end
                raise BadRequest(http.HTTPStatus.BAD_REQUEST, "The request's body is announced twice")
            self._kept[name] = value.strip()

    def has_body(self, request: Request) -> bool:
        """Return whether the head announces a body. Raises ``BadRequest``."""
        for name, value in self._kept.items():
            if name == _CODING and (request.protocol == "HTTP/1.0" or value.lower() != b"chunked"):
                raise BadRequest(http.HTTPStatus.NOT_IMPLEMENTED, "Transfer-Encoding can be chunked, from HTTP 1.1 on")
            if name == _LENGTH and not _DIGITS.fullmatch(value):
                raise BadRequest(http.HTTPStatus.BAD_REQUEST, "Content-Length has to be a number of bytes")
            request.headers[name.decode().title()] = value.decode("latin-1")
            return name == _CODING or int(value) > 0
        return False


def _refusal(error: Exception) -> BadRequest:
    """Return the answer for the error. The answer does not quote the request, which may hold a token."""
    if isinstance(error, BadRequest):
        return error
    if isinstance(error, RequestLineTooLong):
        return BadRequest(http.HTTPStatus.REQUEST_URI_TOO_LONG, "The request's first line is too long")
    if isinstance(error, (HeaderLineTooLong, TooManyHeaders)):
        return BadRequest(http.HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "The request's headers are too large")
    return BadRequest(http.HTTPStatus.BAD_REQUEST, "This is not an HTTP 1.1 or 1.0 request")
