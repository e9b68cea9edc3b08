"""Streams of records and reads, as a broker sees them: publishers publish records; subscribers are away, come back, and
read the records that they missed.

Owns: the drawing of such a stream, from a seed alone. Must never: depend on a policy.

A subscriber is away for an exponentially distributed time, and comes back. It reads every record that it has missed, in
the order of publication, and goes away again. A stream has no records without subscribers, because no broker would keep
them.
"""

from __future__ import annotations

import heapq
import random
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ingeborg.bench.caching.log import Play, songs
from ingeborg.bench.caching.requests import following

#: The number of subscribers, and the mean number of topics for which each subscriber wishes. A topic has at most
#: ``CLIENTS`` subscribers.
CLIENTS: Final = 2_000
WISHES: Final = 16

#: Exponent of Zipf's law for the spread of subscribers over topics, as in loadgen's radio world. A topic's number of
#: publications is independent of its subscribers, unless the stream says otherwise.
WISH_EXPONENT: Final = 0.8

#: Mean absence of a subscriber, which comes back four times a day.
AWAY_S: Final = 6 * 3_600.0

#: Numbers of topics and publications of the synthetic streams, and the length of the streams. That length is a day,
#: like the length of the now-playing log.
TOPICS: Final = 10_000
PUBLICATIONS: Final = 60_000
DAY_S: Final = 86_400.0

#: Mean absence of a subscriber that never comes back: 30,000 years.
NEVER_S: Final = 1e12

#: Bytes of each payload if all have one size. Otherwise these are the smallest and the largest size.
EVEN_BYTES: Final = 100
LEAST_BYTES, MOST_BYTES = 50, 5_000


class Publication(NamedTuple):
    """The publication of a record of this size to a topic."""

    at_s: float
    topic: int
    size: int


@dataclass
class Stream:
    """A stream. ``sizes`` and ``readers`` have the bytes and the number of subscribers of each record. ``events`` has a
    record's number when it is published, and the number's complement (``~``) at each read."""

    sizes: array[int] = field(default_factory=lambda: array("l"))
    readers: array[int] = field(default_factory=lambda: array("l"))
    events: array[int] = field(default_factory=lambda: array("l"))

    @property
    def bytes(self) -> int:
        """Return the bytes of all records."""
        return sum(self.sizes)

    def room(self, share: float) -> int:
        """Return this share of the bytes of all records."""
        return int(self.bytes * share)

    def following(self) -> list[int]:
        """Return, for each event, the index of its record's next read. An index beyond the end means that there is no
        next read."""
        return following([max(event, ~event) for event in self.events])


def drawn(
    publications: Iterable[Publication],
    subscribers: Sequence[Sequence[int]],
    away_s: Sequence[float],
    numbers: random.Random,
    *,
    to_end: bool = False,
) -> Stream:
    """Draw the stream of these publications, which are in the order of their times. ``subscribers`` has the subscribers
    of each topic, and ``away_s`` the mean absence of each subscriber. With ``to_end``, each subscriber comes back once
    after the last publication, so that all subscribers have received everything. Otherwise the stream ends with that
    publication."""
    stream = Stream()
    sizes, readers, events = stream.sizes, stream.readers, stream.events
    missed: list[list[int]] = [[] for _ in away_s]
    returns = [(numbers.expovariate(1 / mean_s), client) for client, mean_s in enumerate(away_s)]
    heapq.heapify(returns)
    for at_s, topic, size in publications:
        those = subscribers[topic]
        if not those:
            continue
        while returns[0][0] <= at_s:
            back_s, client = returns[0]
            events.extend(missed[client])
            missed[client].clear()
            heapq.heapreplace(returns, (back_s + numbers.expovariate(1 / away_s[client]), client))
        record = len(sizes)
        sizes.append(size)
        readers.append(len(those))
        events.append(record)
        for client in those:
            missed[client].append(~record)
    if to_end:
        for _, client in sorted(returns):
            events.extend(missed[client])
    return stream


def wishes(
    topics: int, each: float, numbers: random.Random, ranks: Sequence[int] | None = None, clients: int = CLIENTS
) -> list[list[int]]:
    """Draw the subscribers of each topic. ``each`` is the mean number of topics that a subscriber wishes for. ``ranks``
    has the topics, with the most popular first. If ``ranks`` is None, the order is random."""
    order = ranks if ranks is not None else numbers.sample(range(topics), topics)
    weights = [rank**-WISH_EXPONENT for rank in range(1, topics + 1)]
    scale = clients * each / sum(weights)
    subscribers: list[list[int]] = [[] for _ in range(topics)]
    for topic, weight in zip(order, weights, strict=True):
        count = min(clients, int(scale * weight + numbers.random()))
        subscribers[topic] = numbers.sample(range(clients), count)
    return subscribers


def absences(mean_s: float, spread: float, numbers: random.Random, clients: int = CLIENTS) -> list[float]:
    """Draw the mean absence of each subscriber. ``mean_s`` is the mean over all subscribers. ``spread`` is the standard
    deviation of the logarithm. If ``spread`` is 0, all subscribers have the same mean."""
    if not spread:
        return [mean_s] * clients
    return [mean_s * numbers.lognormvariate(-spread * spread / 2, spread) for _ in range(clients)]


def zipf(
    exponent: float,
    seed: int,
    away_s: float = AWAY_S,
    each: float = WISHES,
    *,
    even: bool = True,
    gone: float = 0.0,
    topics: int = TOPICS,
    count: int = PUBLICATIONS,
) -> Stream:
    """Draw records at a constant rate for a day, with topics by Zipf's law. With ``even``, all records have one size.
    Otherwise, the sizes range from few bytes to many bytes, and each order of magnitude is equally frequent. ``gone``
    is the share of subscribers that never come back."""
    numbers = random.Random(f"reads {exponent:g} {seed}")
    subscribers = wishes(topics, each, numbers)
    chosen = numbers.choices(range(topics), [rank**-exponent for rank in range(1, topics + 1)], k=count)
    step_s = DAY_S / count
    ratio = MOST_BYTES / LEAST_BYTES
    publications = [
        Publication(at * step_s, topic, EVEN_BYTES if even else round(LEAST_BYTES * ratio ** numbers.random()))
        for at, topic in enumerate(chosen)
    ]
    away = [away_s] * CLIENTS
    if gone:
        away = [NEVER_S if numbers.random() < gone else away_s for _ in away]
    return drawn(publications, subscribers, away, numbers)


def played(
    plays: Sequence[Play],
    seed: int,
    away_s: float = AWAY_S,
    each: float = WISHES,
    *,
    popular: bool = False,
    spread: float = 0.0,
) -> Stream:
    """Draw a record for each play of the log, with a topic for each song. With ``popular``, more subscribers wish for
    songs that play more often. For ``spread``, see ``absences``."""
    numbers = random.Random(f"plays {seed}")
    topics = songs(plays)
    count = max(topics) + 1
    often = Counter(topics)
    ranks = sorted(range(count), key=lambda topic: -often[topic]) if popular else None
    subscribers = wishes(count, each, numbers, ranks)
    publications = [Publication(play.at_s, topic, play.size) for play, topic in zip(plays, topics, strict=True)]
    return drawn(publications, subscribers, absences(away_s, spread, numbers), numbers)
