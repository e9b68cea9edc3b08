"""Encodes a record as a line of JSON, in the format of the files sink and the http sink.

Owns: the fields of a line, and the encoding of bytes. Must never: know where a line goes.

A line is an object with these fields:

- ``topic``, ``partition``, ``offset``: identify the Kafka record.
- ``epoch``, ``member``: the epoch of the owner that wrote the record, and the owner's name.
- ``time_ms``: the record's timestamp, in milliseconds since 1970.
- ``key`` and ``value``: text, or null if the record has none. Bytes that are not UTF-8 go into ``key_base64`` or
  ``value_base64`` instead (RFC 4648, section 4).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from .base import Place, Record


class Line(NamedTuple):
    """A record as a member wrote it. The fields are those of ``Place`` and ``Record``."""

    topic: str
    partition: int
    offset: int
    epoch: int
    member: str
    time_ms: int
    key: bytes | None
    value: bytes | None


def encoded(place: Place, records: Sequence[Record]) -> bytes:
    """Encode each record as a line with a line feed."""
    lines = []
    for record in records:
        fields = {
            "topic": place.topic,
            "partition": place.partition,
            "offset": record.offset,
            "epoch": place.epoch,
            "member": place.member,
            "time_ms": record.time_ms,
            **_shown("key", record.key),
            **_shown("value", record.value),
        }
        lines.append(orjson.dumps(fields, option=orjson.OPT_APPEND_NEWLINE))
    return b"".join(lines)


def decoded(line: bytes) -> Line:
    """Decode a line. Raises ``ValueError`` if it does not have this form."""
    found = orjson.loads(line)
    if not isinstance(found, dict):
        raise ValueError("it is not an object")
    texts: dict[str, Any] = {name: found.get(name) for name in ("topic", "member")}
    numbers: dict[str, Any] = {name: found.get(name) for name in ("partition", "offset", "epoch", "time_ms")}
    for name, value in texts.items():
        if not isinstance(value, str):
            raise ValueError(f"{name} is not a string")
    for name, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(f"{name} is not a whole number")
    return Line(**texts, **numbers, key=_bytes(found, "key"), value=_bytes(found, "value"))


def _shown(name: str, data: bytes | None) -> dict[str, str | None]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode("ascii")}


def _bytes(found: Mapping[str, Any], name: str) -> bytes | None:
    text, other = found.get(name), found.get(f"{name}_base64")
    if not isinstance(text, str | None) or not isinstance(other, str | None):
        raise ValueError(f"{name} is not a string")
    if other is None:
        return None if text is None else text.encode()
    try:
        return base64.b64decode(other, validate=True)
    except binascii.Error as error:
        raise ValueError(f"{name}_base64: {error}") from error
