"""What the judge says: which promise did not hold, and why what is missing may be.

Owns: the words. Must never: decide.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from .facts import Name


class Broken(Enum):
    """What did not hold, in short."""

    LOST = "lost"
    TWICE = "delivered twice"
    ORDER = "out of order"
    UNPUBLISHED = "delivered what nobody published"
    REFUSED = "delivered what was refused"
    ELSEWHERE = "delivered where its client does not listen"
    FORMER_PLACE = "delivered where its client listened before"
    NO_WISH = "delivered to who did not subscribe"
    SUBSCRIPTION_LOST = "a subscription was lost"
    SUBSCRIPTION_MADE = "a subscription that no command made"
    UNANSWERED = "publish without an answer"
    DUPLICATE_OF_NOTHING = "duplicate of nothing"
    NOT_DROPPED = "repetition not dropped"
    REPLACED = "replaced by nobody"
    ENDED = "connection that ended by itself"


class Cause(Enum):
    """Why a message need not have come to a client."""

    TOLD = "its publisher was told"
    CUT_OFF = "its publisher was cut off"
    DUPLICATE = "a duplicate"
    IN_DOUBT = "subscription in doubt"
    NOT_LISTENING = "was not listening"
    MOVING = "was moving"
    STOPPED = "had stopped"
    ENDED = "its connection ended"
    SLOW = "was slow"
    TAKEN_FOR_DEAD = "its endpoint was taken for dead"


class Again(Enum):
    """Why a message may have come to a client more than once."""

    SENT_AGAIN = "it was published again after a crash or an error, or without `dedup`"
    AT_BOTH = "its client moved meanwhile, and got it at both places"


@dataclass
class Violation:
    """``broken``: ``None`` of a rule that is a recorder's own; ``section``: of SPEC; ``clients``, ``topic``,
    ``payload``: what the events that matter are found by."""

    broken: Broken | None
    section: str
    text: str
    at: float
    clients: frozenset[Name] = frozenset()
    topic: Name | None = None
    payload: Any = None

    def __str__(self) -> str:
        return f"SPEC section {self.section}: {self.text}"
