"""The facts that the judge uses: clients' observations, and a recorder's own assurances.

Owns: the kinds of facts, and the indexes of facts. Must never: judge, or depend on the format of a recorder.

All times come from the recorder's clock and have its unit. The recorder also chooses the names of clients, connections,
endpoints and topics.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, NamedTuple

FOREVER = float("inf")

Name = Hashable


class Filtered(NamedTuple):
    """The name of a client's subscription with a filter. The name of a subscription without a filter is its topic."""

    topic: Name
    filter: Name


class Outcome(Enum):
    """The answer to a publish."""

    NEW = "success, and it was no duplicate"
    DUPLICATE = "success, and it was a duplicate"
    ACCEPTED = "success, or no error if only errors get a reply; the answer does not say if it was a duplicate"
    PARTIAL = "some endpoints got it, some did not"
    TOLD = "another error"
    CUT_OFF = "no answer, because the publisher's connection ended"
    UNANSWERED = "no answer, although the publisher's connection stayed open"

    @property
    def succeeded(self) -> bool:
        """Return whether the answer was a success."""
        return self in (Outcome.NEW, Outcome.DUPLICATE, Outcome.ACCEPTED)


@dataclass(slots=True)
class Send:
    """One publish or broadcast.

    - ``over_at``: the time at which the outcome was known.
    - ``row``, ``number``: the sequence to which the publish belongs, and its position in the sequence.
    - ``done_at``: the time from which the publish has no further effect, with any outcome. If it is ``None``, only a
      successful publish has no further effect after ``over_at``.
    - ``reached``: for PARTIAL, the endpoints that certainly got the message.
    - ``may_have_come``: the publish failed, but may have reached some clients, and its retry may reach them again
      (section 7).
    - ``acknowledged``: whether the publisher requested a reply.
    """

    at: float
    over_at: float
    outcome: Outcome
    endpoint: Name = ""
    row: Name = ""
    number: int = 0
    done_at: float | None = None
    reached: frozenset[Name] = frozenset()
    may_have_come: bool = False
    acknowledged: bool = True

    @property
    def settled_at(self) -> float:
        """The time from which the publish certainly has no further effect."""
        if self.done_at is not None:
            return self.done_at
        return self.over_at if self.outcome.succeeded else FOREVER


class Copy(NamedTuple):
    """One delivery of a message to a client."""

    client: Name
    connection: Name
    at: float


@dataclass(slots=True)
class Message:
    """All publishes of one payload to one topic, or all broadcasts of the payload if ``topic`` is ``None``, in the
    order sent.

    - ``due_at``: the planned time of the first publish, if the publisher sent it later.
    - ``explained_until``: a fault explains a second copy only if it begins before this time and before the copy
      arrives.
    - ``met``: the filters that the message meets, among all filters that any client had at the topic.
    """

    topic: Name | None
    payload: Any
    sends: list[Send]
    dedup: bool = True
    due_at: float | None = None
    explained_until: float = FOREVER
    met: frozenset[Name] = frozenset()

    @property
    def first_at(self) -> float:
        """The time of the first publish."""
        return self.sends[0].at

    @property
    def over_at(self) -> float:
        """The time at which the outcomes of all publishes were known."""
        return max(send.over_at for send in self.sends)


