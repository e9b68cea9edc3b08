"""Measure the memory that an entry takes in an endpoint's caches, and the time that the table of duplicates takes for a
new payload.

    python -m ingeborg.bench.micro.caches [--entries 100000]

Owns: the bytes in docs/limits.md and in the comments at the caches (`broker/core/topics/routes.py`), and the times in
docs/adr/0009. Each row comes from a separate process. The process fills a cache to its limit, and then adds the same
number of entries again. The cache has then evicted all entries of the first round, as in an endpoint that has run for a
while. The process then divides the growth of its resident memory by the number of entries. Names and ids are separate
objects, as if they came from a store or a frame: topics have 30 to 35 bytes, client ids 14, and incarnations 16. The
time for a new payload is the time to hash it, look it up and add it, including reading the clock. The program takes
fifteen seconds and at most 700 MB. Must never: be collected as a test.
"""

from __future__ import annotations

import argparse
import functools
import gc
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

import psutil

from ingeborg.broker.core.dedup.dedup import Dedup, key_of
from ingeborg.broker.core.dedup.own_keys import own_key_of
from ingeborg.broker.core.model import Location
from ingeborg.broker.core.topics.locations import Locations
from ingeborg.broker.core.topics.routes import READING, Routes

ENTRIES = 100_000
#: Numbers of subscribers of a topic. With 40, the routing cache reaches both of its limits: 50,000 topics and 2,000,000
#: ids.
FANOUTS = (0, 1, 5, 20, 40)
TIMEOUT_S = 120.0

Fill = Callable[[int], object]
"""A function that makes a cache for this number of entries, and adds twice that number."""


def _routes(fanout: int, entries: int) -> Routes:
    routes = Routes(entries, ids_max=2 * entries * (fanout + 1))
    for number in range(2 * entries):
        topic = f"Artist {number} - Some song of theirs"
        route = routes.add(topic)
        route.stage = READING
        routes.filled(topic, route, {f"client {number * fanout + place:07}" for place in range(fanout)})
    return routes


def _locations(entries: int) -> Locations:
    locations = Locations(entries)
    for number in range(2 * entries):
        locations.learn(f"client {number:07}", Location(1_700_000_000_000 + number, f"{number % 3:016x}", True))
    return locations


def _duplicates(entries: int) -> Dedup[None]:
    table: Dedup[None] = Dedup(60.0, entries)
    for number in range(2 * entries):
        # All messages of a turn (here ten) have the same time, and no entry expires.
        table.add(key_of(number % 4096, "topic", b"%d" % number), number // 10 / 1_000_000)
    return table


def _own_keys(entries: int) -> Dedup[None]:
    table: Dedup[None] = Dedup(60.0, entries)
    for number in range(2 * entries):
        key = own_key_of(number % 4096, "topic", "client", f"key {number}", b"payload")
        table.begin(key)
        table.settle(key, True, number // 10 / 1_000_000)
    return table


def _route(fanout: int) -> str:
    return f"route, {fanout:>2} subscribers"


#: The caches, by the names of their rows.
CACHES: dict[str, Fill] = {
    **{_route(fanout): functools.partial(_routes, fanout) for fanout in FANOUTS},
    "location": _locations,
    "duplicate": _duplicates,
    "own key": _own_keys,
}


def _new_payload_us(entries: int) -> tuple[float, float]:
    """Return the mean and the longest time to hash, look up and add a new payload, in microseconds. The table has room
    for three times ``entries``, and twice ``entries`` payloads are added."""
    table: Dedup[None] = Dedup(60.0, 3 * entries)
    longest = 0
    begun = time.perf_counter_ns()
    for number in range(6 * entries):
        at = time.perf_counter_ns()
        key = key_of(number % 4096, "topic", b"%d" % number)
        now = number // 10 / 1_000_000
        if not table.duplicate(key, now):
            table.add(key, now)
        longest = max(longest, time.perf_counter_ns() - at)
    return (time.perf_counter_ns() - begun) / (6 * entries) / 1000, longest / 1000


def bytes_per_entry(fill: Fill, entries: int) -> float:
    """Measure a cache once, in this process, and return the bytes per entry."""
    process = psutil.Process()
    gc.collect()
    before = process.memory_info().rss
    cache = fill(entries)
    gc.collect()
    found = (process.memory_info().rss - before) / entries
    del cache
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--entries", type=int, default=ENTRIES)
    parser.add_argument(
        "--only", choices=CACHES, help="measure only this row, in this process, and print only the bytes"
    )
    options = parser.parse_args(arguments)
    if options.only is not None:
        print(bytes_per_entry(CACHES[options.only], options.entries))
        return
    found: dict[str, float] = {}
    for name in CACHES:
        command = [sys.executable, "-m", __spec__.name, "--entries", str(options.entries), "--only", name]
        said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=TIMEOUT_S).stdout
        found[name] = float(said)
        print(f"{name:<22} {found[name]:7,.0f} bytes", flush=True)
    for fanout in FANOUTS[1:]:
        each = (found[_route(fanout)] - found[_route(0)]) / fanout
        print(f"one of {fanout:>2} ids in a route {each:12,.0f} bytes")
    gc.collect()
    gc.freeze()
    mean, longest = _new_payload_us(options.entries)
    print(f"a new payload: mean {mean:.1f} us; longest of {6 * options.entries:,} payloads {longest / 1000:.1f} ms")


if __name__ == "__main__":
    main()
