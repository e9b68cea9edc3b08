"""Small streams, and the now-playing log if there is one.

Owns: the access of tests to these. Must never: read the log twice.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from ingeborg.bench.caching import log as logs
from ingeborg.bench.caching.reads import Publication, Stream, drawn
from tests import wants


def stream(seed: int, records: int = 60, clients: int = 6, topics: int = 5, *, even: bool = True) -> Stream:
    """Return a stream of some records with a few subscribers. ``even``: all of one size."""
    numbers = random.Random(seed)
    subscribers = [numbers.sample(range(clients), numbers.randint(0, clients)) for _ in range(topics)]
    publications = [
        Publication(float(at), numbers.randrange(topics), 10 if even else numbers.randint(1, 30))
        for at in range(records)
    ]
    return drawn(publications, subscribers, [8.0] * clients, numbers)


def listed(readers: Iterable[int], size: int, *reads: int) -> Stream:
    """Return a stream of records of one size, with these numbers of readers, and then these reads."""
    found = Stream()
    for record, count in enumerate(readers):
        found.sizes.append(size)
        found.readers.append(count)
        found.events.append(record)
    found.events.extend(~record for record in reads)
    return found


def digest(found: Stream) -> str:
    """Return a digest of the first 1,000 events, with the sizes and readers of their records."""
    hashed = hashlib.blake2b(digest_size=8)
    for event in found.events[:1_000]:
        record = max(event, ~event)
        hashed.update(b"%d %d %d\n" % (event, found.sizes[record], found.readers[record]))
    return hashed.hexdigest()


def plays() -> list[logs.Play]:
    """Return the plays of the real log; skip the test without it."""
    path = Path(__file__).parents[4] / "shared/data/nowplaying.csv.gz"
    if not path.exists():
        wants.skip("the recorded log", "not beside this checkout (../shared/data)")
    return _read(path)


@cache
def _read(path: Path) -> list[logs.Play]:
    return logs.read(path)
