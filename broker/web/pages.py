"""Plain HTTP on the endpoint's port: health, readiness, metrics, the console. SPEC section 1.

Owns: the reserved paths that need no client, and the answers there. Must never: change anything.
"""

from __future__ import annotations

import email.utils
import http
from collections.abc import Awaitable, Callable
from functools import cache, partial
from urllib.parse import parse_qs, urlsplit

from websockets.datastructures import Headers
from websockets.http11 import Request, Response

from ..access.admission import Access, Refused
from ..access.callback import Question
from ..http import description
from ..shell.peer_socket import PEER_PATH
from ..shell.status import Status
from . import metrics
from .console import serving

#: A response that depends on the answer of another server.
Later = Callable[[], Awaitable[Response]]


def path_of(request: Request) -> str:
    """Return the request's path, without its query.

    This path alone decides which code handles a request. No code compares anything else with a reserved path, since two
    different comparisons would disagree sooner or later. The comparison uses the path exactly as it arrived, so another
    spelling (``/%5fpeer``, ``//_peer``) is another path. ``http.parsing`` has already removed the scheme and host of a
    whole URL.
    """
    return request.path.partition("?")[0]


class Pages:
    """The pages of one endpoint."""

    def __init__(self, status: Status, access: Access) -> None:
        self._status = status
        self._access = access

    def answer(self, request: Request, path: str, internal: bool) -> Response | Later | None:
        """Return the response to a request for the path. Return ``None`` if the request has to open a link or a
        client's WebSocket; at the internal address, only a link can open.

        ``internal`` says that the request arrived at the internal address, which serves only links, health and metrics.
        """
        if request.method not in ("GET", "HEAD"):
            return _not_allowed()
        response = self._answer(request, path, internal)
        if request.method == "HEAD":
            return _head(response or _not_allowed())
        return response

    def _answer(self, request: Request, path: str, internal: bool) -> Response | Later | None:
        status = self._status
        if path == "/healthz":
            return _text(http.HTTPStatus.OK, "alive\n")
        if path == "/readyz":
            reasons = status.not_ready()
            if reasons:
                return _text(http.HTTPStatus.SERVICE_UNAVAILABLE, "".join(f"{reason}\n" for reason in reasons))
            return _text(http.HTTPStatus.OK, "ready\n")
        if path == "/metrics" and internal is status.internal:
            return _text(http.HTTPStatus.OK, metrics.page(status), metrics.CONTENT_TYPE)
        if path == "/metrics":
            return _text(http.HTTPStatus.NOT_FOUND, "The metrics are at this endpoint's internal address\n")
        if internal and path != PEER_PATH:
            return _text(
                http.HTTPStatus.NOT_FOUND,
                "This address is only for other endpoints; clients must use a different address\n",
            )
        if path.removeprefix("/") in description.DOCUMENTS:
            return _text(http.HTTPStatus.OK, _description(path.removeprefix("/")), "application/json")
        if path == "/" and not _asks_for_websocket(request):
            return _see_console()
        if path == "/console/access":
            return self._console_access(request)
        return serving.answer(request, path)

    def _console_access(self, request: Request) -> Response | Later:
        """Answer whether the console can open a WebSocket with this token from a page of the origin ``?origin=…``.

        A browser does not tell a page why a handshake was refused, so the page asks first.
        """
        origins = parse_qs(urlsplit(request.path).query).get("origin", [])
        if "Origin" not in request.headers and len(origins) == 1:  # browsers omit the header in requests like this one
            request.headers["Origin"] = origins[0]
        try:
            admitted = self._access.admit(request)
        except Refused as refused:
            return self._refused(refused)
        return partial(self._console_asked, admitted) if isinstance(admitted, Question) else _let_in()

    async def _console_asked(self, question: Question) -> Response:
        try:
            await self._access.answer(question)
        except Refused as refused:
            return self._refused(refused)
        return _let_in()

    def _refused(self, refused: Refused) -> Response:
        self._status.router.counters.counts["connections_refused"] += 1
        return refusal(refused)


@cache
def _description(name: str) -> str:
    return description.encoded(name).decode()


def _asks_for_websocket(request: Request) -> bool:
    """Return whether the request is a WebSocket handshake, perhaps a bad one."""
    headers = request.headers
    return "Sec-WebSocket-Key" in headers or "websocket" in ",".join(headers.get_all("Upgrade")).lower()


def _see_console() -> Response:
    text = "This is an endpoint of Ingeborg. Its console is at /console; clients open a WebSocket here\n"
    response = _text(http.HTTPStatus.FOUND, text)
    response.headers["Location"] = "/console"
    return response


def _let_in() -> Response:
    return _text(http.HTTPStatus.OK, "a WebSocket would be let in\n")


def _head(response: Response | Later) -> Response | Later:
    """Return the response without its body."""
    if isinstance(response, Response):
        response.body = b""
        return response

    async def later() -> Response:
        whole = await response()
        whole.body = b""
        return whole

    return later


def _not_allowed() -> Response:
    response = _text(http.HTTPStatus.METHOD_NOT_ALLOWED, "GET, please\n")
    response.headers["Allow"] = "GET, HEAD"
    return response


def refusal(refused: Refused) -> Response:
    """Return the answer to a request that the endpoint refuses."""
    response = _text(refused.status, f"{refused}\n")
    response.headers.update(refused.headers)
    return response


def _text(status: http.HTTPStatus, text: str, content_type: str = "text/plain; charset=utf-8") -> Response:
    body = text.encode()
    headers = Headers(
        {
            "Date": email.utils.formatdate(usegmt=True),
            "Connection": "close",
            "Content-Type": content_type,
            "Content-Length": str(len(body)),
            "Cache-Control": "no-store",
        }
    )
    return Response(status.value, status.phrase, headers, body)
