"""Measure the costs of the embedded store on this machine: ``python -m ingeborg.bench.micro.embedded [--directory
DIR]``.

Owns: the figures of docs/adr/0002, the figures of the embedded store in docs/adr/0032, and the costs of filters.
Prints one table. The program runs for about a minute in a temporary directory, which it removes at the end. The figures
depend on the disk, so ``--directory`` chooses where the temporary directory is. With ``--filters`` the program prints
only the costs of filters. Must never: be collected as a test.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import os
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from ingeborg.broker.store.base import Endpoint, Subscribe, Term
from ingeborg.broker.store.embedded.store import EmbeddedStore

BULK_TOPICS = 100_000
PRELOADED_TOPICS = 1_000_000
SINGLE_WRITES = 300
CONCURRENT_WRITES = 20_000
FILTERS = 1_000_000
PAGE_FILTERS = 500
AWAY = Term(True, 0.0)


async def _longest_gap(work: Awaitable[object]) -> tuple[float, float]:
    """Return two times in seconds: the duration of the work, and the largest CPU time between two runs of a coroutine
    that is due every 1 ms.

    The CPU time of this thread is the time for which this program occupied the loop. Elapsed time would include the
    time of other programs.
    """
    gap_s = 0.0
    gc.freeze()  # so that collecting this program's strings does not count as the store's time

    async def tick() -> None:
        nonlocal gap_s
        last = time.thread_time()
        while True:
            await asyncio.sleep(0.001)
            now = time.thread_time()
            gap_s, last = max(gap_s, now - last), now

    ticker = asyncio.create_task(tick())
    await asyncio.sleep(0.01)
    started = time.perf_counter()
    await work
    took_s = time.perf_counter() - started
    ticker.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await ticker
    return took_s, gap_s


async def _each_ms(operation: Callable[[int], Awaitable[object]], count: int) -> str:
    """Run ``count`` operations one after the other, and return the median and the maximum of their times as text."""
    times_ms = []
    for index in range(count):
        started = time.perf_counter()
        await operation(index)
        times_ms.append((time.perf_counter() - started) * 1e3)
    times_ms.sort()
    return f"p50 {times_ms[len(times_ms) // 2]:.3f} ms, max {times_ms[-1]:.1f} ms"


def _now_us(store: EmbeddedStore, topic: str) -> float:
    """Return the CPU time of a synchronous read of one topic's subscribers, in microseconds."""
    names = [[f"{topic}{index}"] for index in range(CONCURRENT_WRITES)]
    began = time.thread_time()
    for name in names:
        store.subscribers_now(name)
    return (time.thread_time() - began) / len(names) * 1e6


def _row(what: str, figure: str) -> None:
    print(f"{what:<66} {figure}", flush=True)