@dataclass(slots=True)
class Place:
    """A place where a client listens, which begins with a ``listen``.

    - ``begun_at``, ``answered_at``: the times of the command and of its reply, which is a success or an error.
    - ``until``: the time from which the client no longer listened there.
    - ``ended_at``: the time at which its connection ended. ``replaced``: whether it ended with 4001.
    - ``read_at``: the time at which the client received its last frame there.
    - ``slow``: whether the client sometimes does not read. ``read_before``: the client has read all messages that were
      due before this time. A recorder sets ``read_before`` for a slow client if it knows nothing else about what the
      client has read.
    - ``settled_at``: messages published from this time on do not go to another place first. ``None`` means the time at
      which the ``listen`` was over.
    """

    client: Name
    connection: Name
    endpoint: Name = ""
    life: Name = ""
    begun_at: float = -FOREVER
    answered_at: float = FOREVER
    succeeded: bool = True
    until: float = FOREVER
    ended_at: float = FOREVER
    replaced: bool = False
    read_at: float = -FOREVER
    slow: bool = False
    read_before: float | None = None
    settled_at: float | None = None

    @property
    def over_at(self) -> float:
        """The time from which the effect of the ``listen`` is certain, because its reply arrived or its connection
        ended."""
        return min(self.answered_at, self.ended_at)

    @property
    def confirmed_at(self) -> float:
        """The time of the success of the ``listen``, or ``FOREVER``."""
        return self.answered_at if self.succeeded else FOREVER


@dataclass(slots=True)
class Change:
    """A command that changes a client's subscriptions to one topic. A refused command that changes nothing (section 5,
    *fix*) is not a change.

    ``filter``: the command adds or ends the subscription with this filter. If it is ``None``, the command adds the
    subscription without a filter, or ends all subscriptions to the topic. ``replace``: the added subscription replaces
    all others.
    """

    client: Name
    topic: Name
    connection: Name
    added: bool
    at: float
    over_at: float = FOREVER  # the time of its reply
    succeeded: bool = True
    filter: Name | None = None
    replace: bool = False

    def of(self, name: Name) -> bool | None:
        """Return ``True`` if the change adds the subscription with this name, ``False`` if the change ends it, and
        ``None`` otherwise."""
        if name == (self.topic if self.filter is None else Filtered(self.topic, self.filter)):
            return self.added
        return False if (self.replace if self.added else self.filter is None) else None


@dataclass(slots=True)
class Listed:
    """The topics to which a client was subscribed at some instant between the two times, according to a reply or an
    observation."""

    client: Name
    at: float
    over_at: float
    topics: frozenset[Name]


class Note(NamedTuple):
    """A message that arrived on a connection."""

    at: float
    topic: Name | None
    payload: Any


class By(Enum):
    """The side that ended a connection."""

    NOBODY = "nobody: the connection is open, or was open when the history ended"
    CLIENT = "its client"
    OTHER = "its endpoint or a fault"


@dataclass(slots=True)
class Line:
    """One connection of a client. ``code``: the endpoint's close code, or ``None`` if there was none. ``slow``: whether
    the client reads more slowly than its messages arrive."""

    connection: Name
    client: Name
    endpoint: Name = ""
    ended_at: float = FOREVER
    by: By = By.NOBODY
    code: int | None = None
    slow: bool = False
    notes: Sequence[Note] = ()


class Kind(Enum):
    """The reasons why weaker promises apply for a while."""

    CRASH = "an endpoint crashed, or other endpoints may have considered it dead (sections 7, 8.3)"
    CUT_OFF = "an endpoint shut down cleanly, but could not reach another one (8.3)"
    CHANGE = "the set of endpoints changed (8.5)"
    MOVES = "endpoints come and go, so nobody knows whether a client's move went well (8.3)"
    GONE = "other endpoints may have considered this life of an endpoint dead, so it is not a surviving one (8.3)"
    UNION = "two writers may not have seen each other, or a crashed writer wrote late, and the union stays (8.1)"
    LOOKUP = "with `lookup` routing, duplicates are dropped only as a best effort (7)"
    KILL = "connections of this endpoint end because it was killed"


class Disturbance(NamedTuple):
    """A fault, or its consequence. ``where``: the endpoint's life for GONE, and the endpoint for KILL."""

    begin: float
    end: float
    kind: Kind
    where: Name = None

    def meets(self, begin: float, end: float) -> bool:
        """Return whether the disturbance overlaps this period."""
        return self.begin <= end and begin <= self.end


