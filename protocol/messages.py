"""The commands that clients send and the messages that endpoints send. SPEC sections 2, 3 and 5.

Owns: the fields of each command and message, the checks of these fields, and the bytes of every reply. Must never:
decide what a command does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from .bounds import COUNT_MAX, check_bounds, check_item, check_weight, check_window
from .errors import ERRORS, ProtocolError
from .filters import canonical_filter
from .topics import check_topic
from .wire import canonical, encode

CLIENT_ID_BYTES_MAX: Final = 128

#: Maximum number of bytes of a command's `id`, which an endpoint keeps until it has sent the reply.
ID_BYTES_MAX: Final = 1024

#: Maximum number of bytes of a publisher's own deduplication key.
DEDUP_KEY_BYTES_MAX: Final = 128

#: Strings that endpoints do not accept as keys. A client that sends such a string means something else, and all its
#: messages would get the same key.
DEDUP_NO_KEYS: Final[frozenset[str]] = frozenset(("true", "false", "retry"))

BAD_DEDUP: Final = (
    "Key 'dedup' has to be true, false, or this message's own key: a string of 1 to "
    f"{DEDUP_KEY_BYTES_MAX} bytes of UTF-8 that is none of {', '.join(sorted(DEDUP_NO_KEYS))}"
)

#: The longest `ttl_s` of a subscription, in seconds: 30 days.
TTL_S_MAX: Final = 30 * 24 * 3600

#: The longest `keep_s` of a message, in seconds: a day.
KEEP_S_MAX: Final = 24 * 3600

#: Maximum number of bytes of a position.
POSITION_BYTES_MAX: Final = 128

#: Maximum number of bytes of a message's `mid`.
MID_BYTES_MAX: Final = 128

#: Maximum number of digits of the number in a `mid`, which is below 2^63.
MID_DIGITS_MAX: Final = 18

#: Maximum number of kept messages of one topic that a `subscribe` may request, and of messages in a reply to `history`.
LAST_MAX: Final = 1_000
HISTORY_LIMIT_DEFAULT: Final = 100

#: Maximum number of topics in a `subscribe` that requests kept messages.
SINCE_TOPICS_MAX: Final = 1_000

#: The default and the maximum of `limit`, the number of topics in one page of `subscriptions`.
PAGE_LIMIT_DEFAULT: Final = 1_000
PAGE_LIMIT_MAX: Final = 10_000

#: Maximum number of bytes of a token's `jti`. Endpoints accept no token with a longer `jti`, since no `revoke` could
#: name it.
JTI_BYTES_MAX: Final = 128

#: Maximum number of bytes of the `sub` in a `revoke`: the longest client id or prefix of client ids, and a `*`.
SUBJECT_BYTES_MAX: Final = CLIENT_ID_BYTES_MAX + 1

#: Unix times in seconds are smaller than this (the year 9999). A larger number is in another unit.
UNIX_TIME_MAX_S: Final = 253_402_300_800

Id = str | int | None

#: The replies to a successful publish: no reply, a success, and a success that names the message.
NO_ACK: Final = 0
ACK: Final = 1
ACK_WITH_MID: Final = 2


class About(NamedTuple):
    """A publish's item (the part of the topic's state that the message is about, or ``None``) and weight."""

    item: str | None = None
    weight: float = 1.0


class Flow(NamedTuple):
    """The fields of `listen`, `bounds` and `credit` that say how fast a client gets notifications."""

    bounds: str | None = None  # the text of the rules (``bounds``)
    window: int = 0  # maximum number of unconfirmed notifications; 0 for no window
    processed: int = 0  # the number of notifications that a `credit` confirms


NO_FLOW: Final = Flow()


class RevokedTokens(NamedTuple):
    """The fields of a `revoke`. It has either ``jti`` or ``subject``."""

    jti: str | None
    subject: str | None
    expires_at: float | None  # Unix time in seconds


class Command(NamedTuple):
    """A checked command. Fields that a command does not have keep their defaults.

    It has at most 19 fields. Python keeps no free list for longer tuples, so with more fields each command would take
    longer. Fields of rare commands are in separate records.
    """

    name: str
    client: str
    id: Id = None
    topics: Sequence[str] = ()  # in a large frame: ``broker.core.connections.large.Topics``
    payload: bytes = b""  # canonical JSON
    ack: int = 0  # whether the client requests a reply: ``NO_ACK``, ``ACK`` or ``ACK_WITH_MID``
    dedup: bool | str = True  # a string is the publisher's own key
    cursor: str | None = None
    limit: int = PAGE_LIMIT_DEFAULT
    #: The term of a subscription: whether it ends at disconnect, and after how many seconds (0 for no time limit).
    term: tuple[bool, int] | None = None
    revoked: RevokedTokens | None = None
    filter: str | None = None  # canonical text (``filters``)
    replace: bool = False  # whether it replaces all of the client's subscriptions to these topics
    keep_s: int = 0  # seconds for which the broker keeps the message; 0 if the publisher gives none
    #: In a `listen`: the position from which the client recovers messages, or ``""`` if the client has no position yet
    #: and requests one.
    recover: str | None = None
    last: int = 0  # number of the latest kept messages of each topic
    since: str | None = None  # a position; in `history`, the `mid` of a message
    flow: Flow = NO_FLOW
    about: About | None = None  # a publish's item and weight, or None


def check(value: dict[str, Any], payload_bytes_max: int) -> Command:
    """Check the command in a decoded frame.

    Args:
        value: the frame's JSON object.
        payload_bytes_max: maximum number of bytes of a canonical payload.

    Returns:
        The command.

    Raises:
        ProtocolError: the command is bad. ``reply_fields`` then returns the fields that the reply echoes.
    """
    name = value.get("command")
    if type(name) is not str:
        if "command" not in value:
            raise ProtocolError("bad_state", "Key 'command' not specified")
        raise ProtocolError("bad_state", "Key 'command' has to be a string")
    checker = _COMMANDS.get(name)
    if checker is None:
        raise ProtocolError("bad_command", f"No command {name[:64]!r}; the commands are {', '.join(_COMMANDS)}")
    client = value.get("client_id")
    if type(client) is int:
        client = str(client)
    elif type(client) is not str:
        if "client_id" not in value:
            raise ProtocolError("bad_state", "Key 'client_id' not specified")
        raise ProtocolError("bad_state", "Key 'client_id' has to be a string or an integer")
    elif not client or (len(client) * 4 > CLIENT_ID_BYTES_MAX and len(client.encode()) > CLIENT_ID_BYTES_MAX):
        raise ProtocolError("bad_state", f"Key 'client_id' has to have 1 to {CLIENT_ID_BYTES_MAX} bytes of UTF-8")
    number = value.get("id")
    if number is not None and type(number) is not int:
        if type(number) is not str:
            raise ProtocolError("bad_state", "Key 'id' has to be a string or an integer")
        if len(number) * 4 > ID_BYTES_MAX and len(number.encode()) > ID_BYTES_MAX:
            raise ProtocolError("bad_state", f"Key 'id' is longer than {ID_BYTES_MAX} bytes of UTF-8")
    return checker(name, client, number, value, payload_bytes_max)


def reply_fields(value: dict[str, Any]) -> tuple[Id, str | None]:
    """Return the id that the reply echoes, and the command's name if the reply has it. SPEC section 5.

    This works for bad commands, too.
    """
    number = value.get("id")
    if type(number) is str:
        if len(number) * 4 > ID_BYTES_MAX and len(number.encode()) > ID_BYTES_MAX:
            number = None
    elif type(number) is not int:
        number = None
    name = value.get("command")
    return number, (name if name in ("publish", "broadcast") else None)


def _flag(value: dict[str, Any], key: str, default: bool) -> bool:
    flag = value.get(key, default)
    if type(flag) is not bool:
        raise ProtocolError("bad_state", f"Key '{key}' has to be true or false")
    return flag


def check_dedup(given: object) -> bool | str:
    """Check the value of key ``dedup``, and return it.

    Raises:
        ProtocolError: ``bad_state``; it is neither a boolean nor a key of 1 to ``DEDUP_KEY_BYTES_MAX`` bytes.
    """
    if type(given) is bool:
        return given
    if type(given) is not str or given in DEDUP_NO_KEYS:
        raise ProtocolError("bad_state", BAD_DEDUP)
    if 1 <= len(given.encode(errors="replace")) <= DEDUP_KEY_BYTES_MAX:
        return given
    raise ProtocolError("bad_state", BAD_DEDUP)


def _payload(value: dict[str, Any], bytes_max: int) -> bytes:
    if "payload" not in value:
        raise ProtocolError("bad_state", "Key 'payload' not specified")
    payload = canonical(value["payload"])
    if len(payload) > bytes_max:
        raise ProtocolError("too_large", f"The payload has {len(payload)} bytes; the limit is {bytes_max}")
    return payload


def _page(name: str, client: str, number: Id, value: dict[str, Any], payload_bytes_max: int) -> Command:
    cursor = value.get("cursor")
    if cursor is not None and type(cursor) is not str:
        raise ProtocolError("bad_state", "Key 'cursor' has to be a string, as an earlier reply gave it")
    limit = value.get("limit", PAGE_LIMIT_DEFAULT)
    if type(limit) is not int or not 1 <= limit <= PAGE_LIMIT_MAX:
        raise ProtocolError("bad_state", f"Key 'limit' has to be an integer from 1 to {PAGE_LIMIT_MAX}")
    return Command(name, client, number, cursor=cursor, limit=limit)


def _subscribers(name: str, client: str, number: Id, value: dict[str, Any], payload_bytes_max: int) -> Command:
    topic = (_topic(value),)
    return _page(name, client, number, value, payload_bytes_max)._replace(topics=topic)


def _plain(name: str, client: str, number: Id, value: dict[str, Any], payload_bytes_max: int) -> Command:
    return Command(name, client, number)


def is_text_of(value: object, bytes_max: int) -> bool:
    """Return whether the value is a string of 1 to ``bytes_max`` bytes of UTF-8."""
    try:
        return type(value) is str and 1 <= len(value.encode()) <= bytes_max
    except UnicodeEncodeError:
        return False  # a lone surrogate, which no encoder can write


def check_revoke(value: Mapping[str, Any]) -> RevokedTokens:
    """Return the fields of a `revoke`.

    Raises:
        ProtocolError: ``bad_state``; a value is wrong, or the command has both `jti` and `sub`, or neither.
    """
    jti, subject, expires_at = value.get("jti"), value.get("sub"), value.get("expires_at")
    if (jti is None) is (subject is None):
        raise ProtocolError("bad_state", "Either key 'jti' or key 'sub' has to be present, and not both")
    if jti is not None and not is_text_of(jti, JTI_BYTES_MAX):
        raise ProtocolError("bad_state", f"Key 'jti' has to be a string of 1 to {JTI_BYTES_MAX} bytes of UTF-8")
    if subject is not None and not is_text_of(subject, SUBJECT_BYTES_MAX):
        raise ProtocolError("bad_state", f"Key 'sub' has to be a string of 1 to {SUBJECT_BYTES_MAX} bytes of UTF-8")
    if expires_at is not None and (type(expires_at) not in (int, float) or not 0 <= expires_at < UNIX_TIME_MAX_S):
        raise ProtocolError("bad_state", "Key 'expires_at' has to be a Unix time in seconds")
    return RevokedTokens(jti, subject, None if expires_at is None else float(expires_at))


def _revoke(name: str, client: str, number: Id, value: dict[str, Any], payload_bytes_max: int) -> Command:
    return Command(name, client, number, revoked=check_revoke(value))


def _listen(name: str, client: str, number: Id, value: dict[str, Any], payload_bytes_max: int) -> Command:
    command = Command(name, client, number)
    if len(value) == 2 + ("id" in value):
        return command
    recover = value.get("recover", False)
    if recover is True:
        command = command._replace(recover="")
    elif recover is not False:
        if not is_text_of(recover, POSITION_BYTES_MAX):
            text = (
                f"Key 'recover' has to be true, or a position as an endpoint gave it (1 to {POSITION_BYTES_MAX} bytes)"
            )
            raise ProtocolError("bad_state", text)
        command = command._replace(recover=recover)
    if "bounds" in value or "window" in value:
        rules = check_bounds(value["bounds"]) if "bounds" in value else None
        window = check_window(value["window"]) if "window" in value else 0
        command = command._replace(flow=Flow(rules, window))
    return command


def _bounds(name: str, client: str, number: Id, value: dict[str, Any], payload_bytes_max: int) -> Command:
    if "bounds" not in value:
        raise ProtocolError("bad_state", "Key 'bounds' not specified")
    return Command(name, client, number, flow=Flow(check_bounds(value["bounds"])))


def _credit(name: str, client: str, number: Id, value: dict[str, Any], payload_bytes_max: int) -> Command:
    count = value.get("count")
    if type(count) is not int or not 0 <= count <= COUNT_MAX:
        text = f"Key 'count' has to be an integer from 0 to {COUNT_MAX}: the notifications processed on this connection"
        raise ProtocolError("bad_state", text)
    return Command(name, client, number, flow=Flow(processed=count))


def _last(value: dict[str, Any]) -> int:
    last = value["last"]
    if type(last) is not int or not 1 <= last <= LAST_MAX:
        raise ProtocolError("bad_state", f"Key 'last' has to be an integer from 1 to {LAST_MAX} (messages)")
    return last


def _history(name: str, client: str, number: Id, value: dict[str, Any], payload_bytes_max: int) -> Command:
    command = Command(name, client, number, (_topic(value),), limit=HISTORY_LIMIT_DEFAULT)
    if "last" in value and "since" in value:
        raise ProtocolError("bad_state", "Keys 'last' and 'since' exclude each other; leave one out")
    if "last" in value:
        command = command._replace(last=_last(value))
    since = value.get("since")
    if since is not None:
        if not is_text_of(since, MID_BYTES_MAX):
            raise ProtocolError("bad_state", "Key 'since' has to be the 'mid' of a message, as an endpoint gave it")
        command = command._replace(since=since)
    limit = value.get("limit", HISTORY_LIMIT_DEFAULT)
    if type(limit) is not int or not 1 <= limit <= LAST_MAX:
        raise ProtocolError("bad_state", f"Key 'limit' has to be an integer from 1 to {LAST_MAX}")
    if "filter" in value:
        command = command._replace(filter=canonical_filter(value["filter"]))
    return command._replace(limit=limit)


def _with_topics(name: str, client: str, number: Id, value: dict[str, Any], payload_bytes_max: int) -> Command:
    topic = value.get("topic")
    if type(topic) is list:
        for item in topic:
            check_topic(item)
        return Command(name, client, number, topic)
    if "topic" not in value:
        raise ProtocolError("bad_state", "Key 'topic' not specified")
    return Command(name, client, number, (check_topic(topic),))


def _subscribe(name: str, client: str, number: Id, value: dict[str, Any], payload_bytes_max: int) -> Command:
    command = _with_topics(name, client, number, value, payload_bytes_max)
    if len(value) == 3 + ("id" in value):
        return command  # the command has only its name, the client id and the topic
    if "last" in value or "since" in value:
        command = _with_kept(command, value)
    term = _term(value) if "until" in value or "ttl_s" in value else None
    filter = canonical_filter(value["filter"]) if "filter" in value else None
    return command._replace(term=term, filter=filter, replace=_flag(value, "replace", False))


def _with_kept(command: Command, value: dict[str, Any]) -> Command:
    """Add the request for kept messages to a subscribe."""
    if "last" in value and "since" in value:
        raise ProtocolError("bad_state", "Keys 'last' and 'since' exclude each other; leave one out")
    if len(command.topics) > SINCE_TOPICS_MAX:
        text = f"Keys 'last' and 'since' are for at most {SINCE_TOPICS_MAX} topics at once; send several commands"
        raise ProtocolError("bad_state", text)
    if "last" in value:
        return command._replace(last=_last(value))
    since = value["since"]
    if not is_text_of(since, POSITION_BYTES_MAX):
        text = f"Key 'since' has to be a position as an endpoint gave it (1 to {POSITION_BYTES_MAX} bytes)"
        raise ProtocolError("bad_state", text)
    return command._replace(since=since)


def _unsubscribe(name: str, client: str, number: Id, value: dict[str, Any], payload_bytes_max: int) -> Command:
    command = _with_topics(name, client, number, value, payload_bytes_max)
    return command._replace(filter=canonical_filter(value["filter"])) if "filter" in value else command


def _term(value: dict[str, Any]) -> tuple[bool, int]:
    disconnect = "until" in value
    if disconnect and value["until"] != "disconnect":
        raise ProtocolError("bad_state", "Key 'until' has to be \"disconnect\"; omit it if the subscription stays")
    ttl_s = value.get("ttl_s", 0)
    if type(ttl_s) is not int or ("ttl_s" in value and not 1 <= ttl_s <= TTL_S_MAX):
        raise ProtocolError("bad_state", f"Key 'ttl_s' has to be an integer from 1 to {TTL_S_MAX} (in seconds)")
    return disconnect, ttl_s


def _topic(value: dict[str, Any]) -> str:
    topic = value.get("topic")
    if type(topic) is not str:
        if "topic" not in value:
            raise ProtocolError("bad_state", "Key 'topic' not specified")
        raise ProtocolError("bad_state", "Key 'topic' has to be a string")
    return check_topic(topic)


def _publish(name: str, client: str, number: Id, value: dict[str, Any], payload_bytes_max: int) -> Command:
    topic = _topic(value)
    timestamp = value.get("timestamp", 0)
    if type(timestamp) is not int and type(timestamp) is not float:
        raise ProtocolError("bad_state", "Key 'timestamp' has to be a number (milliseconds since the epoch)")
    payload = _payload(value, payload_bytes_max)
    ack, dedup = _flag(value, "ack", False), check_dedup(value.get("dedup", True))
    if len(value) == 4 + bool(timestamp) + ack + (dedup is not True) + (number is not None):
        return Command(name, client, number, (topic,), payload, ack, dedup)  # it has none of the keys below
    reply = _with_mid(ack, value) if "mid" in value else ack
    command = Command(name, client, number, (topic,), payload, reply, dedup)
    if "keep_s" in value:
        command = command._replace(keep_s=_keep_s(value))
    if "item" in value or "weight" in value:
        command = command._replace(about=_about(value))
    return command


def _with_mid(ack: bool, value: dict[str, Any]) -> int:
    """Return the reply that a publish or broadcast with key ``mid`` requests."""
    mid = _flag(value, "mid", False)
    if mid and not ack:
        raise ProtocolError("bad_state", "Key 'mid' needs key 'ack': the reply has the message's mid")
    return ACK_WITH_MID if mid else ack


def _about(value: dict[str, Any]) -> About:
    item = check_item(value["item"]) if "item" in value else None
    return About(item, check_weight(value.get("weight", 1)))


def _keep_s(value: dict[str, Any]) -> int:
    keep_s = value["keep_s"]
    if type(keep_s) is not int or not 1 <= keep_s <= KEEP_S_MAX:
        raise ProtocolError("bad_state", f"Key 'keep_s' has to be an integer from 1 to {KEEP_S_MAX} (in seconds)")
    return keep_s


def _broadcast(name: str, client: str, number: Id, value: dict[str, Any], payload_bytes_max: int) -> Command:
    payload = _payload(value, payload_bytes_max)
    ack: int = _flag(value, "ack", False)
    if "mid" in value:
        ack = _with_mid(bool(ack), value)
    return Command(name, client, number, (), payload, ack, check_dedup(value.get("dedup", True)))


_COMMANDS: Final = {
    "listen": _listen,
    "unlisten": _plain,
    "subscribe": _subscribe,
    "unsubscribe": _unsubscribe,
    "publish": _publish,
    "broadcast": _broadcast,
    "subscriptions": _page,
    "endpoints": _plain,
    "subscribers": _subscribers,
    "location": _plain,
    "revoke": _revoke,
    "history": _history,
    "bounds": _bounds,
    "credit": _credit,
}

_SUCCESS: Final = encode({"result": "success"})


def success(number: Id, **fields: Any) -> bytes:
    """Encode a success reply (listing 4.5) with the command's id, if any, and with these further fields."""
    if number is None and not fields:
        return _SUCCESS
    reply = {"result": "success", **fields}
    if number is not None:
        reply["id"] = number
    return encode(reply)


