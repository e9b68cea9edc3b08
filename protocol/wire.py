"""Bytes to JSON values and back. SPEC sections 2.1 and 3.

Owns: which bytes are an acceptable JSON object, and the canonical form of a value. Must never: know a command.

``orjson`` does the work. What it lets pass and this protocol does not (duplicate keys, integers beyond 64 bits, values
nested deeper than it can write again) is found by cheap tests that nearly every frame passes. A frame that looks
suspicious is judged by what stands outside its strings: a few passes in C, so that the worst frame costs little more
than the best one. Only a short one is read again by the standard library's slower, more talkative parser.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

import orjson

from .errors import ProtocolError

# The deepest nesting ``orjson`` writes again is about 254 levels.
_TOO_DEEP: Final = "Nested too deeply: 250 levels are the most"

# Any integer beyond 64 bits shows at least this many digits in a row.
_MANY_DIGITS: Final = b"0" * 19
_DIGITS_TO_ZERO: Final = bytes(ord("0") if chr(byte).isdigit() and byte < 128 else ord(" ") for byte in range(256))
_INTEGER_MIN: Final = -(2**63)
_INTEGER_MAX: Final = 2**64 - 1
_INTEGER_CHARS_MAX: Final = 20  # both have as many
_BEYOND: Final = "An integer is beyond 64 bits"

# An integer that may be beyond them, where strings have been taken out: no fraction, no exponent, and no part of one.
_LONG_INTEGER: Final = re.compile(rb"(?<![\d.eE+-])(?:-\d{19,}+|\d{20,}+)(?![.eE])")

#: Up to this many bytes a suspicious frame is read by the standard library's parser, which names the key that is given
#: twice. It takes 0.1 to 0.7 µs a byte.
TALKATIVE_BYTES_MAX: Final = 2048

_PART_BYTES: Final = 1 << 20


def decode(frame: bytes) -> dict[str, Any]:
    """The JSON object in a frame. Raises ``bad_json`` with the reason; ``MemoryError``."""
    try:
        value = orjson.loads(frame)
    except orjson.JSONDecodeError as error:
        if error.msg.startswith("Not enough memory"):  # which is not the frame's fault
            raise MemoryError from None
        raise ProtocolError("bad_json", f"Not valid JSON: {error}") from None
    if type(value) is not dict:
        raise ProtocolError("bad_json", "The frame has to be one JSON object")
    # A key given twice shows as a colon that is not there any more when the value is written again, unless escaped
    # colons (\u003a) take its place. The usual flat command needs no writing: one colon per key and no other.
    colons = frame.count(b":")
    suspicious = colons != len(value) and (b"\\u003" in frame or colons != _colons(value))
    if suspicious or _MANY_DIGITS in frame.translate(_DIGITS_TO_ZERO):
        if len(frame) <= TALKATIVE_BYTES_MAX:
            _read_again(frame)
        else:
            _judge(frame, value, suspicious)
    return value


def outside_strings(text: bytes, part_bytes: int = _PART_BYTES) -> bytes:
    """What is left of a JSON text when its strings are taken out; a quotation mark stands for each. Linear.

    ``part_bytes``: looked at at once, for a part's pieces are objects, twenty times as large together as its text.
    """
    # Backslashes stand in strings only, and a run of them begins with an escape: pairs are taken from the left.
    unescaped = text.replace(b"\\\\", b"__").replace(b'\\"', b"__")
    parts = []
    inside = 0  # a string, at the end of the part
    for start in range(0, len(unescaped), part_bytes):
        pieces = unescaped[start : start + part_bytes].split(b'"')
        parts.append(b'"'.join(pieces[inside::2]))
        begun = inside
        inside = (inside + len(pieces) - 1) % 2
        if inside and len(pieces) > 1 + begun:
            parts.append(b'"')  # for the string that goes on in the next part
    return b"".join(parts)


def canonical(value: Any) -> bytes:
    """The value's canonical JSON: keys sorted, no spaces, UTF-8. What is hashed, forwarded and delivered."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # orjson: the recursion limit
        raise ProtocolError("bad_json", _TOO_DEEP) from None


encode = orjson.dumps


def _colons(value: dict[str, Any]) -> int:
    try:
        return encode(value).count(b":")
    except TypeError:  # orjson: the recursion limit
        raise ProtocolError("bad_json", _TOO_DEEP) from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ProtocolError("bad_json", f"The key {json.dumps(twice[:64])} is given twice in one object")
    return result


def _integer(text: str) -> int:
    # Longer than any 64-bit integer: not converted at all, since that takes time quadratic in the length.
    if len(text) > _INTEGER_CHARS_MAX or not _INTEGER_MIN <= int(text) <= _INTEGER_MAX:
        raise ProtocolError("bad_json", _BEYOND)
    return int(text)


def _judge(frame: bytes, value: dict[str, Any], keys: bool) -> None:
    """A long frame that ``orjson`` has read: whether its integers fit 64 bits and, with ``keys``, whether every key
    that stands there is in the value."""
    outside = outside_strings(frame)
    for match in _LONG_INTEGER.finditer(outside):
        _integer(match[0].decode())
    if keys:
        try:
            written = encode(value)
        except TypeError:  # orjson: the recursion limit
            raise ProtocolError("bad_json", _TOO_DEEP) from None
        if outside.count(b":") != outside_strings(written).count(b":"):
            raise ProtocolError("bad_json", "A key is given twice in one object")


def _read_again(frame: bytes) -> None:
    try:
        json.loads(frame, object_pairs_hook=_object, parse_int=_integer)
    except RecursionError:
        raise ProtocolError("bad_json", _TOO_DEEP) from None
