"""Reading a large frame: read and checked whole, away from the event loop, with the same results as for a small one.

Owns: ``read``, which a process of its own runs (``ingeborg.broker.shell.reader``), and the forms in which frame and
outcome travel. Must never: know a connection, or read a clock.

Reading 16 MiB of JSON can take seconds, and must not delay anybody's message. So the endpoint keeps only the bytes of a
large frame. The reader returns a command whose long list of topics stays packed, in slices.
"""

from __future__ import annotations

import codecs
import pickle
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, cast

import ormsgpack

from ingeborg.protocol.errors import ProtocolError
from ingeborg.protocol.messages import About, Command, check, reply_fields
from ingeborg.protocol.wire import decode, outside_strings

from .grants import Grant

#: Topics in one packed part of a long list. Unpacking one part takes some 0.1 ms.
TOPICS_PER_PART: Final = 1_000

#: Lists and objects in a large frame. Each takes some 60 to 240 bytes of memory, instead of two or three in the frame;
#: as many as fit into 16 MiB would take half a gigabyte. A payload of 1 MiB with more would carry nothing else.
CONTAINERS_MAX: Final = 250_000

#: The limit on commas between values has the same reason: a `subscribe` of 16 MiB has at most 1,500,000 topics of 8
#: bytes.
COMMAS_MAX: Final = 2_000_000


#: The id if it is a frame's last member, and the name of a publish if it is the first. The end of a frame that is one
#: JSON object closes that object, so such an id belongs to no other object.
_SPACE: Final = rb"[ \t\r\n]*"
_ID_LAST: Final = re.compile(
    _SPACE.join((rb"[,{]", rb'"id"', rb":", rb'(-?[0-9]{1,20}|"[^"\\]*")', rb"\}", rb"\Z")),
)
_NAME_FIRST: Final = re.compile(_SPACE.join((b"", rb"\{", rb'"command"', rb":", rb'"(publish|broadcast)"')))
_END_BYTES: Final = 2_048  # bytes at the end of a frame in which to look for them

#: The fields of a command that are tuples. Packed they become lists, on which compiled code would fail.
_TERM: Final = Command._fields.index("term")
_ABOUT: Final = Command._fields.index("about")


class Topics:
    """A long list of topics, packed."""

    __slots__ = ("_count", "_parts", "size")

    def __init__(self, parts: list[bytes], count: int) -> None:
        self._parts = parts
        self._count = count
        self.size = sum(map(len, parts))  # bytes

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[str]:
        for part in self.slices():
            yield from part

    def slices(self) -> Iterator[list[str]]:
        """Yield the topics, up to ``TOPICS_PER_PART`` at a time."""
        for part in self._parts:
            yield ormsgpack.unpackb(part)


class Outcome(NamedTuple):
    """The outcome of a large frame: its ``command``, or the ``error`` that refuses it. The reply to the latter has
    ``id`` and ``name``; the metrics count it under the command ``kind``. ``is_text``: the frame is UTF-8, as a text
    frame must be."""

    command: Command | None = None
    error: ProtocolError | None = None
    id: Any = None
    name: str | None = None
    kind: Any = None
    is_text: bool = True


class Large:
    """A large frame from its arrival until its command begins. ``len()``: its bytes, which are dropped once it has been
    read."""

    __slots__ = ("_size", "is_text", "number", "outcome", "pieces")

    def __init__(self, pieces: Sequence[bytes | bytearray], size: int, is_text: bool) -> None:
        self.pieces = pieces
        self.is_text = is_text
        self._size = size
        self.number: int | None = None  # the number of its ``Read``, once there is one
        self.outcome: Outcome | None = None

    def __len__(self) -> int:
        return self._size


def read(data: bytes, is_text: bool, payload_bytes_max: int, grant: Grant | None) -> Outcome:
    """Read a frame. ``is_text``: it arrived in a text frame. Never raises ``ProtocolError``: the outcome holds it."""
    if is_text and not data.isascii() and not _is_utf8(data):
        return Outcome(is_text=False)
    value: dict[str, Any] | None = None
    try:
        _require_few_values(data)
    except ProtocolError as error:
        return unread([data], error)
    try:
        value = decode(data)
        command = check(value, payload_bytes_max)
        if grant is not None:
            grant.check(command)
    except ProtocolError as error:
        error.__traceback__ = None  # it would keep this call, and with it the frame, alive until the collector runs
        if value is None:
            return Outcome(error=error)
        number, name = reply_fields(value)
        kind = value.get("command")
        return Outcome(error=error, id=number, name=name, kind=kind[:64] if isinstance(kind, str) else None)
    return Outcome(command)


