"""Who may open a connection: the request's token, and the page that a browser says it comes from. SPEC section 1.5.

Owns: where a token stands in a request, and which origins are let in. Must never: log a request's path (it may hold a
token).
"""

from __future__ import annotations

import http
import ipaddress
from collections.abc import Iterable
from urllib.parse import parse_qs, urlsplit

from websockets.datastructures import MultipleValuesError
from websockets.http11 import Request

from .auth import Keys, TokenError
from .core.grants import Grant


class Refused(Exception):
    """The connection is not opened. ``str(error)`` is the answer's text; ``headers``: further ones of the answer."""

    def __init__(self, status: http.HTTPStatus, text: str, **headers: str) -> None:
        super().__init__(text)
        self.status = status
        self.headers = headers


class Access:
    """``keys``: what tokens are checked with; ``None``: nobody needs one. ``origins``: of pages that may connect beside
    those of this machine, such as ``https://radio.example``; ``*``: any."""

    def __init__(self, keys: Keys | None = None, origins: Iterable[str] = ()) -> None:
        self._keys = keys
        self._origins = frozenset(origins)

    def admit(self, request: Request) -> Grant | None:
        """What the connection may do; ``None``: everything. Raises ``Refused``."""
        try:
            origin = request.headers.get("Origin")
            authorization = request.headers.get("Authorization")
        except MultipleValuesError:
            raise Refused(http.HTTPStatus.BAD_REQUEST, "Origin and Authorization may be given once") from None
        # Only browsers send it, and any page may have a browser connect to any address, this machine's own included.
        if origin is not None and not (self._origins & {origin, "*"} or _of_this_machine(origin)):
            raise Refused(http.HTTPStatus.FORBIDDEN, "Pages of this origin may not connect; see --allowed-origins")
        if self._keys is None:
            return None
        try:
            return self._keys.grant(_token(request.path, authorization))
        except TokenError as error:
            raise Refused(
                http.HTTPStatus.UNAUTHORIZED,
                f"The token is not accepted: {error}",
                **{"WWW-Authenticate": 'Bearer error="invalid_token"'},
            ) from None


def _token(path: str, authorization: str | None) -> str:
    if authorization is not None:
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() == "bearer" and token.strip():
            return token.strip()
        raise TokenError("the Authorization header has to be: Bearer TOKEN")
    tokens = parse_qs(urlsplit(path).query).get("access_token", [])
    if len(tokens) == 1:
        return tokens[0]
    if tokens:
        raise TokenError("access_token may be given once")
    raise Refused(
        http.HTTPStatus.UNAUTHORIZED,
        "This endpoint wants a token: in the Authorization header (Bearer TOKEN), or as access_token in the query",
        **{"WWW-Authenticate": "Bearer"},
    )


def _of_this_machine(origin: str) -> bool:
    try:
        host = urlsplit(origin).hostname or ""
        return host == "localhost" or is_loopback(host)
    except ValueError:
        return False


def is_loopback(address: str) -> bool:
    """Is the numeric address one that only this machine reaches?"""
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return False
