"""Find where a client certainly listened, or say why this is uncertain.

Owns: the conclusions that are certain even if `listen`s overlap and connections end (SPEC sections 2.2, 8.2 to 8.4,
8.8). Must never: consider the client's subscriptions.
"""

from __future__ import annotations

from itertools import pairwise

from .facts import FOREVER, Facts, Kind, Message, Name, Place
from .verdict import Cause


def steady(facts: Facts, client: Name, message: Message, begin: float, end: float) -> tuple[Place | None, Cause | None]:
    """Return the place where the client certainly listened from ``begin`` to ``end``, and read its messages.

    If there is no such place, return the cause, and the client's latest confirmed place, if any.
    """
    places = facts.places.get(client, ())
    good = [place for place in places if place.confirmed_at <= begin]
    if not good:
        return None, Cause.NOT_LISTENING
    for place in reversed(good):
        if place.read_before is not None and place.until > begin:
            # Later messages show that the client was at this place, and how far it has read.
            due_at = begin if message.due_at is None else message.due_at
            return place, None if due_at < place.read_before else Cause.SLOW
        # Places that were over before this place began are older. Among all other places, it is unknown which is the
        # newest.
        elsewhere = [other for other in places if other.connection != place.connection and other.begun_at <= end]
        if any(other.over_at >= place.begun_at for other in elsewhere):
            continue
        if place.until <= end or not read_past(facts, place, end):
            return place, Cause.ENDED if place.until >= place.ended_at else Cause.STOPPED
        return place, None
    return good[-1], Cause.MOVING


def read_past(facts: Facts, place: Place, at: float) -> bool:
    """Return whether the client has read its messages up to that time. A later frame proves that it has, because frames
    arrive in order. Without such a frame, the connection must have stayed open for ``Terms.read`` longer."""
    return place.read_at > at or place.ended_at > at + facts.terms.read


def moved_well(facts: Facts, client: Name, begin: float, end: float) -> bool:
    """Return whether the client listened at some place during the whole period, apart from its own moves.

    The client must have listened before the period. Each `listen` in the period must have succeeded, and endpoints must
    have closed the client's former connections. No two `listen`s may overlap, because then the newest place would be
    unknown.
    """
    ever = [place for place in facts.places.get(client, ()) if place.begun_at <= end]
    if any(earlier.over_at >= later.begun_at for earlier, later in pairwise(ever)):
        return False
    # The commands arrived one after the other, so the client was at the newest earlier place. The connection of an
    # older place can still be open, because it is replaced but not closed yet.
    before = [place for place in ever if place.over_at < begin]
    if not before or before[-1].until <= begin:
        return False
    places = [before[-1], *ever[len(before) :]]
    return (
        any(place.until > end and read_past(facts, place, end) for place in places)
        and all(place.succeeded and place.answered_at < FOREVER for place in places)
        and all(place.until > end or place.replaced for place in places)
        and not any(place.slow for place in places)  # a slow client's move loses unread messages (8.8)
        and not facts.disturbed(begin, end, Kind.CRASH, Kind.CHANGE, Kind.MOVES, Kind.LOOKUP)
    )


def moved(facts: Facts, client: Name, begin: float, end: float) -> bool:
    """Return whether a `listen` of the client was under way in this period."""
    return any(place.begun_at <= end and place.over_at >= begin for place in facts.places.get(client, ()))
