"""Who may open a connection: the request's token, and the page that a browser says it comes from. SPEC section 1.5.

Owns: where a token stands in a request, what of it is sent on to the operator's server, which origins are let in, and
how many connections an address may have (they are counted in ``counting``). Must never: log a request's path (it may
hold a token), or wait for anybody but in ``answer``.
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

#: Of `X-Forwarded-For` so many elements are read at most, from the end: no more proxies stand one behind the other, and
#: what a client has put before theirs may be a megabyte.
HOPS_MAX = 32

#: Of the headers that are sent on, names and values together: two as long as any may be. Servers refuse much more, and
#: what all that wait for an answer have would add up.
SENT_ON_BYTES_MAX = 16 << 10

#: What a token of the query may be, to be put into a header: no spaces, nothing that ends a line.
_VISIBLE = re.compile(r"[\x21-\x7e]+")


class Refused(Exception):
    """The connection is not opened. ``str(error)`` is the answer's text; ``headers``: further ones of the answer."""

    def __init__(self, status: http.HTTPStatus, text: str, **headers: str) -> None:
        super().__init__(text)
        self.status = status
        self.headers = headers


class Access:
    """``keys``: what tokens are checked with. ``callback``: asks the operator's server instead, which gets what the
    request has of the ``headers`` (names in lower case). Without both nobody needs a token. ``origins``: of pages that
    may connect beside those of this machine, such as ``https://radio.example``; ``*``: any. ``per_address_max``:
    connections at once; of this machine any number. ``proxies``: networks of those whose ``X-Forwarded-For`` is
    believed. ``counting``: counts the connections of an address; without, this process does so for itself."""

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
        assert keys is None or callback is None, "tokens are checked here, or elsewhere"
        self.callback = callback
        self._headers = tuple(headers)
        self._keys = keys
        self._wants_token = keys is not None or callback is not None
        self._origins = frozenset(origins)
        self._per_address_max = per_address_max
        self._proxies = tuple(proxies)
        self._counting = counting or OwnCount()  # by address, or network
        #: Knows which tokens have been revoked; ``None``: there is no endpoint behind this.
        self.revoking: Revoking | None = None

    @property
    def wants_token(self) -> bool:
        """Is nobody let in without a token, or an answer of the operator's server?"""
        return self._wants_token

    def arrived(self, request: Request, peer: str) -> str | None:
        """A connection from the numeric address ``peer`` is let in: count it, until ``left``. Returns under what it is,
        ``None``: it is of this machine. Raises ``Refused``."""
        address = self._address(request, peer)
        if is_loopback(address):
            if is_loopback(peer):
                return None
            address = _counted(peer)  # forwarded as "this machine", but for that of another one, or by a liar
        if not self._counting.arrived(address, self._per_address_max):
            text = f"There are {self._per_address_max} connections from your address already; close some"
            raise Refused(http.HTTPStatus.TOO_MANY_REQUESTS, text)
        return address

    def left(self, address: str) -> None:
        """A connection that was counted is gone."""
        self._counting.left(address)

    def _address(self, request: Request, peer: str) -> str:
        """The client's: the last one of those forwarded that is not a proxy of ours. IPv6: its /64, which is what one
        customer has."""
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

    def admit(self, request: Request) -> Grant | Question | None:
        """What the connection may do; ``None``: everything; a question: ``answer`` has to be awaited, which says it.
        Raises ``Refused``."""
        try:
            origin = request.headers.get("Origin")
            authorization = request.headers.get("Authorization")
            host = request.headers.get("Host")
        except MultipleValuesError:
            raise Refused(http.HTTPStatus.BAD_REQUEST, "Host, Origin and Authorization may be given once") from None
        # Only browsers send it, and any page may have a browser connect to any address, this machine's own included.
        # Where a token is wanted that is what lets a page in: the console's, of the very host that is asked, may ask.
        own = self._wants_token and origin is not None and host is not None and _is_at(origin, host)
        if origin is not None and not (own or self._origins & {origin, "*"} or _of_this_machine(origin)):
            raise Refused(http.HTTPStatus.FORBIDDEN, "Pages of this origin may not connect; see --allowed-origins")
        if self.callback is not None:
            return _question(request, self._headers)
        if self._keys is None:
            return None
        try:
            return self._standing(self._keys.grant(_token(request.path, authorization)))
        except TokenError as error:
            raise _not_accepted(error) from None

    def _standing(self, grant: Grant) -> Grant:
        """The grant, if it has not been taken back. Raises ``Refused``, ``TokenError``."""
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
        """What the connection may do, as the operator's server says. Raises ``Refused``."""
        assert self.callback is not None, "without it there are no questions"
        try:
            verdict = await self.callback.answer(question)
        except Unanswered:
            raise Refused(
                http.HTTPStatus.SERVICE_UNAVAILABLE,
                "It could not be asked whether you may connect; try again in a moment",
                **{"Retry-After": "1"},
            ) from None
        if not isinstance(verdict, Denied):
            try:
                return self._standing(verdict)  # whenever the server has said it
            except TokenError:
                text = "You are not let in: that you were let in has been revoked"
                raise Refused(http.HTTPStatus.UNAUTHORIZED, text, **{"WWW-Authenticate": "Bearer"}) from None
        if verdict.status == http.HTTPStatus.UNAUTHORIZED:
            text = "You are not let in: what your request says of who you are is not accepted"
            raise Refused(http.HTTPStatus.UNAUTHORIZED, text, **{"WWW-Authenticate": "Bearer"})
        raise Refused(http.HTTPStatus.FORBIDDEN, "You are not let in: it is not permitted to you")


