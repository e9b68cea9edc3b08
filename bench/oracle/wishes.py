"""Who was subscribed to what, for certain.

Owns: what commands that overlap leave certain (SPEC sections 1.3 and 8.1). Must never: ask whether anybody listened.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum

from .facts import FOREVER, Change, Facts, Filtered, Kind, Message, Name


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
    return _decided(facts, facts.changes_of(client, topic), begin, end)


def wants(facts: Facts, client: Name, message: Message, begin: float, end: float) -> Wish:
    """The same of a message: it was subscribed without a filter, or with one that the message meets (section 2.6).

    Where one such subscription takes the place of another, it is so all the time, though of neither alone.
    """
    topic = message.topic
    filters = facts.filters_of(client, topic)
    if not filters:
        return holds(facts, client, topic, begin, end)
    names = [topic, *(name for name in filters if name.filter in message.met)]
    found = [holds(facts, client, name, begin, end) for name in names]
    if Wish.YES in found:
        return Wish.YES
    together = [_together(change, names) for change in facts.sent(client, topic)]
    if _decided(facts, [change for change in together if change is not None], begin, end) is Wish.YES:
        return Wish.YES
    return Wish.NO if all(wish is Wish.NO for wish in found) else Wish.UNKNOWN


def _together(change: Change, names: Sequence[Name | Filtered]) -> Change | None:
    """What it does to all of these taken as one. To end one of them may end it, or not: there it counts as an end."""
    effects = {change.of(name) for name in names}
    if True in effects:
        return change
    return replace(change, added=False) if False in effects else None


def _decided(facts: Facts, sent: Sequence[Change], begin: float, end: float) -> Wish:
    changes = [change for change in sent if change.at <= end]
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
    has_ended_any = bool(facts.changes_of(client, topic) or facts.filters_of(client, topic))
    return has_ended_any and facts.disturbed(-FOREVER, at, Kind.UNION)
