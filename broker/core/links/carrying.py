"""A message into what goes from endpoint to endpoint, and out of it.

Owns: what of a message goes there. Must never: know with which request, or in which replica.

A new field of ``publish`` that its receivers use goes into ``Message``, ``Carried``, ``carried`` and ``arrived``.
"""

from __future__ import annotations

from typing import Final

from msgspec.msgpack import Decoder

from ..message import Message
from .frames import encoded
from .requests import Carried

_CARRIED: Final = Decoder(Carried)


def carried(message: Message) -> Carried:
    """The message, for another endpoint."""
    return Carried(message.topic, message.payload, message.origin, message.number)


def arrived(said: Carried, now: float) -> Message:
    """The message, at the endpoint that it has come to. ``now``: monotonic seconds there."""
    message = Message(said.topic, said.payload, said.origin, said.number, now)
    message.travelled = True
    return message


def packed_message(message: Message) -> bytes:
    """The message, for a replica of what belongs to its slot."""
    return encoded(carried(message))


def unpacked_message(data: bytes) -> Carried:
    """Out of it. Raises ``ValueError``: it is none."""
    return _CARRIED.decode(data)
