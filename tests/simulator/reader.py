"""A client that recovers, as one that is written well behaves, and what SPEC section 8.10 promises it.

Owns: what the client has been sent, told and promised, and the verdict. Must never: act, or ask the core anything.

The client saves a position when it has processed what came before it, and comes back with the last one it has read.
Of two connections it believes the positions of the one on which it listened last. Other clients may save any position
that they are told, at any moment, and come back with it much later. So a *chain* keeps account of what has come by each
position: the connection on which it was told, and before that connection those of the position it began with.

Two recorders feed it: ``recovering`` in virtual time, and ``tests/histories/readers.py`` from a record of real
endpoints. Their clock begins at ``EPOCH``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from ingeborg.protocol.hashes import slot_of

NEVER = float("inf")

#: When a history begins, in seconds: texts say how much later something was.
EPOCH = 1000.0


class Connection(Protocol):
    """The operations that a recorder's connection needs."""

    closed_at: float | None


ConnectionT = TypeVar("ConnectionT", bound=Connection)


class Gap(NamedTuple):
    """``slots``, ``topics``: of these; both empty: of any."""

    at: float
    topics: frozenset[str]
    slots: frozenset[int]

    def names(self, topic: str) -> bool:
        """May it lack something?"""
        return not (self.topics or self.slots) or topic in self.topics or slot_of(topic) in self.slots


@dataclass
class Sent:
    """One sending of a publish. ``reply``: empty, if none has come."""

    at: float
    publisher: str
    reply: dict[str, Any] = field(default_factory=dict)
    replied_at: float = NEVER

    def is_accepted(self, partial: bool) -> bool:
        """Does its publisher know that it is published, and kept? ``partial``: what reached some is, too."""
        error = self.reply.get("error")
        return self.reply.get("kept") is True or (partial and error == "partial")


class Publication:
    """A payload, sent once or again."""

    def __init__(self, payload: str, topic: str, keep_s: int, dedup: bool | str) -> None:
        self.topic = topic  # "": a broadcast, which is never kept
        self.payload = payload
        self.keep_s = keep_s
        self.dedup = dedup
        self.sends: list[Sent] = []

    def accepted(self, since: float, partial: bool) -> list[Sent]:
        """The sendings after ``since`` of which the publisher knows that they were accepted. ``partial``: see
        ``Sent.is_accepted``; such a reply may be that of the duplicate of a sending from before ``since``."""
        partial = partial and all(sent.at > since for sent in self.sends)
        return [sent for sent in self.sends if sent.at > since and sent.is_accepted(partial)]


class Position(NamedTuple):
    """A position that was told. ``seen``: the payloads that had come on its chain by then, and ``gaps`` the gaps.
    ``began``: when the chain's first `listen` had succeeded."""

    at: float
    text: str
    seen: frozenset[str]
    gaps: tuple[Gap, ...]
    began: float

    @property
    def stamp(self) -> int:
        """Its stamp, by the clock of its cluster's life."""
        return int(self.text.rpartition(".")[2], 16)


class Line(Generic[ConnectionT]):
    """One connection of a reader's. ``recover``: what it listened with, a position that was told, or ``True``, or what
    nobody has told; ``began``: when that had succeeded."""

    def __init__(self, client: ConnectionT, recover: Position | str | bool, genuine: bool) -> None:
        self.client = client
        self.recover = recover.text if isinstance(recover, Position) else recover
        self.start = recover if isinstance(recover, Position) else None
        self.seen = set() if self.start is None else set(self.start.seen)
        self.gaps = [] if self.start is None else list(self.start.gaps)
        self.genuine = genuine  # no forged position
        self.began = NEVER
        self.recovered = False
        self.is_told = False  # a position
        self.gap_any = False
        self.order: dict[str, tuple[str, int]] = {}  # payload and part by mid, as they came first
        self.parts: Counter[str] = Counter()  # by topic: a `subscribe` that asks for what was kept begins a new one,
        self.asking: Counter[str] = Counter()  # and while one is under way what comes has no place in the order


@dataclass
class Wish(Generic[ConnectionT]):
    """A `subscribe` of one topic, or an `unsubscribe`, under way. ``asks``: for what was kept; ``reached``: when the
    position was told of which that is; ``until``: an `unsubscribe` may take effect until then."""

    line: Line[ConnectionT]
    topic: str
    added: bool
    asks: bool
    reached: float | None
    until: float


