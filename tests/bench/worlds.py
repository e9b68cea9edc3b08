"""The promises of SPEC section 8, the slow and plain way: the facts of every world that agrees with the clients' view.

A world gives for each command the instant at which it took effect, or says that it never did. Times are small integers;
if two effects are at one instant, either may be the first. A client is due a message if in every world, at every
instant of the publish, it was subscribed and listened at one connection, the same in all worlds.
``ingeborg.bench.oracle`` must agree.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from ingeborg.bench.oracle.facts import FOREVER, Change, Message, Name, Place, Send

NEVER = -1

World = tuple[int, ...]


def instants(begin: float, end: float) -> range:
    """Return all instants of a closed interval."""
    return range(int(begin), int(end) + 1)


def worlds(commands: Sequence[tuple[float, float, bool]], last: float) -> Iterator[World]:
    """Yield the worlds. Commands: from when, until when, and whether it certainly took effect; none that is sent after
    ``last`` does."""
    may = [
        [*instants(begin, min(end, last)), *([] if certain and begin <= last else [NEVER])]
        for begin, end, certain in commands
    ]
    return itertools.product(*may)


def newest(world: World, when: int) -> list[int]:
    """Return the commands that may be the last to have taken effect by then."""
    past = [at for at in world if at != NEVER and at <= when]
    return [index for index, at in enumerate(world) if past and at == max(past)]


def subscribed(changes: Sequence[Change], late: float, begin: float, end: float) -> set[bool]:
    """Return the possible answers to "was it subscribed?", in some world at some instant."""
    commands = [
        (one.at, one.over_at if one.succeeded else one.at + late, one.succeeded)
        for one in changes  # a failed command may still have taken effect, for a while
    ]
    found: set[bool] = set()
    for world in worlds(commands, end + late + 1):
        followed = [
            (one, other)
            for one, other in itertools.combinations(range(len(changes)), 2)
            if changes[one].connection == changes[other].connection
            and changes[one].succeeded
            and changes[other].succeeded
        ]
        if any(NEVER != world[other] < world[one] for one, other in followed):
            continue  # commands of one connection take effect in the order sent
        for when in instants(begin, end):
            last = newest(world, when)
            last = [one for one in last if not any((one, other) in followed for other in last)]
            found |= {changes[index].added for index in last} or {False}
    return found


def listening(places: Sequence[Place], begin: float, end: float) -> set[Name]:
    """Return the connections at which it listened in some world at some instant; ``None``: at none."""
    commands = [(one.begun_at, one.over_at, one.confirmed_at == one.over_at) for one in places]
    found: set[Name] = set()
    for world in worlds(commands, end + 1):
        for when in instants(begin, end):
            last = [places[index] for index in newest(world, when)]
            found |= {one.connection if when < one.until else None for one in last} or {None}
    return found


def due_at(message: Message, send: Send, places: Sequence[Place], changes: Sequence[Change], late: float) -> Name:
    """Return the connection to which this publish, the message's only one, was due; ``None``: to none."""
    assert message.sends == [send]
    if not send.outcome.succeeded or send.over_at == FOREVER:
        return None
    if subscribed(changes, late, send.at, send.over_at) != {True}:
        return None
    where = listening(places, send.at, send.over_at)
    return where.pop() if len(where) == 1 else None
