"""A message, as any endpoint has it that has a hand in it.

Owns: the record. Must never: act; ``origin``, ``home``, ``fanout`` and ``delivery`` move a message along.
"""

from __future__ import annotations


class Message:
    """What subscribers get. The topic ``""`` makes it a broadcast."""

    __slots__ = ("frame", "named", "number", "origin", "payload", "received", "topic", "travelled")

    def __init__(self, topic: str, payload: bytes, origin: str, number: int, received: float) -> None:
        self.topic = topic
        self.payload = payload
        # What it is known by in the cluster: the origin's incarnation, and a number of the origin's.
        self.origin = origin
        self.number = number
        self.received = received  # by this endpoint, in its monotonic seconds
        self.travelled = False  # another endpoint has had a hand in it, and may have delivered it
        self.frame: bytes | None = None  # encoded once, for all
        self.named: bytes | None = None  # with its name, for those who recover
