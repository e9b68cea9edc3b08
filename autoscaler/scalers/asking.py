"""One request over HTTP, for the scalers whose members are run by somebody who is asked that way.

Owns: the limits of time and size of a request, and how what went wrong is told. Must never: know what is asked; ask
twice; follow a redirect, which could carry a token elsewhere.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import aiohttp
import orjson

from .base import ScalerError

#: Of an answer. A page of Kubernetes' list, 250 pods of 20 KB, is 5 MB.
ANSWER_BYTES_MAX = 32 << 20
#: Of an answer, in an error.
EXCERPT_CHARS_MAX = 200


class Answer(NamedTuple):
    """``asked``: the method and the URL, for errors."""

    asked: str
    status: int
    body: bytes

    def json(self) -> Any:
        """The body's value. Raises ``ScalerError``: it is no JSON."""
        try:
            return orjson.loads(self.body)
        except orjson.JSONDecodeError:
            raise self.error("the answer is no JSON") from None

    def error(self, why: str = "") -> ScalerError:
        """That this answer will not do: what was asked, the status, ``why``, and how the body begins."""
        excerpt = " ".join(self.body[: 4 * EXCERPT_CHARS_MAX].decode(errors="replace").split())[:EXCERPT_CHARS_MAX]
        return ScalerError(": ".join(part for part in (self.asked, f"status {self.status}", why, excerpt) if part))


class Asking:
    """Requests to one server. ``timeout_s``: of each, connecting and reading included. ``tls``: whom to trust and what
    to show over https; ``None``: the system's authorities, and nothing."""

    def __init__(self, timeout_s: float, tls: ssl.SSLContext | None = None) -> None:
        self._timeout_s = timeout_s
        self._tls = tls
        self._session: aiohttp.ClientSession | None = None

    async def ask(self, method: str, url: str, headers: Mapping[str, str], body: Any = None) -> Answer:
        """The answer, whatever its status. ``body``: sent as JSON; ``None``: no body. Raises ``ScalerError``: there is
        no answer in time, or a larger one than ``ANSWER_BYTES_MAX``."""
        asked = f"{method} {_shown(url)}"
        if self._session is None:
            self._session = aiohttp.ClientSession(
                # A connection for each request: the other side may close a kept one while a request is on its way,
                # and an order is not sent twice.
                connector=aiohttp.TCPConnector(force_close=True, ssl=self._tls or True),
                timeout=aiohttp.ClientTimeout(total=self._timeout_s),
                # What is not compressed cannot become larger than what was counted.
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
        # ValueError: a URL or a header that cannot be sent.
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
        """End what is under way."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()


def _shown(url: str) -> str:
    """Without what may be secret: user, password and query."""
    try:
        split = urlsplit(url)
    except ValueError:
        return "a URL that is none"
    return split._replace(netloc=split.netloc.rpartition("@")[2], query="", fragment="").geturl()
