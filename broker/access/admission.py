"""Decides which connections to accept, by the request's token and by the page that a browser names. SPEC section 1.5.

Owns: where a request carries its token, which headers the endpoint forwards to the operator's server, which origins may
connect, and how many connections an address can have (``counting`` counts them). Must never: log a request's path (it
can hold a token), or wait, except in ``answer``.
"""

from __future__ import annotations

import http
import re
from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import parse_qs, urlsplit

from websockets.datastructures import MultipleValuesError
from websockets.http11 import Request

from ..core.clients.revoking import Revoking
from ..core.connections.grants import Grant
from .callback import Callback, Denied, Question, Unanswered
from .claims import TokenError, TokenRevoked
from .counting import Counting, OwnCount
from .tokens import Keys

#: Maximum number of elements of `X-Forwarded-For` that the endpoint reads, counted from the end. No chain of proxies is
#: longer, and a client can put thousands of its own elements in front of the proxies' elements.
HOPS_MAX = 32

#: Maximum number of bytes of the forwarded headers, names and values together. Most servers accept far less, and each
#: request that waits for an answer holds its headers in memory.
SENT_ON_BYTES_MAX = 16 << 10

#: Matches a token from a query that can also be sent in a header: it has no spaces and no line ends.
_VISIBLE = re.compile(r"[\x21-\x7e]+")


class Refused(Exception):
    """The endpoint refuses the connection. ``str(error)`` is the text of the response, which also gets ``headers``."""

    def __init__(self, status: http.HTTPStatus, text: str, **headers: str) -> None:
        super().__init__(text)
        self.status = status
        self.headers = headers


