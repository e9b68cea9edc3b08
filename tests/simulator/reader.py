"""A well-written client that recovers, and the promises of SPEC section 8.10 to it.

Owns: the frames and promises that the client got, and the verdict. Must never: act, or ask the core anything.

The client saves a position when it has processed everything before that position, and comes back with the last one that
it has read. If it has two connections, it believes the positions of the one on which it listened last. Other clients
may save any position that they get, at any moment, and come back with it much later. So a *chain* records for each
position which messages had come by then: on the connection that sent the position, and before that on the chain of the
position with which this connection began.

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

#: The beginning of a history, in seconds; texts show times relative to it.
EPOCH = 1000.0


class Connection(Protocol):
    """The operations that a recorder's connection needs."""

    closed_at: float | None


ConnectionT = TypeVar("ConnectionT", bound=Connection)


class Gap(NamedTuple):
    """A reported gap. ``slots``, ``topics``: those affected; both empty: all."""

    at: float
    topics: frozenset[str]
    slots: frozenset[int]

    def names(self, topic: str) -> bool:
        """Can the gap affect the topic?"""
        return not (self.topics or self.slots) or topic in self.topics or slot_of(topic) in self.slots


@dataclass
class Sent:
    """One sending of a publish. ``reply``: empty, if none has come."""

    at: float
    publisher: str
    reply: dict[str, Any] = field(default_factory=dict)
    replied_at: float = NEVER

    def is_accepted(self, partial: bool) -> bool:
        """Does the publisher know that its message is published and kept? ``partial``: a partial delivery counts."""
        error = self.reply.get("error")
        return self.reply.get("kept") is True or (partial and error == "partial")


class Publication:
    """A payload, sent once or several times."""

    def __init__(self, payload: str, topic: str, keep_s: int, dedup: bool | str) -> None:
        self.topic = topic  # "": a broadcast, which is never kept
        self.payload = payload
        self.keep_s = keep_s
        self.dedup = dedup
        self.sends: list[Sent] = []

    def accepted(self, since: float, partial: bool) -> list[Sent]:
        """Return the sendings after ``since`` that the publisher knows to be accepted. ``partial``: see
        ``Sent.is_accepted``; such a reply may belong to the duplicate of a sending from before ``since``."""
        partial = partial and all(sent.at > since for sent in self.sends)
        return [sent for sent in self.sends if sent.at > since and sent.is_accepted(partial)]


class Position(NamedTuple):
    """A position that a client got. ``seen``, ``gaps``: the payloads and gaps that its chain had by then. ``began``:
    when the chain's first `listen` succeeded."""

    at: float
    text: str
    seen: frozenset[str]
    gaps: tuple[Gap, ...]
    began: float

    @property
    def stamp(self) -> int:
        """Its stamp, by the clock of its cluster's epoch."""
        return int(self.text.rpartition(".")[2], 16)


class Line(Generic[ConnectionT]):
    """One connection of a reader. ``recover``: the value of its `listen`: a position that an endpoint sent, ``True``,
    or a position that none sent. ``began``: when that `listen` succeeded."""

    def __init__(self, client: ConnectionT, recover: Position | str | bool, genuine: bool) -> None:
        self.client = client
        self.recover = recover.text if isinstance(recover, Position) else recover
        self.start = recover if isinstance(recover, Position) else None
        self.seen = set() if self.start is None else set(self.start.seen)
        self.gaps = [] if self.start is None else list(self.start.gaps)
        self.genuine = genuine  # not a forged position
        self.began = NEVER
        self.recovered = False
        self.is_told = False  # whether a position has come
        self.gap_any = False
        self.order: dict[str, tuple[str, int]] = {}  # payload and part by mid, as they came first
        self.parts: Counter[str] = Counter()  # by topic: a `subscribe` that asks for kept messages begins a new part,
        self.asking: Counter[str] = Counter()  # and while it is under way, messages have no place in the order


