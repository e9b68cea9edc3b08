"""JSON Schemas of all frames of the protocol. SPEC sections 2, 3 and 5.

Owns: one schema for each field, each command and each message. Must never: check a frame; the protocol's own code does
that.

The limits come from the code that checks them. JSON Schema counts characters, but the protocol counts bytes of UTF-8.
So a string with non-ASCII characters can satisfy the schema and still be too long.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from ingeborg.protocol import bounds, messages
from ingeborg.protocol.errors import ERRORS
from ingeborg.protocol.filters import OPERATORS
from ingeborg.protocol.topics import TOPIC_BYTES_MAX

Schema = dict[str, Any]

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"

_INT64_MIN, _INT64_MAX = -(2**63), 2**64 - 1


def text(longest: int, what: str) -> Schema:
    """Return the schema of a string of at most ``longest`` bytes."""
    return {"type": "string", "minLength": 1, "maxLength": longest, "description": what}


def integer(least: int, most: int, what: str) -> Schema:
    """Return the schema of an integer in this range."""
    return {"type": "integer", "minimum": least, "maximum": most, "description": what}


def flag(what: str) -> Schema:
    """Return the schema of a boolean."""
    return {"type": "boolean", "description": what}


def listed(item: Schema, what: str = "", **limits: int) -> Schema:
    """Return the schema of a list."""
    return {"type": "array", "items": item, **({"description": what} if what else {}), **limits}


def record(properties: Schema, required: Iterable[str] = (), what: str = "", *, closed: bool = False) -> Schema:
    """Return the schema of an object. Unless it is ``closed``, it may have further fields."""
    made: Schema = {"type": "object", "properties": properties}
    if required := list(required):
        made["required"] = required
    if what:
        made["description"] = what
    if closed:
        made["additionalProperties"] = False
    return made


def either(*schemas: Schema, what: str = "") -> Schema:
    """Return the schema of a value that one of the schemas accepts."""
    return {"anyOf": list(schemas), **({"description": what} if what else {})}


def ref(name: str) -> Schema:
    """Return a reference to a schema of ``components``."""
    return {"$ref": f"#/components/schemas/{name}"}


TOPIC: Final = text(TOPIC_BYTES_MAX, "A topic: 1 to 1024 bytes of UTF-8 without control characters (SPEC 4)")

POSITION: Final = text(messages.POSITION_BYTES_MAX, "A position that the client got from an endpoint (SPEC 2.7)")

MID: Final = text(messages.MID_BYTES_MAX, "The permanent name of a message (SPEC 2.7)")

CLIENT: Final = either(
    text(messages.CLIENT_ID_BYTES_MAX, "1 to 128 bytes of UTF-8"),
    {"type": "integer", "minimum": _INT64_MIN, "maximum": _INT64_MAX},
    what="The client. An integer and its decimal text name the same client",
)

ID: Final = either(
    {"type": "string", "maxLength": messages.ID_BYTES_MAX},
    {"type": "integer", "minimum": _INT64_MIN, "maximum": _INT64_MAX},
    {"type": "null"},
    what="The reply repeats it",
)

FILTER: Final = {
    "type": "object",
    "minProperties": 1,
    "description": f"A filter: attributes with lists of values or of the operators {', '.join(OPERATORS)} (SPEC 2.6)",
}

RULE: Final = record(
    {
        "topic": TOPIC,
        "prefix": {"type": "string", "maxLength": TOPIC_BYTES_MAX},
        "staleness_ms": either(
            integer(bounds.STALENESS_MS_MIN, bounds.STALENESS_MS_MAX, "The maximum age of a held message"),
            {"type": "null"},
        ),
        "numerical": either({"type": "number", "exclusiveMinimum": 0}, {"type": "null"}),
        "interval_ms": integer(0, bounds.STALENESS_MS_MAX, "The minimum time between two deliveries of a topic"),
        "deliver": {"enum": ["all", "latest"]},
        "priority": {"type": "number", "minimum": -1, "maximum": 1},
    },
    what="One rule of bounds. It has either topic or prefix",
    closed=True,
)

BOUNDS: Final = either(
    {"enum": list(bounds.PRESETS)},
    listed(ref("Rule"), maxItems=bounds.RULES_MAX),
    what="How stale and how incomplete a client's view may be (SPEC 2.8)",
)

TOPICS: Final = either(TOPIC, listed(TOPIC), what="A topic, or a list of topics")

PAGE_LIMIT: Final = integer(1, messages.PAGE_LIMIT_MAX, "The maximum number of entries on a page")

_LAST: Final = integer(1, messages.LAST_MAX, "The number of the latest kept messages")

#: The fields of all commands. ``topic`` and ``limit`` differ between commands.
FIELDS: Final[dict[str, Schema]] = {
    "payload": {"description": "Any JSON value"},
    "timestamp": {"type": "number", "description": "Milliseconds since the epoch. The endpoint does not use the value"},
    "ack": flag("Whether the publisher wants a reply"),
    "mid": flag("Whether the reply names the message. This needs ack"),
    "dedup": either(
        {"type": "boolean"},
        {
            **text(messages.DEDUP_KEY_BYTES_MAX, "The message's own key"),
            "not": {"enum": sorted(messages.DEDUP_NO_KEYS)},
        },
        what="Which earlier messages this message may duplicate (SPEC 7)",
    ),
    "keep_s": integer(1, messages.KEEP_S_MAX, "Seconds for which the broker keeps the message (SPEC 2.7)"),
    "item": text(bounds.ITEM_BYTES_MAX, "The part of the topic's state that the message is about (SPEC 2.8)"),
    "weight": {"type": "number", "minimum": 0, "maximum": bounds.WEIGHT_MAX},
    "filter": FILTER,
    "until": {"const": "disconnect"},
    "ttl_s": integer(1, messages.TTL_S_MAX, "Seconds after which the subscription ends"),
    "replace": flag("Whether the subscription replaces all of the client's subscriptions to the topics"),
    "last": _LAST,
    "since": POSITION,
    "recover": either(
        {"type": "boolean"}, POSITION, what="Whether the client recovers, or the position from which it recovers"
    ),
    "bounds": BOUNDS,
    "window": integer(1, bounds.WINDOW_MAX, "The number of notifications that the client may leave unconfirmed"),
    "cursor": {"type": ["string", "null"], "description": "The cursor of an earlier page"},
    "limit": PAGE_LIMIT,
    "jti": text(messages.JTI_BYTES_MAX, "The id of the token to revoke"),
    "sub": text(messages.SUBJECT_BYTES_MAX, "The subject of the tokens to revoke"),
    "expires_at": {"type": ["number", "null"], "minimum": 0, "exclusiveMaximum": messages.UNIX_TIME_MAX_S},
    "count": integer(0, bounds.COUNT_MAX, "The number of notifications that the client processed on this connection"),
}

#: For each command: its required fields, its optional fields, and the schemas that differ from ``FIELDS``.
COMMANDS: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...], dict[str, Schema]]]] = {
    "listen": ((), ("recover", "bounds", "window"), {}),
    "unlisten": ((), (), {}),
    "subscribe": (("topic",), ("filter", "until", "ttl_s", "replace", "last", "since"), {"topic": TOPICS}),
    "unsubscribe": (("topic",), ("filter",), {"topic": TOPICS}),
    "publish": (
        ("topic", "payload"),
        ("timestamp", "ack", "mid", "dedup", "keep_s", "item", "weight"),
        {"topic": TOPIC},
    ),
    "broadcast": (("payload",), ("ack", "mid", "dedup"), {}),
    "subscriptions": ((), ("cursor", "limit"), {}),
    "endpoints": ((), (), {}),
    "subscribers": (("topic",), ("cursor", "limit"), {"topic": TOPIC}),
    "location": ((), (), {}),
    "revoke": ((), ("jti", "sub", "expires_at"), {}),
    "history": (
        ("topic",),
        ("last", "since", "limit", "filter"),
        {"topic": TOPIC, "since": MID, "limit": integer(1, messages.LAST_MAX, "The maximum number of messages")},
    ),
    "bounds": (("bounds",), (), {}),
    "credit": (("count",), (), {}),
}

#: Pairs of fields of which a command may have only one.
EXCLUSIVE: Final = {"subscribe": ("last", "since"), "history": ("last", "since")}


def command(name: str, *, over_http: bool = False) -> Schema:
    """Return the schema of a command.

    Args:
        name: the command's name.
        over_http: whether the command is in the body of an HTTP request. It then needs neither `command` nor
            `client_id`.
    """
    required, optional, own = COMMANDS[name]
    properties = {field: own.get(field, FIELDS.get(field, {})) for field in (*required, *optional)}
    if over_http:
        named: Schema = {"client_id": CLIENT}
        if "ack" in properties:
            properties["ack"] = {"const": True}
        needed = list(required)
    else:
        named = {"command": {"const": name}, "client_id": CLIENT, "id": ID}
        needed = ["command", "client_id", *required]
    made = record({**named, **properties}, needed)
    if name in EXCLUSIVE:
        made["not"] = {"required": list(EXCLUSIVE[name])}
    if name == "revoke":
        made["oneOf"] = [{"required": ["jti"]}, {"required": ["sub"]}]
    return made


_SUCCESS: Final[Schema] = {"result": {"const": "success"}, "id": ID}
_SUBSCRIPTION: Final = record(
    {"filter": {"type": "object"}, "until": {"const": "disconnect"}, "ends_at": {"type": "number"}}
)
_STRINGS: Final = listed({"type": "string"})
_CURSOR: Final = {"type": ["string", "null"]}

#: The fields that a success reply may have in addition to ``result`` and ``id``, and the fields that it always has.
_REPLIES: Final[dict[str, tuple[Schema, tuple[str, ...]]]] = {
    "listen": (
        {
            "ended": listed(record({"topic": TOPIC, "filter": {"type": "object"}}, ["topic"])),
            "ended_count": {"type": "integer"},
            "recovering": {"type": "boolean"},
            "position": POSITION,
            "bounds": listed(ref("Rule")),
        },
        (),
    ),
    "subscribe": (
        {"grace_s": {"type": "number"}, "filtered": {"type": "boolean"}, "recovered": {"type": "boolean"}},
        (),
    ),
    "publish": ({"duplicate": {"type": "boolean"}, "mid": MID, "kept": {"type": "boolean"}}, ("duplicate",)),
    "broadcast": ({"duplicate": {"type": "boolean"}, "mid": MID}, ("duplicate",)),
    "subscriptions": (
        {
            "topic": listed(TOPIC),
            "cursor": _CURSOR,
            "subscriptions": {"type": "object", "additionalProperties": listed(_SUBSCRIPTION)},
        },
        ("topic", "cursor"),
    ),
    "endpoints": ({"endpoints": listed({"type": "object"})}, ("endpoints",)),
    "subscribers": (
        {
            "topic": TOPIC,
            "count": {"type": "integer"},
            "subscribers": listed(
                record(
                    {
                        "client_id": {"type": "string"},
                        "online": {"type": "boolean"},
                        "endpoint": {"type": ["string", "null"]},
                        "filtered": {"type": "boolean"},
                        "subscriptions": listed(_SUBSCRIPTION),
                    },
                    ["client_id", "online"],
                )
            ),
            "cursor": _CURSOR,
        },
        ("topic", "count", "subscribers", "cursor"),
    ),
    "location": (
        {"client_id": {"type": "string"}, "endpoint": {"type": ["string", "null"]}},
        ("client_id", "endpoint"),
    ),
    "revoke": ({"expires_at": {"type": "number"}, "issued_until": {"type": "number"}}, ("expires_at",)),
    "history": (
        {
            "publications": listed(record({"broadcast": {}, "mid": MID}, ["broadcast", "mid"])),
            "mid": {"type": ["string", "null"]},
            "more": {"type": "boolean"},
            "recovered": {"type": "boolean"},
        },
        ("publications", "mid", "more"),
    ),
    "bounds": ({"bounds": listed(ref("Rule"))}, ("bounds",)),
}


def success(name: str) -> Schema:
    """Return the schema of a command's success reply."""
    fields, always = _REPLIES.get(name, ({}, ()))
    return record({**_SUCCESS, **fields}, ["result", *always])