class Access:
    """Decides whether to accept each connection request.

    ``keys`` check the tokens. If there is a ``callback`` instead, it asks the operator's server, and forwards the
    request's headers whose names, in lower case, are in ``headers``. Without keys and callback, no client needs a
    token. ``origins`` are the origins of pages that may connect in addition to pages of this machine, such as
    ``https://radio.example``, or ``*`` for all pages. ``per_address_max`` is the maximum number of concurrent
    connections of an address; it does not apply to this machine. ``proxies`` are the networks whose ``X-Forwarded-For``
    the endpoint trusts. ``counting`` counts the connections of each address; by default this process counts only its
    own.
    """

    def __init__(
        self,
        keys: Keys | None = None,
        origins: Iterable[str] = (),
        per_address_max: int = 1_000,
        proxies: Iterable[IPv4Network | IPv6Network] = (),
        counting: Counting | None = None,
        *,
        callback: Callback | None = None,
        headers: Sequence[str] = ("authorization", "cookie"),
    ) -> None:
        assert keys is None or callback is None, "the endpoint or the server checks tokens, not both"
        self.callback = callback
        self._headers = tuple(headers)
        self._keys = keys
        self._wants_token = keys is not None or callback is not None
        self._origins = frozenset(origins)
        self._per_address_max = per_address_max
        self._proxies = tuple(proxies)
        self._counting = counting or OwnCount()  # counts by IPv4 address or by IPv6 network
        #: Knows which tokens have been revoked. ``None`` if this object does not belong to an endpoint.
        self.revoking: Revoking | None = None

    @property
    def wants_token(self) -> bool:
        """Return whether a client needs a token, or the consent of the operator's server."""
        return self._wants_token

    def arrived(self, request: Request, peer: str) -> str | None:
        """Count a connection from the numeric address ``peer`` until ``left`` is called. Return the address under which
        the connection counts, or ``None`` if it comes from this machine. Raises ``Refused``."""
        address = self._address(request, peer)
        if is_loopback(address):
            if is_loopback(peer):
                return None
            address = _counted(peer)  # the forwarded loopback address is the proxy's own, or a client forged it
        if not self._counting.arrived(address, self._per_address_max):
            text = f"There are {self._per_address_max} connections from your address already; close some"
            raise Refused(http.HTTPStatus.TOO_MANY_REQUESTS, text)
        return address

    def left(self, address: str) -> None:
        """Stop counting a connection of this address."""
        self._counting.left(address)

    def _address(self, request: Request, peer: str) -> str:
        """Return the client's address: the last forwarded address that does not belong to one of our proxies. For IPv6,
        return the address's /64 network, because one customer has a whole /64."""
        address = peer
        if self._of_proxy(peer):
            forwarded = ",".join(request.headers.get_all("X-Forwarded-For")).rsplit(",", HOPS_MAX)[-HOPS_MAX:]
            for hop in map(_without_port, reversed(forwarded)):
                if _parsed(hop) is None:
                    break
                address = hop
                if not self._of_proxy(hop):
                    break
        return _counted(address)

    def _of_proxy(self, address: str) -> bool:
        parsed = _parsed(address)
        return parsed is not None and any(parsed in network for network in self._proxies)

    def admit_http(self, request: Request, here: str) -> Grant | Question | None:
        """Do what ``admit`` does, for a request with commands that arrived at our address ``here``."""
        self.check_page(request, here)
        return self.admit(request)

    def check_page(self, request: Request, here: str) -> None:
        """Refuse a request from a page of another site, unless that page may connect. Raises ``Refused``.

        A browser sends no ``Origin`` with a GET to the page's own host. A page can make its own host's name lead to
        this machine (DNS rebinding). So an endpoint that anyone on this machine can use also checks the ``Host``.
        """
        _, _, host = self._check_origin(request)
        if self._wants_token or not is_loopback(here):
            return
        name = host or ""
        if _of_this_machine(f"http://{name}") or "*" in self._origins:
            return
        if not any(_is_at(origin, name) for origin in self._origins):
            text = "This Host is not the endpoint's: use localhost or a loopback address, or see --allowed-origins"
            raise Refused(http.HTTPStatus.FORBIDDEN, text)

    def may_use_cookies(self, origin: str | None) -> bool:
        """Return whether pages of an admitted origin may send their cookies with requests for commands."""
        return (
            origin is not None and self.callback is not None and (origin in self._origins or _of_this_machine(origin))
        )

    def _check_origin(self, request: Request) -> tuple[str | None, str | None, str | None]:
        """Return the headers Origin, Authorization and Host, if pages of this origin may connect. Raises
        ``Refused``."""
        try:
            origin = request.headers.get("Origin")
            authorization = request.headers.get("Authorization")
            host = request.headers.get("Host")
        except MultipleValuesError:
            raise Refused(http.HTTPStatus.BAD_REQUEST, "Send Host, Origin and Authorization only once each") from None
        # Only browsers send an Origin. Any page can make a browser connect to any address, including this machine's. If
        # clients need a token, the console page of the host itself may connect, because the token protects the
        # endpoint.
        own = self._wants_token and origin is not None and host is not None and _is_at(origin, host)
        if origin is not None and not (own or self._origins & {origin, "*"} or _of_this_machine(origin)):
            raise Refused(http.HTTPStatus.FORBIDDEN, "Pages of this origin may not connect; see --allowed-origins")
        return origin, authorization, host

    def admit(self, request: Request) -> Grant | Question | None:
        """Return the grant of the connection, or ``None`` if everything is permitted, or a question if the caller has
        to await ``answer``. Raises ``Refused``."""
        _, authorization, _ = self._check_origin(request)
        if self.callback is not None:
            return _question(request, self._headers)
        if self._keys is None:
            return None
        try:
            return self._standing(self._keys.grant(_token(request.path, authorization)))
        except TokenError as error:
            raise _not_accepted(error) from None

    def _standing(self, grant: Grant) -> Grant:
        """Return the grant. Raises ``TokenError`` if it is revoked, and ``Refused`` if the endpoint does not know
        yet."""
        if self.revoking is None:
            return grant
        if not self.revoking.knows:
            raise Refused(
                http.HTTPStatus.SERVICE_UNAVAILABLE,
                "This endpoint does not know yet which tokens have been revoked; try again in a moment",
                **{"Retry-After": "1"},
            )
        if self.revoking.refuses(grant):
            raise TokenRevoked("it has been revoked")
        return grant

    async def answer(self, question: Question) -> Grant:
        """Return the grant that the operator's server gives. Raises ``Refused``."""
        assert self.callback is not None, "only a callback creates questions"
        try:
            verdict = await self.callback.answer(question)
        except Unanswered:
            raise Refused(
                http.HTTPStatus.SERVICE_UNAVAILABLE,
                "The endpoint could not ask whether you may connect; try again in a moment",
                **{"Retry-After": "1"},
            ) from None
        if not isinstance(verdict, Denied):
            try:
                return self._standing(verdict)  # even a cached grant can have been revoked
            except TokenError:
                text = "You may not connect: your access has been revoked"
                raise Refused(http.HTTPStatus.UNAUTHORIZED, text, **{"WWW-Authenticate": "Bearer"}) from None
        if verdict.status == http.HTTPStatus.UNAUTHORIZED:
            text = "You may not connect: the server does not accept your credentials"
            raise Refused(http.HTTPStatus.UNAUTHORIZED, text, **{"WWW-Authenticate": "Bearer"})
        raise Refused(http.HTTPStatus.FORBIDDEN, "You may not connect: the server denies it")


