"""A message under way, as its origin and its home keep it.

Owns: what is known of one publish. Must never: act; ``publishing`` moves it along, ``delivering`` hands it out.
"""

from __future__ import annotations

from typing import Any

from protocol.errors import ProtocolError

from .hub import Connection, Reply
from .membership import slot_of


class Publish:
    """A message under way. The topic ``""`` makes it a broadcast."""

    __slots__ = (
        "ack",
        "begun",
        "confirmed",
        "connection",
        "dedup",
        "failed",
        "frame",
        "id",
        "key",
        "number",
        "open",
        "origin",
        "outcome",
        "payload",
        "peer",
        "pending",
        "received",
        "recipients",
        "reply",
        "seen",
        "slot",
        "topic",
        "travelled",
        "waits",
    )

    def __init__(self, topic: str, payload: bytes, dedup: bool, received: float) -> None:
        self.topic = topic
        self.payload = payload
        self.dedup = dedup
        self.slot = slot_of(topic)
        self.received = received  # by this endpoint, in its monotonic seconds
        self.begun = received  # no endpoint has had a broadcast before that
        # Who is told: a client here, or the peer that it came from.
        self.connection: Connection | None = None
        self.reply: Reply | None = None
        self.id: Any = None
        self.ack = False
        self.peer: str | None = None
        # What it is known by in the cluster: the origin's incarnation and number.
        self.origin = ""
        self.number = 0
        self.travelled = False  # another endpoint has had a hand in it, and may have delivered it
        # At the home.
        self.key: int | None = None  # in the tables of duplicates; None: it is not checked
        self.pending = False  # there, until it has been handed over
        self.recipients = 0  # counted while it is being handed over, if they are many
        self.seen: bool | None = None  # lookup routing: the store's word on it, once it is known
        self.frame: bytes | None = None  # encoded once, for all
        self.open = 0  # endpoints that have not confirmed yet
        self.confirmed: list[str] = []
        self.failed: list[str] = []
        self.outcome: bool | ProtocolError | None = None  # was it a duplicate, or why did it fail
        self.waits = False  # it counts as in flight