@dataclass
class Wish(Generic[ConnectionT]):
    """A `subscribe` or `unsubscribe` of one topic, under way. ``asks``: it asks for kept messages. ``reached``: when
    the position that it names came. ``until``: the last time at which an `unsubscribe` can take effect."""

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
        self.positions: list[Position] = []  # the present chain's
        self.told: list[Position] = []  # all that ever came
        self.saved: list[Position] = []  # those of the connection on which it listened last
        self.began = NEVER  # when the first `listen` of the chain succeeded
        self.got: dict[str, set[str]] = {}  # mids by payload
        self.gaps: list[Gap] = []
        self.since: dict[str, float] = {}  # topic -> when its subscription began
        self.subscribed: dict[str, float] = {}  # topic -> when its last `subscribe` succeeded
        self.leaving: dict[str, list[Wish[ConnectionT]]] = {}  # by topic: its `unsubscribe`s
        self.is_due = False  # it comes back in a moment
        self.faults: list[str] = []
        self.unasked: list[str] = []  # gaps after positions that an endpoint had sent

    @property
    def line(self) -> Line[ConnectionT] | None:
        """Its last connection, if that is open."""
        if self.lines and self.lines[-1].client.closed_at is None:
            return self.lines[-1]
        return None

    @property
    def position(self) -> Position | bool:
        """The value for its next `listen`."""
        return self.positions[-1] if self.positions else True

    def is_leaving(self, topic: str, now: float) -> bool:
        """Can an `unsubscribe`, perhaps on another connection, still take effect?"""
        return any(wish.until > now for wish in self.leaving.get(topic, ()))

    def wishes(self, wish: Wish[ConnectionT]) -> None:
        """Note that it sends the command."""
        if not wish.added:
            self.since.pop(wish.topic, None)
            self.subscribed.pop(wish.topic, None)
            self.leaving.setdefault(wish.topic, []).append(wish)
        wish.line.asking[wish.topic] += wish.asks

    def answered(self, wish: Wish[ConnectionT], reply: dict[str, Any], now: float) -> None:
        """Note the reply to the command."""
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
        """Note the success of its `listen`."""
        line.began = now
        if reply.get("recovering") is not (line.recover is not True):
            self.faults.append(f"{self.name} listens with {line.recover}, and is told {reply}")
        if "position" in reply:
            self.heard(line, {"position": reply["position"]}, now)

    def heard(self, line: Line[ConnectionT], word: dict[str, Any], now: float) -> None:
        """Note a position or a gap."""
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
        """Note a message with a `mid`."""
        mid, payload = message["mid"], message["broadcast"]
        self.got.setdefault(payload, set()).add(mid)
        line.seen.add(payload)
        topic = message["key"]
        line.parts[topic] += line.asking[topic] > 0
        line.order.setdefault(mid, (payload, line.parts[topic]))
        line.parts[topic] += line.asking[topic] > 0


def verdict(readers: Iterable[Reader[Any]], publications: Iterable[Publication], partial: bool) -> Iterator[str]:
    """Return the broken promises. ``partial``: see ``Sent.is_accepted``."""
    by_payload = {publication.payload: publication for publication in publications}
    for reader in readers:
        yield from reader.faults
        yield from _lost(reader, by_payload.values(), partial)
        yield from _strange(reader, by_payload)
        for line in reader.lines:
            yield from _order(reader, line, by_payload)


def duplicates_of_nothing(publications: Iterable[Publication]) -> Iterator[str]:
    """Yield the payloads that were sent once and called duplicates nevertheless. SPEC section 7."""
    for publication in publications:
        if len(publication.sends) == 1 and publication.sends[0].reply.get("duplicate") is True:
            yield f"{publication.payload} was sent once, and is told to be a duplicate"


def owed(reader: Reader[Any], publication: Publication, partial: bool) -> list[Sent]:
    """Return the sendings of which the reader must have got one."""
    if not publication.keep_s:
        return []
    since = max(reader.since.get(publication.topic, NEVER), reader.began)
    return publication.accepted(since, partial)


def holes(
    reader: Reader[Any], line: Line[Any], publications: Iterable[Publication], partial: bool, before: float = NEVER
) -> Iterator[str]:
    """Yield the messages missing on a connection that has recovered from a position. A message is missing if it came
    neither on the position's chain nor afterwards. Exempt are messages from before the topic's last `subscribe`, which
    may have brought them elsewhere, and those confirmed at ``before`` or later."""
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
    """Yield the messages missing on a connection that has recovered from a position that no endpoint sent: it must get
    everything that is kept. Use this only if nothing has been forgotten."""
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
    """Has a gap been reported that can explain the loss of a message published then?"""
    return any(gap.at > at and gap.names(topic) for gap in reader.gaps)


def _strange(reader: Reader[Any], by_payload: dict[str, Publication]) -> Iterator[str]:
    for payload, mids in reader.got.items():
        publication = by_payload.get(payload)
        if publication is None:
            yield f"{reader.name} got {payload}, which nobody published"
        elif len(mids) > len(publication.sends):
            yield f"{reader.name} got {payload} as {sorted(mids)}"
        elif (
            len(publication.sends) == 1
            and mids != {(reply := publication.sends[0].reply).get("mid")}
            and "mid" in reply
        ):
            yield f"{reader.name} got {payload} as {sorted(mids)}, and its publisher got {reply}"


def _order(reader: Reader[Any], line: Line[Any], by_payload: dict[str, Publication]) -> Iterator[str]:
    """Check the order within a topic, where one message was confirmed before the other was sent. A message that the
    chain has already had is a repeat, which a client drops: after a crash it can follow later ones."""
    repeats = frozenset() if line.start is None else line.start.seen
    of_topic: dict[tuple[str, int], list[Publication]] = {}
    for payload, part in line.order.values():
        publication = by_payload.get(payload)
        # A client that subscribed later can get such a message as well.
        if publication is None or payload in repeats or len(publication.sends) > 1:
            continue
        if owed(reader, publication, True):
            of_topic.setdefault((publication.topic, part), []).append(publication)
    for came in of_topic.values():
        for index, one in enumerate(came):
            for later in came[index + 1 :]:
                sent = later.sends[0]
                if _told_of(reader, one.topic, sent.at):
                    continue  # it is no longer in the log, and came live
                if sent.is_accepted(False) and sent.replied_at < one.sends[0].at:
                    yield f"{reader.name} got {one.payload} before {later.payload}, which was confirmed before it"
