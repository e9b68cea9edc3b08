"""The records that a message's origin and its home keep until the outcome of the message is known.

Owns: these records, and the possible outcomes. Must never: act (``origin``, ``home`` and ``fanout`` move a message
along).

The *origin*, which accepted the message, keeps a ``Publish`` until the publisher knows the outcome. The topic's *home*
keeps a ``Dispatch`` until every endpoint with subscribers has confirmed the message. A *destination*, which has some of
the subscribers, needs only the message.
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
        "name",
        "outcome",
        "reply",
        "slot",
        "unique",
        "waits",
    )

    def __init__(self, message: Message, slot: int, connection: Connection, id: Any, ack: int) -> None:
        self.message = message
        self.slot = slot  # the slot of its topic
        self.key: bytes | None = None  # its key in the tables of duplicates; None if no duplicate check is wanted
        self.unique = False  # no other message has this key, so only a repetition of this message is a duplicate
        self.keep_s = 0  # seconds to retain it
        self.is_retained = False  # its home has reported that it retains the message
        self.again = False  # this endpoint was its home, and may have retained it here, in a replica or in the journal
        self.connection = connection
        self.id = id
        self.ack = ack  # ``NO_ACK``, ``ACK`` or ``ACK_WITH_MID``
        self.name: tuple[str, int] | None = None  # another name that its home gave the message
        self.reply: Reply | None = None  # its place among the connection's replies, if the outcome is not known yet
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
        "can_wait",
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
        "renamed",
        "seen",
        "slot",
        "stamp",
        "waits",
    )

    def __init__(self, message: Message, slot: int, key: bytes | None, publish: Publish | None) -> None:
        self.message = message
        self.slot = slot
        self.key = key
        # The outcome goes to the publish of a client here, to the peer that sent the message, or to nobody.
        self.publish = publish
        self.peer = ""
        self.number = 0  # the number of the peer's request
        self.begun = message.received  # for a broadcast: no client has received it before this time
        self.waits = False  # it counts as in flight
        self.can_wait = False  # nobody waits for its outcome, so the answers about it can wait
        self.pending = False  # the table of duplicates has it as pending, until it has been dispatched
        self.barriers = 0  # number of barriers that it waits for: the replica, the journal, or both must store it
        self.keep_s = 0  # seconds to retain it; 0 if it is not retained
        self.entry: Entry | None = None  # its entry in the log of retained messages
        self.stamp = 0  # the entry's stamp, if this home accepted the entry
        self.is_retained = False  # this home retains it, and reports that to the publisher
        self.found = False  # the entry existed before, so another home may have reported the message as published
        self.renamed = False  # its home has given it the name of an earlier message with this key
        self.not_retained: Exception | None = None  # the reason why the journal could not store it
        self.seen: bool | None = None  # with lookup routing: whether the store has seen its key; None if unknown
        self.recipients = 0  # its share of ``LocationResolver.recipients``
        self.open = 0  # outstanding confirmations and location lookups, plus one while sending requests
        self.confirmed: list[str] | None = None  # names of the endpoints that have confirmed; None if none has yet
        self.failed: list[str] | None = None
        self.outcome: Outcome | None = None


class Telling(Dispatch):
    """A message that this endpoint itself publishes as the topic's home. ``news``: the joins and leaves that it
    announces."""

    __slots__ = ("news",)

    def __init__(self, message: Message, slot: int, news: Any) -> None:
        super().__init__(message, slot, None, None)
        self.news = news


def refusal(code: str, info: Any) -> ProtocolError:
    """Return the error for a message that its home could dispatch to only some endpoints, or to none."""
    text, extra = (info, {}) if isinstance(info, str) else info
    error = ProtocolError(code, text)
    error.extra = extra
    return error
