"""Fetches the plain HTTP pages of an endpoint, and parses ``/metrics``. SPEC section 1.2.

Owns: a GET with limits on size and time, and the parsing of the sample lines of Prometheus's text format. Must never:
know what a metric means.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import urlsplit

from .outgoing import explained
from .redaction import redacted

#: Maximum size of a page in bytes. A page of metrics has a few kilobytes, so a larger page does not come from an
#: endpoint.
PAGE_BYTES_MAX = 4 * 1024 * 1024
_HEAD_BYTES_MAX = 64 * 1024

# Prometheus text format 0.0.4: name{label="value",…} value [timestamp]
_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?[ \t]+(\S+)(?:[ \t]+-?[0-9]+)?[ \t]*")
_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)')
_ESCAPE = re.compile(r"\\(.)")


class PageError(Exception):
    """The page could not be fetched; the text says why."""


class Page(NamedTuple):
    """A page.

    Attributes:
        status: the HTTP status. It may be an error, such as 503.
        text: the body.
        date: the ``Date`` header, or ``""``.
    """

    status: int
    text: str
    date: str = ""


class Sample(NamedTuple):
    """One line of a metrics page. ``series`` is the name with the labels, exactly as the page has them."""

    name: str
    labels: dict[str, str]
    value: float
    series: str


async def fetch(url: str, path: str, *, timeout_s: float = 5.0, tls: ssl.SSLContext | None = None) -> Page:
    """GET a page of an endpoint, at most ``PAGE_BYTES_MAX`` bytes.

    Args:
        url: the endpoint's WebSocket URL, or its http URL.
        path: the page's path, such as ``/metrics``.
        timeout_s: seconds for the whole request.
        tls: the context that verifies the endpoint's certificate. By default the system has to trust the certificate.

    Returns:
        The page, with any status.

    Raises:
        PageError: no page arrived.
    """
    parts, url = urlsplit(url), redacted(url)
    secure = parts.scheme in ("wss", "https")
    try:
        host, port = parts.hostname, parts.port or (443 if secure else 80)
    except ValueError as error:
        raise PageError(f"{url}: {error}") from None
    if parts.scheme not in ("ws", "wss", "http", "https") or not host:
        raise PageError(f"{url}: not a ws:// or http:// URL, such as ws://127.0.0.1:9000")
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(
                host, port, ssl=(tls or True) if secure else None, limit=_HEAD_BYTES_MAX
            )
            try:
                # HTTP/1.1, since the `websockets` server accepts nothing older.
                at = parts.netloc.rpartition("@")[2]
                writer.write(f"GET {path} HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n".encode())
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                length = _content_length(head)
                if length is None:
                    body = await reader.read(PAGE_BYTES_MAX)
                    while len(body) < PAGE_BYTES_MAX and (more := await reader.read(PAGE_BYTES_MAX)):
                        body += more
                else:
                    body = await reader.readexactly(length)
            finally:
                writer.close()
        return Page(int(head[0].split(" ", 2)[1]), body.decode(), _date(head))
    except TimeoutError:
        raise PageError(f"{url}{path}: no answer within {timeout_s:g} s: is it up, and can it be reached?") from None
    except OSError as error:
        raise PageError(f"{url}: {explained(error)}") from None
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError, IndexError) as error:
        hint = "" if secure else "; an endpoint that speaks TLS has a URL that begins with wss://"
        raise PageError(f"{url}{path}: not an HTTP answer ({error}): is this an endpoint?{hint}") from None


def _content_length(head: list[str]) -> int | None:
    length = None
    for line in head[1:]:
        name, _, value = line.partition(":")
        if name.lower() == "content-length":
            length = int(value)
            if not 0 <= length <= PAGE_BYTES_MAX:
                raise ValueError(f"the page has {length} bytes")
        elif name.lower() == "transfer-encoding":
            raise ValueError(f"transfer encoding {value.strip()} is not understood")
    return length


def _date(head: list[str]) -> str:
    return next((line.partition(":")[2].strip() for line in head[1:] if line.lower().startswith("date:")), "")


def samples(text: str) -> Iterator[Sample]:
    """Yield the samples of a page in Prometheus's text format, without comments.

    Raises:
        ValueError: a line is malformed. The text shows the line.
    """
    for line in text.splitlines():
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        match = _SAMPLE.fullmatch(line)
        if match is None:
            raise ValueError(f"not a sample: {line[:120]!r}")
        name, label_text, value = match.groups()
        series = name if label_text is None else f"{name}{{{label_text}}}"
        yield Sample(name, _labels(label_text or ""), float(value), series)


def _labels(text: str) -> dict[str, str]:
    labels = {}
    position = 0
    while position < len(text):
        match = _LABEL.match(text, position)
        if match is None:
            raise ValueError(f"not labels: {text[:120]!r}")
        labels[match[1]] = _ESCAPE.sub(lambda escape: "\n" if escape[1] == "n" else escape[1], match[2])
        position = match.end()
    return labels
