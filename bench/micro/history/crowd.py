"""Kill one of two endpoints, and measure how long its clients take to recover at the other one.

Owns: the figure `many`. Must never: count a client as recovered if it lacks a message.

First, the clients note their positions. Then a publisher publishes messages to every client's topics. Then one endpoint
is killed. Its clients connect to the other endpoint with the positions that they noted, so each has missed the same
number of messages. The killed endpoint kept half of the messages, and the other endpoint has a replica of that half.
The time runs from the first lost connection until the last `recovered`.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import math
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ingeborg.bench.budgets.clients import OTHER_FILES, allow_files
from ingeborg.bench.budgets.light import cpu_s, started
from ingeborg.bench.budgets.model import Check
from ingeborg.bench.budgets.recoverers import (
    HISTORY_BYTES,
    PATIENCE_S,
    Message,
    Publisher,
    Recoverer,
    Recovery,
    load_subscriptions,
    message,
    metrics,
)
from ingeborg.bench.errors import BenchError
from ingeborg.protocol.hashes import SLOTS

MANY_S = 5.0
#: Number of clients that connect at the same time. It fits easily into the endpoint's queue of new connections.
AT_ONCE = 200
TOPICS, MISSED = 10, 10
#: Seconds between two requests for the endpoint's metrics page. Each request adds to the endpoint's load.
LOOK_S = 0.25
#: If a process uses at least this share of a core, the figure counts as limited by that process.
BUSY = 0.9


class Storm(NamedTuple):
    """Times in seconds since the first client lost its connection. ``ends_s`` has the sorted times at which the clients
    had recovered. At ``connected_s``, the last client sent its `listen`. At ``homes_s``, the remaining endpoint acted
    for all slots. ``endpoint_s`` and ``clients_s`` are CPU seconds until all clients had recovered: those of the
    remaining endpoint, and those of this process, which runs the clients."""

    ends_s: list[float]
    connected_s: float
    homes_s: float
    endpoint_s: float
    clients_s: float


class Crowd:
    """All clients, and a queue of the clients that have lost their connections."""

    def __init__(self, clients: int) -> None:
        self.clients = [Recoverer(f"client {number:06}", self._lost) for number in range(clients)]
        self.lost: asyncio.Queue[Recoverer] = asyncio.Queue()
        self.first_lost = 0.0

    def _lost(self, client: Recoverer) -> None:
        if not self.first_lost:
            self.first_lost = time.monotonic()
        self.lost.put_nowait(client)

    def topics(self, number: int) -> list[str]:
        """Return the topics of a client. No other client subscribes to them."""
        return [f"topic {number:06}-{topic}" for topic in range(TOPICS)]

    def missed(self, number: int) -> list[Message]:
        """Return the messages that a client misses."""
        topics = self.topics(number)
        return [message(topics[each % TOPICS], each) for each in range(MISSED)]

    async def introduce(self, urls: Sequence[str]) -> None:
        """Connect the clients, spread evenly over the endpoints."""
        room = asyncio.Semaphore(AT_ONCE)

        async def one(number: int) -> None:
            async with room:
                await self.clients[number].introduce(urls[number % len(urls)])

        async with asyncio.TaskGroup() as group:
            for number in range(len(self.clients)):
                group.create_task(one(number))

    async def recover(self, url: str, count: int) -> list[tuple[Recoverer, Recovery]]:
        """Let this number of clients recover, each after it has lost its connection. At most ``AT_ONCE`` of them
        connect at the same time. All of them may wait for their missed messages at the same time."""
        room = asyncio.Semaphore(AT_ONCE)
        found: list[tuple[Recoverer, Recovery]] = []

        async def one(client: Recoverer) -> None:
            found.append((client, await client.recover(url, room)))

        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
            for _ in range(count):
                group.create_task(one(await self.lost.get()))
        return found


async def _ready(urls: Sequence[str]) -> None:
    """Wait until all slots have replicas. Raises ``BenchError`` if that takes too long."""
    deadline = time.monotonic() + PATIENCE_S
    for url in urls:
        while True:
            if not (await metrics(url))["ingeborg_slots_without_replica"]:
                break
            if time.monotonic() > deadline:
                raise BenchError(f"{url}: some slots still have no replica after {PATIENCE_S:g} s")
            await asyncio.sleep(LOOK_S)


async def storm(clients: int) -> Storm:
    """Run one storm: kill an endpoint, and let its clients recover at the other one. Raises ``BenchError`` if a client
    did not recover, or recovered without all messages that it had missed."""
    allow_files(clients + OTHER_FILES)
    crowd = Crowd(clients)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        store = f"lmdb:{folder}/store"
        wanted = {client.name: crowd.topics(number) for number, client in enumerate(crowd.clients)}
        await load_subscriptions(folder, store, wanted)
        options = (
            "--store",
            store,
            "--replication",
            "on",
            "--history",
            "memory",
            "--history-bytes",
            str(HISTORY_BYTES),
        )
        serve = ("ingeborg.broker.command.cli", "serve", "--port", "0", *options)
        servers = [stack.enter_context(started(*serve)) for _ in range(2)]
        (killed_url, killed), (url, process) = servers
        await _ready([url, killed_url])
        await crowd.introduce([killed_url, url])
        all_of = [each for number in range(clients) for each in crowd.missed(number)]
        await asyncio.gather(Publisher().publish(url, all_of[::2]), Publisher().publish(killed_url, all_of[1::2]))
        victims = len(range(0, clients, 2))
        gc.collect()
        stack.callback(gc.unfreeze)
        gc.freeze()  # these objects live until the end, so the collector need not scan them
        endpoint_s, clients_s = cpu_s(process), time.process_time()
        slots = asyncio.create_task(_all_slots(url))
        killed.kill()
        try:
            recovered = await crowd.recover(url, victims)
        except TimeoutError:
            raise BenchError(f"some of {victims:,} clients did not recover within {PATIENCE_S:g} s") from None
        except ExceptionGroup as errors:  # many clients may fail in the same way, so report only the first reason
            raise errors.exceptions[0] from None
        endpoint_s, clients_s = cpu_s(process) - endpoint_s, time.process_time() - clients_s
        homes = await slots
        by_name = {client.name: number for number, client in enumerate(crowd.clients)}
        for client, recovery in recovered:
            lacks = set(crowd.missed(by_name[client.name])) - recovery.messages()
            if lacks:
                raise BenchError(f"{client.name} has recovered, but lacks {len(lacks)} of {MISSED} messages")
        for client in crowd.clients:
            client.go()
    start = crowd.first_lost
    return Storm(
        sorted(recovery.ended - start for _, recovery in recovered),
        max(recovery.began for _, recovery in recovered) - start,
        homes - start,
        endpoint_s,
        clients_s,
    )


async def _all_slots(url: str) -> float:
    """Return the time at which the endpoint became home of all slots. From then on no slot has a replica, because there
    is no other endpoint."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if (await metrics(url))["ingeborg_slots_without_replica"] == SLOTS:
            return time.monotonic()
        await asyncio.sleep(LOOK_S)
    return math.inf


async def many(share: float) -> list[Check]:
    """Measure 10,000 clients of two endpoints. Each client has 10 topics, and misses 10 messages."""
    clients = max(10, round(10_000 * share))
    found = await storm(clients)
    ends_s = found.ends_s
    last_s = ends_s[-1]
    figure = f"{len(ends_s):,} of {clients:,} clients recover {MISSED} messages each at the other endpoint"
    shares = {"the endpoint": found.endpoint_s / last_s, "the clients' process": found.clients_s / last_s}
    bound = ", ".join(name for name, busy in shares.items() if busy >= BUSY)
    used = ", ".join(f"{name} {busy:.0%} of a core" for name, busy in shares.items())
    text = (
        f"{last_s:.2f} s; half of the clients after {ends_s[len(ends_s) // 2]:.2f} s, first after {ends_s[0]:.2f} s; "
        f"last client connected after {found.connected_s:.2f} s; all slots moved after {found.homes_s:.2f} s; {used}"
    )
    return [Check(figure, f"at most {MANY_S:g} s", text + (f"; limited by {bound}" if bound else ""), last_s <= MANY_S)]
