"""Streams of records and reads, as a broker sees them: records are published; subscribers are away, come back, and read
what they have missed.

Owns: how such a stream is drawn, from a seed alone. Must never: know a policy.

A subscriber is away for an exponential time, comes back, reads every record that it was not there for in the order in
which they were published, and is away again. Records that nobody has subscribed to are left out: no broker would keep
them.
"""

from __future__ import annotations

import hashlib
import heapq
import random
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ingeborg.bench.caching.log import Play, songs

#: Subscribers, and how many topics each wishes for, on average (a topic cannot have more subscribers than there are).
CLIENTS: Final = 2_000
WISHES: Final = 16

#: How subscribers are spread over topics: Zipf's law with this exponent, that of loadgen's radio world. How often a
#: topic is published to has nothing to do with it, but for the streams that say otherwise.
WISH_EXPONENT: Final = 0.8

#: How long a subscriber is away, on average: one that comes back four times a day.
AWAY_S: Final = 6 * 3_600.0

#: Of the synthetic streams. They last a day, as the log does.
TOPICS: Final = 10_000
PUBLICATIONS: Final = 60_000
DAY_S: Final = 86_400.0

#: For how long a subscriber is away that never comes back, on average: 30,000 years.
NEVER_S: Final = 1e12

#: Bytes of a payload, where all have as many, and the least and most where they do not.
EVEN_BYTES: Final = 100
LEAST_BYTES, MOST_BYTES = 50, 5_000


class Publication(NamedTuple):
    """Of a record of so many bytes to a topic."""

    at_s: float
    topic: int
    size: int


@dataclass
class Stream:
    """``sizes``, ``readers``: bytes of each record, and its subscribers. ``events``: a record's number when it is
    published, and the number's complement (``~``) each time that it is read."""

    sizes: array[int] = field(default_factory=lambda: array("l"))
    readers: array[int] = field(default_factory=lambda: array("l"))
    events: array[int] = field(default_factory=lambda: array("l"))

    @property
    def bytes(self) -> int:
        """Of all records."""
        return sum(self.sizes)

    def room(self, share: float) -> int:
        """So many bytes are this share of all records'."""
        return int(self.bytes * share)

    def digest(self, count: int) -> str:
        """Of the first events, with what is known of their records."""
        found = hashlib.blake2b(digest_size=8)
        for event in self.events[:count]:
            record = max(event, ~event)
            found.update(b"%d %d %d\n" % (event, self.sizes[record], self.readers[record]))
        return found.hexdigest()

    def following(self) -> list[int]:
        """Of each event, at which place its record is read next; beyond the end: not again."""
        end = len(self.events)
        found, next_at = [end] * end, [end] * len(self.sizes)
        for at in range(end - 1, -1, -1):
            record = max(self.events[at], ~self.events[at])
            found[at], next_at[record] = next_at[record], at
        return found


def drawn(
    publications: Iterable[Publication],
    subscribers: Sequence[Sequence[int]],
    away_s: Sequence[float],
    numbers: random.Random,
    *,
    to_end: bool = False,
) -> Stream:
    """Of publications by their times. ``subscribers``: of each topic, who; ``away_s``: of each subscriber, for how long
    it is away, on average. ``to_end``: after the last publication each comes back once more, so that all have had
    everything; else the stream ends with it."""
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
    """Who has subscribed to each topic. ``each``: how many topics a subscriber wishes for, on average; ``ranks``: the
    topics by how many wish for them, the most first; without, that is by chance."""
    order = ranks if ranks is not None else numbers.sample(range(topics), topics)
    weights = [rank**-WISH_EXPONENT for rank in range(1, topics + 1)]
    scale = clients * each / sum(weights)
    subscribers: list[list[int]] = [[] for _ in range(topics)]
    for topic, weight in zip(order, weights, strict=True):
        count = min(clients, int(scale * weight + numbers.random()))
        subscribers[topic] = numbers.sample(range(clients), count)
    return subscribers


def absences(mean_s: float, spread: float, numbers: random.Random, clients: int = CLIENTS) -> list[float]:
    """For how long each subscriber is away, on average; of them all the mean. ``spread``: the standard deviation of the
    logarithm; 0: all are alike."""
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
    """Records at a constant rate for a day; a topic's share of them is that of Zipf's law. ``even``: all of one size;
    else from few bytes to many, each order of magnitude as often. ``gone``: so many subscribers never come back."""
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
    """A record for each play of the log, a topic for each song. ``popular``: songs that are played more are wished for
    by more. ``spread``: see ``absences``."""
    numbers = random.Random(f"plays {seed}")
    topics = songs(plays)
    count = max(topics) + 1
    often = Counter(topics)
    ranks = sorted(range(count), key=lambda topic: -often[topic]) if popular else None
    subscribers = wishes(count, each, numbers, ranks)
    publications = [Publication(play.at_s, topic, play.size) for play, topic in zip(plays, topics, strict=True)]
    return drawn(publications, subscribers, absences(away_s, spread, numbers), numbers)
