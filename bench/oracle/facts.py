"""Clients' observations, and the assurances of a recorder: all knowledge of the judge.

Owns: the kinds of fact, and their indexes. Must never: judge, or know one recorder's format.

Times are numbers of one clock and one unit, the recorder's. The recorder also chooses the names (of clients,
connections, endpoints, topics).
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
    """The name of a client's subscription with a filter; a subscription without one has its topic as name."""

    topic: Name
    filter: Name


class Outcome(Enum):
    """The answer to a publish."""

    NEW = "success, and it was no duplicate"
    DUPLICATE = "success, and it was a duplicate"
    ACCEPTED = "success, or no error if only errors get a reply; the answer does not tell duplicates apart"
    PARTIAL = "some endpoints got it, some did not"
    TOLD = "another error"
    CUT_OFF = "nothing: its connection ended"
    UNANSWERED = "nothing, though its connection stayed"

    @property
    def succeeded(self) -> bool:
        """Return whether the answer was a success."""
        return self in (Outcome.NEW, Outcome.DUPLICATE, Outcome.ACCEPTED)


@dataclass(slots=True)
class Send:
    """One publish or broadcast.

    - ``over_at``: the time at which its outcome was known.
    - ``row``, ``number``: the sequence that it belongs to, and its position there.
    - ``done_at``: from then on it has no more effect, with any outcome. ``None``: this is certain only for a success.
    - ``reached``: for PARTIAL, the endpoints that certainly got it.
    - ``may_have_come``: it failed, but some clients could have got it; its retry comes to them again (section 7).
    - ``acknowledged``: the publisher asked for a reply.
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
        """The time from which it certainly has no more effect."""
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
    """All publishes of one payload to one topic (``None``: broadcasts), in the order sent.

    - ``due_at``: the planned time of the first, if the publisher sent it later.
    - ``explained_until``: no fault that begins later explains a second copy. None does that begins after the copy
      arrived.
    - ``met``: the filters at its topic that it meets, among all that any client had.
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
        """The time of its first publish."""
        return self.sends[0].at

    @property
    def over_at(self) -> float:
        """The time at which all outcomes were known."""
        return max(send.over_at for send in self.sends)


@dataclass(slots=True)
class Place:
    """The place where a client listens, from one ``listen`` on.

    - ``begun_at``, ``answered_at``: the times of the command and of its reply, a success or not.
    - ``until``: from then on the client did not listen there.
    - ``ended_at``: the end of its connection; ``replaced``: it ended with 4001.
    - ``read_at``: the time of the last frame.
    - ``slow``: the client does not always read. ``read_before``: it has read the messages due before then; for a slow
      client, if the recorder knows no more.
    - ``settled_at``: messages published from then on do not go to another place first. ``None``: from the end of the
      ``listen`` on.
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
        """The time from which the effect of the ``listen`` is certain: its reply, or its connection's end."""
        return min(self.answered_at, self.ended_at)

    @property
    def confirmed_at(self) -> float:
        """The time of its success."""
        return self.answered_at if self.succeeded else FOREVER


@dataclass(slots=True)
class Change:
    """A change of one client's wish for one topic. A refusal that changes nothing (section 5, *fix*) is no change.

    ``filter``: the command adds or ends the subscription with this filter; ``None``: it adds the one without, or ends
    all. ``replace``: the added subscription replaces all others.
    """

    client: Name
    topic: Name
    connection: Name
    added: bool
    at: float
    over_at: float = FOREVER  # its reply
    succeeded: bool = True
    filter: Name | None = None
    replace: bool = False

    def of(self, name: Name) -> bool | None:
        """Does the change add the subscription of this name (``True``), or end it? ``None``: neither."""
        if name == (self.topic if self.filter is None else Filtered(self.topic, self.filter)):
            return self.added
        return False if (self.replace if self.added else self.filter is None) else None


@dataclass(slots=True)
class Listed:
    """A client's subscribed topics, as reported or observed, at some instant between the two times."""

    client: Name
    at: float
    over_at: float
    topics: frozenset[Name]


