"""All refusals of the broker: error codes of replies, and close codes of connections. SPEC sections 5 and 6.

Owns: the two tables, and the exception that carries a code. Must never: format an error for a transport, or know which
module raises it.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple


class Next(Enum):
    """A client's next step after an error."""

    RETRY = "retry the command later, with backoff"
    FIX = "fix the command; sending it again unchanged fails again"
    GIVE_UP = "do not retry"


class ErrorCode(NamedTuple):
    """A row of the table of errors. ``message`` is for people, and is part of the reply."""

    code: str
    message: str
    next: Next


_ROWS: Final[tuple[ErrorCode, ...]] = (
    ErrorCode("bad_json", "The frame is not one JSON object", Next.FIX),
    ErrorCode("bad_command", "Unknown command", Next.FIX),
    # Listing 4.6 of the thesis: existing clients compare this message literally.
    ErrorCode("bad_state", "Error", Next.FIX),
    ErrorCode("bad_topic", "The topic is not valid", Next.FIX),
    ErrorCode("bad_filter", "The filter is not valid", Next.FIX),
    ErrorCode("too_large", "The payload is too large", Next.FIX),
    ErrorCode("too_many_topics", "The client has too many topics", Next.FIX),
    ErrorCode("unauthorized", "The token is for another client", Next.FIX),
    ErrorCode("forbidden", "The token does not permit it", Next.FIX),
    ErrorCode("conflict", "The deduplication key stands for another payload", Next.FIX),
    ErrorCode("store_unavailable", "The store does not answer", Next.RETRY),
    ErrorCode("peer_unavailable", "Another endpoint does not answer", Next.RETRY),
    ErrorCode("partial", "Some endpoints got the message, some did not", Next.GIVE_UP),
    ErrorCode("internal", "The endpoint failed; the fault is ours", Next.GIVE_UP),
)

ERRORS: Final[dict[str, ErrorCode]] = {row.code: row for row in _ROWS}


class ProtocolError(Exception):
    """The error of a command, which an endpoint sends in an error reply. SPEC section 5 says which errors change
    nothing.

    Decoding and checking a command raises only errors whose next step is *fix*. The broker can raise all errors.

    - ``code``: a code of SPEC section 5, such as ``bad_topic``.
    - ``info``: a text for people that names the field and gives the reason.
    - ``extra``: further fields of the reply.
    """

    def __init__(self, code: str, info: str, **extra: object) -> None:
        super().__init__(f"{code}: {info}")
        self.code = code
        self.info = info
        self.extra = extra  # further fields of the reply (`partial`: delivered, failed)

    @property
    def next(self) -> Next:
        """Return the client's next step.

        Raises:
            KeyError: a newer endpoint sent a code that this table does not have.
        """
        return ERRORS[self.code].next


class CloseCode(NamedTuple):
    """A row of the table of close codes. ``reconnect`` says whether the client should connect again."""

    code: int
    reason: str
    reconnect: bool


#: The code with which a client closes a connection.
NORMAL: Final = CloseCode(1000, "", True)
GOING_AWAY: Final = CloseCode(1001, "the endpoint is shutting down; connect to another", True)
PROTOCOL_VIOLATION: Final = CloseCode(1002, "WebSocket protocol violation", True)
NOT_UTF8: Final = CloseCode(1007, "a text frame that is not UTF-8", True)
POLICY: Final = CloseCode(1008, "policy violation", False)
FRAME_TOO_LARGE: Final = CloseCode(1009, "the frame is over the endpoint's limit", True)
INTERNAL: Final = CloseCode(1011, "the endpoint failed; the fault is ours", True)
REPLACED: Final = CloseCode(4001, "replaced by a newer listen of this client", False)
SLOW_CONSUMER: Final = CloseCode(4002, "slow consumer: its outbox is full", True)
PING_TIMEOUT: Final = CloseCode(4003, "two pings went unanswered", True)
TOKEN_EXPIRED: Final = CloseCode(4004, "the token has expired; connect with a new one", True)
HELD_TOO_MUCH: Final = CloseCode(4005, "the endpoint is at its memory limit; this connection uses the most", True)
TOKEN_REVOKED: Final = CloseCode(4006, "the token has been revoked", False)
SUBSCRIPTIONS_ENDED: Final = CloseCode(
    4007, "subscriptions have ended while this endpoint was cut off; connect and listen again", True
)

CLOSES: Final[dict[int, CloseCode]] = {
    row.code: row
    for row in (
        GOING_AWAY,
        PROTOCOL_VIOLATION,
        NOT_UTF8,
        POLICY,
        FRAME_TOO_LARGE,
        INTERNAL,
        REPLACED,
        SLOW_CONSUMER,
        PING_TIMEOUT,
        TOKEN_EXPIRED,
        HELD_TOO_MUCH,
        TOKEN_REVOKED,
        SUBSCRIPTIONS_ENDED,
    )
}
