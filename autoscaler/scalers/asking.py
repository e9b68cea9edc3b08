"""Sends HTTP requests for scalers that control their members through an HTTP service.

Owns: a request's limits on time and size, and the wording of its failures. Must never: know the meaning of a request,
retry it, or follow a redirect, which could carry a token to another server.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import aiohttp
import orjson

from .base import ScalerError

#: Maximum size of an answer. A page of Kubernetes' list of pods, with 250 pods of 20 KB each, has 5 MB.
ANSWER_BYTES_MAX = 32 << 20
#: Number of characters of an answer that an error shows.
EXCERPT_CHARS_MAX = 200


class Answer(NamedTuple):
    """A server's answer. ``asked``: the request's method and URL, for errors."""

    asked: str
    status: int
    body: bytes

    def json(self) -> Any:
        """Return the body's JSON value. Raises ``ScalerError`` if it is not JSON."""
        try:
            return orjson.loads(self.body)
        except orjson.JSONDecodeError:
            raise self.error("the answer is not JSON") from None

    def error(self, why: str = "") -> ScalerError:
        """Return an error for this answer: the request, the status, ``why``, and the start of the body."""
        excerpt = " ".join(self.body[: 4 * EXCERPT_CHARS_MAX].decode(errors="replace").split())[:EXCERPT_CHARS_MAX]
        return ScalerError(": ".join(part for part in (self.asked, f"status {self.status}", why, excerpt) if part))


class Asking:
    """Sends requests to one server. ``timeout_s``: the time limit of each request, including connecting and reading.
    ``tls``: the trusted authorities and the client certificate for https, or ``None`` for the system's authorities and
    no certificate."""

    def __init__(self, timeout_s: float, tls: ssl.SSLContext | None = None) -> None:
        self._timeout_s = timeout_s
        self._tls = tls
        self._session: aiohttp.ClientSession | None = None

    async def ask(self, method: str, url: str, headers: Mapping[str, str], body: Any = None) -> Answer:
        """Send a request, and return the answer, even if its status is an error. ``body``: the value to send as JSON,
        or ``None`` for no body. Raises ``ScalerError`` if no answer arrives in time, or if the answer is larger than
        ``ANSWER_BYTES_MAX``."""
        asked = f"{method} {_shown(url)}"
        if self._session is None:
            self._session = aiohttp.ClientSession(
                # Each request has its own connection. A server may close a reused connection during a request, and this
                # client must not send an order twice.
                connector=aiohttp.TCPConnector(force_close=True, ssl=self._tls or True),
                timeout=aiohttp.ClientTimeout(total=self._timeout_s),
                # Answers must be uncompressed, so that the counted bytes are their full size.
                headers={"Accept-Encoding": "identity", "Accept": "application/json", "User-Agent": "ingeborg"},
                auto_decompress=False,
            )
        data = None if body is None else orjson.dumps(body)
        kind = {} if body is None else {"Content-Type": "application/json"}
        try:
            async with self._session.request(
                method, url, headers={**kind, **headers}, data=data, allow_redirects=False
            ) as response:
                return Answer(asked, response.status, await self._read(asked, response))
        except TimeoutError:
            raise ScalerError(f"{asked}: no answer within {self._timeout_s:g} s") from None
        # aiohttp raises ValueError for a URL or header that it cannot send.
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise ScalerError(f"{asked}: {error or type(error).__name__}") from error

    @staticmethod
    async def _read(asked: str, response: aiohttp.ClientResponse) -> bytes:
        parts, size = [], 0
        async for part in response.content.iter_chunked(1 << 16):
            size += len(part)
            if size > ANSWER_BYTES_MAX:
                raise ScalerError(f"{asked}: the answer has more than {ANSWER_BYTES_MAX:,} bytes")
            parts.append(part)
        return b"".join(parts)

    async def close(self) -> None:
        """End all unfinished requests."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()


def _shown(url: str) -> str:
    """Return the URL without user, password and query, which may be secret."""
    try:
        split = urlsplit(url)
    except ValueError:
        return "an invalid URL"
    return split._replace(netloc=split.netloc.rpartition("@")[2], query="", fragment="").geturl()
