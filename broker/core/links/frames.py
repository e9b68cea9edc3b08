"""Decodes and encodes the frames of a link. Decoding also validates everything that arrives over the link, in one pass.

Owns: the format of a frame, and the handling of malformed items. Must never: raise any error except ``ValueError``, or
keep any state.

A peer has proved that it knows the cluster's secret and uses the same version of the protocol. A malformed frame is
therefore a bug in the peer. It must not cause an error here in the middle of a change of state. Without this check,
compiled code would notice a wrong type only when it uses the value.

This module is not compiled, because mypyc cannot compile a ``msgspec`` record (``ingeborg.form``).
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Generic, TypeVar

from msgspec import Meta, Raw, Struct
from msgspec.msgpack import Decoder, Encoder

from .requests import REFUSAL, AnyRequest, Request

Value = TypeVar("Value")


class Answer(Struct, Generic[Value], array_like=True, gc=False, tag=0):
    """An answer. If ``code`` is empty, ``value`` is the answer to the request. Otherwise ``value`` is the reason for a
    refusal."""

    code: str
    value: Value


Number = Annotated[int, Meta(ge=1)]
"""A request's number, chosen by the endpoint that asks."""


class UsualAnswers(Struct, array_like=True, gc=False, tag=100):
    """The usual answers (``Request.usual``) to several requests."""

    numbers: list[Number]


class Hurry(Struct, array_like=True, gc=False, tag=101):
    """From now on, the sender waits for the answers to its requests up to the item's number.

    ``goes_on``: some of these requests may need answers from other endpoints, so the receiver sends a ``Hurry`` to
    these endpoints. That one goes no further, so endpoints do not send each other ``Hurry`` in circles.
    """

    goes_on: bool


Sent = tuple[int, Request | Answer[Any] | UsualAnswers | Hurry]
"""An outgoing item: a request with its number, the answer to the peer's request with that number, several usual answers
with the first of their numbers, or a ``Hurry``."""

Received = tuple[Number, Answer[Raw] | UsualAnswers | Hurry | AnyRequest | None]
"""An incoming item, with ``None`` in place of a malformed request. The value of an answer is not decoded yet, because
its type depends on the request."""


class Open(Struct, array_like=True, tag="open"):
    """The first frame on every connection."""

    mine: str  # the sender's session
    yours: str | None  # the receiver's session; None if the sender does not know it yet
    last: int  # the number of the last batch that the sender has processed


class Batch(Struct, array_like=True, tag="batch"):
    """A batch of items. ``items`` is ``None`` if the batch is malformed."""

    number: int
    last: int
    items: list[Received] | None


class Done(Struct, array_like=True, tag="done"):
    """A frame without items, which only confirms processed batches."""

    last: int


class Ping(Struct, array_like=True, tag="ping"):
    """A heartbeat, from which the receiver sees that the sender is alive."""

    sent: float  # when it was sent, by the sender's clock
    echo: float | None  # the ``sent`` of the latest ping that came from the receiver
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

#: The tags of the items that need no answer: ``Answer``, ``UsualAnswers`` and ``Hurry``.
_ANSWERS: Final = frozenset((0, 100, 101))

#: The exceptions that a decoder raises for malformed data. About a thousand nested lists raise ``RecursionError``.
_UNSOUND: Final = (ValueError, RecursionError)

encoded = _ENCODER.encode


def decoded(data: bytes) -> Frame:
    """Decode a frame. Raise ``ValueError`` if it is malformed. A batch with malformed items raises no error."""
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
    """Decode the items one by one, because at least one item is malformed. Return ``None`` if not even their numbers
    can be decoded."""
    try:
        return [_received(item) for item in _ITEMS.decode(items)]
    except _UNSOUND:
        return None


def _received(item: Raw) -> Received:
    """Decode one item, which may be malformed. If not even its number can be decoded, raise the decoder's exception."""
    try:
        return _ITEM.decode(item)
    except _UNSOUND:
        number, said = _NUMBERED.decode(item)
    try:
        is_answer = _HEAD.decode(said).tag in _ANSWERS
    except _UNSOUND:
        is_answer = False
    return number, Answer("", Raw(_NO_VALUE)) if is_answer else None


#: The only code that MessagePack does not use, so no valid answer has this value.
_NO_VALUE: Final = b"\xc1"


def value_of(request: Request, answer: Answer[Raw]) -> tuple[str, Any]:
    """Return the code and value of an answer to this request. Raise ``ValueError`` if the value is malformed for the
    request."""
    try:
        return answer.code, (REFUSAL if answer.code else request.answer).decode(answer.value)
    except _UNSOUND as error:
        raise ValueError(str(error)) from None
