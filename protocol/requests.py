"""The client's side of the wire: the bytes of commands, and the meaning of replies. SPEC sections 2, 5 and 9.

Owns: writing commands, cutting batches to the frame limit, and reading error replies. Must never: do I/O.

A command's *body* is its text without the ``id`` and the closing brace, so that sending it again under another id needs
no second encoding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, count
from types import MappingProxyType
from typing import Any

import orjson

from .errors import ERRORS, Next, ProtocolError
from .filters import canonical_filter
from .hashes import SLOTS, slot_of
from .messages import CLIENT_ID_BYTES_MAX
from .topics import check_topic

#: Bytes reserved for a command's id and braces, in addition to its body.
_ENVELOPE_BYTES = 1024


def check_client_id(client_id: str | int) -> str | int:
    """Check a client's id, and return it unchanged.

    Raises:
        ValueError: it is neither an integer nor a string of 1 to 128 bytes.
    """
    if type(client_id) is int:
        return client_id
    if type(client_id) is not str or not 1 <= len(client_id.encode(errors="replace")) <= CLIENT_ID_BYTES_MAX:
        raise ValueError(f"client_id has to be an integer or a string of 1 to {CLIENT_ID_BYTES_MAX} bytes")
    return client_id


def keys_of(beginning: str) -> Iterator[str]:
    """Yield distinct keys for ``dedup`` that start with ``beginning``."""
    return (f"{beginning}-{number}" for number in count(1))


def filter_text(filter: object) -> str | None:
    """Return the filter's canonical text, or ``None`` for ``None``.

    Raises:
        ProtocolError: ``bad_filter``; the value is not a filter, and ``info`` says why.
    """
    return None if filter is None else canonical_filter(filter)


def filter_fields(text: str | None) -> dict[str, Any]:
    """Return a command's field for the filter with this canonical text, or no field for ``None``."""
    return {} if text is None else {"filter": orjson.Fragment(text)}


def body(command: str, client_id: str | int, fields: Mapping[str, Any], frame_bytes_max: int) -> bytes:
    """Return the body of one command.

    Args:
        command: the command's name.
        client_id: the client's id.
        fields: its other fields, without ``id``.
        frame_bytes_max: the endpoint's limit on frames.

    Raises:
        ProtocolError: ``bad_json``; JSON cannot express a value. ``too_large``: an endpoint would close the connection
            because of such a frame.
    """
    try:
        frame = orjson.dumps({"command": command, "client_id": client_id, **fields})[:-1]
    except (orjson.JSONEncodeError, RecursionError) as error:
        raise ProtocolError("bad_json", f"Cannot be written as JSON: {error}") from None
    bytes_max = len(frame) + _ENVELOPE_BYTES
    if bytes_max > frame_bytes_max:
        raise ProtocolError("too_large", f"The frame may have {bytes_max} bytes; the limit is {frame_bytes_max}")
    return frame


def topic_bodies(
    command: str,
    client_id: str | int,
    topics: Sequence[str],
    frame_bytes_max: int,
    fields: Mapping[str, Any] = MappingProxyType({}),
    topics_max: int | None = None,
) -> list[bytes]:
    """Return the bodies of as many commands as the frame limit and ``topics_max`` require.

    If several commands are necessary, topics with the same CRC-32 modulo 4,096 go into one command. A store may keep
    these topics in one object (SPEC section 9), and then writes the object once per command.

    Args:
        command: the command's name.
        client_id: the client's id.
        topics: the topics.
        frame_bytes_max: maximum number of bytes of a frame.
        fields: the other fields of each command.
        topics_max: maximum number of topics of a command; ``None``: no limit.

    Raises:
        ProtocolError: ``bad_topic``; at least one of the topics is bad. ``bad_json`` and ``too_large``: as for
        ``body``.
    """
    for topic in topics:
        check_topic(topic)
    head = body(command, client_id, fields, frame_bytes_max) + b',"topic":'
    bytes_max = frame_bytes_max - _ENVELOPE_BYTES - len(head)
    try:
        if topics_max is None or len(topics) <= topics_max:
            return [head + part for part in _parts(topics, bytes_max)]
        ordered = neighbours(topics)
        cuts = [ordered[start : start + topics_max] for start in range(0, len(ordered), topics_max)]
        return [head + part for cut in cuts for part in _parts(cut, bytes_max)]
    except (orjson.JSONEncodeError, UnicodeEncodeError):
        raise ProtocolError("bad_topic", "Key 'topic' is not valid Unicode: it has a lone surrogate") from None


def _parts(topics: Sequence[str], bytes_max: int) -> Iterator[bytes]:
    """Yield the topics as JSON lists of at most ``bytes_max`` bytes, or of one topic."""
    whole = orjson.dumps(topics if isinstance(topics, list | tuple) else list(topics))
    if len(whole) <= bytes_max or len(topics) == 1:
        if topics:
            yield whole
        return
    yield from _cut(neighbours(topics), len(whole), bytes_max)


def neighbours(topics: Sequence[str]) -> list[str]:
    """Return the topics in the order of their slots, since a store may keep topics of one slot together."""
    groups: list[list[str]] = [[] for _ in range(SLOTS)]
    for topic in topics:
        groups[slot_of(topic)].append(topic)
    return list(chain.from_iterable(groups))


def _cut(topics: Sequence[str], whole_bytes: int, bytes_max: int) -> Iterator[bytes]:
    """Cut the topics into lists. The mean length of a topic decides their size. Cut a list again if it is too long."""
    size = max(len(topics) * bytes_max // whole_bytes, 1)
    if size == len(topics):
        size -= 1
    for start in range(0, len(topics), size):
        part = topics[start : start + size]
        found = orjson.dumps(part)
        if len(found) <= bytes_max or len(part) == 1:
            yield found
        else:
            yield from _cut(part, len(found), bytes_max)


def error_of(reply: Mapping[str, Any]) -> ProtocolError:
    """Return the exception for an error reply, with the reply's additional fields in ``extra``."""
    extra = {key: value for key, value in reply.items() if key not in ("error", "message", "info", "id")}
    return ProtocolError(str(reply["error"]), str(reply.get("info") or reply.get("message") or ""), **extra)


def may_retry(error: ProtocolError) -> bool:
    """Return whether repeating the command may help. If the code is unknown, because a newer endpoint sent it,
    return False."""
    row = ERRORS.get(error.code)
    return row is not None and row.next is Next.RETRY
