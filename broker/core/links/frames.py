"""The frames of a link as records, from bytes and to bytes. All that comes over a link is checked here, in one pass.

Owns: the form of a frame, and what becomes of an item without the form of one. Must never: raise anything but
``ValueError``, whatever comes, or keep anything.

A peer has the secret, and its link the same version of the protocol. Whatever else it sends is a fault of its own, and
must not become one of ours half-way through a change. Compiled code would notice a wrong type only where it is used.

mypyc compiles no ``msgspec`` record, so this module is not compiled (``ingeborg.form``).
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Generic, TypeVar

from msgspec import Meta, Raw, Struct
from msgspec.msgpack import Decoder, Encoder

from .requests import REFUSAL, AnyRequest, Request

Value = TypeVar("Value")


class Answer(Struct, Generic[Value], array_like=True, gc=False, tag=0):
    """An answer. ``code`` "": ``value`` is the request's answer. Else it is why the peer refuses the request."""

    code: str
    value: Value


Number = Annotated[int, Meta(ge=1)]
"""Of a request, chosen by the endpoint that asks."""

Sent = tuple[int, Request | Answer[Any]]
"""An item as it is sent: a request with its number, or the answer to the request of the peer's with that number."""

Received = tuple[Number, Answer[Raw] | AnyRequest | None]
"""An item as it comes. The value of an answer is not decoded yet, for its form depends on the request. ``None``: this
was to be a request, and is none."""


class Open(Struct, array_like=True, tag="open"):
    """First on every connection."""

    mine: str  # the sender's session
    yours: str | None  # the session that the sender knows the receiver by
    last: int  # number of the last batch that the sender has processed


class Batch(Struct, array_like=True, tag="batch"):
    """Items. ``items`` ``None``: they are no items at all."""

    number: int
    last: int
    items: list[Received] | None


class Done(Struct, array_like=True, tag="done"):
    """A confirmation with nothing to send along."""

    last: int


class Ping(Struct, array_like=True, tag="ping"):
    """A sign of life."""

    sent: float  # by the sender's clock
    echo: float | None  # the latest ``sent`` that the sender has had from the receiver
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

#: What a decoder raises. ``RecursionError``: a thousand lists within one another.
_UNSOUND: Final = (ValueError, RecursionError)

encoded = _ENCODER.encode
encode_into = _ENCODER.encode_into


def decoded(data: bytes) -> Frame:
    """The frame. Raises ``ValueError``: it is none. A batch is one, whatever its items are."""
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
    """One of them, at least, has not the form of an item; the others are what they are."""
    try:
        return [_received(item) for item in _ITEMS.decode(items)]
    except _UNSOUND:
        return None


def _received(item: Raw) -> Received:
    """Raises what a decoder raises: it has not even a number."""
    try:
        return _ITEM.decode(item)
    except _UNSOUND:
        number, said = _NUMBERED.decode(item)
    try:
        is_answer = _HEAD.decode(said).tag == 0
    except _UNSOUND:
        is_answer = False
    return number, Answer("", Raw(_NO_VALUE)) if is_answer else None


#: MessagePack's one code that begins nothing: no answer has this value.
_NO_VALUE: Final = b"\xc1"


def value_of(request: Request, answer: Answer[Raw]) -> tuple[str, Any]:
    """Code and value of what answers the request. Raises ``ValueError``: it is no answer to it."""
    try:
        return answer.code, (REFUSAL if answer.code else request.answer).decode(answer.value)
    except _UNSOUND as error:
        raise ValueError(str(error)) from None
