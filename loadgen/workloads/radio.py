"""The radio world: stations, songs, listeners and wish lists, drawn from a seed. Thesis 1.3.2.

Owns: the stations that each client listens to, the songs that each station plays, and the wish list of each client. The
same seed gives the same world. Each kind of draw has its own random stream, so that changing one option does not change
all other draws. Must never: read a clock, or know about the broker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import overload

from . import popularity
from .plan import Send
from .schedule import Change, News, Schedule, schedule
from .settings import WorkloadError
from .sizes import Sizes

#: The length of a song differs from ``song_s`` by up to this share, so that stations do not change songs in step.
_SONG_SPREAD = 0.2
#: The maximum number of attempts, per idle wish, to draw a song that is neither played nor already on the list. Only
#: tiny catalogues need all attempts.
_DRAWS_MAX = 4


@dataclass(frozen=True, slots=True)
class Crowd:
    """The listeners. ``wishes``: the average number of wish lists that contain a played song; ``wish_exponent``: the
    Zipf exponent of this number over the songs, with the most played song first (0: all songs are on equally many
    lists); ``idle_wishes``: the number of songs on each wish list that no station plays in this run. Subscriptions to
    such songs have a cost, but never cause a delivery."""

    clients: int
    listens: int  # stations that each client listens to
    wishes: float
    wish_exponent: float
    idle_wishes: int
    spread_s: float  # all reports of a change are sent within this number of seconds
    seed: int


@dataclass(frozen=True, slots=True)
class World:
    """Everything that is drawn for a run before the run starts. ``wishes``: for each client, the numbers of its topics
    that are played. ``idle``: for each client, the names of its other topics."""

    schedule: Schedule
    wishes: list[list[int]]
    idle: list[list[str]]
    subscribers: list[int]  # by topic number: how many wish lists contain the topic

    @property
    def expected(self) -> int:
        """The number of deliveries that the whole schedule must cause."""
        return sum(self.subscribers[news.topic] for news in self.schedule.news)

    @property
    def subscriptions(self) -> int:
        """The number of subscriptions on all wish lists together."""
        return sum(map(len, self.wishes)) + sum(map(len, self.idle))


class Catalogue(Sequence[str]):
    """All songs. Names are made from numbers and never stored, so a million songs take no memory."""

    def __init__(self, songs: int) -> None:
        self._songs = songs

    def __len__(self) -> int:
        return self._songs

    @overload
    def __getitem__(self, number: int) -> str: ...
    @overload
    def __getitem__(self, number: slice) -> list[str]: ...
    def __getitem__(self, number: int | slice) -> str | list[str]:
        if isinstance(number, slice):
            return [self[each] for each in range(*number.indices(self._songs))]
        if not 0 <= number < self._songs:
            raise IndexError(number)
        return f"Artist {number // 10:05d} - Track {number:07d}"


def radio(crowd: Crowd, *, stations: int, songs: int, song_s: float, duration_s: float) -> World:
    """Draw an invented radio world. Among N songs, a played song has rank r or less with probability √(r/N)."""
    for value, name, least in (
        (stations, "stations", 1),
        (songs, "songs", 1),
        (song_s, "song-s", 0.1),
        (duration_s, "duration", 1),
    ):
        if not value >= least:
            raise WorkloadError(f"--{name} has to be at least {least:g}")
    catalogue = Catalogue(songs)
    names = [f"station {number:05d}" for number in range(stations)]
    changes = list(_programme(names, catalogue, song_s, horizon_s(crowd, duration_s), Random(f"songs {crowd.seed}")))
    return world(changes, names, catalogue, crowd)


def horizon_s(crowd: Crowd, duration_s: float) -> float:
    """Return the time after which no song changes any more, so that the last reports still fall into the run."""
    if crowd.spread_s >= duration_s:
        raise WorkloadError("--spread-ms has to be less than --duration")
    return duration_s - crowd.spread_s


def _programme(
    names: Sequence[str], catalogue: Catalogue, song_s: float, horizon_s: float, random: Random
) -> Iterator[Change]:
    for station in names:
        at_s = random.uniform(0, song_s)
        while at_s < horizon_s:
            song = int(len(catalogue) * random.random() ** 2)
            yield Change(at_s, station, catalogue[song], int(at_s * 1000))
            at_s += song_s * random.uniform(1 - _SONG_SPREAD, 1 + _SONG_SPREAD)


def world(changes: Sequence[Change], stations: Sequence[str], catalogue: Sequence[str], crowd: Crowd) -> World:
    """Draw listeners and wish lists for given changes. ``catalogue``: the songs from which to draw idle wishes."""
    if crowd.clients < 1:
        raise WorkloadError("--clients has to be at least 1")
    if not 0 <= crowd.wishes <= crowd.clients:
        raise WorkloadError(f"--wishes has to be from 0 to the number of clients, {crowd.clients}")
    if not 1 <= crowd.listens <= len(stations):
        raise WorkloadError(f"--listens has to be from 1 to the number of stations, {len(stations)}")
    if crowd.idle_wishes < 0 or crowd.spread_s < 0:
        raise WorkloadError("--idle-wishes and --spread-ms cannot be negative")

    random = Random(f"listeners {crowd.seed}")
    listeners: dict[str, list[int]] = {station: [] for station in stations}
    for client in range(crowd.clients):
        for station in random.sample(stations, crowd.listens):
            listeners[station].append(client)
    plan = schedule(changes, listeners, crowd.clients, crowd.spread_s, Random(f"reports {crowd.seed}"))

    random = Random(f"wishes {crowd.seed}")
    plays = Counter(news.topic for news in plan.news)
    counts = popularity.counts(len(plan.topics), crowd.wishes, crowd.clients, crowd.wish_exponent)
    subscribers = [0] * len(plan.topics)
    wishes: list[list[int]] = [[] for _ in range(crowd.clients)]
    for (topic, _), count in zip(plays.most_common(), counts, strict=True):
        subscribers[topic] = count
        for client in random.sample(range(crowd.clients), count):
            wishes[client].append(topic)
    idle = _idle_wishes(catalogue, frozenset(plan.topics), crowd, Random(f"idle {crowd.seed}"))
    return World(plan, wishes, idle, subscribers)


def _idle_wishes(catalogue: Sequence[str], played: frozenset[str], crowd: Crowd, random: Random) -> list[list[str]]:
    result = []
    for _ in range(crowd.clients):
        mine: dict[str, None] = {}
        for _ in range(crowd.idle_wishes * _DRAWS_MAX):
            if len(mine) == crowd.idle_wishes:
                break
            topic = catalogue[random.randrange(len(catalogue))]
            if topic not in played:
                mine[topic] = None
        result.append(list(mine))
    return result


class AirPlan:
    """Presents a world as a ``Plan`` that has one segment and its own times. ``sizes``: the distribution from which
    each message's payload size is drawn."""

    def __init__(self, world: World, sizes: Sizes, seed: int, notes: Sequence[str] = ()) -> None:
        self._world = world
        self._wished = [frozenset(topics) for topics in world.wishes]
        plan = world.schedule
        self.topics: Sequence[str] = plan.topics
        self.connections = len(world.wishes)
        random = Random(f"sizes {seed}")
        self._sizes = [sizes.draw(random) for _ in plan.news]
        self.notes: Sequence[str] = [
            *notes,
            f"{self.connections:,} clients; {len(plan.news):,} news items about {len(plan.topics):,} songs "
            f"({plan.unheard:,} changes without a listener), {sum(map(len, plan.reports)):,} reports, "
            f"{world.expected:,} deliveries, {world.subscriptions:,} subscriptions",
        ]

    def subscriptions(self, connection: int) -> list[str]:
        """See ``Plan``."""
        return [self.topics[topic] for topic in self._world.wishes[connection]] + self._world.idle[connection]

    def receives(self, connection: int) -> frozenset[int]:
        """See ``Plan``."""
        return self._wished[connection]

    def expected(self, topic: int) -> int:
        """See ``Plan``."""
        return self._world.subscribers[topic]

    def publisher(self, topic: int, seq: int, by_ns: int) -> int | None:
        """See ``Plan``."""
        news = self._by_seq[topic, seq]
        return news.client if news.others_ns is None or news.others_ns > by_ns else None

    @cached_property
    def _by_seq(self) -> dict[tuple[int, int], News]:
        # This is made on first use, because only a message that has arrived too late needs it.
        return {(news.topic, news.seq): news for news in self._world.schedule.news}

    def sends(
        self, rate_per_s: float | None, duration_s: float, process: int = 0, processes: int = 1
    ) -> Iterator[Send]:
        """See ``Plan``. The world has its own times; ``duration_s`` is the length for which it was drawn."""
        news, of_clients = self._world.schedule.news, self._world.schedule.reports
        reports = [
            (report.at_ns, client, report.news, report.first)
            for client in range(process, len(of_clients), processes)
            for report in of_clients[client]
        ]
        for at_ns, client, number, first in sorted(reports):
            what = news[number]
            content = f"{what.start_ms} {what.station}"
            yield Send(at_ns, client, what.topic, what.seq, what.at_ns, first, self._sizes[number], content)
