"""A message under way: the records that its origin and its home keep until its outcome is known.

Owns: these records, and the possible outcomes. Must never: act; ``origin``, ``home`` and ``fanout`` move a message
along.

As the *origin* an endpoint keeps a ``Publish`` until the publisher knows the outcome. As the *home* it keeps a
``Dispatch`` until every endpoint with subscribers has confirmed. A *destination* needs only the message.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Final

from ingeborg.protocol.errors import ProtocolError

from .connections.hub import Connection, Reply
from .entries import Entry
from .message import Message


class Publish:
    """A client's publish, at its origin."""

    __slots__ = (
        "ack",
        "again",
        "connection",
        "id",
        "is_retained",
        "keep_s",
        "key",
        "message",
        "outcome",
        "reply",
        "slot",
        "unique",
        "waits",
    )

    def __init__(self, message: Message, slot: int, connection: Connection, id: Any, ack: bool) -> None:
        self.message = message
        self.slot = slot  # the slot of its topic
        self.key: int | None = None  # in the tables of duplicates; None: unchecked
        self.unique = False  # the key is checked only for the message itself
        self.keep_s = 0  # seconds to retain it
        self.is_retained = False  # its home has said that it retains it
        self.again = False  # this endpoint was its home and may have retained it, as can its replicas and the journal
        self.connection = connection
        self.id = id
        self.ack = ack
        self.reply: Reply | None = None  # its place among the connection's replies, once it has to wait for one
        self.waits = False  # it counts as in flight
        self.outcome: bool | ProtocolError | None = None  # whether it was a duplicate, or why it failed


class Elsewhere(Enum):
    """The outcome of a message whose home is now another endpoint."""

    ELSEWHERE = "elsewhere"


ELSEWHERE: Final = Elsewhere.ELSEWHERE

Outcome = bool | ProtocolError | Elsewhere
"""The outcome of a message at its home: dispatched (``False``), a duplicate (``True``), an error, or ``ELSEWHERE``."""


class Dispatch:
    """A message at its home, until all endpoints with subscribers have confirmed it."""

    __slots__ = (
        "barriers",
        "begun",
        "confirmed",
        "entry",
        "failed",
        "found",
        "is_retained",
        "keep_s",
        "key",
        "message",
        "not_retained",
        "number",
        "open",
        "outcome",
        "peer",
        "pending",
        "publish",
        "recipients",
        "seen",
        "slot",
        "stamp",
        "waits",
    )

    def __init__(self, message: Message, slot: int, key: int | None, publish: Publish | None) -> None:
        self.message = message
        self.slot = slot
        self.key = key
        # The recipient of the outcome: the publish of a client here, or the peer that sent the message; or none.
        self.publish = publish
        self.peer = ""
        self.number = 0  # the number of the peer's request
        self.begun = message.received  # for a broadcast: no client can have received it before this time
        self.waits = False  # it counts as in flight
        self.pending = False  # in the table of duplicates, until it has been dispatched
        self.barriers = 0  # barriers that it still waits for: the slot's replica has the message, the journal has it
        self.keep_s = 0  # seconds to retain it; 0: not retained
        self.entry: Entry | None = None  # its entry in the log of retained messages
        self.stamp = 0  # the entry's stamp, if it was accepted here
        self.is_retained = False  # its home retains it, and tells its publisher so
        self.found = False  # the entry was there before: another home may have reported it as published
        self.not_retained: Exception | None = None  # the reason why the journal could not store it
        self.seen: bool | None = None  # lookup routing: whether the store has seen it, once known
        self.recipients = 0  # counted during dispatch, if there are many
        self.open = 0  # outstanding confirmations: from endpoints, from relocations, and one during the handover
        self.confirmed: list[str] | None = None  # names of the endpoints that have confirmed; None: none yet
        self.failed: list[str] | None = None
        self.outcome: Outcome | None = None


class Telling(Dispatch):
    """A message that this endpoint itself publishes, at its home here. ``news``: the news whose outcome it decides."""

    __slots__ = ("news",)

    def __init__(self, message: Message, slot: int, news: Any) -> None:
        super().__init__(message, slot, None, None)
        self.news = news


def refusal(code: str, info: Any) -> ProtocolError:
    """Return the error for a message that its home could not dispatch, or not to all endpoints."""
    text, extra = (info, {}) if isinstance(info, str) else info
    error = ProtocolError(code, text)
    error.extra = extra
    return error