class Note(NamedTuple):
    """A message on a connection."""

    at: float
    topic: Name | None
    payload: Any


class By(Enum):
    """The side that ended a connection."""

    NOBODY = "it is open, or was when the history ended"
    CLIENT = "its client"
    OTHER = "its endpoint, or a fault"


@dataclass(slots=True)
class Line:
    """One connection of a client. ``code``: the endpoint's close code, ``None`` without one. ``slow``: its client reads
    more slowly than its messages arrive."""

    connection: Name
    client: Name
    endpoint: Name = ""
    ended_at: float = FOREVER
    by: By = By.NOBODY
    code: int | None = None
    slow: bool = False
    notes: Sequence[Note] = ()


class Kind(Enum):
    """The reasons for weaker promises for a time."""

    CRASH = "an endpoint crashed, or may have been taken for dead (sections 7, 8.3)"
    CUT_OFF = "an endpoint ended in order and did not reach another (8.3)"
    CHANGE = "the endpoints did not stay the same (8.5)"
    MOVES = "endpoints come and go, so nobody knows whether a client's move went well (8.3)"
    GONE = "this life of an endpoint may have been taken for dead (8.3: it is not a surviving one)"
    UNION = "two writers may have missed each other, or a crashed one wrote late: the union stays (8.1)"
    LOOKUP = "with `lookup` routing duplicates are best effort (7)"
    KILL = "connections of this endpoint end because it was killed"


class Disturbance(NamedTuple):
    """A fault, or its consequence. ``where``: for GONE the endpoint's life, for KILL the endpoint."""

    begin: float
    end: float
    kind: Kind
    where: Name = None

    def meets(self, begin: float, end: float) -> bool:
        """Return whether the two periods overlap."""
        return self.begin <= end and begin <= self.end


class Terms(NamedTuple):
    """Bounds; the recorder has the reason for each.

    - ``read``: this long after a publish's success a client that reads has read it.
    - ``late``: this long after its command a change that failed, or got no answer, can still take effect.
    - ``moves``: a client that gets a message at both its places moved within this time of the publish.
    - ``survives``: a home's knowledge of payloads survives its crash (section 7, replica).
    """

    read: float = 0.0
    late: float = FOREVER
    moves: float = FOREVER
    survives: bool = False


@dataclass
class Facts:
    """All facts except the messages, which can be too many to hold at once.

    ``places``: the places of each client that was to listen, in the order begun; ``changes``: in the order sent.
    ``always``: the time from which a client has listened without a break, at any place, disturbed only by its own
    moves, if the recorder knows this. ``refused``: payloads that were published only in ways that change nothing.
    ``skipped``: by client and topic, how many messages its notifications with `skipped` stood for (section 2.8).
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
        """Return the clients that can have a wish for the topic: all that were to listen, for broadcasts."""
        return self.places if topic is None else self._audience.get(topic, ())

    def changes_of(self, client: Name, topic: Name) -> Sequence[Change]:
        """Return the changes of the client's subscription to the topic, or of a name with a filter (``Filtered``), in
        the order sent."""
        return self._changes.get((client, topic), ())

    def filters_of(self, client: Name, topic: Name | None) -> Collection[Filtered]:
        """Return the names of all subscriptions with a filter that the client ever had, or ended, at the topic."""
        return self._filters.get((client, topic), ())

    def sent(self, client: Name, topic: Name) -> Sequence[Change]:
        """Return all changes that the client sent for the topic, in order."""
        return self._sent.get((client, topic), ())

    def topics_of(self, client: Name) -> set[Name]:
        """Return the topics of all wishes that the client ever had, or ended, and the names of wishes with a filter."""
        return {topic for other, topic in self._changes if other == client}

    def disturbed(self, begin: float, end: float, *kinds: Kind, where: Name = None) -> bool:
        """Return whether such a disturbance overlapped this period."""
        return any(one.meets(begin, end) for kind in kinds for one in self._disturbances.get((kind, where), ()))
