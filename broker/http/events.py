"""The requests and the events of event streams. SPEC 1.8.

Owns: the fields of a request, the form of an event's id, and the text of each event except notifications (``Events`` in
``core.codec`` makes the notifications). Must never: know what the client has received.
"""

from __future__ import annotations

import http
import secrets
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote

from ingeborg.protocol.errors import CloseCode
from ingeborg.protocol.messages import POSITION_BYTES_MAX
from ingeborg.protocol.wire import encode

from ..core.connections.grants import Grant
from .parsing import BadRequest, HttpRequest
from .query import fields_of, json_of

#: The fields of the query. Only `topic` may be given several times.
FIELDS: Final = frozenset(("topic", "filter", "bounds", "client_id", "last_event_id", "access_token"))

#: The media type of a stream.
EVENT_STREAM: Final = "text/event-stream"

#: Milliseconds after which a browser reconnects.
RETRY_MS: Final = 2_000

#: The id of the last event of a stream that the client must not open again.
CLOSED: Final = "closed"

#: A comment that the endpoint sends at intervals, so that proxies do not consider the stream dead.
COMMENT: Final = b":\n\n"

#: The beginning of the client ids that the endpoint makes.
_MADE: Final = "events-"


class Stream(NamedTuple):
    """A request for an event stream.

    Attributes:
        client: the client's id.
        topics: the topics.
        filter: the filter for all topics as JSON, or ``None``.
        bounds: the bounds as JSON, or ``None``.
        position: the position from which the client continues, ``""`` if it has had none yet, or ``None`` if the client
            is new.
        is_lost: whether the client named a last event that does not tell the endpoint the client's position.
    """

    client: str
    topics: list[str]
    filter: Any = None
    bounds: Any = None
    position: str | None = None
    is_lost: bool = False


def stream_of(request: HttpRequest, grant: Grant | None) -> Stream | None:
    """Return the stream that a request asks for, or ``None`` if the client's last event was ``closed``.

    Args:
        request: the request.
        grant: the client's rights. ``None`` if the client has all rights.

    Raises:
        BadRequest: the query is bad.
    """
    fields = fields_of(request, FIELDS, {"topic"})
    topics = fields.pop("topic", [])
    if not topics:
        raise BadRequest(http.HTTPStatus.BAD_REQUEST, "The query has to name a topic: /events?topic=…")
    one = {name: values[0] for name, values in fields.items()}
    last = next(iter(request.head.headers.get_all("Last-Event-ID")), one.get("last_event_id", ""))
    if last == CLOSED:
        return None
    known, position = _parsed(last)
    own = None if grant is None or grant.client.endswith("*") else grant.client
    asked = one.get("client_id") or own
    is_lost = bool(last) and (known is None or asked not in (None, known))
    if is_lost:
        known = position = None
    prefix = "" if grant is None or own is not None else grant.client[:-1]
    client = asked or known or f"{prefix}{_MADE}{secrets.token_hex(16)}"
    filter = json_of("filter", one["filter"]) if "filter" in one else None
    bounds = _bounds(one["bounds"]) if "bounds" in one else None
    return Stream(client, topics, filter, bounds, position, is_lost)


def _bounds(text: str) -> Any:
    """Return the bounds. A preset's name needs no quotes."""
    return text if text.isalpha() else json_of("bounds", text)


# Ids


def event_id(client: str, position: str) -> bytes:
    """Return an event's line with the client's id and position. The position may be empty."""
    return b"id: %b/%b\n" % (quote(client, safe="").encode(), position.encode())


def _parsed(last: str) -> tuple[str | None, str | None]:
    """Split an event's id into the client and the position. Return ``None`` for both if the id has another form."""
    client, slash, position = last.partition("/")
    if not slash or not client or len(position) > POSITION_BYTES_MAX:
        return None, None
    try:
        return unquote(client, errors="strict"), position
    except UnicodeDecodeError:
        return None, None


# Events


def beginning(client: str, position: str) -> bytes:
    """Return a stream's first event, which has no data."""
    return b"retry: %d\n%b\n" % (RETRY_MS, event_id(client, position))


def position_event(client: str, position: str) -> bytes:
    """Return an event that only moves the client's position."""
    return event_id(client, position) + b"\n"


def gap_event(gap: Any) -> bytes:
    """Return the event `gap`, with the value of a `gap` message (SPEC section 2.7)."""
    return b"event: gap\ndata: %b\n\n" % encode(gap)


def closed_event(code: CloseCode) -> bytes:
    """Return the last event of a stream that the client must not open again."""
    data = encode({"code": code.code, "reason": code.reason})
    return b"event: closed\nid: %b\ndata: %b\n\n" % (CLOSED.encode(), data)


def retry_event(why: str) -> bytes:
    """Return the whole body of a response to a client that has to try again later."""
    return b"retry: %d\n: %b\n\n" % (RETRY_MS, why.encode())