def failure(number: Id, error: ProtocolError, command: str | None = None) -> bytes:
    """Encode an error reply: listing 4.6.

    Args:
        number: the command's id, or ``None``.
        error: the error.
        command: the command's name, for a failed publish or broadcast.
    """
    reply: dict[str, Any] = {"error": error.code, "message": ERRORS[error.code].message, "info": error.info}
    reply.update(error.extra)
    if command is not None:
        reply["command"] = command
    if number is not None:
        reply["id"] = number
    return encode(reply)


def notification(topic: str, payload: bytes) -> bytes:
    """Encode a notification: listing 4.7.

    Args:
        topic: the notification's key. ``""`` means a broadcast, whose key is null.
        payload: canonical JSON, which goes into the notification unchanged.
    """
    return b'{"key":%b,"broadcast":%b}' % (encode(topic or None), payload)


def skipping(notification: bytes, skipped: int) -> bytes:
    """Return the notification with a field that says how many skipped messages it replaces."""
    return b'%b,"skipped":%d}' % (notification[:-1], skipped)


def named_notification(topic: str, payload: bytes, mid: str, kept: bool = False) -> bytes:
    """Encode a notification for a client that recovers.

    Args:
        topic: the notification's key. ``""`` means a broadcast, whose key is null.
        payload: canonical JSON, which goes into the notification unchanged.
        mid: the permanent name of the message.
        kept: whether it is a kept message.
    """
    end = b',"kept":true}' if kept else b"}"
    return b'{"key":%b,"broadcast":%b,"mid":%b%b' % (encode(topic or None), payload, encode(mid), end)


def mid_of(origin: str, number: int) -> str:
    """Return the permanent name of a message: its origin's incarnation, and a number that the origin assigned."""
    return f"{origin}.{number}"


def parse_mid(mid: str) -> tuple[str, int] | None:
    """Split a ``mid`` into incarnation and number. Returns ``None`` if the text is not a ``mid``."""
    origin, _, number = mid.rpartition(".")
    if not origin or not number.isascii() or not number.isdigit() or len(number) > MID_DIGITS_MAX:
        return None
    return origin, int(number)
