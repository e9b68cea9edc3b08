"""Measure the cost of a topic's index of filters: ``python -m ingeborg.bench.micro.filters [--counts 100000 1000000]``.

Owns: the figures of the index. They are the time to find the matching filters without listing their clients, the time
to add a filter, the bytes of a filter, and for comparison the time of a naive scan. Each kind of filters has its own
process. The program takes a few minutes in total. Must never: be collected as a test.

All filters are different, and each belongs to a different client. Times are CPU times of the thread.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import random
import time
from collections.abc import Callable
from typing import NamedTuple

import orjson
import psutil

from ingeborg.bench.budgets.model import measured
from ingeborg.broker.core.filters.index import Index
from ingeborg.broker.core.filters.pattern import attributes, conjunctions, holds
from ingeborg.protocol.filters import canonical_filter

MATCHES = 2_000
PLACES = 1_000
SCANNED = 10_000
#: Number of filters in a slice. Slices alternate: in one slice, each add is timed separately. In the next slice, all
#: adds are timed together. So the number of filters should make an even number of slices.
SLICE = 500

Draw = Callable[[random.Random, int], object]


class Kind(NamedTuple):
    """A kind of filters. ``pattern`` makes the filter with a given number. ``payload`` makes a payload to publish."""

    pattern: Draw
    payload: Draw


class Row(NamedTuple):
    """The figures of one kind of filters. ``matched`` is the mean number of matching filters. ``said_bytes`` is the
    index's own estimate of its bytes per filter."""

    kind: str
    filters: int
    match_p50_us: float
    match_p99_us: float
    matched: float
    output_p50_us: float
    scan_us: float
    add_us: float
    add_max_ms: float
    remove_us: float
    load_s: float
    rss_bytes: float
    said_bytes: float


def _price(drawn: random.Random) -> float:
    return round(drawn.uniform(0, 1_000_000), 2)


def _range(drawn: random.Random) -> list[object]:
    low, high = sorted((_price(drawn), _price(drawn)))
    return [">=", low, "<=", high + 0.01]


KINDS = {
    "two values": Kind(
        lambda _, number: {"place": [f"place {number % PLACES}"], "dish": [f"dish {number // PLACES}"]},
        lambda drawn, count: {
            "place": f"place {drawn.randrange(PLACES)}",
            "dish": f"dish {drawn.randrange(max(1, count // PLACES))}",
            "price": _price(drawn),
        },
    ),
    "a value and a range": Kind(
        lambda drawn, number: {
            "place": [f"place {number % PLACES}"],
            "price": [{"numeric": [">=", number + drawn.random()]}],
        },
        lambda drawn, count: {"place": f"place {drawn.randrange(PLACES)}", "price": drawn.uniform(0, count)},
    ),
    "a value and a range, 10 per value": Kind(
        lambda drawn, number: {
            "place": [f"place {number // 10}"],
            "price": [{"numeric": [">=", number + drawn.random()]}],
        },
        lambda drawn, count: {"place": f"place {drawn.randrange(count // 10)}", "price": drawn.uniform(0, count)},
    ),
    "a range, two-sided": Kind(
        lambda drawn, _: {"price": [{"numeric": _range(drawn)}]},
        lambda drawn, _: {"place": f"place {drawn.randrange(PLACES)}", "price": _price(drawn)},
    ),
    "a prefix": Kind(
        lambda _, number: {"name": [{"prefix": f"{number * 7919 % 1_000_003:07d}"}]},
        lambda drawn, _: {"name": f"{drawn.randrange(1_000_003):07d} and more"},
    ),
}


def _quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def measure(kind: str, count: int) -> Row:
    """Fill an index, match payloads, and remove some filters."""
    pattern, payload = KINDS[kind]
    drawn = random.Random(1)
    index = Index()
    gc.collect()
    gc.freeze()
    gc.disable()  # another benchmark measures the collector's pauses
    process = psutil.Process()
    before_bytes = process.memory_info().rss
    add_s, add_max_s = 0.0, 0.0
    texts: list[str] = []
    for start in range(0, count, SLICE):
        new = [(f"client{n}", canonical_filter(pattern(drawn, n))) for n in range(start, min(count, start + SLICE))]
        if len(texts) < SCANNED:
            texts.extend([text for _, text in new])
        if start // SLICE % 2:  # reading the clock takes long in comparison with an add
            for client, text in new:
                began = time.thread_time()
                index.add(client, text)
                add_max_s = max(add_max_s, time.thread_time() - began)
        else:
            began = time.thread_time()
            for client, text in new:
                index.add(client, text)
            add_s += 2 * (time.thread_time() - began)
    rss_bytes = process.memory_info().rss - before_bytes
    payloads = [orjson.dumps(payload(drawn, count), option=orjson.OPT_SORT_KEYS) for _ in range(MATCHES)]
    match_s, output_s, matched = [], [], 0
    for each in payloads:
        began = time.thread_time()
        found = index.find(each)
        found.bitmaps = [found.bitmap()] if found.bitmaps else []
        match_s.append(time.thread_time() - began)
    for each in payloads[:50]:
        began = time.thread_time()
        clients, _ = index.match(each)
        output_s.append(time.thread_time() - began)
        matched += len(clients)
    scanned = [each for text in texts for each in conjunctions(text)]
    of_one = attributes(payloads[0])
    began = time.thread_time()
    for conjunction in scanned:
        holds(conjunction, of_one)
    scan_s = (time.thread_time() - began) / len(scanned) * count
    began = time.thread_time()
    for number in range(0, count, 10):
        index.remove_all(f"client{number}")
    remove_s = (time.thread_time() - began) / len(range(0, count, 10))
    said_bytes = index.bytes / len(index)
    return Row(
        kind,
        count,
        _quantile(match_s, 0.5) * 1e6,
        _quantile(match_s, 0.99) * 1e6,
        matched / 50,
        _quantile(output_s, 0.5) * 1e6,
        scan_s * 1e6,
        add_s / count * 1e6,
        add_max_s * 1e3,
        remove_s * 1e6,
        add_s,
        rss_bytes / count,
        said_bytes,
    )


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--counts", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS))
    options = parser.parse_args()
    print(measured())
    print(
        "kind | filters | match us p50 | p99 | matched | with clients p50 us | naive scan us | scan / match | "
        "add us | longest add ms | remove us | load s | bytes per filter (RSS) | bytes (estimated)",
        flush=True,
    )
    for count in options.counts:
        for kind in options.kinds:
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                row = pool.apply(measure, (kind, count))
            print(
                f"{row.kind} | {row.filters:,} | {row.match_p50_us:.1f} | {row.match_p99_us:.1f} | {row.matched:,.1f} "
                f"| {row.output_p50_us:,.0f} | {row.scan_us:,.0f} | {row.scan_us / row.match_p50_us:,.0f} | "
                f"{row.add_us:.2f} | {row.add_max_ms:.2f} | {row.remove_us:.1f} | {row.load_s:.2f} | "
                f"{row.rss_bytes:.0f} | {row.said_bytes:.0f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
