"""The plan of a history: operations and faults with their times, all drawn from one seed before anything runs.

Owns: the draw. Must never: look at results; the same seed, store and network give the same plan.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from ingeborg.broker.core.cluster.membership import DEAD_AFTER_S
from ingeborg.protocol.hashes import SLOTS

from .allowances import PAUSE_UNNOTICED_S

#: Subscribing clients, and topics: few, so that every topic has several subscribers and every set changes.
SUBSCRIBERS, TOPICS = 6, 8

#: Commands a second in total: enough that several are under way at any time, few enough for two busy cores.
RATE = 45.0

#: A client that has sent `unlisten` listens again after this time, in seconds.
SILENT_S = 0.3

#: Slots with pages, pages in each, writes a second, and the fraction of removals among these.
PAGE_SLOTS, PAGES, PAGES_PER_S, GONE = 60, 3, 60.0, 0.2

#: Clients that recover, if endpoints keep a history, the operations of each per second, the fraction of retained
#: messages, and the time for which they are retained.
READERS, READING_RATE, KEPT, KEEP_S = 2, 2.5, 0.6, 3600

#: Pages with event streams, if endpoints keep a history, and the topics of each. Draws say when they leave and return.
STREAMS, STREAM_TOPICS = 2, 4

#: A `history` request for this many messages of a topic gets all retained ones (SPEC section 1.4); and the page size.
ALL, PAGE = 1000, 5

#: Parts of a subscription besides its topic that still leave it with all messages, as long as its client comes back
#: within the grace time: payloads here are strings, which have no attribute.
EVERYTHING = {"x": [{"exists": False}]}
DRESSES: tuple[dict[str, Any], ...] = (
    {},
    {"until": "disconnect"},
    {"ttl_s": KEEP_S},
    {"filter": EVERYTHING},
    {"filter": EVERYTHING, "until": "disconnect"},
    {"filter": EVERYTHING, "ttl_s": KEEP_S, "replace": True},
    {"replace": True},
)

#: Draws of positions for a reader that comes back, used in turn.
BACK = 64

#: Duration of the operations, in seconds, and after the last fault has ended.
OPERATIONS_S, AFTER_FAULTS_S = 5.0, 1.0

#: Operations begin this long before the first fault, in seconds.
BEFORE_FAULTS_S = 0.8

#: Kinds of faults for every history, each with its duration, in seconds.
OF_PROCESSES = {
    "kill": (0.3, 4.5),  # until the restart
    "stop": (0.3, 3.0),
    "pause": (0.2, PAUSE_UNNOTICED_S),  # unnoticed
    "long pause": (DEAD_AFTER_S + 0.5, DEAD_AFTER_S + 2.0),  # the others take it for dead
}
OF_LINKS = {"cut": (0.5, 5.5), "cut both ways": (0.5, 5.5), "delay": (1.0, 4.0), "loss": (1.0, 4.0)}
OF_STORES = {
    "lmdb": {"durable writer": (0.5, 5.0), "soft writer": (0.5, 5.0)},
    "riak": {"riak cut": (0.5, 4.0), "riak node": (0.5, 4.0), "riak silent": (0.5, 3.0), "riak down": (0.5, 3.0)},
}
#: A fault that records other settings of the cluster: endpoints take them at their next start. And the probability that
#: a seed adds one to a history in which endpoints end.
SETTINGS, CHANGES = "settings", 0.3
DURATIONS_S = OF_PROCESSES | OF_LINKS | OF_STORES["lmdb"] | OF_STORES["riak"] | {SETTINGS: (0.1, 0.5)}


@dataclass(frozen=True)
class Step:
    """One operation. ``do``: a method of ``run``; ``who``: a client's name."""

    at_s: float
    do: str
    who: str
    fields: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Fault:
    """One fault. ``where``: an endpoint's name; ``other``: for links, the other end's."""

    at_s: float
    kind: str
    where: str
    other: str
    lasts_s: float
    chance: float  # for other choices, 0 to 1


@dataclass(frozen=True)
class Writing:
    """A write of a page at the home of its slot, or a removal there."""

    at_s: float
    slot: int
    number: int
    version: int
    gone: bool


@dataclass(frozen=True)
class Plan:
    """A history before it happens."""

    seed: int
    store: str
    network: str
    endpoints: tuple[str, ...]
    subscribers: tuple[str, ...]
    topics: tuple[str, ...]
    at: dict[str, str]  # subscriber -> the endpoint where it listens at first
    steps: tuple[Step, ...]
    faults: tuple[Fault, ...]
    pages: tuple[Writing, ...] = ()
    readers: dict[str, tuple[float, ...]] = field(default_factory=dict)  # each with draws, from 0 to 1, see ``chosen``
    #: Pages with their topics and draws.
    streams: dict[str, tuple[tuple[str, ...], tuple[float, ...]]] = field(default_factory=dict)

    @property
    def kinds(self) -> list[str]:
        """The kinds of its faults, each once."""
        return sorted({fault.kind for fault in self.faults})


