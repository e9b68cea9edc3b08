"""Decodes and encodes the frames of a link. It checks everything that arrives over a link, in one pass.

Owns: the form of a frame, and the handling of malformed items. Must never: raise anything but ``ValueError``, or keep
anything.

A peer has the secret, and its link the same version of the protocol. A malformed frame is the peer's fault, and must
not become a fault of ours half-way through a change. Compiled code would notice a wrong type only on use.

mypyc compiles no ``msgspec`` record, so this module is not compiled (``ingeborg.form``).
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Generic, TypeVar

from msgspec import Meta, Raw, Struct
from msgspec.msgpack import Decoder, Encoder

from .requests import REFUSAL, AnyRequest, Request

Value = TypeVar("Value")


class Answer(Struct, Generic[Value], array_like=True, gc=False, tag=0):
    """An answer. With ``code`` "", ``value`` is the request's answer. Otherwise it is the reason for a refusal."""

    code: str
    value: Value


Number = Annotated[int, Meta(ge=1)]
"""A request's number, chosen by the endpoint that asks."""

Sent = tuple[int, Request | Answer[Any]]
"""An outgoing item: a request with its number, or the answer to the peer's request with that number."""

Received = tuple[Number, Answer[Raw] | AnyRequest | None]
"""An incoming item. The value of an answer is not decoded yet, because its form depends on the request. ``None``: a
malformed request."""


class Open(Struct, array_like=True, tag="open"):
    """The first frame on every connection."""

    mine: str  # the sender's session
    yours: str | None  # the receiver's session, as the sender knows it
    last: int  # number of the last batch that the sender processed


class Batch(Struct, array_like=True, tag="batch"):
    """A batch of items. ``items`` ``None``: the batch is malformed."""

    number: int
    last: int
    items: list[Received] | None


class Done(Struct, array_like=True, tag="done"):
    """A bare confirmation."""

    last: int


class Ping(Struct, array_like=True, tag="ping"):
    """A sign of life."""

    sent: float  # by the sender's clock
    echo: float | None  # the latest ``sent`` from the receiver
    last: int


Frame = Open | Batch | Done | Ping


class _Loose(Struct, array_like=True, tag="batch"):
    number: int
    last: int
    items: Raw


class _Head(Struct, array_like=True):
    tag: int


_ENCODER: Final = Encoder()
_FRAME: Final[Decoder[Frame]] = Decoder(Frame)
_LOOSE: Final = Decoder(_Loose)
_ITEMS: Final = Decoder(list[Raw])
_ITEM: Final[Decoder[Received]] = Decoder(Received)
_NUMBERED: Final = Decoder(tuple[Number, Raw])
_HEAD: Final = Decoder(_Head)

#: A decoder's exceptions. ``RecursionError``: a thousand nested lists.
_UNSOUND: Final = (ValueError, RecursionError)

encoded = _ENCODER.encode
encode_into = _ENCODER.encode_into


def decoded(data: bytes) -> Frame:
    """Decode a frame. Raise ``ValueError`` if it is malformed. A batch with malformed items is still a frame."""
    try:
        return _FRAME.decode(data)
    except _UNSOUND:
        pass
    try:
        loose = _LOOSE.decode(data)
    except _UNSOUND as error:
        raise ValueError(str(error)) from None
    return Batch(loose.number, loose.last, _one_by_one(loose.items))


def _one_by_one(items: Raw) -> list[Received] | None:
    """Decode items of which at least one is malformed, and keep the others."""
    try:
        return [_received(item) for item in _ITEMS.decode(items)]
    except _UNSOUND:
        return None


def _received(item: Raw) -> Received:
    """Decode one item. Raise a decoder's exceptions if it has not even a number."""
    try:
        return _ITEM.decode(item)
    except _UNSOUND:
        number, said = _NUMBERED.decode(item)
    try:
        is_answer = _HEAD.decode(said).tag == 0
    except _UNSOUND:
        is_answer = False
    return number, Answer("", Raw(_NO_VALUE)) if is_answer else None


#: MessagePack's one unused code: no answer has this value.
_NO_VALUE: Final = b"\xc1"


def value_of(request: Request, answer: Answer[Raw]) -> tuple[str, Any]:
    """Return the code and value of an answer to this request. Raise ``ValueError`` if the answer does not fit it."""
    try:
        return answer.code, (REFUSAL if answer.code else request.answer).decode(answer.value)
    except _UNSOUND as error:
        raise ValueError(str(error)) from None
