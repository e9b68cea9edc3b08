"""Measure what remains of clients with new ids whose subscriptions end when they disconnect.

The goal is that nothing remains.

    python -m ingeborg.bench.micro.visitors [--clients 10000] [--over-s 600] [--topics 20] [--stay-s 5] [--grace-s 20]

Two endpoints share an LMDB store. Visitors arrive at a constant rate over `--over-s` seconds. Each visitor listens,
subscribes to some of 5,000 topics, stays for a while, and leaves for good. Meanwhile, a publisher publishes to these
topics. Before the first measurement, a tenth of `--clients` visitors come and leave as a warm-up, so that an endpoint's
first allocations do not count.

The program compares the numbers of records in the store's databases, the numbers of topics in the routing caches, and
the endpoints' own memory, before and after the visitors. It measures again when everything has expired: the grace time
is over, and expiry has walked through the store a few times. In addition, ten minutes have passed, because endpoints
remember locations and ended subscriptions for this long. With the defaults, the program takes about 35 minutes. The
machine is nearly idle during this time. Must never: be collected as a test.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import re
import tempfile
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import psutil
import uvloop

from ingeborg.bench.budgets.light import started
from ingeborg.bench.budgets.model import Check, measured, show
from ingeborg.broker.core.topics.expiry import KEPT_S, WALK_S_MAX
from ingeborg.broker.store.embedded.layout import DATABASES, DEFAULT_MAP_SIZE_BYTES, Lane, open_for_reading
from ingeborg.protocol.client import Client

TOPICS = 5_000
PUBLISHES_PER_S = 20
#: The permitted growth of the memory of both endpoints, in bytes. It allows for memory that the allocator keeps.
GROWTH_BYTES = 8 << 20
#: Databases that have no records of clients.
_NOT_OF_CLIENTS = frozenset({"registry", "seen"})


class Look(NamedTuple):
    """One measurement. ``records`` is the number of records in the store, by database. ``topics`` is the number of
    topics in routing caches. ``own_bytes`` is the memory of both endpoints without mapped files. ``mapped_bytes`` is
    their memory for mapped files: pages of programs, and pages of the store that they have read. The kernel reclaims
    such pages when it needs memory. ``ended`` is the number of subscriptions that have ended since the endpoints
    started."""

    records: dict[str, int]
    topics: int
    own_bytes: int
    mapped_bytes: int
    ended: int


def _look(folder: Path, servers: Sequence[tuple[str, psutil.Process]]) -> Look:
    records: dict[str, int] = {}
    for lane in Lane:
        environment = open_for_reading(folder, lane, DEFAULT_MAP_SIZE_BYTES)
        with environment.begin() as txn:
            for name in DATABASES[lane].keys() - _NOT_OF_CLIENTS:
                there = txn.stat(environment.db[name])["entries"] if name in environment.db else 0
                records[name] = records.get(name, 0) + there
        environment.env.close()
    pages = [_page(url) for url, _ in servers]
    memory = [process.memory_info() for _, process in servers]
    return Look(
        dict(sorted(records.items())),
        sum(_figure(page, "ingeborg_routes") for page in pages),
        sum(one.rss - one.shared for one in memory),
        sum(one.shared for one in memory),
        sum(_figure(page, "ingeborg_subscriptions_ended_total") for page in pages),
    )


def _page(url: str) -> str:
    address = f"{url.replace('ws://', 'http://').rstrip('/')}/metrics"
    with urllib.request.urlopen(address, timeout=10.0) as answer:
        return str(answer.read(), "utf-8")


def _figure(page: str, name: str) -> int:
    found = re.search(rf"^{name} (\S+)$", page, re.MULTILINE)
    assert found is not None, name
    return round(float(found[1]))


async def _visit(url: str, number: int, topics: int, stay_s: float, heard: list[int]) -> None:
    drawn = random.Random(number)
    async with Client(url, f"visitor-{number}", listen=True) as client:
        names = [f"topic {drawn.randrange(TOPICS)}" for _ in range(topics)]
        await client.subscribe(names, until="disconnect")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(stay_s):
                async for _ in client:
                    heard[0] += 1


async def _publish(url: str, seen: list[int]) -> None:
    drawn = random.Random(0)
    async with Client(url, "publisher") as client:
        while True:
            await client.publish(f"topic {drawn.randrange(TOPICS)}", seen[0], ack=True, dedup="retry")
            seen[0] += 1
            await asyncio.sleep(1 / PUBLISHES_PER_S)


async def _visitors(urls: Sequence[str], numbers: range, each_s: float, topics: int, stay_s: float) -> int:
    heard = [0]
    async with asyncio.TaskGroup() as visits:
        for number in numbers:
            visits.create_task(_visit(urls[number % len(urls)], number, topics, stay_s, heard))
            await asyncio.sleep(each_s)
    return heard[0]


async def measure(clients: int, over_s: float, topics: int, stay_s: float, grace_s: float) -> tuple[Look, Look, int]:
    """Measure before and after the visitors. Return both results, and the number of messages that the visitors
    received."""
    expired_s = grace_s + 3 * WALK_S_MAX + KEPT_S + 60.0
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        serve = ("serve", "--port", "0", "--store", f"lmdb:{folder}/store", "--grace", str(grace_s), "--name")
        servers = [stack.enter_context(started("ingeborg.broker.command.cli", *serve, name)) for name in ("a", "b")]
        urls = [url for url, _ in servers]
        publisher = asyncio.create_task(_publish(urls[0], [0]))
        warm_up = clients // 10
        await _visitors(urls, range(warm_up), over_s / clients, topics, stay_s)
        await asyncio.sleep(expired_s)
        before = await asyncio.to_thread(_look, Path(folder, "store"), servers)
        print(f"after {warm_up:,} visitors: {before}", flush=True)
        heard = await _visitors(urls, range(warm_up, warm_up + clients), over_s / clients, topics, stay_s)
        print(
            f"after the last visitor has left: {await asyncio.to_thread(_look, Path(folder, 'store'), servers)}",
            flush=True,
        )
        await asyncio.sleep(expired_s)
        after = await asyncio.to_thread(_look, Path(folder, "store"), servers)
        publisher.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await publisher
    return before, after, heard


def checks(before: Look, after: Look, clients: int, topics: int) -> list[Check]:
    """Return the figures, each with its goal."""
    more = {name: count - before.records[name] for name, count in after.records.items()}
    ended, grown = after.ended - before.ended, after.own_bytes - before.own_bytes
    return [
        Check(
            "change in the store's number of records",
            "no increase",
            ", ".join(f"{name} {count:+,}" for name, count in more.items()),
            all(count <= 0 for count in more.values()),
        ),
        Check("subscriptions that have ended", f"{clients * topics:,} minus repeats", f"{ended:,}", ended > 0),
        Check(
            "topics in routing caches",
            f"at most {TOPICS:,}, the number of topics",
            f"{before.topics:,}, then {after.topics:,}",
            after.topics <= TOPICS,
        ),
        Check(
            "memory of two endpoints, without the store's pages",
            f"at most {GROWTH_BYTES >> 20} MB more",
            f"{before.own_bytes / 1e6:.1f} MB, then {after.own_bytes / 1e6:.1f} MB",
            grown <= GROWTH_BYTES,
        ),
    ]


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--clients", type=int, default=10_000)
    parser.add_argument("--over-s", type=float, default=600.0)
    parser.add_argument("--topics", type=int, default=20)
    parser.add_argument("--stay-s", type=float, default=5.0)
    parser.add_argument("--grace-s", type=float, default=20.0)
    options = parser.parse_args()
    print(measured(), flush=True)
    before, after, heard = uvloop.run(
        measure(options.clients, options.over_s, options.topics, options.stay_s, options.grace_s)
    )
    show(checks(before, after, options.clients, options.topics))
    print(f"(messages that visitors received: {heard:,})")


if __name__ == "__main__":
    main()
