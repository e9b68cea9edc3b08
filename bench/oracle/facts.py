"""What clients saw, and what a recorder vouches for: all that the judge knows.

Owns: the kinds of fact, and their indexes. Must never: judge, or know one recorder's format.

Times are numbers of one clock and one unit, the recorder's. Names (of clients, connections, endpoints, topics) are
whatever it calls them.
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
    """The name of a client's subscription with a filter; that of one without is its topic."""

    topic: Name
    filter: Name


class Outcome(Enum):
    """What its publisher was told of a publish."""

    NEW = "success, and it was no duplicate"
    DUPLICATE = "success, and it was a duplicate"
    ACCEPTED = "success, or no error where none would be a success; whether a duplicate was not said"
    PARTIAL = "some endpoints got it, some did not"
    TOLD = "another error"
    CUT_OFF = "nothing: its connection ended"
    UNANSWERED = "nothing, though its connection stayed"

    @property
    def succeeded(self) -> bool:
        """Was it called a success?"""
        return self in (Outcome.NEW, Outcome.DUPLICATE, Outcome.ACCEPTED)


@dataclass(slots=True)
class Send:
    """One publish or broadcast.

    - ``over_at``: when its outcome was known.
    - ``row``, ``number``: whose order it belongs to, and where in it.
    - ``done_at``: from then on it has no more effect, whatever its outcome. ``None``: that is known of a success only.
    - ``reached``: of PARTIAL, the endpoints that certainly got it.
    - ``may_have_come``: it failed, and some may have got it all the same; its retry comes to them again (section 7).
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
        """From then on it has no more effect, for certain."""
        if self.done_at is not None:
            return self.done_at
        return self.over_at if self.outcome.succeeded else FOREVER


class Copy(NamedTuple):
    """A message came to a client."""

    client: Name
    connection: Name
    at: float


@dataclass(slots=True)
class Message:
    """All publishes of one payload to one topic (``None``: broadcasts), in the order sent.

    - ``due_at``: when the first was meant to be sent, if that was earlier than it was.
    - ``explained_until``: no fault that begins later explains a second copy. None does that begins after the copy came.
    - ``met``: the filters, of all that anybody had at its topic, that it meets.
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
        """When it was first sent."""
        return self.sends[0].at

    @property
    def over_at(self) -> float:
        """When all outcomes were known."""
        return max(send.over_at for send in self.sends)


@dataclass(slots=True)
class Place:
    """Where a client listens, from one ``listen`` on.

    - ``begun_at``, ``answered_at``: when it was sent, and when its reply came, a success or not.
    - ``until``: from then on the client did not listen there.
    - ``ended_at``: when its connection ended; ``replaced``: that was with 4001.
    - ``read_at``: when the last frame came.
    - ``slow``: the client does not always read. ``read_before``: it has read what was due before that; for a slow one,
      where no more is known.
    - ``settled_at``: what is published from then on is looked for nowhere else first. ``None``: when the ``listen`` is
      over.
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
        """When it is certain whether the ``listen`` took effect, and how: its reply, or its connection's end."""
        return min(self.answered_at, self.ended_at)

    @property
    def confirmed_at(self) -> float:
        """When its success came."""
        return self.answered_at if self.succeeded else FOREVER


