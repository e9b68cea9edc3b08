"""Turns HTTP requests into commands, and the replies to the commands into HTTP responses. SPEC 1.7.

Owns: the paths and their methods, the defaults of a command's fields, and the status of each error. Must never: check
what the core checks. A field of a body goes to the core unchanged.
"""

from __future__ import annotations

import http
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from ingeborg.protocol.errors import ProtocolError
from ingeborg.protocol.messages import DEDUP_KEY_BYTES_MAX, DEDUP_NO_KEYS
from ingeborg.protocol.wire import decode, decode_commands, encode

from ..core.connections.grants import Grant
from ..core.connections.large import Large, decoded
from .events import FIELDS
from .parsing import BadRequest, HttpRequest
from .query import fields_of, json_of

#: Maximum number of bytes of a body with a list of commands. The event loop parses such a body in about 1 ms at most.
LIST_BYTES_MAX: Final = 64 << 10

#: Maximum number of commands in a list.
LIST_MAX: Final = 1_000

#: The media type of bodies and of responses.
JSON: Final = "application/json"

#: Maximum number of bytes of an ``Idempotency-Key``. In a list, a period and the command's index follow the key.
KEY_BYTES_MAX: Final = DEDUP_KEY_BYTES_MAX - len(f".{LIST_MAX - 1}")

#: The HTTP status of an error reply. All other errors get 400, because the client can fix them.
_STATUS: Final = {
    "unauthorized": http.HTTPStatus.FORBIDDEN,
    "forbidden": http.HTTPStatus.FORBIDDEN,
    "too_large": http.HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    "too_many_topics": http.HTTPStatus.UNPROCESSABLE_ENTITY,
    "conflict": http.HTTPStatus.CONFLICT,
    "store_unavailable": http.HTTPStatus.SERVICE_UNAVAILABLE,
    "peer_unavailable": http.HTTPStatus.SERVICE_UNAVAILABLE,
    "partial": http.HTTPStatus.INTERNAL_SERVER_ERROR,
    "internal": http.HTTPStatus.INTERNAL_SERVER_ERROR,
}


class Route(NamedTuple):
    """The methods, the command and the query of a path. ``names`` are the fields that the query may have. ``numbers``
    are its integer fields. A ``POST`` has the command's fields in its body."""

    methods: tuple[str, ...]
    command: str
    publishes: bool = False
    names: frozenset[str] = frozenset(("access_token",))
    numbers: frozenset[str] = frozenset()


#: The methods of paths that change something, and the methods of paths that only read.
POST: Final = ("POST",)
READ: Final = ("GET", "HEAD")

#: A placeholder for the commands that open an event stream (``events``).
EVENTS: Final = "events"

_PAGE: Final = frozenset(("client_id", "access_token", "limit", "cursor"))

ROUTES: Final = {
    "/publish": Route(POST, "publish", True),
    "/broadcast": Route(POST, "broadcast", True),
    "/subscribe": Route(POST, "subscribe"),
    "/unsubscribe": Route(POST, "unsubscribe"),
    "/events": Route(("GET",), EVENTS, False, FIELDS),
    "/subscriptions": Route(READ, "subscriptions", False, _PAGE, frozenset(("limit",))),
    "/subscribers": Route(READ, "subscribers", False, _PAGE | {"topic"}, frozenset(("limit",))),
    "/history": Route(
        READ,
        "history",
        False,
        frozenset(("client_id", "access_token", "topic", "last", "since", "limit", "filter")),
        frozenset(("last", "limit")),
    ),
}


class Batch(NamedTuple):
    """The commands of a request.

    Attributes:
        commands: the commands. Each command is a decoded JSON value or an undecoded frame.
        size: the average number of bytes of a decoded command.
        is_list: whether the body is a list, so that the response is a list as well.
    """

    commands: list[Any]
    size: int
    is_list: bool

    def frames(self, payload_bytes_max: int, grant: Grant | None) -> list[bytes | Large]:
        """Return the commands in the form that the core takes. Each command gets one reply."""
        return [
            command if isinstance(command, bytes) else decoded(command, self.size, payload_bytes_max, grant)
            for command in self.commands
        ]


def route_of(request: HttpRequest) -> Route | None:
    """Return the route of the request's path, or ``None`` if no route has this path. Raises ``BadRequest`` if the route
    does not allow the request's method, its body, or the type of its body."""
    route = ROUTES.get(request.path)
    if route is None:
        return None
    if request.method not in route.methods:
        allowed = ", ".join((*route.methods, "OPTIONS"))
        text = f"{request.path} takes {route.methods[0]}"
        raise BadRequest(http.HTTPStatus.METHOD_NOT_ALLOWED, text, Allow=allowed)
    if route.methods is POST:
        given = request.head.headers.get_all("Content-Type")
        if len(given) != 1 or given[0].partition(";")[0].strip().lower() != JSON:
            raise BadRequest(http.HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"The Content-Type has to be {JSON}")
        if request.head.headers.get_all("Content-Encoding"):
            raise BadRequest(http.HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "Send the body without a Content-Encoding")
    elif request.has_body:
        raise BadRequest(http.HTTPStatus.BAD_REQUEST, "This request cannot have a body: put the fields into the query")
    return route