def possible(store: str, links: Sequence[str]) -> list[str]:
    """Return the kinds of faults with this store; ``links``: those of the network."""
    return [*OF_PROCESSES, *(kind for kind in OF_LINKS if kind in links), *OF_STORES[store]]


def make_plan(
    seed: int,
    *,
    store: str,
    network: str,
    endpoints: Sequence[str],
    links: Sequence[str],
    kinds: Sequence[str] | None = None,
    history: bool = False,
    readers: int = READERS,
) -> Plan:
    """Draw a plan. ``kinds``: these faults, each once or twice; ``None``: the seed chooses one to three kinds.
    ``history``: endpoints retain some messages, some pages have event streams, and this number of ``readers``
    recover."""
    if kinds is None:
        choosing = Random(f"{seed} kinds")
        kinds = choosing.sample(possible(store, links), choosing.choice((1, 2, 2, 3)))
        if history and {"kill", "stop"}.intersection(kinds) and choosing.random() < CHANGES:
            kinds.append(SETTINGS)
        kinds.sort()  # so that naming the same ones gives this plan again
    random = Random(f"{seed} {store} {network}")
    drawn = _faults(random, [kind for kind in kinds if kind != SETTINGS], endpoints)
    # Some draws are separate, so that older seeds keep their plans.
    drawn += _faults(Random(f"{seed} settings"), [kind for kind in kinds if kind == SETTINGS], endpoints)
    faults = tuple(sorted(drawn, key=lambda fault: fault.at_s))
    subscribers = tuple(f"{seed} s{number}" for number in range(SUBSCRIBERS))
    topics = tuple(f"{seed} t{number}" for number in range(TOPICS))
    ends = max([OPERATIONS_S, *(fault.at_s + fault.lasts_s + AFTER_FAULTS_S for fault in faults)])
    steps = _Steps(random, seed, endpoints, subscribers, topics).until(ends)
    at = {name: random.choice(endpoints) for name in subscribers}
    pages = tuple(_writings(Random(f"{seed} pages"), seed, ends))
    back, streams = {}, {}
    if history:
        reading = Random(f"{seed} readers")
        back = {f"{seed} r{number}": tuple(reading.random() for _ in range(BACK)) for number in range(readers)}
        at |= {name: reading.choice(endpoints) for name in back}
        steps = _kept(reading, steps)
        streams = _streams(Random(f"{seed} streams"), seed, topics)
        for name in back:
            steps += _readings(reading, name, endpoints, topics, ends)
        steps.sort(key=lambda step: step.at_s)
    about = (seed, store, network, tuple(endpoints), subscribers, topics)
    return Plan(*about, at, tuple(steps), faults, pages, back, streams)


def chosen(number: int, draw: float) -> int:
    """Choose the position with which a reader comes back: often one of the latest, sometimes any."""
    return number - 1 - int(draw**3 * number)


def _kept(random: Random, steps: Sequence[Step]) -> list[Step]:
    """Return the same operations, with some payloads retained each time that they are published."""
    kept: dict[Any, bool] = {}
    found = []
    for step in steps:
        if step.do == "publish" and kept.setdefault(step.fields["payload"], random.random() < KEPT):
            step = replace(step, fields={**step.fields, "keep_s": KEEP_S})
        found.append(step)
    return found


def _readings(
    random: Random, name: str, endpoints: Sequence[str], topics: Sequence[str], ends: float
) -> Iterator[Step]:
    """Draw a reader's operations: it comes back, here or elsewhere, and changes its subscriptions, perhaps with
    retained messages. Draws choose the positions of ``recover`` and ``since`` by number, see ``chosen``."""
    yield Step(0.0, "subscribe", name, {"topic": random.sample(topics, len(topics) - 2)})
    at_s = 0.5
    while at_s < ends:
        topic, draw = [random.choice(topics)], random.random()
        dress = {"topic": topic, **random.choice(DRESSES)}
        if draw < 0.33:
            yield Step(at_s, random.choice(("move", "reconnect")), name, {"to": random.choice(endpoints)})
        elif draw < 0.4:
            yield Step(at_s, "listen anew", name, {"recover": random.random()})
        elif draw < 0.5:
            yield Step(at_s, "subscribe", name, dress)
        elif draw < 0.6:
            yield Step(at_s, "subscribe", name, {**dress, "last": random.randint(1, 5)})
        elif draw < 0.75:
            yield Step(at_s, "subscribe", name, {**dress, "since": random.random()})
        elif draw < 0.87:
            yield Step(at_s, "unsubscribe", name, {"topic": topic})
        else:
            yield Step(at_s, "history", name, {"topic": topic[0], "last": ALL})
        at_s += random.expovariate(READING_RATE)