@dataclass(slots=True)
class Change:
    """Of one client's wish for one topic. A refusal that changes nothing (section 5, *fix*) is none.

    ``filter``: the subscription with it is added, or ended; ``None``: that without one is added, or all are ended.
    ``replace``: it is added in place of all others.
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
        """Does it add the subscription of this name (``True``), or end it? ``None``: neither."""
        if name == (self.topic if self.filter is None else Filtered(self.topic, self.filter)):
            return self.added
        return False if (self.replace if self.added else self.filter is None) else None


@dataclass(slots=True)
class Listed:
    """The topics a client is said, or seen, to be subscribed to, at some instant between the two."""

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
    """Who ended a connection."""

    NOBODY = "it is open, or was when the history ended"
    CLIENT = "its client"
    OTHER = "its endpoint, or whatever befell it"


@dataclass(slots=True)
class Line:
    """One connection of a client. ``code``: the endpoint's, ``None`` where none came. ``slow``: its client reads more
    slowly than it is sent."""

    connection: Name
    client: Name
    endpoint: Name = ""
    ended_at: float = FOREVER
    by: By = By.NOBODY
    code: int | None = None
    slow: bool = False
    notes: Sequence[Note] = ()


class Kind(Enum):
    """Why, for a time, less is promised."""

    CRASH = "an endpoint crashed, or may have been taken for dead (sections 7, 8.3)"
    CUT_OFF = "an endpoint ended in order and did not reach another (8.3)"
    CHANGE = "the endpoints did not stay the same (8.5)"
    MOVES = "endpoints come and go, so of a client's move nobody knows that it went well (8.3)"
    GONE = "this life of an endpoint may have been taken for dead (8.3: it is not a surviving one)"
    UNION = "two writers may have missed each other, or one that crashed has written late: the union is kept (8.1)"
    LOOKUP = "with `lookup` routing duplicates are best effort (7)"
    KILL = "connections of this endpoint end, for it was killed"


class Disturbance(NamedTuple):
    """A fault, or what follows from one. ``where``: of GONE the endpoint's life, of KILL the endpoint."""

    begin: float
    end: float
    kind: Kind
    where: Name = None

    def meets(self, begin: float, end: float) -> bool:
        """Have the two times a moment in common?"""
        return self.begin <= end and begin <= self.end


class Terms(NamedTuple):
    """Bounds, each with a reason that is the recorder's.

    - ``read``: so long after a publish's success a client that reads has read what came to it.
    - ``late``: so long after it was sent a change that failed, or was not answered, may yet take effect.
    - ``moves``: a client that gets a message at both its places has moved within this of the publish.
    - ``survives``: what a home knows of payloads survives its crash (section 7, replica).
    """

    read: float = 0.0
    late: float = FOREVER
    moves: float = FOREVER
    survives: bool = False


@dataclass
class Facts:
    """All of them but the messages, which may be too many to be held at once.

    ``places``: of each client that was to listen, in the order begun; ``changes``: in the order sent. ``always``: from
    when on a client has listened all the time, here or there, with nothing but its own moves to disturb it: of those of
    whom the recorder knows that. ``refused``: what was published only in ways that change nothing.
    """

    places: Mapping[Name, Sequence[Place]]
    changes: Iterable[Change] = ()
    disturbances: Iterable[Disturbance] = ()
    terms: Terms = field(default_factory=Terms)
    always: Mapping[Name, float] = field(default_factory=dict)
    refused: frozenset[tuple[Name | None, Any]] = frozenset()

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
        """The clients that may have a wish for it: all that were to listen, for broadcasts."""
        return self.places if topic is None else self._audience.get(topic, ())

    def changes_of(self, client: Name, topic: Name) -> Sequence[Change]:
        """What adds or ends the client's subscription to the topic, or that of a name with a filter (``Filtered``), in
        the order sent."""
        return self._changes.get((client, topic), ())

    def filters_of(self, client: Name, topic: Name | None) -> Collection[Filtered]:
        """The names of all subscriptions with a filter that it ever had, or ended, at the topic."""
        return self._filters.get((client, topic), ())

    def sent(self, client: Name, topic: Name) -> Sequence[Change]:
        """Whatever it has sent about the topic, in that order."""
        return self._sent.get((client, topic), ())

    def topics_of(self, client: Name) -> set[Name]:
        """Those of which it ever had, or ended, a wish, and the names of those with a filter."""
        return {topic for other, topic in self._changes if other == client}

    def disturbed(self, begin: float, end: float, *kinds: Kind, where: Name = None) -> bool:
        """Was there such a disturbance then?"""
        return any(one.meets(begin, end) for kind in kinds for one in self._disturbances.get((kind, where), ()))
