"""Measure how fast the store writes one client's subscriptions, for several numbers of unconfirmed subscriptions.

    python -m ingeborg.bench.micro.large_subscribes [--subscriptions 2097152] [--under-way 60000 150000 250000]
                                                   [--directory DIR]

Owns: the table of docs/adr/0008. For each number of subscriptions that are under way (not yet confirmed), the program
makes a new embedded store in a temporary directory, which it removes at the end. The figures depend on the disk, so
``--directory`` chooses where the temporary directory is. It writes to the store directly, without an endpoint, in calls
of 1,000 topics. It prints the rate, the rate of the slowest half million consecutive subscriptions, and the longest
call. It takes a minute on an idle machine, and about 500 MB of disk. Must never: be collected as a test.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import uvloop

from ingeborg.broker.core.topics.subscribing import TOPICS_PER_SLICE
from ingeborg.broker.store.base import Subscribe
from ingeborg.broker.store.embedded.store import EmbeddedStore

SUBSCRIPTIONS = 1 << 21
UNDER_WAY = (60_000, 150_000, 250_000)
PART = 500_000


class Measured(NamedTuple):
    """The result. ``ends_s`` has the sorted times at which calls were confirmed, in seconds since the first call
    began."""

    ends_s: list[float]
    longest_call_s: float

    @property
    def rate(self) -> float:
        """Return subscriptions per second, overall."""
        return len(self.ends_s) * TOPICS_PER_SLICE / self.ends_s[-1]

    @property
    def slowest_rate(self) -> float | None:
        """Return the subscriptions per second of the slowest half million, or ``None`` if there are fewer
        subscriptions. From the first subscription on, every half million is a part. An incomplete last part is
        ignored."""
        calls = PART // TOPICS_PER_SLICE
        marks_s = [0.0, *self.ends_s[calls - 1 :: calls]]
        took_s = [after - before for before, after in itertools.pairwise(marks_s)]
        return PART / max(took_s) if took_s else None


async def measure(directory: Path, subscriptions: int, under_way: int) -> Measured:
    """Measure with this number of unconfirmed subscriptions. Both numbers are rounded down to complete calls."""
    store = EmbeddedStore(directory)
    await store.open()
    room = asyncio.Semaphore(under_way // TOPICS_PER_SLICE)
    ends_s: list[float] = []
    longest_s = 0.0

    async def call(topics: list[str]) -> None:
        nonlocal longest_s
        before_s = time.perf_counter()
        await store.subscribe([Subscribe("client", topics)])
        after_s = time.perf_counter()
        longest_s = max(longest_s, after_s - before_s)
        ends_s.append(after_s - began_s)
        room.release()

    try:
        began_s = time.perf_counter()
        async with asyncio.TaskGroup() as calls:
            for start in range(0, subscriptions - TOPICS_PER_SLICE + 1, TOPICS_PER_SLICE):
                await room.acquire()
                numbers = range(start, start + TOPICS_PER_SLICE)
                calls.create_task(call([f"Artist {number} - Some song of theirs" for number in numbers]))
    finally:
        await store.close()
    return Measured(ends_s, longest_s)


def _count(text: str) -> int:
    number = int(text)
    if number < TOPICS_PER_SLICE:
        raise argparse.ArgumentTypeError(f"{text} is less than the {TOPICS_PER_SLICE} topics of a call")
    return number


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--subscriptions", type=_count, default=SUBSCRIPTIONS)
    parser.add_argument("--under-way", type=_count, nargs="+", default=UNDER_WAY)
    parser.add_argument("--directory", type=Path, default=None, help="where to make the temporary directory")
    options = parser.parse_args(arguments)
    print("under way       rate  slowest half million  longest call")
    for under_way in options.under_way:
        with tempfile.TemporaryDirectory(dir=options.directory) as directory:
            measured = uvloop.run(measure(Path(directory), options.subscriptions, under_way))
        slowest = "–" if measured.slowest_rate is None else f"{measured.slowest_rate:,.0f}/s"
        print(f"{under_way:>9,} {measured.rate:>8,.0f}/s {slowest:>21} {measured.longest_call_s:>11.1f} s", flush=True)


if __name__ == "__main__":
    main()
