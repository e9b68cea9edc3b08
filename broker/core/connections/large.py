"""What a large frame says: read and checked whole, away from the event loop, in the same words as a small one.

Owns: ``read``, which a process of its own runs (``ingeborg.broker.shell.reader``), and the forms in which frame and
outcome travel. Must never: know a connection, or read a clock.

To read 16 MiB of JSON takes up to seconds, and nobody's message may be late for it. So the endpoint keeps nothing of a
large frame but its bytes; what comes back is a command whose long list of topics stays packed, in slices.
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
from ingeborg.protocol.messages import Command, check, reply_fields
from ingeborg.protocol.wire import decode, outside_strings

from .grants import Grant

#: Topics in one packed part of a long list: what is unpacked at once, some 0.1 ms.
TOPICS_PER_PART: Final = 1_000

#: Lists and objects in a large frame. Each takes some 60 to 240 bytes of memory where it stood in two or three; with as
#: many as fit into 16 MiB one frame would take half a gigabyte. A payload of 1 MiB that has more carries nothing else.
CONTAINERS_MAX: Final = 250_000

#: Commas between its values, for the same reason: a `subscribe` of 16 MiB has at most 1,500,000 topics of 8 bytes.
COMMAS_MAX: Final = 2_000_000


#: An id that is the last member of a frame, and the name of a publish that is its first. The end of a frame that is one
#: JSON object closes that object, so such an id is no other object's.
_SPACE: Final = rb"[ \t\r\n]*"
_ID_LAST: Final = re.compile(
    _SPACE.join((rb"[,{]", rb'"id"', rb":", rb'(-?[0-9]{1,20}|"[^"\\]*")', rb"\}", rb"\Z")),
)
_NAME_FIRST: Final = re.compile(_SPACE.join((b"", rb"\{", rb'"command"', rb":", rb'"(publish|broadcast)"')))
_END_BYTES: Final = 2_048  # of a frame, in which they are looked for

#: The only field of a command that is a tuple. Packed it becomes a list, on which compiled code would fail.
_TERM: Final = Command._fields.index("term")


class Topics:
    """A long list of topics, packed."""

    __slots__ = ("_count", "_parts", "size")

    def __init__(self, parts: list[bytes], count: int) -> None:
        self._parts = parts
        self._count = count
        self.size = sum(map(len, parts))  # in bytes

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[str]:
        for part in self.slices():
            yield from part

    def slices(self) -> Iterator[list[str]]:
        """Up to ``TOPICS_PER_PART`` of them at a time."""
        for part in self._parts:
            yield ormsgpack.unpackb(part)


class Outcome(NamedTuple):
    """What became of a large frame: ``command``, or the ``error`` that it is refused with, whose reply has ``id`` and
    ``name``, and which is counted under the command ``kind``. ``is_text``: it is UTF-8, as a text frame has to be."""

    command: Command | None = None
    error: ProtocolError | None = None
    id: Any = None
    name: str | None = None
    kind: Any = None
    is_text: bool = True


class Large:
    """A large frame from its coming until its command begins. ``len()``: its bytes, which are let go of when it has
    been read."""

    __slots__ = ("_size", "is_text", "number", "outcome", "pieces")

    def __init__(self, pieces: Sequence[bytes | bytearray], size: int, is_text: bool) -> None:
        self.pieces = pieces
        self.is_text = is_text
        self._size = size
        self.number: int | None = None  # of its ``Read``, once there is one
        self.outcome: Outcome | None = None

    def __len__(self) -> int:
        return self._size


def read(data: bytes, is_text: bool, payload_bytes_max: int, grant: Grant | None) -> Outcome:
    """What a frame says. ``is_text``: it came in a text frame. Never raises ``ProtocolError``: it is the outcome's."""
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
        error.__traceback__ = None  # it holds this call, and so the frame, until the collector comes
        if value is None:
            return Outcome(error=error)
        number, name = reply_fields(value)
        kind = value.get("command")
        return Outcome(error=error, id=number, name=name, kind=kind[:64] if isinstance(kind, str) else None)
    return Outcome(command)


def unread(pieces: Sequence[bytes | bytearray], error: ProtocolError) -> Outcome:
    """The outcome of a frame that nobody could read. Its reply has the id and the name where they stand at the ends of
    the frame, as the client libraries write them. To find them elsewhere takes reading all of it."""
    fields: dict[str, Any] = {}
    found = _ID_LAST.search(b"".join(bytes(piece[-_END_BYTES:]) for piece in pieces[-2:]))
    if found is not None:
        with suppress(ProtocolError):  # not UTF-8, or a number of no 64 bits
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
        raise ProtocolError("bad_json", f"Too many lists and objects: {CONTAINERS_MAX:,} are the most")
    if outside.count(b",") > COMMAS_MAX:
        raise ProtocolError("bad_json", f"Too many values: {COMMAS_MAX:,} commas between them are the most")


def _is_utf8(data: bytes) -> bool:
    """Piece by piece: decoded at once it would be up to four times as large."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for start in range(0, len(data), 1 << 20):
            decoder.decode(data[start : start + (1 << 20)])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def pack_arguments(is_text: bool, payload_bytes_max: int, grant: Grant | None) -> bytes:
    """The arguments of ``read`` for the process that runs it: all but the frame."""
    return pickle.dumps((is_text, payload_bytes_max, grant))


def read_packed(arguments: bytes, data: bytes) -> bytes:
    """``read``, between ``pack_arguments`` and ``unpack_outcome``. The arguments are the endpoint's own: trusted."""
    is_text, payload_bytes_max, grant = pickle.loads(arguments)
    try:
        outcome = read(data, is_text, payload_bytes_max, grant)
    except MemoryError:
        text = "To read this message takes more memory than there is; send it in parts"
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
    """What ``read_packed`` has packed."""
    fields, topics, said, number, name, kind, is_text = ormsgpack.unpackb(packed)
    command = error = None
    if fields is not None:
        if fields[_TERM] is not None:
            fields[_TERM] = tuple(fields[_TERM])
        command = Command(*fields)
        if topics is not None:
            command = command._replace(topics=cast(Any, Topics(*topics)))
    if said is not None:
        error = ProtocolError(said[0], said[1], **said[2])
    return Outcome(command, error, number, name, kind, is_text)
