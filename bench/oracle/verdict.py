"""The judge's verdicts: the promise that was broken, and the reason why a message may be missing.

Owns: the words of verdicts. Must never: decide on a verdict.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from .facts import Name


class Broken(Enum):
    """A short name of the broken promise."""

    LOST = "lost"
    TWICE = "delivered twice"
    ORDER = "out of order"
    UNPUBLISHED = "delivered although nobody published it"
    REFUSED = "delivered although it was refused"
    ELSEWHERE = "delivered where its client does not listen"
    FORMER_PLACE = "delivered where its client listened before"
    NO_WISH = "delivered to a client that did not subscribe"
    SUBSCRIPTION_LOST = "a subscription was lost"
    SUBSCRIPTION_MADE = "a subscription that no command made"
    UNANSWERED = "publish without an answer"
    DUPLICATE_OF_NOTHING = "duplicate of nothing"
    NOT_DROPPED = "repetition not dropped"
    REPLACED = "replaced although the client did not listen elsewhere"
    ENDED = "connection that ended by itself"


class Cause(Enum):
    """The reasons why a message did not have to reach a client."""

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
    """The reasons why a message can reach a client more than once."""

    SENT_AGAIN = "it was published again after a crash or an error, or without `dedup`"
    AT_BOTH = "its client moved meanwhile, and got it at both places"


@dataclass
class Violation:
    """A broken promise. ``broken``: ``None`` if a recorder's own rule was broken. ``section``: the section of SPEC.
    ``clients``, ``topic``, ``payload``: they identify the relevant events."""

    broken: Broken | None
    section: str
    text: str
    at: float
    clients: frozenset[Name] = frozenset()
    topic: Name | None = None
    payload: Any = None

    def __str__(self) -> str:
        return f"SPEC section {self.section}: {self.text}"
