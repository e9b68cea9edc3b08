"""Measure the cost of subscriptions in a store (docs/adr/0043).

    python -m ingeborg.bench.micro.records [--directory DIR] [--large] [--riak HOST:PORT,HOST:PORT,...]

Without ``--riak`` it measures LMDB in a temporary directory, which it removes. The figures depend on the disk, so
``--directory`` chooses where the temporary directory is. The program takes half a minute, or five minutes and 3 GB with
``--large``. With ``--riak`` it counts requests to the given nodes. It uses new namespaces, and leaves them there. Must
never: be collected as a test.
"""

from __future__ import annotations

import argparse
import secrets
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import uvloop

from ingeborg.broker.store.base import Store, Subscribe, Term
from ingeborg.broker.store.embedded.layout import DEFAULT_MAP_SIZE_BYTES, Lane, open_for_reading
from ingeborg.broker.store.embedded.store import EmbeddedStore
from ingeborg.broker.store.riak.store import RiakStore

SINGLE = 10_000
CLIENTS = 100
KINDS = ("neither filter nor term", "until disconnect", "a filter")
AWAY = Term(True, 0.0)
TAKEN = 2_000
"""Number of topics in one call to Riak. An endpoint never passes more topics in one call."""


def _row(what: str, figure: str) -> None:
    print(f"{what:<72} {figure}", flush=True)


async def _seconds(work: Awaitable[object]) -> float:
    began = time.perf_counter()
    await work
    return time.perf_counter() - began


def _songs(count: int) -> list[str]:
    return [f"song/{number:07d}/artist-title" for number in range(count)]


def _filter(number: int) -> str:
    """Return a filter that no other client has."""
    return f'{{"discount":[{{"numeric":[">=",{number % 100}]}}],"restaurant":["restaurant {number}"]}}'


def _subscribe(kind: str, number: int, client: str, topics: list[str]) -> Subscribe:
    return Subscribe(
        client, topics, _filter(number) if kind == "a filter" else None, AWAY if kind == "until disconnect" else None
    )


async def _all_topics(store: Store, client: str) -> None:
    _, cursor = await store.topics(client, None, 10_000)
    while cursor is not None:
        _, cursor = await store.topics(client, cursor, 10_000)


async def _walk(store: Store) -> int:
    """Read everything that expiry reads, and return the number of subscriptions with a term."""
    count = 0
    for slot in await store.expiring_slots() or ():
        page, cursor = await store.expiring(slot, None, 500)
        count += len(page)
        while cursor is not None:
            page, cursor = await store.expiring(slot, cursor, 500)
            count += len(page)
    return count


# --- LMDB


def _written(store: EmbeddedStore) -> int:
    """Return the number of bytes that the store's writer processes have written so far."""
    found = 0
    for pid in store.writer_pids.values():
        said = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
        found += int(said["wchar"])
    return found


