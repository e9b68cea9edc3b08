"""Parses the HTTP requests of a connection. SPEC 1.2.

Owns: the limits on a request, and the answer to a malformed one. Must never: know a path, or answer.

``httptools`` does the parsing. It wraps llhttp, the parser of Node.js, in its strict form, which refuses everything
that two parsers could read in different ways: two lengths of a body, a length together with a transfer coding, lines
that do not end in CR LF, folded headers. This module adds the limits. It also refuses the few requests that llhttp
accepts but this endpoint cannot answer (ADR 48).
"""

from __future__ import annotations

import http
import re
from collections import deque
from typing import Final

import httptools
from websockets.datastructures import Headers
from websockets.http11 import Request

#: Maximum number of bytes of a request's target, and of a header with its line end. The endpoint forwards up to 16 KiB
#: of headers to `auth-url` (``access.admission``). A line of this length has room for one such header, or for a target
#: with a token of the same size.
LINE_BYTES_MAX: Final = 17 << 10

#: Maximum number of bytes of a head.
HEAD_BYTES_MAX: Final = 64 << 10

#: Maximum number of headers. Headers after a chunked body count as well.
HEADERS_MAX: Final = 128

#: The scheme and host that a request to a proxy has before its path (RFC 9112 section 3.2.2).
_SCHEME_AND_HOST: Final = re.compile(r"https?://[^/?#]*", re.IGNORECASE)

_LENGTH: Final = b"content-length"
_CODING: Final = b"transfer-encoding"
_KEY: Final = b"idempotency-key"


class BadRequest(Exception):
    """The endpoint refuses a request. ``str(error)`` is the text of the answer, which also gets ``headers``. The text
    does not quote the request, which may hold a token."""

    def __init__(self, status: http.HTTPStatus, text: str, **headers: str) -> None:
        super().__init__(text)
        self.status = status
        self.headers = headers


class HttpRequest:
    """A request whose head is complete.

    Attributes:
        method: the method, such as ``POST``.
        target: the path and the query. If the client sent a whole URL, as it would to a proxy, the scheme and the host
            are left out.
        version: ``1.0`` or ``1.1``.
        fields: the names and values of the headers, in their order, without those that announce the body, and without
            ``Idempotency-Key``. So consecutive requests of a client usually have equal fields.
        keys: the values of ``Idempotency-Key``.
        has_body: whether the head announces a body.
        keeps_alive: whether the client may send another request over the connection.
        body: the part of the body that has arrived.
        asked_for_body: whether the endpoint has asked the client to send the body.
    """

    __slots__ = (
        "_request",
        "asked_for_body",
        "body",
        "fields",
        "has_body",
        "keeps_alive",
        "keys",
        "method",
        "target",
        "version",
    )

    def __init__(self, method: str, target: str, version: str, fields: list[tuple[bytes, bytes]]) -> None:
        self.method = method
        self.target = target
        self.version = version
        self.fields = fields
        self.has_body = False
        self.keeps_alive = False
        self.keys: list[str] = []
        self.asked_for_body = False
        self.body = bytearray()
        self._request: Request | None = None

    @property
    def path(self) -> str:
        """The target without its query."""
        return self.target.partition("?")[0]

    def is_like(self, other: HttpRequest) -> bool:
        """Return whether the other request has the same method, target and fields, so that the endpoint admits both or
        neither."""
        return self.fields == other.fields and self.target == other.target and self.method == other.method

    @property
    def head(self) -> Request:
        """The head as ``websockets`` represents it, created on the first access."""
        if self._request is None:
            fields = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in self.fields]
            self._request = Request(self.target, Headers(fields), self.method, f"HTTP/{self.version}")
        return self._request