ERROR: Final = record(
    {
        "error": {"enum": list(ERRORS)},
        "message": {"type": "string", "description": "A text for people, always the same for the same error"},
        "info": {"type": "string", "description": "The field and the reason, or what failed"},
        "id": ID,
        "command": {"enum": ["publish", "broadcast"]},
        "delivered": _STRINGS,
        "failed": _STRINGS,
    },
    ["error", "message", "info"],
    "An error reply (SPEC 5)",
)

REFUSED: Final = record(
    {"error": {"const": "refused"}, "message": {"type": "string"}, "info": {"type": "string"}},
    ["error", "message", "info"],
    "The answer to a request that the endpoint refuses before any command begins (SPEC 1.7)",
)

#: The messages that endpoints send without a command.
MESSAGES: Final[dict[str, Schema]] = {
    "notification": record(
        {
            "key": either(TOPIC, {"type": "null"}, what="The topic, or null for a broadcast"),
            "broadcast": {"description": "The payload"},
            "mid": MID,
            "kept": {"const": True},
            "skipped": integer(1, 2**53, "The number of other messages that this one replaces"),
        },
        ["key", "broadcast"],
        "A message of a topic to which the client has subscribed, or a broadcast (SPEC 3)",
    ),
    "position": record({"position": POSITION, "recovered": {"const": True}}, ["position"], "SPEC 2.7"),
    "gap": record(
        {
            "gap": either(
                {"type": "null"},
                record({"topics": listed({"type": "string"}), "slots": listed({"type": "integer"})}),
            )
        },
        ["gap"],
        "Messages may be missing (SPEC 2.7)",
    ),
}
