"""Riak's Protocol Buffers messages as tables, and a codec for them: the double's own reading of the protocol.

Owns: field numbers and types of the messages that the double knows. Must never: share anything with the driver's
generated module, because a mistake in the one would then be invisible to the other. ``test_transcripts.py`` compares
this table with the messages of a real node.

A message is a dict: a scalar field is an int, bool or bytes, a repeated one a list, a message a dict. A missing field
is absent, unlike a field that is present and empty.
"""

from __future__ import annotations

from typing import Any

Message = dict[str, Any]


class Undecodable(ValueError):
    """The bytes are not protobuf, or not this message."""


# name -> field number -> (field name, type); a type is "int", "bool", "bytes" or a message's name; "*" means repeated.
FIELDS: dict[str, dict[int, tuple[str, str]]] = {
    "Empty": {},
    "Error": {1: ("errmsg", "bytes"), 2: ("errcode", "int")},
    "ServerInfo": {1: ("node", "bytes"), 2: ("server_version", "bytes")},
    "Pair": {1: ("key", "bytes"), 2: ("value", "bytes")},
    "Link": {1: ("bucket", "bytes"), 2: ("key", "bytes"), 3: ("tag", "bytes")},
    "Content": {
        1: ("value", "bytes"),
        2: ("content_type", "bytes"),
        3: ("charset", "bytes"),
        4: ("content_encoding", "bytes"),
        5: ("vtag", "bytes"),
        6: ("links", "*Link"),
        7: ("last_mod", "int"),
        8: ("last_mod_usecs", "int"),
        9: ("usermeta", "*Pair"),
        10: ("indexes", "*Pair"),
        11: ("deleted", "bool"),
    },
    "GetReq": {
        1: ("bucket", "bytes"),
        2: ("key", "bytes"),
        3: ("r", "int"),
        4: ("pr", "int"),
        5: ("basic_quorum", "bool"),
        6: ("notfound_ok", "bool"),
        7: ("if_modified", "bytes"),
        8: ("head", "bool"),
        9: ("deletedvclock", "bool"),
        10: ("timeout", "int"),
        11: ("sloppy_quorum", "bool"),
        12: ("n_val", "int"),
        13: ("type", "bytes"),
        14: ("node_confirms", "int"),
    },
    "GetResp": {1: ("content", "*Content"), 2: ("vclock", "bytes"), 3: ("unchanged", "bool")},
    "PutReq": {
        1: ("bucket", "bytes"),
        2: ("key", "bytes"),
        3: ("vclock", "bytes"),
        4: ("content", "Content"),
        5: ("w", "int"),
        6: ("dw", "int"),
        7: ("return_body", "bool"),
        8: ("pw", "int"),
        9: ("if_not_modified", "bool"),
        10: ("if_none_match", "bool"),
        11: ("return_head", "bool"),
        12: ("timeout", "int"),
        13: ("asis", "bool"),
        14: ("sloppy_quorum", "bool"),
        15: ("n_val", "int"),
        16: ("type", "bytes"),
        17: ("node_confirms", "int"),
    },
    "PutResp": {1: ("content", "*Content"), 2: ("vclock", "bytes"), 3: ("key", "bytes")},
    "DelReq": {
        1: ("bucket", "bytes"),
        2: ("key", "bytes"),
        3: ("rw", "int"),
        4: ("vclock", "bytes"),
        5: ("r", "int"),
        6: ("w", "int"),
        7: ("pr", "int"),
        8: ("pw", "int"),
        9: ("dw", "int"),
        10: ("timeout", "int"),
        11: ("sloppy_quorum", "bool"),
        12: ("n_val", "int"),
        13: ("type", "bytes"),
    },
    "ListBucketsReq": {1: ("timeout", "int"), 2: ("stream", "bool"), 4: ("type", "bytes")},
    "ListBucketsResp": {1: ("buckets", "*bytes"), 2: ("done", "bool")},
    "ListKeysReq": {1: ("bucket", "bytes"), 2: ("timeout", "int"), 3: ("type", "bytes")},
    "ListKeysResp": {1: ("keys", "*bytes"), 2: ("done", "bool")},
    "ModFun": {1: ("module", "bytes"), 2: ("function", "bytes")},
    "CommitHook": {1: ("modfun", "ModFun"), 2: ("name", "bytes")},
    "Props": {
        1: ("n_val", "int"),
        2: ("allow_mult", "bool"),
        3: ("last_write_wins", "bool"),
        4: ("precommit", "*CommitHook"),
        5: ("has_precommit", "bool"),
        6: ("postcommit", "*CommitHook"),
        7: ("has_postcommit", "bool"),
        8: ("chash_keyfun", "ModFun"),
        9: ("linkfun", "ModFun"),
        10: ("old_vclock", "int"),
        11: ("young_vclock", "int"),
        12: ("big_vclock", "int"),
        13: ("small_vclock", "int"),
        14: ("pr", "int"),
        15: ("r", "int"),
        16: ("w", "int"),
        17: ("pw", "int"),
        18: ("dw", "int"),
        19: ("rw", "int"),
        20: ("basic_quorum", "bool"),
        21: ("notfound_ok", "bool"),
        22: ("backend", "bytes"),
        23: ("search", "bool"),
        24: ("repl", "int"),
        25: ("search_index", "bytes"),
        26: ("datatype", "bytes"),
        27: ("consistent", "bool"),
        28: ("write_once", "bool"),
    },
    "GetBucketReq": {1: ("bucket", "bytes"), 2: ("type", "bytes")},
    "GetBucketResp": {1: ("props", "Props")},
    "SetBucketReq": {1: ("bucket", "bytes"), 2: ("props", "Props"), 3: ("type", "bytes")},
    "GetTypeReq": {1: ("type", "bytes")},
    "AuthReq": {1: ("user", "bytes"), 2: ("password", "bytes")},
}