async def _measure(directory: Path, loop_name: str) -> None:
    store, other = EmbeddedStore(directory), EmbeddedStore(directory)
    started = time.perf_counter()
    await store.open()
    _row(f"({loop_name}) open a new directory, two writer processes", f"{(time.perf_counter() - started) * 1e3:.0f} ms")
    await other.open()
    bulk = [f"song/{index:07d}/artist-title" for index in range(BULK_TOPICS)]

    took_s, gap_s = await _longest_gap(store.subscribe([Subscribe("bulk", bulk)]))
    _row(
        f"subscribe {BULK_TOPICS:,} topics in one call, empty store",
        f"{took_s:.2f} s, longest gap {gap_s * 1e3:.1f} ms",
    )
    took_s, gap_s = await _longest_gap(store.subscribers(bulk))
    _row(f"subscribers of {BULK_TOPICS:,} topics in one call", f"{took_s:.2f} s, longest gap {gap_s * 1e3:.1f} ms")
    took_s, gap_s = await _longest_gap(store.topics("bulk", None, BULK_TOPICS))
    _row(
        f"topics of a client with {BULK_TOPICS:,} topics, one page", f"{took_s:.2f} s, longest gap {gap_s * 1e3:.1f} ms"
    )
    took_s, gap_s = await _longest_gap(store.unsubscribe([("bulk", bulk, None)]))
    _row(f"unsubscribe {BULK_TOPICS:,} topics in one call", f"{took_s:.2f} s, longest gap {gap_s * 1e3:.1f} ms")

    _row(
        "subscribe 1 topic, one after the other",
        await _each_ms(lambda i: store.subscribe([Subscribe(f"c{i}", ["x"])]), SINGLE_WRITES),
    )
    many = asyncio.gather(*(store.subscribe([Subscribe(f"c{i}", [f"t{i}"])]) for i in range(CONCURRENT_WRITES)))
    took_s, _ = await _longest_gap(many)
    _row(f"subscribe 1 topic, {CONCURRENT_WRITES:,} parallel callers", f"{CONCURRENT_WRITES / took_s:,.0f} per second")
    _row("subscribers of 1 topic", await _each_ms(lambda i: store.subscribers([f"t{i}"]), 5_000))
    _row("subscribers of 1 topic, synchronous read", f"{_now_us(store, 't'):.1f} us")
    many = asyncio.gather(
        *(store.subscribe([Subscribe(f"c{i}", [f"e{i}"], None, AWAY)]) for i in range(CONCURRENT_WRITES))
    )
    took_s, _ = await _longest_gap(many)
    _row(
        "subscribe 1 topic with a term, the same number of parallel callers",
        f"{CONCURRENT_WRITES / took_s:,.0f} per second",
    )
    _row("subscribers of 1 topic with a term, synchronous read", f"{_now_us(store, 'e'):.1f} us")
    me = Endpoint("e", "i", "ws://127.0.0.1:1", 1)
    _row("heartbeat", await _each_ms(lambda i: store.heartbeat(me), SINGLE_WRITES))
    took_s, gap_s = await _longest_gap(store.listen([f"c{i}" for i in range(BULK_TOPICS)], "i"))
    _row(f"listen of {BULK_TOPICS:,} clients in one call", f"{took_s:.2f} s, longest gap {gap_s * 1e3:.1f} ms")

    preload = [f"preload/{index:07d}" for index in range(PRELOADED_TOPICS)]
    took_s, gap_s = await _longest_gap(store.subscribe([Subscribe("preload", preload)]))
    _row(f"subscribe {PRELOADED_TOPICS:,} topics in one call", f"{took_s:.2f} s, longest gap {gap_s * 1e3:.1f} ms")
    size = os.stat(directory / "durable" / "data.mdb").st_size
    _row("  size of the file afterwards", f"{size / 1e6:.0f} MB")
    began = time.thread_time()
    expiring = [
        one for slot in await store.expiring_slots() or [] for one in (await store.expiring(slot, None, BULK_TOPICS))[0]
    ]
    _row(
        f"read the {len(expiring):,} subscriptions with a term, from all slots",
        f"{(time.thread_time() - began) * 1e3:.0f} ms",
    )
    took_s, gap_s = await _longest_gap(store.end([([one], None, True) for one in expiring]))
    _row("  end these subscriptions in one call", f"{took_s:.2f} s, longest gap {gap_s * 1e3:.1f} ms")
    took_s, gap_s = await _longest_gap(store.subscribe([Subscribe("bulk", bulk, None, AWAY)]))
    _row(
        f"subscribe {BULK_TOPICS:,} topics with a term in one call", f"{took_s:.2f} s, longest gap {gap_s * 1e3:.1f} ms"
    )
    await store.unsubscribe([("bulk", bulk, None)])
    writing = asyncio.create_task(store.subscribe([Subscribe("bulk", bulk)]))
    started = time.perf_counter()
    beats = await _each_ms(lambda i: other.heartbeat(me), SINGLE_WRITES)
    ours = await _each_ms(lambda i: store.subscribe([Subscribe(f"c{i}", ["y"])]), 20)
    theirs = await _each_ms(lambda i: other.subscribe([Subscribe(f"c{i}", ["z"])]), 20)
    assert not writing.done(), (
        "the large subscribe ended before the small operations, which were not measured under its load"
    )
    await writing
    _row(
        f"subscribe {BULK_TOPICS:,} topics, store already has {PRELOADED_TOPICS:,}",
        f"{time.perf_counter() - started:.2f} s",
    )
    _row("  meanwhile, heartbeat of another endpoint", beats)
    _row("  meanwhile, subscribe 1 topic at the same endpoint", ours)
    _row("  meanwhile, subscribe 1 topic at another endpoint", theirs)
    await asyncio.gather(store.close(), other.close())


