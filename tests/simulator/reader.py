"""A client that recovers, as one that is written well behaves, and what SPEC section 8.10 promises it.

Owns: what the client has been sent, told and promised, and the verdict. Must never: act, or ask the core anything.

The client saves a position when it has worked off what came before it, and comes back with the last one it has read.
Of two connections it believes the positions of the one on which it listened last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ingeborg.protocol.hashes import slot_of

from .world import Client

NEVER = float("inf")


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
        return self.reply.get("duplicate") is False or (partial and error == "partial")


class Publication:
    """A payload, sent once or again. ``is_kept``: for how long it is kept was said."""

    def __init__(self, number: int, topic: str, keep_s: int, dedup: bool | str) -> None:
        self.topic = topic
        self.payload = f"m{number}"
        self.keep_s = keep_s
        self.dedup = dedup
        self.sends: list[Sent] = []


class Line:
    """One connection of a reader's. ``recover``: what it listened with; ``began``: when that had succeeded."""

    def __init__(self, client: Client, recover: str | bool, genuine: bool) -> None:
        self.client = client
        self.recover = recover
        self.genuine = genuine  # no forged position
        self.began = NEVER
        self.recovered = False
        self.is_told = False  # a position
        self.gap_any = False
        self.order: dict[str, tuple[str, int]] = {}  # payload and part by mid, as they came first
        self.parts: Counter[str] = Counter()  # by topic: a `subscribe` that asks for what was kept begins a new one,
        self.asking: Counter[str] = Counter()  # and while one is under way what comes has no place in the order


class Reader:
    """A client over all its connections."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lines: list[Line] = []
        self.positions: list[tuple[float, str]] = []  # of its present chain: when it read them
        self.began = NEVER  # the chain: when its first `listen` had succeeded
        self.got: dict[str, set[str]] = {}  # mids by payload
        self.gaps: list[Gap] = []
        self.since: dict[str, float] = {}  # topic -> subscribed from then on
        self.leaving: dict[str, list[list[float]]] = {}  # by topic, its `unsubscribe`s: until when each may take effect
        self.is_due = False  # it comes back in a moment
        self.faults: list[str] = []
        self.unasked: list[str] = []  # gaps behind positions that it had been given

    @property
    def line(self) -> Line | None:
        """Its last connection, if that is open."""
        if self.lines and self.lines[-1].client.closed_at is None:
            return self.lines[-1]
        return None

    @property
    def position(self) -> str | bool:
        """What it listens with."""
        return self.positions[-1][1] if self.positions else True

    def is_leaving(self, topic: str, now: float) -> bool:
        """May an `unsubscribe`, of another connection perhaps, still take effect?"""
        return any(until[0] > now for until in self.leaving.get(topic, ()))

    def listened(self, line: Line, reply: dict[str, Any], now: float) -> None:
        """Its `listen` has succeeded."""
        line.began = now
        if reply.get("recovering") is not (line.recover is not True):
            self.faults.append(f"{self.name} listens with {line.recover}, and is told {reply}")
        if "position" in reply:
            self.heard(line, {"position": reply["position"]}, now)

    def heard(self, line: Line, word: dict[str, Any], now: float) -> None:
        """A position, or a gap."""
        if "gap" in word:
            told = word["gap"]
            line.gap_any |= told is None
            gap = told or {}
            self.gaps.append(Gap(now, frozenset(gap.get("topics", ())), frozenset(gap.get("slots", ()))))
            if line.genuine:
                self.unasked.append(f"{self.name} at {now - 1000:.3f}: {str(told)[:200]}")
        elif "position" in word:
            line.recovered |= "recovered" in word
            if line.recovered and not line.genuine and not line.gap_any:
                self.faults.append(f"{self.name}: a position that nobody gave, {line.recover}, was taken")
            if line is not self.lines[-1]:
                return
            if line.recover is True and not line.is_told:
                self.positions, self.began = [], line.began
            line.is_told = True
            self.positions.append((now, word["position"]))
        else:
            self.faults.append(f"{self.name} is sent {word}")

    def took(self, line: Line, message: dict[str, Any]) -> None:
        """A message with a name."""
        mid, payload = message["mid"], message["broadcast"]
        self.got.setdefault(payload, set()).add(mid)
        topic = message["key"]
        line.parts[topic] += line.asking[topic] > 0
        line.order.setdefault(mid, (payload, line.parts[topic]))
        line.parts[topic] += line.asking[topic] > 0


def verdict(readers: Iterable[Reader], publications: Iterable[Publication], partial: bool) -> Iterator[str]:
    """What was promised and does not hold. ``partial``: see ``Sent.is_accepted``."""
    by_payload = {publication.payload: publication for publication in publications}
    for reader in readers:
        yield from reader.faults
        yield from _lost(reader, by_payload.values(), partial)
        yield from _strange(reader, by_payload)
        for line in reader.lines:
            yield from _order(reader, line, by_payload)


def owed(reader: Reader, publication: Publication, partial: bool) -> list[Sent]:
    """The sendings of which the reader has to have got one."""
    if not publication.keep_s:
        return []
    since = max(reader.since.get(publication.topic, NEVER), reader.began)
    return [sent for sent in publication.sends if sent.at > since and sent.is_accepted(partial)]


def _lost(reader: Reader, publications: Iterable[Publication], partial: bool) -> Iterator[str]:
    for publication in publications:
        topic = publication.topic
        for sent in owed(reader, publication, partial):
            if publication.payload not in reader.got and not _told_of(reader, topic, sent.at):
                yield (
                    f"{reader.name} never got {publication.payload} of {topic!r}, published at {sent.at - 1000:.3f}"
                    f" and confirmed at {sent.replied_at - 1000:.3f}, and was told of no gap"
                )


def _told_of(reader: Reader, topic: str, at: float) -> bool:
    """Of a gap that may be of what was published then."""
    return any(gap.at > at and gap.names(topic) for gap in reader.gaps)


def _strange(reader: Reader, by_payload: dict[str, Publication]) -> Iterator[str]:
    for payload, mids in reader.got.items():
        publication = by_payload.get(payload)
        if publication is None:
            yield f"{reader.name} got {payload}, which nobody published"
        elif len(mids) > len(publication.sends):
            yield f"{reader.name} got {payload} as {sorted(mids)}"


def _order(reader: Reader, line: Line, by_payload: dict[str, Publication]) -> Iterator[str]:
    """Of one topic, where one was confirmed before the other was sent."""
    of_topic: dict[tuple[str, int], list[Publication]] = {}
    for payload, part in line.order.values():
        publication = by_payload.get(payload)
        # Who subscribed later may get one that is handed over again after a crash, behind later ones.
        if publication is not None and len(publication.sends) == 1 and owed(reader, publication, True):
            of_topic.setdefault((publication.topic, part), []).append(publication)
    for came in of_topic.values():
        for index, one in enumerate(came):
            for later in came[index + 1 :]:
                sent = later.sends[0]
                if _told_of(reader, one.topic, sent.at):
                    continue  # it is not in the log any more, and has come by itself
                if sent.is_accepted(False) and sent.replied_at < one.sends[0].at:
                    yield f"{reader.name} got {one.payload} before {later.payload}, which was confirmed before it"
