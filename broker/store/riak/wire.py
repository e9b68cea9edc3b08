"""Encodes and decodes the frames and messages of Riak's Protocol Buffers API.

Owns: the message codes, the framing, and the meaning of Riak's error texts. Must never: use a socket or a clock, or
know the purpose of the objects.

A frame is a 4-byte big-endian length (of code and body together), a 1-byte message code, and the protobuf body. A node
answers the requests of one connection one by one, in order. An error has a text and a code. The code is nearly always
0, so the driver has to interpret the text (``Refusal``).
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
START_TLS: Final = 255  # both the request and the answer

FRAME_BYTES_MAX: Final = 64 * 1024 * 1024
"""The longest valid answer. Riak itself refuses objects over 50 MB, and the driver's objects have a hundredth of
that."""

GREETING_BYTES_MAX: Final = 64 * 1024
"""The longest valid answer before authentication. Such an answer is empty, or has one line of text."""


class WireError(Exception):
    """The node sent bytes that do not follow the protocol. The connection can no longer be used."""


class Refusal(Exception):
    """A node answered with ``RpbErrorResp``: it understood the request, but refused it or failed to carry it out."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    @property
    def no_such_type(self) -> bool:
        """Return whether the bucket type does not exist in this cluster, or is not active."""
        return self.text == "no_type" or self.text.startswith("Invalid bucket type")

    @property
    def overload(self) -> bool:
        """Return whether the node, or a virtual node behind it, is overloaded."""
        return "overload" in self.text

    @property
    def copies_missing(self) -> bool:
        """Return whether the node reaches fewer primary copies of the key, or fewer machines, than the read
        requires."""
        return self.text.startswith(("{pr_val_unsatisfied,", "{insufficient_nodes,"))

    @property
    def plain_text(self) -> bool:
        """Return whether Riak's security is on, and the connection is not secured."""
        return self.text.startswith("Security is enabled")

    @property
    def not_granted(self) -> bool:
        """Return whether Riak's security is on, and the user lacks the permission."""
        return self.text.startswith("Permission denied")

    @property
    def permanent(self) -> bool:
        """Return whether other nodes and later attempts would refuse as well, because the cluster's configuration does
        not match."""
        return self.no_such_type or self.plain_text or self.not_granted or self.text.startswith("{n_val_violation,")


def frame(code: int, body: bytes = b"") -> bytes:
    """Return one request in wire format."""
    return HEADER.pack(1 + len(body), code) + body


def frame_length(header: bytes, bytes_max: int = FRAME_BYTES_MAX) -> tuple[int, int]:
    """Return ``(code, length of the body in bytes)`` from the first five bytes of a frame."""
    length, code = HEADER.unpack(header)
    if not 1 <= length <= bytes_max:
        raise WireError(f"a frame of {length} bytes")
    return code, length - 1


def error_text(code: int, body: bytes) -> str | None:
    """Return a node's error text; ``None`` if the answer is not an error."""
    if code != ERROR:
        return None
    try:
        return pb.RpbErrorResp.FromString(body).errmsg.decode("utf-8", "replace")
    except DecodeError as error:
        raise WireError("an error that does not decode") from error


def parse(kind: type[M], expected: int, code: int, body: bytes) -> M:
    """Return the answer as the expected message. Raise ``Refusal`` for an error, ``WireError`` for anything else."""
    text = error_text(code, body)
    if text is not None:
        raise Refusal(text)
    if code != expected:
        raise WireError(f"message code {code} instead of {expected}")
    try:
        return kind.FromString(body)
    except DecodeError as error:
        raise WireError(f"message code {code} with a body that does not decode") from error
