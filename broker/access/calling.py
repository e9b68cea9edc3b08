"""Calls the operator's server (`auth-url`) with one GET over HTTP or HTTPS. SPEC section 1.5.

Owns: the HTTP connections, the time and size limits of a call, and the errors for failed calls. Must never: follow a
redirect, keep a cookie, or put anything from a request or an answer into an error.

Importing aiohttp takes 0.1 s and 9 MB. Only an endpoint with `auth-url` imports this module.
"""

from __future__ import annotations

import asyncio

import aiohttp

from ..shell.tls import Trust
from .callback import BODY_BYTES_MAX, CALLS_MAX, Answer, CallFailed, Question

#: How long an idle connection stays open, in seconds. Most servers keep idle connections open for longer.
KEPT_S = 4.0


class Calling:
    """Calls one URL. ``timeout_s`` limits each call, from connecting to the end of the answer."""

    def __init__(self, url: str, timeout_s: float) -> None:
        self._url = url
        self._timeout_s = timeout_s
        self._trust = Trust() if url.lower().startswith("https:") else None
        self._session: aiohttp.ClientSession | None = None

    async def ask(self, question: Question) -> Answer:
        """Return the server's answer, with any status. Raises ``CallFailed``."""
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._ask(question)
        except TimeoutError:
            raise CallFailed(f"no answer within {self._timeout_s:g} s", is_down=True, timed_out=True) from None
        except aiohttp.ClientConnectorCertificateError as error:
            why = getattr(error.certificate_error, "verify_message", "") or "it is not valid"
            raise CallFailed(f"the endpoint does not accept the server's certificate: {why}", is_down=True) from None
        except aiohttp.ClientConnectorError as error:
            raise CallFailed(f"no connection: {error.strerror or type(error).__name__}", is_down=True) from None
        except aiohttp.ServerDisconnectedError:
            raise CallFailed("the server closed the connection without an answer", is_down=True) from None
        except aiohttp.ClientPayloadError:
            raise CallFailed("the answer breaks off, or is not HTTP", is_down=True) from None
        except aiohttp.ClientResponseError:
            raise CallFailed("the answer is not HTTP, or its head is too large", is_down=True) from None
        except (aiohttp.ClientError, OSError) as error:
            raise CallFailed(f"the call failed ({type(error).__name__})", is_down=True) from None

    async def _ask(self, question: Question) -> Answer:
        session = self._session = self._session or self._new_session()
        tls = True if self._trust is None else self._trust.current()
        async with session.get(self._url, headers=question.headers, allow_redirects=False, ssl=tls) as response:
            # If the status is not 200, the body stays unread, and the end of this block closes the connection.
            return Answer(response.status, await _body(response) if response.status == 200 else b"")

    def _new_session(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=CALLS_MAX, keepalive_timeout=KEPT_S),
            timeout=aiohttp.ClientTimeout(total=None),  # ``ask`` limits the time
            # A real cookie jar would send a cookie from one client's answer with the next client's call.
            cookie_jar=aiohttp.DummyCookieJar(),
            # Answers have to be uncompressed: a compressed one could become larger than the size that ``_body`` counts.
            headers={"Accept-Encoding": "identity", "Accept": "application/json", "User-Agent": "ingeborg"},
            auto_decompress=False,
        )

    async def close(self) -> None:
        """Close the connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()


async def _body(response: aiohttp.ClientResponse) -> bytes:
    body = b""
    async for part in response.content.iter_any():
        body += part
        if len(body) > BODY_BYTES_MAX:
            raise CallFailed(f"the answer has more than {BODY_BYTES_MAX:,} bytes", is_down=False)
    return body