class RequestParser:
    """Parses the requests of one connection. ``body_bytes_max`` limits a body."""

    def __init__(self, body_bytes_max: int) -> None:
        self._body_bytes_max = body_bytes_max
        self.complete: deque[HttpRequest] = deque()  # requests that have arrived, in order
        self.arriving: HttpRequest | None = None  # the request whose head is complete, but whose body is not
        self.error: BadRequest | None = None  # why the bytes after these requests are not a request
        self.has_begun = False  # a part of a further request has arrived
        self._head_bytes = 0
        self._target = b""
        self._fields: list[tuple[bytes, bytes]] = []
        self._announced: dict[bytes, bytes] = {}
        self._keys: list[str] = []
        self._count = self._size = 0  # number and bytes of the headers so far
        self._parser: httptools.HttpRequestParser | None = httptools.HttpRequestParser(self)

    def close(self) -> None:
        """Parse nothing more. This object and the parser of ``httptools`` refer to each other. Without this call, both
        would wait for the garbage collector."""
        self._parser = None

    @property
    def held(self) -> int:
        """The number of bytes of requests in memory."""
        arriving = 0 if self.arriving is None else len(self.arriving.body)
        return self._head_bytes + arriving + sum(len(request.body) for request in self.complete)

    def feed(self, data: bytes) -> int:
        """Parse the next bytes of the connection.

        Args:
            data: the bytes. They may hold several requests, or a part of one.

        Returns:
            The number of bytes parsed. It is smaller than ``len(data)`` if a client that asks for another protocol has
            sent bytes after its request, or if ``error`` is set.
        """
        if self.error is not None or self._parser is None:
            return 0
        size = len(data)
        complete = len(self.complete)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            size = upgrade.args[0]
            self._parser = httptools.HttpRequestParser(self)
        except httptools.HttpParserError as error:
            if self.error is None:
                self.error = _no_request(f": {error}")
            self.error.__traceback__ = None  # its frames refer to this object, which would wait for the collector
            size = 0
        # If another request ends in this chunk, the number of bytes after it is unknown, and they do not count.
        if self.arriving is None and self.error is None and len(self.complete) == complete:
            self._head_bytes += size
            if self._head_bytes > HEAD_BYTES_MAX:
                self.error = _too_long(self._fields) if self.has_begun else _no_request()
        return size

    # Called by httptools. An exception ends the parsing.

    def on_message_begin(self) -> None:
        """Begin a request."""
        self.has_begun = True
        self._head_bytes = self._count = self._size = 0
        self._target = b""
        self._fields = []
        self._announced = {}
        self._keys = []

    def on_url(self, part: bytes) -> None:
        """Add a part of the target."""
        self._target += part
        if len(self._target) > LINE_BYTES_MAX:
            self._fail(_too_long([]))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header."""
        size = len(name) + len(value) + 4
        value = value.rstrip(b" \t")  # llhttp drops only the space before a value
        self._count += 1
        self._size += size
        if self._count > HEADERS_MAX or size > LINE_BYTES_MAX or self._size > HEAD_BYTES_MAX:
            self._fail(_too_long([(name, value)]))
        if self.arriving is not None:
            return  # a header after a chunked body, which nothing needs
        lower = name.lower()
        if lower in (_LENGTH, _CODING):
            self._announced[lower] = value
        elif lower == _KEY:
            self._keys.append(value.decode("latin-1"))
        else:
            self._fields.append((name, value))

    def on_headers_complete(self) -> None:
        """Check the head, and expect the body."""
        parser = self._parser
        assert parser is not None
        version = parser.get_http_version()
        if version not in ("1.1", "1.0"):
            self._fail(_no_request())
        coding = self._announced.get(_CODING)
        if coding is not None and (version == "1.0" or coding.lower() != b"chunked"):
            text = "Transfer-Encoding can only be chunked, and only from HTTP 1.1 on"
            self._fail(BadRequest(http.HTTPStatus.NOT_IMPLEMENTED, text))
        length = int(self._announced.get(_LENGTH, b"0"))
        if length > self._body_bytes_max:
            self._fail(self._too_large())
        method = parser.get_method().decode("latin-1")
        request = HttpRequest(method, origin_form(self._target.decode("latin-1")), version, self._fields)
        request.keys = self._keys
        request.has_body = coding is not None or length > 0
        request.keeps_alive = parser.should_keep_alive()
        self.arriving = request
        self._head_bytes = 0

    def on_body(self, part: bytes) -> None:
        """Add a part of the body."""
        assert self.arriving is not None
        body = self.arriving.body
        body += part
        if len(body) > self._body_bytes_max:
            self._fail(self._too_large())

    def on_message_complete(self) -> None:
        """End the request."""
        assert self.arriving is not None
        self.complete.append(self.arriving)
        self.arriving = None
        self.has_begun = False
        self._head_bytes = 0

    def _fail(self, error: BadRequest) -> None:
        self.error = error
        raise error

    def _too_large(self) -> BadRequest:
        text = f"A body may have at most {self._body_bytes_max} bytes (max-frame-bytes)"
        return BadRequest(http.HTTPStatus.REQUEST_ENTITY_TOO_LARGE, text)


def origin_form(target: str) -> str:
    """Return the path and the query of a request's target. If the target is a whole URL, which proxies may send, drop
    the URL's scheme and host."""
    whole = _SCHEME_AND_HOST.match(target)
    if whole is None:
        return target
    rest = target[whole.end() :]
    return rest if rest.startswith("/") else f"/{rest}"


def _no_request(why: str = "") -> BadRequest:
    return BadRequest(http.HTTPStatus.BAD_REQUEST, f"This is not an HTTP 1.1 or 1.0 request{why}")


def _too_long(fields: list[tuple[bytes, bytes]]) -> BadRequest:
    """Return the answer to a head that is too long. ``fields`` are its headers so far."""
    if fields:
        return BadRequest(
            http.HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
            f"The request's headers are too large: at most {HEADERS_MAX} headers of {LINE_BYTES_MAX} bytes each, and "
            f"{HEAD_BYTES_MAX} bytes in all",
        )
    return BadRequest(http.HTTPStatus.REQUEST_URI_TOO_LONG, f"The request's target exceeds {LINE_BYTES_MAX} bytes")