def _looked_at(directory: Path) -> tuple[int, int]:
    """Return the number of transactions of the durable environment, and the total size of its databases' pages."""
    environment = open_for_reading(directory, Lane.DURABLE, DEFAULT_MAP_SIZE_BYTES)
    with environment.begin() as txn:
        stats = [txn.stat(database) for database in environment.db.values()]
        pages = sum(stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"] for stat in stats)
        found = environment.env.info()["last_txnid"], pages * stats[0]["psize"]
    environment.env.close()
    return found


async def _one_by_one(directory: Path, kind: str) -> None:
    store = EmbeddedStore(directory)
    await store.open()
    before, topics = _written(store), _songs(SINGLE)

    async def subscribe() -> None:
        for number, topic in enumerate(topics):
            await store.subscribe([_subscribe(kind, number, f"client-{number % CLIENTS}", [topic])])

    took_s = await _seconds(subscribe())
    written = _written(store) - before
    await store.close()
    _row(f"{SINGLE:,} subscribes one after the other, {kind}", f"{took_s:.2f} s")
    _row(
        "  flushed transactions since the store's creation, and bytes written",
        f"{_looked_at(directory)[0]:,}, {written:,}",
    )


async def _bulk(directory: Path, count: int) -> None:
    store = EmbeddedStore(directory)
    await store.open()
    topics = _songs(count)
    _row(
        f"one client subscribes to {count:,} topics",
        f"{await _seconds(store.subscribe([Subscribe('a', topics)])):.3f} s",
    )
    _row("  lists its topics, in pages of 10,000", f"{await _seconds(_all_topics(store, 'a')):.3f} s")
    _row("  subscribers of 2^15 topics, one call", f"{await _seconds(store.subscribers(topics[: 1 << 15])):.3f} s")
    began = time.thread_time()
    for topic in topics[:20_000]:
        store.subscribers_now([topic])
    _row("  subscribers of one topic, synchronous read", f"{(time.thread_time() - began) / 20_000 * 1e6:.2f} us")
    await store.subscribe([Subscribe("visitor", _songs(1_000)[500:], None, AWAY)])
    began = time.thread_time()
    for topic in topics[:20_000]:
        store.subscribers_now([topic])
    _row(
        "  synchronous read, another client has some topics until disconnect",
        f"{(time.thread_time() - began) / 20_000 * 1e6:.2f} us",
    )
    await store.close()


async def _disk(directory: Path) -> None:
    store = EmbeddedStore(directory)
    await store.open()
    songs = _songs(200_000)
    for number in range(CLIENTS):
        first = number * 7919 % len(songs)
        await store.subscribe([Subscribe(f"client-{number:03d}", [*songs[first:], *songs[:first]][:10_000])])
    await store.close()
    _row("size of 1,000,000 subscriptions of 100 clients to 200,000 topics", f"{_looked_at(directory)[1] / 1e6:.1f} MB")


async def _filters(directory: Path) -> None:
    store = EmbeddedStore(directory)
    await store.open()
    rows = [Subscribe(f"client {number}", ["offers"], _filter(number)) for number in range(1_000_000)]
    _row("1,000,000 filters at one topic: subscribe", f"{await _seconds(store.subscribe(rows)):.1f} s")

    async def read() -> None:
        _, cursor = (await store.subscribers(["offers"]))[1]["offers"]
        while cursor is not None:
            _, cursor = await store.filtered("offers", cursor, 1_000)

    _row("  read all filters", f"{await _seconds(read()):.2f} s")
    await store.close()


async def _expiry(directory: Path) -> None:
    store = EmbeddedStore(directory)
    await store.open()
    await store.subscribe([Subscribe(f"visitor {number}", [f"room/{number}"], None, AWAY) for number in range(100_000)])
    _row(
        "expiry reads 100,000 subscriptions with a term, and the store has no others",
        f"{await _seconds(_walk(store)) * 1e3:.0f} ms",
    )
    songs = _songs(1 << 21)
    for number in range(5):
        await store.subscribe([Subscribe(f"client {number}", songs)])
    took_s = await _seconds(_walk(store))
    _row(f"  with {5 * len(songs):,} subscriptions without a term in the store", f"{took_s * 1e3:.0f} ms")
    await store.close()


async def _embedded(parent: Path | None, large: bool) -> None:
    parts: list[Callable[[Path], Awaitable[None]]] = [
        *(partial(_one_by_one, kind=kind) for kind in KINDS),
        partial(_bulk, count=1 << 15),
        _disk,
    ]
    if large:
        parts += [partial(_bulk, count=1 << 21), _filters, _expiry]
    for part in parts:
        with tempfile.TemporaryDirectory(dir=parent) as directory:
            await part(Path(directory))


# --- Riak


async def _riak(nodes: list[tuple[str, int]]) -> None:
    def counted(what: str, before: dict[str, int]) -> None:
        figures = [store.counters[name] - before[name] for name in ("gets", "puts", "bytes_written")]
        _row(what, "gets {:,}, puts {:,}, bytes written {:,}".format(*figures))

    topics = _songs(1 << 13)
    for kind in KINDS:
        store = RiakStore(nodes, timeout_s=60.0, namespace=f"records-{secrets.token_hex(4)}")
        await store.open()
        pairs = [
            (f"client-{n}", [topics[(n * 7919 + i * 31) % len(topics)] for i in range(100)]) for n in range(CLIENTS)
        ]
        before = dict(store.counters)
        for first in range(0, CLIENTS, TAKEN // 100):
            await store.subscribe([_subscribe(kind, first, *pair) for pair in pairs[first : first + TAKEN // 100]])
        counted(f"10,000 subscriptions in calls of {TAKEN:,} topics, {kind}", before)
        before = dict(store.counters)
        await store.subscribers(topics[:TAKEN])
        counted(f"  subscribers of {TAKEN:,} topics", before)
        before = dict(store.counters)
        await store.unsubscribe([(client, wanted, None) for client, wanted in pairs[:10]])
        counted("  unsubscribe of ten clients", before)
        await store.close()


def main() -> None:
    """Measure on uvloop, because endpoints also run on it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", type=Path, default=None, help="where to make the temporary directory")
    parser.add_argument(
        "--large",
        action="store_true",
        help="also measure 2^21 topics, 10^6 filters, and 10^5 subscriptions with a term among 10^7 without one",
    )
    parser.add_argument("--riak", default="", help="count requests to these nodes instead")
    options = parser.parse_args()
    if options.riak:
        nodes = [(host, int(port)) for host, _, port in (node.rpartition(":") for node in options.riak.split(","))]
        uvloop.run(_riak(nodes))
    else:
        uvloop.run(_embedded(options.directory, options.large))


if __name__ == "__main__":
    main()
