"""Where a client listened, for certain; else why nobody can say.

Owns: what `listen`s that overlap, and connections that end, leave certain (SPEC sections 2.2, 8.2 to 8.4, 8.8). Must
never: ask what the client was subscribed to.
"""

from __future__ import annotations

from itertools import pairwise

from .facts import FOREVER, Facts, Kind, Message, Name, Place
from .verdict import Cause


def steady(facts: Facts, client: Name, message: Message, begin: float, end: float) -> tuple[Place | None, Cause | None]:
    """The place where the client listened for certain from ``begin`` to ``end``, and read what came to it.

    Else why there is none, and the latest place it had been told of, if any.
    """
    places = facts.places.get(client, ())
    good = [place for place in places if place.confirmed_at <= begin]
    if not good:
        return None, Cause.NOT_LISTENING
    for place in reversed(good):
        if place.read_before is not None and place.until > begin:
            # What it was sent later shows that it was there, and has read.
            due_at = begin if message.due_at is None else message.due_at
            return place, None if due_at < place.read_before else Cause.SLOW
        # Those that were over before it was begun are older; of all others it is not known which is the newest.
        elsewhere = [other for other in places if other.connection != place.connection and other.begun_at <= end]
        if any(other.over_at >= place.begun_at for other in elsewhere):
            continue
        if place.until <= end or not read_past(facts, place, end):
            return place, Cause.ENDED if place.until >= place.ended_at else Cause.STOPPED
        return place, None
    return good[-1], Cause.MOVING


def read_past(facts: Facts, place: Place, at: float) -> bool:
    """Has it read what had come to it by then? Frames come in order; else it had ``Terms.read`` to do so."""
    return place.read_at > at or place.ended_at > at + facts.terms.read


def moved_well(facts: Facts, client: Name, begin: float, end: float) -> bool:
    """Did the client listen all the time, here or there, with nothing but its own moves to disturb it?

    It listened before; each `listen` of the time succeeded; and it left no connection: they were closed upon. None was
    sent while another was under way, for of those nobody knows which is the newest.
    """
    ever = [place for place in facts.places.get(client, ()) if place.begun_at <= end]
    if any(earlier.over_at >= later.begun_at for earlier, later in pairwise(ever)):
        return False
    # One after the other, so the newest of before is where it was. An older one may still be open: it is replaced, and
    # was only not told yet.
    before = [place for place in ever if place.over_at < begin]
    if not before or before[-1].until <= begin:
        return False
    places = [before[-1], *ever[len(before) :]]
    return (
        any(place.until > end and read_past(facts, place, end) for place in places)
        and all(place.succeeded and place.answered_at < FOREVER for place in places)
        and all(place.until > end or place.replaced for place in places)
        and not any(place.slow for place in places)  # what it had not read when it moved is lost (section 8.8)
        and not facts.disturbed(begin, end, Kind.CRASH, Kind.CHANGE, Kind.MOVES, Kind.LOOKUP)
    )


def moved(facts: Facts, client: Name, begin: float, end: float) -> bool:
    """Was a `listen` of the client under way in that time?"""
    return any(place.begun_at <= end and place.over_at >= begin for place in facts.places.get(client, ()))
