"""The messages between members, monitor and controller.

Owns: the messages, their JSON, and their validation. Must never: send a message, or act on one.

The comments call Landau et al., arXiv 2402.06085, "the paper"; its sections V-A to V-C describe such a group. A *queue*
has one reader at a time. On Kafka, a queue is a partition. A *member* is a consumer of the group. It has a unique name,
and a number that the controller assigns. An *epoch* is a number that identifies one ownership of a queue. A *term* is a
number that identifies one controller. New epochs and terms are always greater than earlier ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import orjson

#: Maximum length of a member's name. A pod's name in Kubernetes has up to 253 characters.
NAME_CHARS_MAX = 253
#: Maximum number of queues in one received message, and in one sent message. The limit for sent messages leaves room
#: for topic names of 249 characters. Longer lists are split over several messages.
QUEUES_MAX, QUEUES_SENT = 10_000, 3_000
#: Maximum size of a message in bytes. Kafka accepts 1 MiB.
MESSAGE_BYTES_MAX = 1_000_000
#: Number of epochs in one term. A controller that has used them all begins another term. A term follows from an offset
#: in the controller's partition. Even if a thousand members send messages, this number keeps epochs below
#: ``NUMBER_MAX`` for decades.
EPOCHS_PER_TERM = 10_000
#: JSON numbers are exact up to this value.
NUMBER_MAX = 2**53 - 1


class MessageError(ValueError):
    """The bytes are not a valid message. The error message says why."""


class Queue(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


class Held(NamedTuple):
    """A queue that a member owns. ``next``: the offset after the last record that the member passed to the sink, or -1
    if the member has not begun. ``bytes_per_s``: the member's recent reading rate. ``problem``: the reason why the
    member does not read the queue, or ``""``."""

    queue: Queue
    epoch: int
    next: int
    bytes_per_s: float
    problem: str


# From members


class Hello(NamedTuple):
    """Announces a member that has no number yet. ``nonce``: identifies this run of the program. ``capacity``: the bytes
    per second that the member can take, or 0 for the value in the settings file. ``sink``: a fingerprint of the
    member's sink, or ``""`` if the member does not report one."""

    name: str
    nonce: str
    capacity: float
    sink: str = ""


class Beat(NamedTuple):
    """Reports that the member is alive and owns these queues. ``term``: the term of the newest controller that the
    member knows. A long report is split over several messages. This message is number ``part`` of ``parts``, counted
    from 0. ``sink``: as in ``Hello``."""

    name: str
    nonce: str
    number: int
    term: int
    part: int
    parts: int
    capacity: float
    held: tuple[Held, ...]
    sink: str = ""


class Started(NamedTuple):
    """Reports that the member now owns these queues, and that the sink has accepted the epoch. ``number``: the member's
    number, or 0 if the member has lost it. ``number`` has the same meaning in ``Stopped`` and ``Refused``."""

    name: str
    number: int
    term: int
    epoch: int
    queues: tuple[Queue, ...]


class Stopped(NamedTuple):
    """Reports that the member has released these queues, and that no call to the sink for these queues is still
    running. The member drops records that it has read but that are not in the sink. The next owner reads these records
    again."""

    name: str
    number: int
    term: int
    queues: tuple[Queue, ...]


class Refused(NamedTuple):
    """Reports that the sink refuses the member's epoch for these queues, because it knows an owner with the epoch
    ``newer``. The member has released the queues."""

    name: str
    number: int
    term: int
    epoch: int
    newer: int
    queues: tuple[Queue, ...]


class Bye(NamedTuple):
    """Reports that the member is ending and owns no queues."""

    name: str
    nonce: str
    number: int


# From the controller


class Reign(NamedTuple):
    """Reports that a controller has begun. In the controller's own partition, ``term`` is 0, because the term follows
    from the offset of this message. In messages to members, ``term`` is the controller's term."""

    controller: str
    term: int


class Welcome(NamedTuple):
    """Gives the member this number."""

    name: str
    nonce: str
    number: int
    term: int


