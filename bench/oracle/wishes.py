"""Decide which clients were certainly subscribed to a topic.

Owns: the conclusions that are certain even if commands overlap (SPEC sections 1.3 and 8.1). Must never: check whether a
client listened.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum

from .facts import FOREVER, Change, Facts, Filtered, Kind, Message, Name


class Wish(Enum):
    """Whether a client was subscribed over a whole period."""

    YES = "certainly subscribed"
    NO = "certainly not subscribed"
    UNKNOWN = "in doubt"


def holds(facts: Facts, client: Name, topic: Name | None, begin: float, end: float) -> Wish:
    """Return whether the client was subscribed during the whole period. Every client is subscribed to broadcasts.

    A command is decisive if its success arrived before the period began, and if every opposite command sent before the
    period ended was over before the decisive command was sent. Commands of one connection take effect in order.
    """
    if topic is None:
        return Wish.YES
    return _decided(facts, facts.changes_of(client, topic), begin, end)


def wants(facts: Facts, client: Name, message: Message, begin: float, end: float) -> Wish:
    """Return whether the client wanted a message during the whole period. A client wants a message if it is subscribed
    without a filter, or with a filter that the message meets (section 2.6).

    If one such subscription replaces another, the client wanted the message all the time. This is so even if neither of
    the two lasted for the whole period.
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
    """Return the change's effect on all these names together, as if they were one subscription. A change that ends only
    one of the subscriptions counts as an end, although another subscription may remain."""
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
    """Return whether the union of a conflict may have reverted an unsubscription by then (section 8.1)."""
    has_ended_any = bool(facts.changes_of(client, topic) or facts.filters_of(client, topic))
    return has_ended_any and facts.disturbed(-FOREVER, at, Kind.UNION)