def batch_of(request: HttpRequest, route: Route, grant: Grant | None, key: str | None, large_bytes: int) -> Batch:
    """Return the request's commands.

    Args:
        request: a complete request for this route.
        route: the route.
        grant: the client's rights. ``None`` if the client has all rights.
        key: the request's ``Idempotency-Key``, or ``None``.
        large_bytes: a body of more bytes than this goes to the core unparsed.

    Raises:
        BadRequest: the request cannot become commands.
    """
    client = None if grant is None or grant.client.endswith("*") else grant.client
    query = fields_of(request, route.names)
    if route.methods is not POST:
        return Batch([_frame_of_query(query, route, client)], 0, False)
    body = bytes(request.body)
    if len(body) > large_bytes:
        return Batch([_frame_of_large(body, route, client, key)], 0, False)
    try:
        value = decode_commands(body)
    except ProtocolError as error:
        raise BadRequest(http.HTTPStatus.BAD_REQUEST, f"The body: {error.info}") from None
    is_list = type(value) is list
    values = value if is_list else [value]
    if not 1 <= len(values) <= LIST_MAX:
        text = f"A list has to have 1 to {LIST_MAX} items; this one has {len(values)}"
        raise BadRequest(http.HTTPStatus.BAD_REQUEST, text)
    for index, item in enumerate(values):
        _complete(item, route, client, f"{key}.{index}" if is_list and key is not None else key)
    return Batch(values, len(body) // len(values), is_list)


def key_of(request: HttpRequest, route: Route, dedup_ttl_s: float) -> str | None:
    """Return the request's ``Idempotency-Key``, or ``None``. Raises ``BadRequest`` if the endpoint cannot use it."""
    keys = request.keys
    if not keys:
        return None
    if not route.publishes:
        raise BadRequest(http.HTTPStatus.BAD_REQUEST, "An Idempotency-Key is for /publish and /broadcast only")
    if dedup_ttl_s <= 0:
        text = "This endpoint remembers no keys (its dedup-ttl is 0): send the request without Idempotency-Key"
        raise BadRequest(http.HTTPStatus.BAD_REQUEST, text)
    key = keys[0]
    if len(keys) > 1 or not key.isascii() or not 1 <= len(key) <= KEY_BYTES_MAX or key in DEDUP_NO_KEYS:
        text = f"An Idempotency-Key has to be given once, with 1 to {KEY_BYTES_MAX} ASCII characters"
        raise BadRequest(http.HTTPStatus.BAD_REQUEST, text)
    return key


def _frame_of_query(fields: dict[str, list[str]], route: Route, client: str | None) -> bytes:
    command: dict[str, Any] = {"command": route.command}
    if client is not None:
        command["client_id"] = client
    for name, (text,) in fields.items():
        if name in route.numbers:
            command[name] = _number(name, text)
        elif name == "filter":
            command[name] = json_of(name, text)
        elif name != "access_token":
            command[name] = text
    return encode(command)


def _number(name: str, text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise BadRequest(http.HTTPStatus.BAD_REQUEST, f"The field {name!r} of the query has to be an integer")
    return int(text)


def _frame_of_large(body: bytes, route: Route, client: str | None, key: str | None) -> bytes:
    """Insert the command's name and the endpoint's own fields before the fields of an unparsed body. If the body
    already has an inserted field, the core refuses the command because of the duplicate key."""
    fields = body.lstrip(b" \t\r\n")
    if fields[:1] != b"{":
        text = f"A list of commands may have at most {LIST_BYTES_MAX} bytes: send several requests"
        raise BadRequest(http.HTTPStatus.REQUEST_ENTITY_TOO_LARGE, text)
    head: dict[str, Any] = {"command": route.command}
    if route.publishes:
        head.update(ack=True, mid=True)
    if key is not None:
        head["dedup"] = key
    if client is not None and b'"client_id"' not in body:
        head["client_id"] = client
    return encode(head)[:-1] + b"," + fields[1:]


def _complete(value: Any, route: Route, client: str | None, key: str | None) -> None:
    """Add the fields that the client may leave out."""
    if type(value) is not dict:
        return
    if value.setdefault("command", route.command) != route.command:
        text = f"The body: 'command' can only be {route.command!r} here; leave it out"
        raise BadRequest(http.HTTPStatus.BAD_REQUEST, text)
    if client is not None:
        value.setdefault("client_id", client)
    if route.publishes:
        if value.setdefault("ack", True) is False:
            text = "The body: 'ack' cannot be false, because the response gives the outcome; leave it out"
            raise BadRequest(http.HTTPStatus.BAD_REQUEST, text)
        value.setdefault("mid", True)
        if key is not None and value.setdefault("dedup", key) != key:
            raise BadRequest(http.HTTPStatus.BAD_REQUEST, "Send either an Idempotency-Key or 'dedup', and not both")


def status_of(reply: bytes) -> http.HTTPStatus:
    """Return the HTTP status for a command's reply."""
    if not reply.startswith(b'{"error":'):
        return http.HTTPStatus.OK
    return _STATUS.get(decode(reply)["error"], http.HTTPStatus.BAD_REQUEST)


class Replies:
    """Collects the replies to the commands of a request, for the response.

    Keeps only their bytes, because the object of each reply takes 4 kB (``message.Message.compact``).
    """

    def __init__(self, is_list: bool) -> None:
        self.count = 0
        self.size = 0  # bytes in memory
        self._is_list = is_list
        self._body = bytearray()
        self._statuses: set[http.HTTPStatus] = set()

    def add(self, replies: Sequence[bytes]) -> None:
        """Add the next replies, at least one."""
        if self.count:
            self._body += b","
        self._body += b",".join(replies)
        self._statuses.update(map(status_of, replies))
        self.count += len(replies)
        self.size = len(self._body)

    def answer(self) -> tuple[http.HTTPStatus, bytes]:
        """Return the status and the body of the response."""
        status = next(iter(self._statuses)) if len(self._statuses) == 1 else http.HTTPStatus.MULTI_STATUS
        body = bytes(self._body)
        return status, b"[%b]" % body if self._is_list else body
