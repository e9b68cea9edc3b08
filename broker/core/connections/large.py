"""Reads and checks a large frame outside the event loop, with the same results as for a small frame.

Owns: ``read``, which runs in a separate process (``ingeborg.broker.shell.reader``), and the forms in which the frame
and its outcome go from one process to another. Must never: know about connections, or read a clock.

Parsing 16 MiB of JSON can take seconds, and must not delay other messages. So the endpoint's own process keeps only the
bytes of a large frame. The reader process parses the frame and returns the command. A long list of topics stays packed,
and is unpacked in slices.
"""

from __future__ import annotations

import codecs
import pickle
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final, cast

import ormsgpack

from ingeborg.protocol.errors import ProtocolError
from ingeborg.protocol.messages import About, Command, Flow, RevokedTokens, check, reply_fields
from ingeborg.protocol.wire import NO_OBJECT, decode, outside_strings

from .grants import Grant

#: Number of topics in one packed part of a long list. Unpacking one part takes about 0.1 ms.
TOPICS_PER_PART: Final = 1_000

#: Maximum number of lists and objects in a large frame. Each list or object takes 60 to 240 bytes of memory, but only
#: two or three bytes of the frame. If a frame of 16 MiB were full of lists and objects, they would take half a
#: gigabyte. A payload of 1 MiB reaches the limit only if it consists almost entirely of lists and objects.
CONTAINERS_MAX: Final = 250_000

#: Maximum number of commas between values, for the same reason. A `subscribe` of 16 MiB needs fewer commas, since it
#: has at most 1,500,000 topics of 8 bytes.
COMMAS_MAX: Final = 2_000_000


#: Patterns that find the id if it is a frame's last member, and the command's name (`publish` or `broadcast`) if it is
#: the first member. A frame is one JSON object, which the last brace of the frame closes. So an id right before that
#: brace belongs to the frame, and not to an inner object.
_SPACE: Final = rb"[ \t\r\n]*"
_ID_LAST: Final = re.compile(
    _SPACE.join((rb"[,{]", rb'"id"', rb":", rb'(-?[0-9]{1,20}|"[^"\\]*")', rb"\}", rb"\Z")),
)
_NAME_FIRST: Final = re.compile(_SPACE.join((b"", rb"\{", rb'"command"', rb":", rb'"(publish|broadcast)"')))
_END_BYTES: Final = 2_048  # bytes at the beginning and the end of a frame to search

#: The fields of a command that are tuples, with the functions that make them from their packed values. Packing turns
#: tuples into lists, which compiled code would not accept.
_RECORDS: Final[dict[int, Callable[[Any], Any]]] = {
    Command._fields.index("term"): tuple,
    Command._fields.index("about"): About._make,
    Command._fields.index("flow"): Flow._make,
    Command._fields.index("revoked"): RevokedTokens._make,
}


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


class Outcome:
    """The outcome of a large frame: its ``command``, or the ``error`` with which the endpoint refuses it. The error
    reply has ``id`` and ``name``, and the metrics count the refusal under the command ``kind``. ``is_text``: whether
    the frame is UTF-8, as a text frame must be."""

    __slots__ = ("command", "error", "id", "is_text", "kind", "name")

    def __init__(
        self,
        command: Command | None = None,
        error: ProtocolError | None = None,
        id: Any = None,
        name: str | None = None,
        kind: Any = None,
        is_text: bool = True,
    ) -> None:
        self.command = command
        self.error = error
        self.id = id
        self.name = name
        self.kind = kind
        self.is_text = is_text


class Large:
    """A large frame from its arrival until its command begins, or a frame that the shell has decoded (``decoded``).
    ``len()``: the number of its bytes, even after these have been dropped because the frame has been read."""

    __slots__ = ("_size", "is_text", "number", "outcome", "pieces")

    def __init__(self, pieces: Sequence[bytes | bytearray], size: int, is_text: bool) -> None:
        self.pieces = pieces
        self.is_text = is_text
        self._size = size
        self.number: int | None = None  # the number of its ``Read``; None before that
        self.outcome: Outcome | None = None

    def __len__(self) -> int:
        return self._size


def read(data: bytes, is_text: bool, payload_bytes_max: int, grant: Grant | None) -> Outcome:
    """Read a frame. ``is_text``: whether it arrived in a text frame. This never raises ``ProtocolError``, because the
    outcome contains the error."""
    if is_text and not data.isascii() and not _is_utf8(data):
        return Outcome(is_text=False)
    try:
        _require_few_values(data)
    except ProtocolError as error:
        return unread([data], error)
    try:
        value = decode(data)
    except ProtocolError as error:
        error.__traceback__ = None  # it would keep the frame in memory until the garbage collector runs
        return Outcome(error=error)
    return _outcome(value, payload_bytes_max, grant)


def decoded(value: Any, size: int, payload_bytes_max: int, grant: Grant | None) -> Large:
    """Return the frame of a command that the shell has already decoded, because one JSON text had several commands.

    Args:
        value: the decoded command.
        size: the command's share of the text, in bytes.
        payload_bytes_max: maximum number of bytes of a canonical payload.
        grant: the client's rights. ``None`` if it has all rights.

    Returns:
        A frame that the core does not have to read. The core refuses it if the command is bad.
    """
    frame = Large((), size, False)
    if isinstance(value, dict):
        frame.outcome = _outcome(value, payload_bytes_max, grant)
    else:
        frame.outcome = Outcome(error=ProtocolError("bad_json", NO_OBJECT))
    return frame


def _outcome(value: dict[str, Any], payload_bytes_max: int, grant: Grant | None) -> Outcome:
    try:
        command = check(value, payload_bytes_max)
        if grant is not None:
            grant.check(command)
    except ProtocolError as error:
        error.__traceback__ = None  # as in `read`
        number, name = reply_fields(value)
        kind = value.get("command")
        return Outcome(error=error, id=number, name=name, kind=kind[:64] if isinstance(kind, str) else None)
    return Outcome(command)


def unread(pieces: Sequence[bytes | bytearray], error: ProtocolError) -> Outcome:
    """Return the outcome of a frame that could not be read. Its reply contains the id and the name if these are at the
    ends of the frame, where the client libraries write them. To find them elsewhere, the whole frame would have to be
    read."""
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
    """Return whether the data is UTF-8. Decode it piece by piece, because decoding the whole text in one step would
    take up to four times the memory."""
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
    """Run ``read`` with the arguments that ``pack_arguments`` packed, and pack the outcome for ``unpack_outcome``. The
    arguments come from the endpoint itself, so they are trusted."""
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
        fields = [tuple(field) if isinstance(field, tuple) else field for field in command]
    said = None if error is None else (error.code, error.info, error.extra)
    return ormsgpack.packb((fields, topics, said, outcome.id, outcome.name, outcome.kind, outcome.is_text))


def unpack_outcome(packed: bytes | memoryview) -> Outcome:
    """Unpack the result of ``read_packed``."""
    fields, topics, said, number, name, kind, is_text = ormsgpack.unpackb(packed)
    command = error = None
    if fields is not None:
        for index, make in _RECORDS.items():
            if fields[index] is not None:
                fields[index] = make(fields[index])
        command = Command(*fields)
        if topics is not None:
            command = command._replace(topics=cast(Any, Topics(*topics)))
    if said is not None:
        error = ProtocolError(said[0], said[1], **said[2])
    return Outcome(command, error, number, name, kind, is_text)