def _streams(random: Random, seed: int, topics: Sequence[str]) -> dict[str, tuple[tuple[str, ...], tuple[float, ...]]]:
    return {
        f"{seed} e{number}": (
            tuple(random.sample(topics, STREAM_TOPICS)),
            tuple(random.random() for _ in range(BACK)),
        )
        for number in range(STREAMS)
    }


def _writings(random: Random, seed: int, ends: float) -> Iterator[Writing]:
    slots = random.sample(range(SLOTS), PAGE_SLOTS)
    at_s = 0.0
    for version in itertools.count(1):
        at_s += random.expovariate(PAGES_PER_S)
        if at_s >= ends:
            return
        # The number belongs to the seed: one bed keeps the pages of several histories.
        number = PAGES * seed + random.randrange(PAGES)
        yield Writing(at_s, random.choice(slots), number, version, random.random() < GONE)


def _faults(random: Random, kinds: Sequence[str], endpoints: Sequence[str]) -> list[Fault]:
    faults = []
    for kind in kinds:
        for _ in range(random.choice((1, 1, 2))):
            where, other = random.sample(endpoints, 2)
            at_s = random.uniform(BEFORE_FAULTS_S, OPERATIONS_S - 1.5)
            faults.append(Fault(at_s, kind, where, other, random.uniform(*DURATIONS_S[kind]), random.random()))
    return faults


class _Steps:
    def __init__(
        self,
        random: Random,
        seed: int,
        endpoints: Sequence[str],
        subscribers: Sequence[str],
        topics: Sequence[str],
    ) -> None:
        self._random = random
        self._seed = seed
        self._endpoints = endpoints
        self._subscribers = subscribers
        self._topics = topics
        self._number = 0
        self._published: list[tuple[str, dict[str, Any]]] = []  # publishers and fields, to repeat
        self._broadcast: dict[str, Any] = {}  # the last one's

    def until(self, ends: float) -> list[Step]:
        """Subscribe everybody to half of the topics, then anything."""
        steps = [
            Step(0.0, "subscribe", name, {"topic": self._random.sample(self._topics, len(self._topics) // 2)})
            for name in self._subscribers
        ]
        at_s = 0.3
        while at_s < ends:
            steps.append(self._step(at_s))
            if steps[-1].do == "unlisten":
                steps.append(Step(at_s + SILENT_S, "listen again", steps[-1].who))
            at_s += self._random.expovariate(RATE)
        return sorted(steps, key=lambda step: step.at_s)

    def _step(self, at_s: float) -> Step:
        random = self._random
        draw = random.random()
        subscriber = random.choice(self._subscribers)
        publisher = f"{self._seed} p-{random.choice(self._endpoints)}"
        if draw < 0.70:
            fields = self._publish()
            self._published.append((publisher, fields))
            return Step(at_s, "publish", publisher, fields)
        if draw < 0.79 and self._published:
            former, fields = random.choice(self._published[-8:])
            # With another publisher's own key it would be another message.
            return Step(at_s, "publish", former if isinstance(fields["dedup"], str) else publisher, dict(fields))
        if draw < 0.83:
            payload, ack = self._payload("b"), random.random() < 0.7
            fields = {"payload": payload, "ack": ack, "dedup": self._number % 4 > 0}
            if self._number % 3 == 0 and self._broadcast:
                fields = self._broadcast  # again
            self._broadcast = dict(fields)
            return Step(at_s, "broadcast", publisher, fields)
        if draw < 0.90:
            return Step(at_s, "subscribe", subscriber, {"topic": random.sample(self._topics, random.randint(1, 3))})
        if draw < 0.94:
            return Step(at_s, "unsubscribe", subscriber, {"topic": random.sample(self._topics, random.randint(1, 2))})
        if draw < 0.96:
            return Step(at_s, "move", subscriber, {"to": random.choice(self._endpoints)})
        if draw < 0.97:
            return Step(at_s, "reconnect", subscriber, {"to": random.choice(self._endpoints)})
        if draw < 0.975:
            return Step(at_s, "listen again", subscriber)
        if draw < 0.98:
            return Step(at_s, "unlisten", subscriber)
        # Operations that have to be refused, and to change nothing.
        if random.random() < 0.5:
            return Step(at_s, "subscribe", subscriber, {"topic": [random.choice(self._topics), ""]})
        return Step(at_s, "publish", publisher, {**self._publish(), "timestamp": "no number"})

    def _publish(self) -> dict[str, Any]:
        random = self._random
        fields: dict[str, Any] = {"topic": random.choice(self._topics), "payload": self._payload("m")}
        fields["ack"] = random.random() < 0.7
        fields["dedup"] = random.random() < 0.8
        if self._number % 5 == 0:
            fields["timestamp"] = 1431104020907  # as in listing 4.4
        if self._number % 6 == 0:
            fields["dedup"] = f"{self._seed} k{self._number}"
        return fields

    def _payload(self, kind: str) -> str:
        # The seed's own: if another history on the same endpoints had sent it, it would be a duplicate.
        self._number += 1
        return f"{self._seed} {kind}{self._number}"
