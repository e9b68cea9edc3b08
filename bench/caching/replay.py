"""Replays a stream through a policy, and counts hits.

Owns: the policy's view of the stream, and the count. Must never: reveal the future to an online policy.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from ingeborg.bench.caching.policies.belady import Belady
from ingeborg.bench.caching.policies.rules import Rule
from ingeborg.bench.caching.reads import Stream
from ingeborg.broker.core.caches.cache import Cache, Counts
from ingeborg.broker.core.caches.policy import Entry, Policy


@dataclass(frozen=True)
class Ways:
    """How a policy runs. With ``reads_in``, a record requests admission again whenever a subscriber reads it and it is
    not in memory. With ``told``, the replay knows which subscribers have received a record. It then drops a record that
    all its subscribers have received, and does not admit that record again. Without ``told``, a policy knows only the
    number of a record's subscribers."""

    reads_in: bool = False
    told: bool = False


@dataclass(frozen=True)
class Outcome:
    """The result of a replay. ``by_record`` is the share of a record's reads that were hits, averaged over the records
    with reads. ``cached`` counts the records that were admitted when they were published, and ``copies`` is the sum of
    the numbers of their subscribers."""

    reads: int
    hits: int
    records: int
    by_record: float
    cached: int
    copies: int
    counts: Counts | None = None


def requests(items: list[int], policy: Policy, entries_max: int) -> Counts:
    """Replay requests for items of one size. A missing item requests admission."""
    cache = Cache(policy, entries_max)
    offline = policy if isinstance(policy, Belady) else None
    for at, item in enumerate(items):
        if offline is not None:
            offline.at = at
        if cache.get(item) is None:
            cache.put(Entry(item, 1, 1))
    return cache.counts


def replay(stream: Stream, policy: Policy, bytes_max: int | None, ways: Ways) -> Outcome:
    """Replay records and their reads."""
    cache = Cache(policy, bytes_max)
    offline = policy if isinstance(policy, Belady) else None
    sizes, readers = stream.sizes, stream.readers
    owed = array("l", readers)
    hits_of = array("l", bytes(owed.itemsize * len(sizes)))
    cached = copies = 0
    for at, event in enumerate(stream.events):
        if offline is not None:
            offline.at = at
        if event >= 0:
            if cache.put(Entry(event, sizes[event], owed[event])):
                cached += 1
                copies += owed[event]
            continue
        record = ~event
        owed[record] -= 1
        if cache.get(record) is not None:
            hits_of[record] += 1
            if ways.told and not owed[record]:
                cache.drop(record)
        elif ways.reads_in:
            utility = owed[record] if ways.told else readers[record]
            if utility:
                cache.put(Entry(record, sizes[record], utility))
    shares = [
        hits / (all_of_it - left)
        for hits, all_of_it, left in zip(hits_of, readers, owed, strict=True)
        if left < all_of_it
    ]
    return Outcome(
        reads=cache.counts.hits + cache.counts.misses,
        hits=cache.counts.hits,
        records=len(sizes),
        by_record=sum(shares) / len(shares) if shares else 0.0,
        cached=cached,
        copies=copies,
        counts=cache.counts,
    )


def unbounded(utilities: Sequence[int], rule: Rule) -> Outcome:
    """Replay records with these numbers of subscribers. Each subscriber reads each of its records once, at any time. No
    record is ever evicted."""
    admitted = [utility for utility in utilities if rule.admits(utility)]
    copies = sum(admitted)
    return Outcome(
        reads=sum(utilities),
        hits=copies,
        records=len(utilities),
        by_record=len(admitted) / len(utilities),
        cached=len(admitted),
        copies=copies,
    )
