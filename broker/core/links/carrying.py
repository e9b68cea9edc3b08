"""Converts a message to its form between endpoints, and back.

Owns: the fields that a message takes along. Must never: know the request or the replica that carries it.

If receivers use a new field of ``publish``, it goes into ``Message``, ``Carried``, ``carried`` and ``arrived``.
"""

from __future__ import annotations

from typing import Final

from msgspec.msgpack import Decoder

from ..message import Message
from .frames import encoded
from .requests import Carried

_CARRIED: Final = Decoder(Carried)


def carried(message: Message) -> Carried:
    """Convert the message for another endpoint."""
    return Carried(message.topic, message.payload, message.origin, message.number)


def arrived(said: Carried, now: float) -> Message:
    """Rebuild the message at the endpoint that received it. ``now``: monotonic seconds there."""
    message = Message(said.topic, said.payload, said.origin, said.number, now)
    message.travelled = True
    return message


def packed_message(message: Message) -> bytes:
    """Pack the message for a replica of its slot."""
    return encoded(carried(message))


def unpacked_message(data: bytes) -> Carried:
    """Unpack a message from a replica. Raise ``ValueError`` if it is malformed."""
    return _CARRIED.decode(data)
