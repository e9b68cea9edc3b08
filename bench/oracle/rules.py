"""The promises about a connection and about a client's list of subscriptions. Each is a function from facts to
violations.

Owns: order, allowed deliveries, ends of connections, and subscriptions that exist (SPEC sections 2.2, 3, 5, 6, 8.1,
8.5, 8.8). Must never: check whether a message had to arrive, or how often (``judge`` does).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from . import wishes
from .facts import FOREVER, By, Copy, Facts, Kind, Line, Listed, Message, Name, Note, Send
from .verdict import Broken, Violation
from .wishes import Wish

Key = tuple[Name | None, Any]


def published(facts: Facts, line: Line, messages: Mapping[Key, Message]) -> Iterator[Violation]:
    """Check sections 3 and 5: a client gets no message that was not published before, and no message that was
    refused."""
    for at, topic, payload in line.notes:
        about = {"clients": frozenset({line.client}), "topic": topic, "payload": payload}
        if (topic, payload) in facts.refused:
            text = f"{payload} was refused, but {line.client} got it"
            yield Violation(Broken.REFUSED, "5", text, at, **about)
            continue
        message = messages.get((topic, payload))
        if message is None or message.first_at > at:
            text = f"{line.client} got {payload} of {topic}, which nobody had published"
            yield Violation(Broken.UNPUBLISHED, "3", text, at, **about)


def heard(facts: Facts, message: Message, copy: Copy) -> Iterator[Violation | Kind]:
    """Check sections 2.2 and 3: a client gets a message only if it is subscribed, and only where it listens.

    Yields ``Kind.UNION`` if the subscription had ended, but the union of a conflict may have reverted its end
    (section 8.1).
    """
    client, topic, payload = copy.client, message.topic, message.payload
    about = {"clients": frozenset({client}), "topic": topic, "payload": payload}
    if message.first_at > copy.at:
        return  # ``published`` reports this case
    mine = [place for place in facts.places.get(client, ()) if place.connection == copy.connection]
    if not any(place.begun_at <= copy.at for place in mine):
        text = f"{client} got {payload} on a connection on which it does not listen"
        yield Violation(Broken.ELSEWHERE, "3", text, copy.at, **about)
        return
    if wishes.wants(facts, client, message, message.first_at, copy.at) is Wish.NO:
        if topic is not None and wishes.may_be_undone(facts, client, topic, copy.at):
            yield Kind.UNION
        else:
            text = f"{client} is not subscribed to {topic}, but got {payload}"
            yield Violation(Broken.NO_WISH, "2.2", text, copy.at, **about)
    for newer in facts.places.get(client, ()):
        if (
            newer.connection != copy.connection
            and newer.confirmed_at < message.first_at
            and all(place.over_at < newer.begun_at for place in mine)
            and not facts.disturbed(message.first_at, copy.at, Kind.CRASH, Kind.LOOKUP)
        ):
            text = f"{client} listens at {newer.endpoint}, but got {payload} where it was before"
            yield Violation(Broken.FORMER_PLACE, "2.2", text, copy.at, **about)
            break


def order(facts: Facts, line: Line, once: Mapping[Key, Send]) -> Iterator[Violation]:
    """Check section 8.5: messages of one publisher and one topic arrive in order, as long as endpoints and places stay
    the same.

    ``once``: messages with a single publish. Repeated messages are left out, because it is unknown which publish was
    delivered. Messages sent before the client was certainly at its place are ignored, because they can go to its former
    place first.
    """
    mine = [place for place in facts.places.get(line.client, ()) if place.connection == line.connection]
    settled = [place.over_at if place.settled_at is None else place.settled_at for place in mine]
    since = max(settled, default=FOREVER)
    last: dict[tuple[Name, Name], tuple[Send, Note]] = {}
    for note in line.notes:
        send = once.get((note.topic, note.payload))
        if send is None or note.topic is None or send.at <= since:
            continue
        row = (send.row, note.topic)
        former = last.get(row)
        if former is None or send.number > former[0].number:
            last[row] = (send, note)
        elif send.number < former[0].number and not facts.disturbed(send.at, note.at, Kind.CRASH, Kind.CHANGE):
            text = (
                f"{line.client} got {note.payload} of {note.topic} after {former[1].payload}, which the same publisher "
                "published later"
            )
            about = {"clients": frozenset({line.client}), "topic": note.topic, "payload": note.payload}
            yield Violation(Broken.ORDER, "8.5", text, note.at, **about)


def replaced(facts: Facts, line: Line) -> Iterator[Violation]:
    """Check section 6: a connection is closed with 4001 only if its client has listened elsewhere since."""
    if line.by is not By.OTHER or line.code != 4001:
        return
    places = facts.places.get(line.client, ())
    mine = [place for place in places if place.connection == line.connection]
    if not any(
        place.connection != line.connection
        and place.begun_at < line.ended_at
        and all(place.over_at >= own.begun_at for own in mine)
        for place in places
    ):
        text = (
            f"{line.endpoint} closed {line.client}'s connection with 4001, but the client has not listened elsewhere "
            "since"
        )
        yield Violation(Broken.REPLACED, "6", text, line.ended_at, clients=frozenset({line.client}))


def ends(facts: Facts, line: Line) -> Violation | str:
    """Check sections 6 and 8.8: a connection ends because its client closed it, its endpoint ended, or its client was
    slow.

    Return a word for the reason, or a violation. Only a recorder that knows when each endpoint ended can use this
    function.
    """
    if line.by is not By.OTHER:
        return "end" if line.by is By.NOBODY else "moved"
    if facts.disturbed(line.ended_at, line.ended_at, Kind.KILL, where=line.endpoint):
        return "killed"
    if line.slow and line.code in (None, 4002):
        return "slow"
    how = "without a close code" if line.code is None else f"with {line.code}"
    text = f"{line.client}'s connection {line.connection} at {line.endpoint} ended {how}, for no reason"
    return Violation(Broken.ENDED, "6", text, line.ended_at, clients=frozenset({line.client}))


def subscriptions(facts: Facts, listed: Listed) -> Iterator[Violation | Kind]:
    """Check section 8.1: the last confirmed subscription stays, and refused or ended subscriptions do not exist.

    Yields ``Kind.UNION`` for an entry that the union of a conflict may have restored.
    """
    client, at = listed.client, listed.over_at
    for topic in sorted(facts.topics_of(client) | listed.topics, key=str):
        wish = wishes.holds(facts, client, topic, listed.at, at)
        about: dict[str, Any] = {"clients": frozenset({client}), "topic": topic}
        if wish is Wish.YES and topic not in listed.topics:
            text = f"the subscription of {client} to {topic} was confirmed, but is lost"
            yield Violation(Broken.SUBSCRIPTION_LOST, "8.1", text, at, **about)
        elif wish is Wish.NO and topic in listed.topics:
            if wishes.may_be_undone(facts, client, topic, at):
                yield Kind.UNION
                continue
            ended = bool(facts.changes_of(client, topic))
            text = f"{client} is subscribed to {topic}, but no command can have caused that"
            yield Violation(Broken.SUBSCRIPTION_MADE, "2.2" if ended else "5", text, at, **about)
