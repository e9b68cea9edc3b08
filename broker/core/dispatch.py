"""A message on its way: what its origin and its home keep of it until its outcome is known.

Owns: these records, and what the outcomes are. Must never: act; ``origin``, ``home`` and ``fanout`` move it along.

As the *origin* an endpoint keeps a ``Publish`` until the publisher knows the outcome. As the *home* it keeps a
``Dispatch`` until every endpoint with subscribers has confirmed. A *destination* needs no more than the message.
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
        self.slot = slot  # of its topic
        self.key: int | None = None  # in the tables of duplicates; None: it is not checked
        self.unique = False  # it is, but for itself only
        self.keep_s = 0  # seconds that it is to be retained
        self.is_retained = False  # its home has said that it retains it
        self.again = False  # this endpoint was its home, and may have retained it: so may its replicas, and the journal
        self.connection = connection
        self.id = id
        self.ack = ack
        self.reply: Reply | None = None  # its place among the connection's replies, once it has to wait for one
        self.waits = False  # it counts as in flight
        self.outcome: bool | ProtocolError | None = None  # was it a duplicate, or why did it fail


class Elsewhere(Enum):
    """The outcome of a message that another endpoint is the home of by now."""

    ELSEWHERE = "elsewhere"


ELSEWHERE: Final = Elsewhere.ELSEWHERE

Outcome = bool | ProtocolError | Elsewhere
"""What has become of a message at its home: dispatched (``False``), a duplicate (``True``), or not."""


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
        # Who is told the outcome: the publish of a client here, or the peer that it came from; or nobody.
        self.publish = publish
        self.peer = ""
        self.number = 0  # of the peer's request
        self.begun = message.received  # if it is a broadcast: nobody can have had it before then
        self.waits = False  # it counts as in flight
        self.pending = False  # in the table of duplicates, until it has been dispatched
        self.barriers = 0  # for so much it waits: that the slot's replica has it, that the journal has
        self.keep_s = 0  # seconds that it is to be retained; 0: it is not
        self.entry: Entry | None = None  # of the log of retained messages
        self.stamp = 0  # of that, when it was accepted here
        self.is_retained = False  # its home retains it, and its publisher is told so
        self.found = False  # that was there before: another home may have said that it is published
        self.not_retained: Exception | None = None  # the journal could not take it in
        self.seen: bool | None = None  # lookup routing: the store's word on it, once it is known
        self.recipients = 0  # counted while it is being dispatched, if they are many
        self.open = 0  # confirmations it waits for: of endpoints, of relocations, and one while it is being handed on
        self.confirmed: list[str] | None = None  # names of those that have; None: nobody yet
        self.failed: list[str] | None = None
        self.outcome: Outcome | None = None


class Telling(Dispatch):
    """A message that this endpoint itself publishes, at its home here. ``news``: what its outcome belongs to."""

    __slots__ = ("news",)

    def __init__(self, message: Message, slot: int, news: Any) -> None:
        super().__init__(message, slot, None, None)
        self.news = news


def refusal(code: str, info: Any) -> ProtocolError:
    """What a home has answered of a message that it could not dispatch, or not to all."""
    text, extra = (info, {}) if isinstance(info, str) else info
    error = ProtocolError(code, text)
    error.extra = extra
    return error