def _not_accepted(error: TokenError) -> Refused:
    more = ', error_description="revoked"' if isinstance(error, TokenRevoked) else ""
    challenge = {"WWW-Authenticate": f'Bearer error="invalid_token"{more}'}
    return Refused(http.HTTPStatus.UNAUTHORIZED, f"The token is not accepted: {error}", **challenge)


def _question(request: Request, names: Sequence[str]) -> Question:
    """Return the question for the operator's server: the request's headers with these names. Raises ``Refused``."""
    headers = [(name, _as_utf8(name, value)) for name in names for value in request.headers.get_all(name)]
    if "authorization" in names and "Authorization" not in request.headers:
        try:
            token = _token_of_query(request.path)
            if token is not None and not _VISIBLE.fullmatch(token):
                raise TokenError("access_token has to be visible ASCII")
        except TokenError as error:
            raise _not_accepted(error) from None
        if token is not None:
            headers.append(("authorization", f"Bearer {token}"))
    if sum(len(name) + len(value.encode()) for name, value in headers) > SENT_ON_BYTES_MAX:
        text = f"{', '.join(names)} can have at most {SENT_ON_BYTES_MAX:,} bytes together"
        raise Refused(http.HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, text)
    return Question(tuple(headers))


def _as_utf8(name: str, value: str) -> str:
    """Decode a header's value as UTF-8; ``value`` has one character for each of its bytes. Raises ``Refused``."""
    try:
        return value.encode("iso-8859-1").decode()
    except UnicodeDecodeError:
        raise Refused(
            http.HTTPStatus.BAD_REQUEST, f"{name} has to be UTF-8, because the endpoint forwards it"
        ) from None


def _token(path: str, authorization: str | None) -> str:
    if authorization is not None:
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() == "bearer" and token.strip():
            return token.strip()
        raise TokenError("the Authorization header has to be: Bearer TOKEN")
    found = _token_of_query(path)
    if found is not None:
        return found
    raise Refused(
        http.HTTPStatus.UNAUTHORIZED,
        "This endpoint requires a token: in the Authorization header (Bearer TOKEN), or as access_token in the query",
        **{"WWW-Authenticate": "Bearer"},
    )


def _token_of_query(path: str) -> str | None:
    """Return the query's token, if any. Raises ``TokenError`` if the query has several."""
    tokens = parse_qs(path.partition("?")[2]).get("access_token", [])
    if len(tokens) > 1:
        raise TokenError("send access_token only once")
    return tokens[0] if tokens else None


def _is_at(origin: str, host: str) -> bool:
    """Return whether the origin's host and port equal those of a Host header."""
    scheme, _, place = origin.lower().partition("://")
    return scheme in ("http", "https") and place == host.lower()


def _of_this_machine(origin: str) -> bool:
    try:
        host = urlsplit(origin).hostname or ""
        return host == "localhost" or is_loopback(host)
    except ValueError:
        return False


def is_loopback(address: str) -> bool:
    """Return whether only this machine can reach the numeric address."""
    parsed = _parsed(address)
    return parsed is not None and parsed.is_loopback


def _counted(address: str) -> str:
    """Return the address under which connections count: for IPv6 its /64, because one customer has a whole /64."""
    parsed = _parsed(address)
    if isinstance(parsed, IPv6Address) and not parsed.is_loopback:
        return str(ip_network((parsed, 64), strict=False))
    return str(parsed or address)


def _without_port(hop: str) -> str:
    """Return an element of `X-Forwarded-For` without the port that some proxies add, as in ``192.0.2.1:5678`` or
    ``[2001:db8::1]:5678``."""
    hop = hop.strip()
    if hop.startswith("["):
        address, bracket, port = hop[1:].partition("]")
        return address if bracket and (not port or _is_port(port)) else hop
    address, _, port = hop.partition(":")
    return address if _is_port(f":{port}") else hop


def _is_port(text: str) -> bool:
    return text[:1] == ":" and text[1:].isascii() and text[1:].isdigit()


def _parsed(address: str) -> IPv4Address | IPv6Address | None:
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return None
    mapped = parsed.ipv4_mapped if isinstance(parsed, IPv6Address) else None
    return mapped or parsed
