"""Plain HTTP on the endpoint's port: health, readiness, metrics, the console. SPEC section 1.

Owns: the reserved paths and the answers there. Must never: change anything.
"""

from __future__ import annotations

import email.utils
import http
from collections.abc import Awaitable, Callable
from functools import partial
from urllib.parse import parse_qs, urlsplit

from websockets.datastructures import Headers
from websockets.http11 import Request, Response

from ..access.admission import Access, Refused
from ..access.callback import Question
from ..shell.peer_socket import PEER_PATH
from ..shell.status import Status
from . import metrics
from .console import serving

#: A response that somebody else has to be asked for.
Later = Callable[[], Awaitable[Response]]


def path_of(request: Request) -> str:
    """The request's path, without its query: the one thing that says whose a request is. Nothing else is compared with
    a reserved path, or the two would one day differ. It is compared as it came: what is written in another way
    (``/%5fpeer``, ``//_peer``) is another path. Of a whole URL ``shell.requests`` has left the path."""
    return request.path.partition("?")[0]


class Pages:
    """One endpoint's."""

    def __init__(self, status: Status, access: Access) -> None:
        self._status = status
        self._access = access

    def answer(self, request: Request, path: str, internal: bool) -> Response | Later | None:
        """The response to a request of the path; ``None``: it is a link's, or, but at the internal address, a client's.
        ``internal``: it came to that address, where nothing is but links, health and metrics."""
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
            return _text(http.HTTPStatus.NOT_FOUND, "This address is for other endpoints; clients connect to another\n")
        if path == "/console/access":
            return self._console_access(request)
        return serving.answer(request, path)

    def _console_access(self, request: Request) -> Response | Later:
        """Would a WebSocket of the console be let in, with this token, from a page of ``?origin=…``? A browser does not
        tell a page why a handshake was refused, so it asks first."""
        origins = parse_qs(urlsplit(request.path).query).get("origin", [])
        if "Origin" not in request.headers and len(origins) == 1:  # browsers leave it out of requests like this one
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


def _let_in() -> Response:
    return _text(http.HTTPStatus.OK, "a WebSocket would be let in\n")


def _head(response: Response | Later) -> Response | Later:
    """Without the body."""
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
    """The answer to a request that is not let in."""
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
