"""Converts bytes to JSON values and back. SPEC sections 2.1 and 3.

Owns: the check of a frame's JSON, and the canonical form of a value. Must never: know a command.

``orjson`` does the parsing. It accepts some JSON that this protocol does not: duplicate keys, integers beyond 64 bits,
and values nested deeper than it can write again. Cheap tests detect frames that may contain these, and nearly every
frame passes the tests. A frame that fails a test gets a closer check of its text outside strings. This check is a few
passes in C, so checking the worst frame takes little longer than checking the best frame. If such a frame is short, the
standard library's parser reads it again instead. That parser is slower, but its errors say more.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

import orjson

from .errors import ProtocolError

#: The error of a frame that is not a JSON object.
NO_OBJECT: Final = "The frame has to be one JSON object"

# ``orjson`` can write about 254 levels of nesting at most.
_TOO_DEEP: Final = "Nested too deeply: 250 levels are allowed"

# Every integer beyond 64 bits has at least this many digits in a row.
_MANY_DIGITS: Final = b"0" * 19
_DIGITS_TO_ZERO: Final = bytes(ord("0") if chr(byte).isdigit() and byte < 128 else ord(" ") for byte in range(256))
_INTEGER_MIN: Final = -(2**63)
_INTEGER_MAX: Final = 2**64 - 1
_INTEGER_CHARS_MAX: Final = 20  # the length of both limits as text
_BEYOND: Final = "An integer is beyond 64 bits"

# Matches an integer that may be beyond 64 bits, in a text without strings. Numbers with a fraction or an exponent do
# not match. Their parts do not match either.
_LONG_INTEGER: Final = re.compile(rb"(?<![\d.eE+-])(?:-\d{19,}+|\d{20,}+)(?![.eE])")

#: The standard library's parser, which names a duplicate key, reads suspicious frames of up to this many bytes. It
#: takes 0.1 to 0.7 µs a byte.
TALKATIVE_BYTES_MAX: Final = 2048

_PART_BYTES: Final = 1 << 20


def decode(frame: bytes) -> dict[str, Any]:
    """Return the JSON object in a frame.

    Raises:
        ProtocolError: ``bad_json``, with the reason.
        MemoryError: the process does not have enough memory for it.
    """
    value = _loaded(frame)
    if type(value) is not dict:
        raise ProtocolError("bad_json", NO_OBJECT)
    _check_text(frame, value, len(value))
    return value


def decode_commands(text: bytes) -> Any:
    """Return the JSON value in a text that should be a command, or a list of commands. The rules are those of
    ``decode``.

    Raises:
        ProtocolError: ``bad_json``, with the reason.
        MemoryError: the process does not have enough memory for it.
    """
    value = _loaded(text)
    commands = value if type(value) is list else (value,)
    _check_text(text, value, sum(len(command) for command in commands if type(command) is dict))
    return value


def _check_text(text: bytes, value: Any, keys: int) -> None:
    """Check a text that ``orjson`` has read. ``keys``: the number of keys of its commands."""
    # If a text has a duplicate key, the value has fewer colons when it is written again, unless escaped colons (\u003a)
    # make up for that. The usual flat commands need not be written again, since they have one colon per key and no
    # other colons.
    colons = text.count(b":")
    suspicious = colons != keys and (b"\\u003" in text or colons != _colons(value))
    if suspicious or _MANY_DIGITS in text.translate(_DIGITS_TO_ZERO):
        _examine(text, value, suspicious)


def decode_value(text: bytes) -> Any:
    """Return the JSON value in a text, which need not be an object. The rules are those of ``decode``.

    Raises:
        ProtocolError: ``bad_json``, with the reason.
        MemoryError: the process does not have enough memory for it.
    """
    value = _loaded(text)
    # Unlike ``decode``, this always counts: callers write the value again, which fails if it is nested too deeply.
    suspicious = text.count(b":") != _colons(value) or b"\\u003" in text
    if suspicious or _MANY_DIGITS in text.translate(_DIGITS_TO_ZERO):
        _examine(text, value, suspicious)
    return value


def outside_strings(text: bytes, part_bytes: int = _PART_BYTES) -> bytes:
    """Return a JSON text with a quotation mark in place of each string, in linear time.

    Args:
        text: valid JSON.
        part_bytes: number of bytes to process at a time. The pieces of a part are Python objects, which together take
            twenty times as much memory as the part's text.
    """
    # Backslashes occur only in strings, and a run of backslashes begins with an escape, so take pairs from the left.
    unescaped = text.replace(b"\\\\", b"__").replace(b'\\"', b"__")
    parts = []
    inside = 0  # 1 if a string continues after the part, else 0
    for start in range(0, len(unescaped), part_bytes):
        pieces = unescaped[start : start + part_bytes].split(b'"')
        parts.append(b'"'.join(pieces[inside::2]))
        begun = inside
        inside = (inside + len(pieces) - 1) % 2
        if inside and len(pieces) > 1 + begun:
            parts.append(b'"')  # for the string that continues in the next part
    return b"".join(parts)


def canonical(value: Any) -> bytes:
    """Return the value's canonical JSON: keys sorted, no spaces, UTF-8. Endpoints hash, forward and deliver this form.

    Raises:
        ProtocolError: ``bad_json``; the value is nested too deeply.
    """
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # beyond orjson's recursion limit
        raise ProtocolError("bad_json", _TOO_DEEP) from None


encode = orjson.dumps


def _loaded(text: bytes) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        if error.msg.startswith("Not enough memory"):  # not the frame's fault
            raise MemoryError from None
        raise ProtocolError("bad_json", f"Not valid JSON: {error}") from None


def _examine(text: bytes, value: Any, keys: bool) -> None:
    """Check a suspicious text, as ``_judge`` does."""
    if len(text) <= TALKATIVE_BYTES_MAX:
        _read_again(text)
    else:
        _judge(text, value, keys)


def _colons(value: Any) -> int:
    try:
        return encode(value).count(b":")
    except TypeError:  # beyond orjson's recursion limit
        raise ProtocolError("bad_json", _TOO_DEEP) from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ProtocolError("bad_json", f"The key {json.dumps(twice[:64])} is given twice in one object")
    return result


def _integer(text: str) -> int:
    # A text longer than any 64-bit integer is not converted, since that takes time quadratic in the length.
    if len(text) > _INTEGER_CHARS_MAX or not _INTEGER_MIN <= int(text) <= _INTEGER_MAX:
        raise ProtocolError("bad_json", _BEYOND)
    return int(text)


def _judge(frame: bytes, value: Any, keys: bool) -> None:
    """Check a long frame that ``orjson`` has read. Its integers have to fit in 64 bits. With ``keys``, no object may
    have the same key twice."""
    outside = outside_strings(frame)
    for match in _LONG_INTEGER.finditer(outside):
        _integer(match[0].decode())
    if keys:
        try:
            written = encode(value)
        except TypeError:  # beyond orjson's recursion limit
            raise ProtocolError("bad_json", _TOO_DEEP) from None
        if outside.count(b":") != outside_strings(written).count(b":"):
            raise ProtocolError("bad_json", "A key is given twice in one object")


def _read_again(frame: bytes) -> None:
    try:
        json.loads(frame, object_pairs_hook=_object, parse_int=_integer)
    except RecursionError:
        raise ProtocolError("bad_json", _TOO_DEEP) from None
