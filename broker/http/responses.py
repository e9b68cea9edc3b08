"""Encodes HTTP responses. SPEC 1.7.

Owns: the headers of a response, and the form of a refusal. Must never: decide a status.
"""

from __future__ import annotations

import http
from collections.abc import Mapping, Sequence
from typing import Final

from ingeborg.protocol.wire import encode

from .commands import JSON
from .parsing import HttpRequest

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"

#: The request headers that a page of another origin may set, and the response headers that it may read.
_REQUEST_HEADERS: Final = "Authorization, Content-Type, Idempotency-Key"
_RESPONSE_HEADERS: Final = "Idempotency-Key-Lifetime, Retry-After, WWW-Authenticate"

#: Seconds for which a browser may remember the answer to a preflight request.
PREFLIGHT_S: Final = 600

_FIRST_LINES: Final = {status: f"HTTP/1.1 {status.value} {status.phrase}\r\n" for status in http.HTTPStatus}


def response(
    request: HttpRequest | None,
    status: http.HTTPStatus,
    body: bytes,
    date: str,
    headers: Mapping[str, str],
    *,
    keeps_alive: bool,
    content_type: str = JSON,
    has_length: bool = True,
) -> bytes:
    """Encode a response.

    Args:
        request: the request, or ``None`` if it could not be parsed.
        status: the status.
        body: the body. A response to ``HEAD`` has only the body's length.
        date: the current time, in HTTP's format.
        headers: further headers.
        keeps_alive: whether the client may send another request over the connection.
        content_type: the type of the body, if there is one.
        has_length: whether the body is complete. Otherwise the body ends when the connection closes.

    Returns:
        The bytes to write to the socket.
    """
    lines = [_FIRST_LINES[status], f"Date: {date}\r\nCache-Control: no-store\r\n"]
    if status is not http.HTTPStatus.NO_CONTENT:
        lines.append(f"Content-Type: {content_type}\r\n")
        if has_length:
            lines.append(f"Content-Length: {len(body)}\r\n")
    lines.extend(f"{name}: {value}\r\n" for name, value in headers.items())
    if not keeps_alive:
        lines.append("Connection: close\r\n")
    elif request is not None and request.version == "1.0":
        lines.append("Connection: keep-alive\r\n")
    lines.append("\r\n")
    head = "".join(lines).encode("latin-1")
    return head if request is not None and request.method == "HEAD" else head + body


def refusal(status: http.HTTPStatus, why: str) -> bytes:
    """Encode the body of the answer to a request that the endpoint refuses before any command begins."""
    return encode({"error": "refused", "message": status.phrase, "info": why})


def cross_origin(origin: str | None, may_use_cookies: bool) -> dict[str, str]:
    """Return the headers that let a page of an admitted origin read a response.

    Args:
        origin: the request's ``Origin``, or ``None``.
        may_use_cookies: whether the page may send its cookies. It may not if only a rule for all origins admits it.
    """
    if origin is None:
        return {}
    headers = {
        "Access-Control-Allow-Origin": origin,
        "Access-Control-Expose-Headers": _RESPONSE_HEADERS,
        "Vary": "Origin",
    }
    if may_use_cookies:
        headers["Access-Control-Allow-Credentials"] = "true"
    return headers


def preflight(methods: Sequence[str]) -> dict[str, str]:
    """Return the further headers of the answer to a preflight request for a path with these methods."""
    allowed = ", ".join(methods)
    return {
        "Access-Control-Allow-Methods": allowed,
        "Access-Control-Allow-Headers": _REQUEST_HEADERS,
        "Access-Control-Max-Age": str(PREFLIGHT_S),
        "Allow": f"{allowed}, OPTIONS",
    }