class Start(NamedTuple):
    """Orders the member to read these queues from now on. ``nonce``: identifies the run of the program that the order
    is for. If it is ``""``, the order is for any program with this name."""

    name: str
    term: int
    epoch: int
    queues: tuple[Queue, ...]
    nonce: str = ""


class Stop(NamedTuple):
    """Orders the member to release these queues after the sink has acknowledged everything that the member sent.
    ``nonce``: as in ``Start``."""

    name: str
    term: int
    queues: tuple[Queue, ...]
    nonce: str = ""


# From the monitor


class Flow(NamedTuple):
    """The measured load of a queue. ``bytes_per_s``: the recent rate of writes. ``stock``: the bytes that the group has
    not read yet."""

    queue: Queue
    bytes_per_s: float
    stock: float


class Speeds(NamedTuple):
    """A measurement of all queues. ``monitor``: identifies this run of the monitor. ``serial``: the measurement's
    number within this run. ``missing``: topics that do not exist. A long measurement is split over several messages.
    This message is number ``part`` of ``parts``, counted from 0. ``topics``: a fingerprint of all monitored topics,
    including missing ones, or ``""`` if the monitor does not report one."""

    monitor: str
    serial: int
    part: int
    parts: int
    window_s: float
    flows: tuple[Flow, ...]
    missing: tuple[str, ...]
    topics: str = ""


Message = Hello | Beat | Started | Stopped | Refused | Bye | Reign | Welcome | Start | Stop | Speeds


def encode(message: Message) -> bytes:
    """Encode a message as one line of JSON: an object with the message's kind and its named fields. A queue is encoded
    as ``[topic, partition]``."""
    return orjson.dumps({"kind": type(message).__name__.lower(), **message._asdict()}, default=tuple)


def decode(data: bytes | None) -> Message:
    """Decode a message, and ignore unknown fields. Raises ``MessageError`` if the data is not a valid message."""
    try:
        found = orjson.loads(data or b"")
    except orjson.JSONDecodeError as error:
        raise MessageError(f"not JSON: {error}") from error
    if not isinstance(found, dict):
        raise MessageError("not a JSON object")
    kind = found.get("kind")
    reader = _READERS.get(kind) if isinstance(kind, str) else None
    if reader is None:
        raise MessageError(f"kind is {kind!r}, which this version does not know")
    return reader(found)


T = TypeVar("T")


def _whole(found: Mapping[str, Any], key: str, least: int = 0) -> int:
    value = found.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= NUMBER_MAX:
        raise MessageError(f"{key} is not a whole number of at least {least}")
    return value


def _number(found: Mapping[str, Any], key: str) -> float:
    value = found.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise MessageError(f"{key} is not a number of at least 0")
    return float(value)


def _text(found: Mapping[str, Any], key: str, most: int = NAME_CHARS_MAX, least: int = 1) -> str:
    value = found.get(key)
    if not isinstance(value, str) or not least <= len(value) <= most:
        raise MessageError(f"{key} is not a string of {least} to {most} characters")
    return value


def _all(found: Mapping[str, Any], key: str, reader: Callable[[Any], T]) -> tuple[T, ...]:
    value = found.get(key)
    if not isinstance(value, list) or len(value) > QUEUES_MAX:
        raise MessageError(f"{key} is not a list of at most {QUEUES_MAX:,} entries")
    return tuple(reader(each) for each in value)


def _queue(value: Any) -> Queue:
    match value:
        case [str(topic), int(partition)] if topic and not isinstance(partition, bool) and 0 <= partition <= NUMBER_MAX:
            return Queue(topic, partition)
    raise MessageError("a queue must be [topic, partition]")


def _held(value: Any) -> Held:
    if not isinstance(value, list) or len(value) != len(Held._fields):
        raise MessageError(f"a held queue must be [{', '.join(Held._fields)}]")
    found = dict(zip(Held._fields, value, strict=True))
    return Held(
        _queue(found["queue"]),
        _whole(found, "epoch"),
        _whole(found, "next", -1),
        _number(found, "bytes_per_s"),
        _text(found, "problem", 1_000, 0),
    )