class Terms(NamedTuple):
    """Bounds on times. The recorder's code gives the reason for each.

    - ``read``: a client that reads has read a message within this time after the success of its publish.
    - ``late``: a change that failed, or got no answer, can still take effect within this time after its command.
    - ``moves``: if a client gets a message at both its places, it moved within this time before or after the publish.
    - ``survives``: whether a home's knowledge of payloads survives its crash (section 7, replica).
    """

    read: float = 0.0
    late: float = FOREVER
    moves: float = FOREVER
    survives: bool = False


@dataclass
class Facts:
    """All facts except the messages, of which there can be too many to hold in memory.

    ``places``: the places of each client that was meant to listen, in the order in which they began. ``changes``: all
    changes, in the order sent. ``always``: the time from which a client has listened at some place without a break,
    apart from its own moves. It includes only clients for which the recorder knows this time. ``refused``: payloads
    whose publishes were all refused without any effect. ``skipped``: the number of messages, by client and topic, that
    other messages replaced, as the client's notifications say in `skipped` (section 2.8).
    """

    places: Mapping[Name, Sequence[Place]]
    changes: Iterable[Change] = ()
    disturbances: Iterable[Disturbance] = ()
    terms: Terms = field(default_factory=Terms)
    always: Mapping[Name, float] = field(default_factory=dict)
    refused: frozenset[tuple[Name | None, Any]] = frozenset()
    skipped: Mapping[tuple[Name, Name], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._sent: defaultdict[tuple[Name, Name], list[Change]] = defaultdict(list)
        self._filters: defaultdict[tuple[Name, Name], dict[Filtered, None]] = defaultdict(dict)
        self._audience: defaultdict[Name, dict[Name, None]] = defaultdict(dict)
        for change in self.changes:
            self._sent[change.client, change.topic].append(change)
            if change.filter is not None:
                self._filters[change.client, change.topic][Filtered(change.topic, change.filter)] = None
            if change.added and change.client in self.places:
                self._audience[change.topic][change.client] = None
        self._changes: dict[tuple[Name, Name], list[Change]] = dict(self._sent)
        for (client, topic), names in self._filters.items():
            for name in (topic, *names):
                found = [(change, change.of(name)) for change in self._sent[client, topic]]
                self._changes[client, name] = [
                    replace(change, topic=name, added=added) for change, added in found if added is not None
                ]
        self._disturbances: defaultdict[tuple[Kind, Name], list[Disturbance]] = defaultdict(list)
        for one in self.disturbances:
            self._disturbances[one.kind, one.where].append(one)

    def audience(self, topic: Name | None) -> Collection[Name]:
        """Return the clients that may be subscribed to the topic. For broadcasts, return all clients that were meant to
        listen."""
        return self.places if topic is None else self._audience.get(topic, ())

    def changes_of(self, client: Name, topic: Name) -> Sequence[Change]:
        """Return the changes of one subscription of the client, in the order sent. ``topic`` is the subscription's
        name, which is a topic or a ``Filtered``."""
        return self._changes.get((client, topic), ())

    def filters_of(self, client: Name, topic: Name | None) -> Collection[Filtered]:
        """Return the names of all subscriptions with a filter that the client ever added or ended at the topic."""
        return self._filters.get((client, topic), ())

    def sent(self, client: Name, topic: Name) -> Sequence[Change]:
        """Return all changes that the client sent for the topic, in order."""
        return self._sent.get((client, topic), ())

    def topics_of(self, client: Name) -> set[Name]:
        """Return the names of all subscriptions that the client ever added or ended, with and without filters."""
        return {topic for other, topic in self._changes if other == client}

    def disturbed(self, begin: float, end: float, *kinds: Kind, where: Name = None) -> bool:
        """Return whether a disturbance of one of these kinds overlapped this period."""
        return any(one.meets(begin, end) for kind in kinds for one in self._disturbances.get((kind, where), ()))