def unread(pieces: Sequence[bytes | bytearray], error: ProtocolError) -> Outcome:
    """Return the outcome of a frame that could not be read. Its reply contains the id and the name if these are at the
    ends of the frame, where the client libraries write them. Finding them elsewhere would need a read of the whole
    frame."""
    fields: dict[str, Any] = {}
    found = _ID_LAST.search(b"".join(bytes(piece[-_END_BYTES:]) for piece in pieces[-2:]))
    if found is not None:
        with suppress(ProtocolError):  # not UTF-8, or a number beyond 64 bits
            fields["id"] = decode(b'{"id":%b}' % found[1])["id"]
    named = _NAME_FIRST.match(bytes(pieces[0][:_END_BYTES]))
    if named is not None:
        fields["command"] = named[1].decode()
    number, name = reply_fields(fields)
    return Outcome(error=error, id=number, name=name, kind=name)


def _require_few_values(data: bytes) -> None:
    if data.count(b"[") + data.count(b"{") <= CONTAINERS_MAX and data.count(b",") <= COMMAS_MAX:
        return
    outside = outside_strings(data)
    if outside.count(b"[") + outside.count(b"{") > CONTAINERS_MAX:
        raise ProtocolError("bad_json", f"Too many lists and objects: at most {CONTAINERS_MAX:,} are allowed")
    if outside.count(b",") > COMMAS_MAX:
        raise ProtocolError("bad_json", f"Too many values: at most {COMMAS_MAX:,} commas between them are allowed")


def _is_utf8(data: bytes) -> bool:
    """Decodes piece by piece: the whole text at once would take up to four times the memory."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for start in range(0, len(data), 1 << 20):
            decoder.decode(data[start : start + (1 << 20)])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def pack_arguments(is_text: bool, payload_bytes_max: int, grant: Grant | None) -> bytes:
    """Pack the arguments of ``read``, except the frame, for the process that runs it."""
    return pickle.dumps((is_text, payload_bytes_max, grant))


def read_packed(arguments: bytes, data: bytes) -> bytes:
    """Run ``read`` between ``pack_arguments`` and ``unpack_outcome``. The arguments are the endpoint's own, so they are
    trusted."""
    is_text, payload_bytes_max, grant = pickle.loads(arguments)
    try:
        outcome = read(data, is_text, payload_bytes_max, grant)
    except MemoryError:
        text = "This endpoint has too little memory to read this message; send it in parts"
        outcome = Outcome(error=ProtocolError("too_large", text))
    command, error = outcome.command, outcome.error
    topics: Any = None
    fields: Any = None
    if command is not None:
        names = command.topics
        if len(names) > TOPICS_PER_PART:
            starts = range(0, len(names), TOPICS_PER_PART)
            topics = [ormsgpack.packb(names[start : start + TOPICS_PER_PART]) for start in starts], len(names)
            command = command._replace(topics=())
        fields = list(command)
    said = None if error is None else (error.code, error.info, error.extra)
    return ormsgpack.packb((fields, topics, said, outcome.id, outcome.name, outcome.kind, outcome.is_text))


def unpack_outcome(packed: bytes | memoryview) -> Outcome:
    """Unpack the result of ``read_packed``."""
    fields, topics, said, number, name, kind, is_text = ormsgpack.unpackb(packed)
    command = error = None
    if fields is not None:
        if fields[_TERM] is not None:
            fields[_TERM] = tuple(fields[_TERM])
        if fields[_ABOUT] is not None:
            fields[_ABOUT] = About(*fields[_ABOUT])
        command = Command(*fields)
        if topics is not None:
            command = command._replace(topics=cast(Any, Topics(*topics)))
    if said is not None:
        error = ProtocolError(said[0], said[1], **said[2])
    return Outcome(command, error, number, name, kind, is_text)