def _not_accepted(error: TokenError) -> Refused:
    more = ', error_description="revoked"' if isinstance(error, TokenRevoked) else ""
    challenge = {"WWW-Authenticate": f'Bearer error="invalid_token"{more}'}
    return Refused(http.HTTPStatus.UNAUTHORIZED, f"The token is not accepted: {error}", **challenge)


def _question(request: Request, names: Sequence[str]) -> Question:
    """What of the request is sent on: its headers of these names. Raises ``Refused``."""
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
        text = f"{', '.join(names)} may have {SENT_ON_BYTES_MAX:,} bytes together"
        raise Refused(http.HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, text)
    return Question(tuple(headers))


def _as_utf8(name: str, value: str) -> str:
    """A header's value, each character of which is a byte. Raises ``Refused``."""
    try:
        return value.encode("iso-8859-1").decode()
    except UnicodeDecodeError:
        raise Refused(http.HTTPStatus.BAD_REQUEST, f"{name} has to be UTF-8, since it is sent on") from None


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
        "This endpoint wants a token: in the Authorization header (Bearer TOKEN), or as access_token in the query",
        **{"WWW-Authenticate": "Bearer"},
    )


def _token_of_query(path: str) -> str | None:
    """Raises ``TokenError``: there are several."""
    tokens = parse_qs(path.partition("?")[2]).get("access_token", [])
    if len(tokens) > 1:
        raise TokenError("access_token may be given once")
    return tokens[0] if tokens else None


def _is_at(origin: str, host: str) -> bool:
    """Is the origin's host, with its port, the one of a Host header?"""
    scheme, _, place = origin.lower().partition("://")
    return scheme in ("http", "https") and place == host.lower()


def _of_this_machine(origin: str) -> bool:
    try:
        host = urlsplit(origin).hostname or ""
        return host == "localhost" or is_loopback(host)
    except ValueError:
        return False


def is_loopback(address: str) -> bool:
    """Is the numeric address one that only this machine reaches?"""
    parsed = _parsed(address)
    return parsed is not None and parsed.is_loopback


def _counted(address: str) -> str:
    """The address as connections are counted: of IPv6 its /64, which is what one customer has."""
    parsed = _parsed(address)
    if isinstance(parsed, IPv6Address) and not parsed.is_loopback:
        return str(ip_network((parsed, 64), strict=False))
    return str(parsed or address)


def _without_port(hop: str) -> str:
    """An element of `X-Forwarded-For`; some proxies add the port: ``192.0.2.1:5678``, ``[2001:db8::1]:5678``."""
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