def _flow(value: Any) -> Flow:
    if not isinstance(value, list) or len(value) != len(Flow._fields):
        raise MessageError(f"a flow must be [{', '.join(Flow._fields)}]")
    found = dict(zip(Flow._fields, value, strict=True))
    return Flow(_queue(found["queue"]), _number(found, "bytes_per_s"), _number(found, "stock"))


def _topic(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise MessageError("a topic must be a string")
    return value


def _part(found: Mapping[str, Any]) -> tuple[int, int]:
    part, parts = _whole(found, "part"), _whole(found, "parts", 1)
    if part >= parts:
        raise MessageError(f"part is {part}, but parts is only {parts}")
    return part, parts


def _fingerprint(found: Mapping[str, Any], key: str) -> str:
    return _text(found, key, least=0) if key in found else ""  # earlier versions do not send it


def _hello(found: Mapping[str, Any]) -> Hello:
    return Hello(_text(found, "name"), _text(found, "nonce"), _number(found, "capacity"), _fingerprint(found, "sink"))


def _beat(found: Mapping[str, Any]) -> Beat:
    part, parts = _part(found)
    return Beat(
        *(_text(found, "name"), _text(found, "nonce"), _whole(found, "number", 1), _whole(found, "term")),
        *(part, parts, _number(found, "capacity")),
        held=_all(found, "held", _held),
        sink=_fingerprint(found, "sink"),
    )


def _started(found: Mapping[str, Any]) -> Started:
    return Started(
        *(_text(found, "name"), _whole(found, "number"), _whole(found, "term"), _whole(found, "epoch")),
        _all(found, "queues", _queue),
    )


def _stopped(found: Mapping[str, Any]) -> Stopped:
    return Stopped(
        *(_text(found, "name"), _whole(found, "number"), _whole(found, "term")), _all(found, "queues", _queue)
    )


def _refused(found: Mapping[str, Any]) -> Refused:
    return Refused(
        *(_text(found, "name"), _whole(found, "number"), _whole(found, "term"), _whole(found, "epoch")),
        *(_whole(found, "newer"), _all(found, "queues", _queue)),
    )


def _bye(found: Mapping[str, Any]) -> Bye:
    return Bye(_text(found, "name"), _text(found, "nonce"), _whole(found, "number"))


def _reign(found: Mapping[str, Any]) -> Reign:
    return Reign(_text(found, "controller"), _whole(found, "term"))


def _welcome(found: Mapping[str, Any]) -> Welcome:
    return Welcome(_text(found, "name"), _text(found, "nonce"), _whole(found, "number", 1), _whole(found, "term"))


def _start(found: Mapping[str, Any]) -> Start:
    return Start(
        *(_text(found, "name"), _whole(found, "term"), _whole(found, "epoch"), _all(found, "queues", _queue)),
        nonce=_fingerprint(found, "nonce"),
    )


def _stop(found: Mapping[str, Any]) -> Stop:
    return Stop(
        *(_text(found, "name"), _whole(found, "term"), _all(found, "queues", _queue)),
        nonce=_fingerprint(found, "nonce"),
    )


def _speeds(found: Mapping[str, Any]) -> Speeds:
    part, parts = _part(found)
    return Speeds(
        *(_text(found, "monitor"), _whole(found, "serial"), part, parts, _number(found, "window_s")),
        *(_all(found, "flows", _flow), _all(found, "missing", _topic), _fingerprint(found, "topics")),
    )


_READERS: Mapping[Any, Callable[[Mapping[str, Any]], Message]] = {
    "hello": _hello,
    "beat": _beat,
    "started": _started,
    "stopped": _stopped,
    "refused": _refused,
    "bye": _bye,
    "reign": _reign,
    "welcome": _welcome,
    "start": _start,
    "stop": _stop,
    "speeds": _speeds,
}
