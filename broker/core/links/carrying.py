"""A message into a request, and out of one.

Owns: what of a message goes from endpoint to endpoint. Must never: know to which request it belongs.

A new field of ``publish`` that its receivers use goes into ``Message``, ``Carried``, and these two functions.
"""

from __future__ import annotations

from ..message import Message
from .requests import Carried


def carried(message: Message) -> Carried:
    """The message, for another endpoint."""
    return Carried(message.topic, message.payload, message.origin, message.number)


def arrived(said: Carried, now: float) -> Message:
    """The message, at the endpoint that it has come to. ``now``: monotonic seconds there."""
    message = Message(said.topic, said.payload, said.origin, said.number, now)
    message.travelled = True
    return message
