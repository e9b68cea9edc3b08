"""Converts a message to the form in which endpoints send it to each other, and back.

Owns: the choice of the message's fields to send. Must never: know which request or replica carries the message.

If receivers of a message use a new field of ``publish``, the field must be added to ``Message``, ``Carried``,
``carried`` and ``arrived``.
"""

from __future__ import annotations

from typing import Final

from msgspec.msgpack import Decoder

from ingeborg.protocol.messages import About

from ..message import Message
from .frames import encoded
from .requests import Carried, ForBounds

_CARRIED: Final = Decoder(Carried)
_KEPT: Final = ForBounds(is_kept=True)


def carried(message: Message) -> Carried:
    """Convert the message for another endpoint."""
    about, said = message.about, None
    if about is not None:
        said = ForBounds(about.item, about.weight, message.is_kept)
    elif message.is_kept:
        said = _KEPT
    return Carried(message.topic, message.payload, message.origin, message.number, said)


def arrived(said: Carried, now: float) -> Message:
    """Rebuild the message at the endpoint that received it. ``now`` is that endpoint's monotonic time in seconds."""
    message = Message(said.topic, said.payload, said.origin, said.number, now)
    message.travelled = True
    if (for_bounds := said.said) is not None:
        message.is_kept = for_bounds.is_kept
        if for_bounds.item is not None or for_bounds.weight != 1:
            message.about = About(for_bounds.item, for_bounds.weight)
    return message


def packed_message(message: Message) -> bytes:
    """Pack the message for a replica of its slot."""
    return encoded(carried(message))


def unpacked_message(data: bytes) -> Carried:
    """Unpack a message from a replica. Raise ``ValueError`` if it is malformed."""
    return _CARRIED.decode(data)
