"""Frames and messages of Riak's Protocol Buffers API: bytes in, bytes out.

Owns: the message codes, the framing, and what an error text of Riak's means to the driver. Must never: touch a socket
or a clock, or know what the objects are for.

A frame is a 4-byte big-endian length (of code and body), one byte message code, and the protobuf body. A node answers
the requests of one connection one by one, in order. Its errors are one text each; the code beside it is nearly always
0, so the text is what has to be read (``Refusal``).
"""

from __future__ import annotations

import struct
from typing import Final, TypeVar

from google.protobuf.message import DecodeError, Message

from . import riak_pb2 as pb

M = TypeVar("M", bound=Message)

HEADER: Final = struct.Struct(">IB")

ERROR: Final = 0
SERVER_INFO_REQUEST: Final = 7
SERVER_INFO_ANSWER: Final = 8
GET_REQUEST: Final = 9
GET_ANSWER: Final = 10
PUT_REQUEST: Final = 11
PUT_ANSWER: Final = 12
BUCKET_PROPS_ANSWER: Final = 20
TYPE_PROPS_REQUEST: Final = 31
AUTH_REQUEST: Final = 253
AUTH_ANSWER: Final = 254
START_TLS: Final = 255  # of the request and of its answer

FRAME_BYTES_MAX: Final = 64 * 1024 * 1024
"""An answer over this is no answer: Riak itself refuses objects over 50 MB, and ours are a hundredth of that."""

GREETING_BYTES_MAX: Final = 64 * 1024
"""Of an answer to who is not known yet: nothing, or a line of text."""


class WireError(Exception):
    """What arrived is not the protocol. The connection it arrived on is of no use any more."""


class Refusal(Exception):
    """A node's ``RpbErrorResp``: it understood the request and will not, or cannot, do it."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    @property
    def no_such_type(self) -> bool:
        """The bucket type does not exist here, or is not active."""
        return self.text == "no_type" or self.text.startswith("Invalid bucket type")

    @property
    def overload(self) -> bool:
        """The node, or a virtual node behind it, has too much to do."""
        return "overload" in self.text

    @property
    def copies_missing(self) -> bool:
        """The node reaches fewer of the key's own copies, or on fewer machines, than the read has to come from."""
        return self.text.startswith(("{pr_val_unsatisfied,", "{insufficient_nodes,"))

    @property
    def plain_text(self) -> bool:
        """Riak's security is on, and the connection is not secured."""
        return self.text.startswith("Security is enabled")

    @property
    def not_granted(self) -> bool:
        """Riak's security is on, and the user may not do this."""
        return self.text.startswith("Permission denied")

    @property
    def permanent(self) -> bool:
        """No other node and no later attempt will say otherwise: the cluster is set up differently from the request."""
        return self.no_such_type or self.plain_text or self.not_granted or self.text.startswith("{n_val_violation,")


def frame(code: int, body: bytes = b"") -> bytes:
    """One request as it goes on the wire."""
    return HEADER.pack(1 + len(body), code) + body


def frame_length(header: bytes, bytes_max: int = FRAME_BYTES_MAX) -> tuple[int, int]:
    """``(code, length of the body in bytes)`` of the five bytes a frame starts with."""
    length, code = HEADER.unpack(header)
    if not 1 <= length <= bytes_max:
        raise WireError(f"a frame of {length} bytes")
    return code, length - 1


def error_text(code: int, body: bytes) -> str | None:
    """What a node says against it; ``None`` where the answer is no error."""
    if code != ERROR:
        return None
    try:
        return pb.RpbErrorResp.FromString(body).errmsg.decode("utf-8", "replace")
    except DecodeError as error:
        raise WireError("an error that does not decode") from error


def parse(kind: type[M], expected: int, code: int, body: bytes) -> M:
    """The answer as the message it must be; ``Refusal`` where it is an error, ``WireError`` for anything else."""
    text = error_text(code, body)
    if text is not None:
        raise Refusal(text)
    if code != expected:
        raise WireError(f"message code {code} where {expected} was due")
    try:
        return kind.FromString(body)
    except DecodeError as error:
        raise WireError(f"message code {code} with a body that does not decode") from error