def _filter(number: int) -> str:
    """Return a filter of typical length that no other client has."""
    return f'{{"discount":[{{"numeric":[">=",{number % 100}]}}],"restaurant":["restaurant {number}"]}}'


async def _measure_filters(directory: Path) -> None:
    store = EmbeddedStore(directory)
    await store.open()
    _row(
        "subscribe 1 topic, one after the other",
        await _each_ms(lambda i: store.subscribe([Subscribe(f"c{i}", ["x"])]), SINGLE_WRITES),
    )
    _row(
        "  with a filter",
        await _each_ms(lambda i: store.subscribe([Subscribe(f"c{i}", ["x"], _filter(i))]), SINGLE_WRITES),
    )
    _row(
        "  with a filter that replaces all earlier ones",
        await _each_ms(
            lambda i: store.subscribe([Subscribe(f"c{i}", ["x"], _filter(i + 1), replace=True)]), SINGLE_WRITES
        ),
    )
    plain = asyncio.gather(*(store.subscribe([Subscribe(f"c{i}", [f"t{i}"])]) for i in range(CONCURRENT_WRITES)))
    took_s, _ = await _longest_gap(plain)
    _row(f"subscribe 1 topic, {CONCURRENT_WRITES:,} parallel callers", f"{CONCURRENT_WRITES / took_s:,.0f} per second")
    many = asyncio.gather(
        *(store.subscribe([Subscribe(f"c{i}", [f"f{i}"], _filter(i))]) for i in range(CONCURRENT_WRITES))
    )
    took_s, _ = await _longest_gap(many)
    _row("  with a filter", f"{CONCURRENT_WRITES / took_s:,.0f} per second")
    _row("subscribers of 1 topic without a filter, synchronous read", f"{_now_us(store, 't'):.1f} us")
    _row("  subscribers of 1 topic with a filter, synchronous read", f"{_now_us(store, 'f'):.1f} us")

    before = os.stat(directory / "durable" / "data.mdb").st_size
    offers = [Subscribe(f"client {i}", ["offers"], _filter(i)) for i in range(FILTERS)]
    took_s, gap_s = await _longest_gap(store.subscribe(offers))
    _row(f"{FILTERS:,} filters of one topic in one call", f"{took_s:.2f} s, longest gap {gap_s * 1e3:.1f} ms")
    size = os.stat(directory / "durable" / "data.mdb").st_size - before
    _row("  size in the file", f"{size / FILTERS:.0f} bytes each")

    async def read() -> None:
        page, cursor = (await store.subscribers(["offers"]))[1]["offers"]
        count = len(page)
        while cursor is not None:
            page, cursor = await store.filtered("offers", cursor, PAGE_FILTERS)
            count += len(page)
            await asyncio.sleep(0)
        assert count == FILTERS

    took_s, gap_s = await _longest_gap(read())
    _row(f"  read all filters in pages of {PAGE_FILTERS:,}", f"{took_s:.2f} s, longest gap {gap_s * 1e3:.1f} ms")
    took_s, gap_s = await _longest_gap(store.unsubscribe([(row.client, ["offers"], None) for row in offers]))
    _row("  unsubscribe all clients in one call", f"{took_s:.2f} s, longest gap {gap_s * 1e3:.1f} ms")
    await store.close()


def main() -> None:
    """Measure on uvloop, because endpoints also run on it."""
    import uvloop

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path, default=None, help="where to make the temporary directory")
    parser.add_argument("--filters", action="store_true", help="measure only the costs of filters")
    options = parser.parse_args()
    if not options.filters:
        with tempfile.TemporaryDirectory(dir=options.directory) as directory:
            uvloop.run(_measure(Path(directory), "uvloop"))
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        uvloop.run(_measure_filters(Path(directory)))


if __name__ == "__main__":
    main()