class Reader(Generic[ConnectionT]):
    """A client over all its connections."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lines: list[Line[ConnectionT]] = []
        self.positions: list[Position] = []  # of its present chain
        self.told: list[Position] = []  # all that it was ever told
        self.saved: list[Position] = []  # those of the connection that it listened on last
        self.began = NEVER  # the chain: when its first `listen` had succeeded
        self.got: dict[str, set[str]] = {}  # mids by payload
        self.gaps: list[Gap] = []
        self.since: dict[str, float] = {}  # topic -> subscribed from then on
        self.subscribed: dict[str, float] = {}  # topic -> when its last `subscribe` had succeeded
        self.leaving: dict[str, list[Wish[ConnectionT]]] = {}  # by topic, its `unsubscribe`s
        self.is_due = False  # it comes back in a moment
        self.faults: list[str] = []
        self.unasked: list[str] = []  # gaps behind positions that it had been given

    @property
    def line(self) -> Line[ConnectionT] | None:
        """Its last connection, if that is open."""
        if self.lines and self.lines[-1].client.closed_at is None:
            return self.lines[-1]
        return None

    @property
    def position(self) -> Position | bool:
        """What it listens with."""
        return self.positions[-1] if self.positions else True

    def is_leaving(self, topic: str, now: float) -> bool:
        """May an `unsubscribe`, of another connection perhaps, still take effect?"""
        return any(wish.until > now for wish in self.leaving.get(topic, ()))

    def wishes(self, wish: Wish[ConnectionT]) -> None:
        """It sends the command."""
        if not wish.added:
            self.since.pop(wish.topic, None)
            self.subscribed.pop(wish.topic, None)
            self.leaving.setdefault(wish.topic, []).append(wish)
        wish.line.asking[wish.topic] += wish.asks

    def answered(self, wish: Wish[ConnectionT], reply: dict[str, Any], now: float) -> None:
        """And gets the reply."""
        line, topic = wish.line, wish.topic
        succeeded = reply.get("result") == "success"
        line.asking[topic] -= wish.asks
        line.parts[topic] += wish.asks
        if not wish.added and succeeded:
            wish.until = now
        if wish.added and succeeded and line is self.line and not self.is_leaving(topic, now):
            since = wish.reached if wish.reached is not None and reply.get("recovered") else now
            self.since[topic] = min(self.since.get(topic, since), since)
            self.subscribed[topic] = now

    def listened(self, line: Line[ConnectionT], reply: dict[str, Any], now: float) -> None:
        """Its `listen` has succeeded."""
        line.began = now
        if reply.get("recovering") is not (line.recover is not True):
            self.faults.append(f"{self.name} listens with {line.recover}, and is told {reply}")
        if "position" in reply:
            self.heard(line, {"position": reply["position"]}, now)

    def heard(self, line: Line[ConnectionT], word: dict[str, Any], now: float) -> None:
        """A position, or a gap."""
        if "gap" in word:
            told = word["gap"]
            line.gap_any |= told is None
            gap = Gap(now, frozenset((told or {}).get("topics", ())), frozenset((told or {}).get("slots", ())))
            self.gaps.append(gap)
            line.gaps.append(gap)
            if line.genuine:
                self.unasked.append(f"{self.name} at {now - EPOCH:.3f}: {str(told)[:200]}")
        elif "position" in word:
            line.recovered |= "recovered" in word
            if line.recovered and not line.genuine and not line.gap_any:
                self.faults.append(f"{self.name}: a position that nobody gave, {line.recover}, was taken")
            began = line.began if line.start is None else line.start.began
            position = Position(now, word["position"], frozenset(line.seen), tuple(line.gaps), began)
            if line.genuine:
                self.told.append(position)
            if line is not self.lines[-1]:
                return
            if line.genuine:
                self.saved.append(position)
            if line.recover is True and not line.is_told:
                self.positions, self.began = [], line.began
            line.is_told = True
            self.positions.append(position)
        else:
            self.faults.append(f"{self.name} is sent {word}")

    def took(self, line: Line[ConnectionT], message: dict[str, Any]) -> None:
        """A message with a name."""
        mid, payload = message["mid"], message["broadcast"]
        self.got.setdefault(payload, set()).add(mid)
        line.seen.add(payload)
        topic = message["key"]
        line.parts[topic] += line.asking[topic] > 0
        line.order.setdefault(mid, (payload, line.parts[topic]))
        line.parts[topic] += line.asking[topic] > 0


def verdict(readers: Iterable[Reader[Any]], publications: Iterable[Publication], partial: bool) -> Iterator[str]:
    """What was promised and does not hold. ``partial``: see ``Sent.is_accepted``."""
    by_payload = {publication.payload: publication for publication in publications}
    for reader in readers:
        yield from reader.faults
        yield from _lost(reader, by_payload.values(), partial)
        yield from _strange(reader, by_payload)
        for line in reader.lines:
            yield from _order(reader, line, by_payload)


def duplicates_of_nothing(publications: Iterable[Publication]) -> Iterator[str]:
    """A publisher hears that its payload is new if it was published once. SPEC section 7."""
    for publication in publications:
        if len(publication.sends) == 1 and publication.sends[0].reply.get("duplicate") is True:
            yield f"{publication.payload} was sent once, and is told to be a duplicate"


def owed(reader: Reader[Any], publication: Publication, partial: bool) -> list[Sent]:
    """The sendings of which the reader has to have got one."""
    if not publication.keep_s:
        return []
    since = max(reader.since.get(publication.topic, NEVER), reader.began)
    return publication.accepted(since, partial)


def holes(
    reader: Reader[Any], line: Line[Any], publications: Iterable[Publication], partial: bool, before: float = NEVER
) -> Iterator[str]:
    """What a connection that has recovered from a position has not got, neither before that position on its chain nor
    since. It asks for nothing from before the last `subscribe` of a topic, which may have brought it elsewhere, and for
    nothing that was confirmed only at ``before`` or later."""
    start = line.start
    assert start is not None
    for publication in publications:
        topic = publication.topic
        if not publication.keep_s or publication.payload in line.seen:
            continue
        since = max(reader.subscribed.get(topic, NEVER), start.began)
        for sent in publication.accepted(since, partial):
            is_told = any(gap.at > sent.at and gap.names(topic) for gap in line.gaps)
            if sent.replied_at < before and not is_told:
                yield (
                    f"{reader.name} came back with {start.text}, told at {start.at - EPOCH:.3f}, and never got "
                    f"{publication.payload} of {topic!r}, published at {sent.at - EPOCH:.3f}"
                )


def not_sent(reader: Reader[Any], line: Line[Any], publications: Iterable[Publication]) -> Iterator[str]:
    """What a connection has not got that has recovered from a position that nobody told: all that is kept is owed to
    it. To be asked where nothing has been forgotten."""
    for publication in publications:
        since = reader.subscribed.get(publication.topic, NEVER)
        for sent in publication.sends:
            is_before = since < sent.at and sent.replied_at < line.began
            if publication.keep_s and is_before and sent.is_accepted(False) and publication.payload not in line.seen:
                yield f"{reader.name} listened with {line.recover}, and was not sent {publication.payload}"


def _lost(reader: Reader[Any], publications: Iterable[Publication], partial: bool) -> Iterator[str]:
    for publication in publications:
        topic = publication.topic
        for sent in owed(reader, publication, partial):
            if publication.payload not in reader.got and not _told_of(reader, topic, sent.at):
                yield (
                    f"{reader.name} never got {publication.payload} of {topic!r}, published at {sent.at - EPOCH:.3f}"
                    f" and confirmed at {sent.replied_at - EPOCH:.3f}, and was told of no gap"
                )


def _told_of(reader: Reader[Any], topic: str, at: float) -> bool:
    """Of a gap that may be of what was published then."""
    return any(gap.at > at and gap.names(topic) for gap in reader.gaps)


def _strange(reader: Reader[Any], by_payload: dict[str, Publication]) -> Iterator[str]:
    for payload, mids in reader.got.items():
        publication = by_payload.get(payload)
        if publication is None:
            yield f"{reader.name} got {payload}, which nobody published"
        elif len(mids) > len(publication.sends):
            yield f"{reader.name} got {payload} as {sorted(mids)}"


def _order(reader: Reader[Any], line: Line[Any], by_payload: dict[str, Publication]) -> Iterator[str]:
    """Of one topic, where one was confirmed before the other was sent. What its chain has had before is a repeat, which
    a client drops: after a crash it may come again behind later ones."""
    repeats = frozenset() if line.start is None else line.start.seen
    of_topic: dict[tuple[str, int], list[Publication]] = {}
    for payload, part in line.order.values():
        publication = by_payload.get(payload)
        # A client that subscribed later may get such a message, too.
        if publication is None or payload in repeats or len(publication.sends) > 1:
            continue
        if owed(reader, publication, True):
            of_topic.setdefault((publication.topic, part), []).append(publication)
    for came in of_topic.values():
        for index, one in enumerate(came):
            for later in came[index + 1 :]:
                sent = later.sends[0]
                if _told_of(reader, one.topic, sent.at):
                    continue  # it is not in the log any more, and has come by itself
                if sent.is_accepted(False) and sent.replied_at < one.sends[0].at:
                    yield f"{reader.name} got {one.payload} before {later.payload}, which was confirmed before it"