CODES: dict[int, str] = {
    0: "Error",
    1: "Empty",
    2: "Empty",
    7: "Empty",
    8: "ServerInfo",
    9: "GetReq",
    10: "GetResp",
    11: "PutReq",
    12: "PutResp",
    13: "DelReq",
    14: "Empty",
    15: "ListBucketsReq",
    16: "ListBucketsResp",
    17: "ListKeysReq",
    18: "ListKeysResp",
    19: "GetBucketReq",
    20: "GetBucketResp",
    21: "SetBucketReq",
    22: "Empty",
    31: "GetTypeReq",
    253: "AuthReq",
    254: "Empty",
    255: "Empty",
}

NUMBERS = {name: {field: (number, kind) for number, (field, kind) in table.items()} for name, table in FIELDS.items()}


def decode(name: str, data: bytes) -> Message:
    """Decode a message. Raise ``Undecodable`` if the bytes are not protobuf, or a known field has the wrong wire
    type."""
    message: Message = {}
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        number, wire_type = tag >> 3, tag & 7
        raw: int | bytes
        if wire_type == 0:
            raw, position = _varint(data, position)
        elif wire_type == 2:
            length, position = _varint(data, position)
            raw = data[position : position + length]
            position += length
            if len(raw) != length:
                raise Undecodable("cut short")
        elif wire_type in (1, 5):
            raw = data[position : position + (8 if wire_type == 1 else 4)]
            position += 8 if wire_type == 1 else 4
        else:
            raise Undecodable(f"wire type {wire_type}")
        if number not in FIELDS[name]:
            continue
        field, kind = FIELDS[name][number]
        value = _value(kind.removeprefix("*"), raw)
        if kind.startswith("*"):
            message.setdefault(field, []).append(value)
        else:
            message[field] = value
    return message


def encode(name: str, message: Message) -> bytes:
    """Encode the fields in the order of their numbers."""
    out = bytearray()
    for field in sorted(message, key=lambda field: NUMBERS[name][field][0]):
        number, kind = NUMBERS[name][field]
        values = message[field] if kind.startswith("*") else [message[field]]
        kind = kind.removeprefix("*")
        for value in values:
            if kind in ("int", "bool"):
                out += _encode_varint(number << 3) + _encode_varint(int(value))
            else:
                raw = value if kind == "bytes" else encode(kind, value)
                out += _encode_varint(number << 3 | 2) + _encode_varint(len(raw)) + raw
    return bytes(out)


def _value(kind: str, raw: int | bytes) -> Any:
    if kind in ("int", "bool"):
        if not isinstance(raw, int):
            raise Undecodable("a number was due")
        return bool(raw) if kind == "bool" else raw
    if not isinstance(raw, bytes):
        raise Undecodable("bytes were due")
    return raw if kind == "bytes" else decode(kind, raw)


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if position >= len(data) or shift > 63:
            raise Undecodable("a number without an end")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, position


def _encode_varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
