"""Who was subscribed to what, for certain.

Owns: what commands that overlap leave certain (SPEC sections 1.3 and 8.1). Must never: ask whether anybody listened.
"""

from __future__ import annotations

from enum import Enum

from .facts import FOREVER, Change, Facts, Kind, Name


class Wish(Enum):
    """For all of a time."""

    YES = "subscribed for certain"
    NO = "not subscribed for certain"
    UNKNOWN = "in doubt"


def holds(facts: Facts, client: Name, topic: Name | None, begin: float, end: float) -> Wish:
    """Was it subscribed all the time? Everybody is to broadcasts.

    Success of one command decides it, if that came before the time began and every command to the contrary, sent before
    the time ended, was over before that one was sent. Commands of one connection take effect in order.
    """
    if topic is None:
        return Wish.YES
    changes = [change for change in facts.changes_of(client, topic) if change.at <= end]
    for index, change in enumerate(changes):
        if not change.succeeded or change.over_at > begin:
            continue
        contrary = [(other, at < index) for at, other in enumerate(changes) if other.added != change.added]
        if all(_over_before(facts, other, change, earlier) for other, earlier in contrary):
            return Wish.YES if change.added else Wish.NO
    return Wish.UNKNOWN if any(change.added for change in changes) else Wish.NO


def _over_before(facts: Facts, other: Change, change: Change, earlier: bool) -> bool:
    if other.succeeded and other.over_at < change.at:
        return True
    if other.succeeded and earlier and other.connection == change.connection:
        return True
    return not other.succeeded and other.at + facts.terms.late < change.at


def may_be_undone(facts: Facts, client: Name, topic: Name, at: float) -> bool:
    """May an unsubscription have been undone by then, since the union of a conflict is kept (section 8.1)?"""
    return bool(facts.changes_of(client, topic)) and facts.disturbed(-FOREVER, at, Kind.UNION)
