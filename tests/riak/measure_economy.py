"""The cost of subscriptions and messages on Riak, in requests, objects and bytes, next to their goals.

    python -m tests.riak.measure_economy [batches] [hot] [unseen] [traffic] [--partitions 1 4 16] [--topics 100 1000 …]

Owns: the figures of docs/adr/0003. It counts on the wire between the store's driver and the nodes (``tap``): the nodes
of the cluster that ``INGEBORG_TEST_RIAK`` names, or else of the double. Each part has its own namespace, which stays
behind in a real cluster. The module is here and not among ``ingeborg.bench.budgets`` because it drives the driver
itself, and ``bench`` must not know the broker. It takes a minute on the double; the latencies need an idle machine.
Must never: be collected as a test.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import os
import random
import secrets
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

import orjson

from ingeborg.bench.budgets.light import dial, started
from ingeborg.bench.budgets.model import Check, show
from ingeborg.broker.store.base import Subscribe
from ingeborg.broker.store.riak import RiakStore
from ingeborg.broker.store.riak.entries import PLAIN, Pair, Wanted
from ingeborg.broker.store.riak.layout import OBJECT_BYTES_MAX, partition_of
from ingeborg.protocol.hashes import SLOTS
from ingeborg.protocol.outgoing import OutgoingSocket
from tests.contract.asking import subscribers

from .tap import Tally, Tap, Traffic, tapped

TOPICS = (100, 1_000, 10_000, 100_000)
PARTITIONS = (1,)
HOT_SUBSCRIBERS = (500, 10_000, 100_000)
#: Further subscribes of a hot topic, each counted separately.
FURTHER = 20
#: Timed subscribes, and reads, of its neighbour.
TIMED = 200
#: A neighbour counts as slowed if its latency is this many times that without a hot topic.
SLOWER_MAX = 2.0
#: Topics, subscribers of each, and messages: in `home`, and in `lookup`, which makes about seven requests per message.
TRAFFIC_TOPICS, FAN_OUT = 200, 5
MESSAGES = {"home": 4_000, "lookup": 400}
OPERATIONS_MAX = 0.01
ANSWER_S = 240.0


class Place:
    """A namespace of the cluster behind a tap, with ``partitions`` per slot."""

    def __init__(self, tap: Tap, partitions: int) -> None:
        self.tap = tap
        self.partitions = partitions
        self._namespace = f"economy-{secrets.token_hex(6)}"
        self._node_confirms = int(os.environ.get("INGEBORG_TEST_RIAK_NODE_CONFIRMS", "2"))

    @contextlib.asynccontextmanager
    async def store(self) -> AsyncIterator[RiakStore]:
        """Yield an open driver."""
        store = RiakStore(
            self.tap.addresses,
            namespace=self._namespace,
            partitions_per_slot=self.partitions,
            node_confirms=self._node_confirms,
        )
        await store.open()
        try:
            yield store
        finally:
            await store.close()

    @contextlib.contextmanager
    def endpoint(self, routing: str = "home") -> Iterator[str]:
        """Yield the URL of an endpoint process. The place must have been opened before."""
        nodes = ",".join(f"{host}:{port}" for host, port in self.tap.addresses)
        with tempfile.TemporaryDirectory() as folder:
            secret, file = Path(folder) / "secret", Path(folder) / "serve.toml"
            secret.write_text(secrets.token_hex(32))
            file.write_text(
                f'riak_namespace = "{self._namespace}"\nriak_node_confirms = {self._node_confirms}\n'
                f'peer_secret_file = "{secret}"\n'
            )
            arguments = ("--port", "0", "--store", f"riak:{nodes}", "--routing", routing, "--config", str(file))
            with started("ingeborg.broker.command.cli", "serve", *arguments) as (url, _):
                yield url


async def told(socket: OutgoingSocket, **command: object) -> None:
    """Send a command, and wait for its success."""
    before, answer = socket.on_message, asyncio.get_running_loop().create_future()
    socket.on_message = lambda _, data: None if answer.done() else answer.set_result(bytes(data))
    socket.write(orjson.dumps(command))
    async with asyncio.timeout(ANSWER_S):
        data = await answer
    socket.on_message = before
    if orjson.loads(data).get("result") != "success":
        raise SystemExit(f"{command['command']}: {data.decode()}")


def plain(batch: Sequence[tuple[str, Sequence[str]]]) -> dict[Pair, Wanted]:
    """Return clients and topics in the form that the driver writes without the clients' own sets."""
    return {(client, topic): Wanted(dict.fromkeys(PLAIN), False) for client, at in batch for topic in at}


def written(traffic: Traffic) -> str:
    """Return in words how much was written into a bucket."""
    return (
        f"{traffic.puts:,} puts of {traffic.objects:,} objects, {traffic.gets:,} gets, {traffic.bytes_written:,} bytes"
    )


# -- one client's batch of topics


async def batches(tap: Tap, partitions: int, topics: int) -> list[Check]:
    """Measure one subscribe in one call of the driver, then one more topic, then the same through an endpoint."""
    # At random: slots of names that only count up are too evenly distributed.
    draw = random.Random(1)
    names = [f"economy/{draw.randbytes(8).hex()}" for _ in range(topics)]
    goal = min(topics, SLOTS * partitions)
    rows = []
    place = Place(tap, partitions)
    async with place.store() as store:
        await tap.tally()
        await store.subscribe([Subscribe("a client", names)])
        rows += _batch(f"driver, {partitions} per slot, {topics:,} topics", await tap.tally(), goal)
        await store.subscribe([Subscribe("another client", ["economy/one more"])])
        more = await tap.tally()
        print(f"  one topic more: {written(more['topics'])}; {written(more['clients'])} of the client's own set")
    place = Place(tap, partitions)
    async with place.store():
        pass
    with place.endpoint() as url:
        socket = await dial(url)
        await told(socket, command="listen", client_id="a client")
        await tap.tally()
        await told(socket, command="subscribe", client_id="a client", topic=names)
        rows += _batch(f"endpoint, {partitions} per slot, {topics:,} topics", await tap.tally(), goal)
        socket.transport.close()
    return rows


def _batch(what: str, tally: Tally, goal: int) -> list[Check]:
    topics, spills, clients = tally["topics"], tally["subscribers"], tally["clients"]
    print(f"  {what}: the client's own set, {written(clients)}")
    return [
        Check(
            f"batch ({what}), subscriber sets",
            f"at most {goal:,} puts and those of spills",
            f"{written(topics)}; of spills {spills.puts:,} puts",
            topics.puts <= goal,
        ),
        Check(
            f"batch ({what}), greatest object",
            f"at most {OBJECT_BYTES_MAX:,} bytes",
            f"{tally.greatest:,} bytes",
            tally.greatest <= OBJECT_BYTES_MAX,
        ),
    ]


# -- a hot topic


class Latency(NamedTuple):
    """Medians in milliseconds."""

    put_ms: float
    get_ms: float

    def __str__(self) -> str:
        return f"subscribe {self.put_ms:.1f} ms, read {self.get_ms:.1f} ms"

    def beside(self, other: Latency, what: str, than: str) -> Check:
        """Return a check that this latency is at most ``SLOWER_MAX`` times the other one."""
        met = self.put_ms <= SLOWER_MAX * other.put_ms and self.get_ms <= SLOWER_MAX * other.get_ms
        return Check(what, f"at most {SLOWER_MAX:g} times what it takes {than}, {other}", str(self), met)


async def hot(tap: Tap, sizes: Sequence[int]) -> list[Check]:
    """Measure a topic with more and more subscribers: the cost of one more, and the effect on a topic in the same
    partition object."""
    name = "economy/hot"
    others = [f"economy/other/{number}" for number in range(10 * SLOTS)]
    near = next(other for other in others if partition_of(other, 1) == partition_of(name, 1))
    far = next(other for other in others if partition_of(other, 1) != partition_of(name, 1))
    rows = []
    numbers = itertools.count()
    async with Place(tap, 1).store() as store:
        await _latency(store, far, numbers)
        alone = await _latency(store, near, numbers)
        filled = greatest = 0
        for size in sizes:
            while filled < size:
                batch = [(f"client {number:07}", [name]) for number in range(filled, min(filled + 10_000, size))]
                # Without the clients' own sets: one object for each, and not what this measures.
                await store._records._writer.write(plain(batch))
                filled += len(batch)
            greatest = max(greatest, (await tap.tally()).greatest)
            times_ms = []
            for number in range(FURTHER):
                begin_s = time.perf_counter()
                await store.subscribe([Subscribe(f"further {size} {number}", [name])])
                times_ms.append((time.perf_counter() - begin_s) * 1000)
            more = await tap.tally()
            greatest = max(greatest, more.greatest)
            before = store.counters["bytes_read"], store.counters["gets"]
            begin_s = time.perf_counter()
            assert len((await subscribers(store, [name]))[0]) >= size
            took_ms = (time.perf_counter() - begin_s) * 1000
            whole, gets = (store.counters[what] - was for what, was in zip(("bytes_read", "gets"), before, strict=True))
            added = (more["topics"].bytes_written + more["subscribers"].bytes_written) / FURTHER
            rows.append(
                Check(
                    f"bytes written per further subscriber of a topic of {size:,}",
                    f"less than the set ({whole:,} in {gets} gets, {took_ms:.0f} ms) where that is over "
                    f"{OBJECT_BYTES_MAX:,}",
                    f"{added:,.0f} ({more['topics'].puts / FURTHER:g} puts of the partition, "
                    f"{more['subscribers'].puts / FURTHER:g} of the set's own objects, {more.requests / FURTHER:g} "
                    f"requests and {median(times_ms):.1f} ms with the client's own set)",
                    added < whole / 2 or whole <= OBJECT_BYTES_MAX,
                )
            )
        beside = await _latency(store, near, numbers)
        stop = asyncio.Event()
        busy = asyncio.create_task(_keep_subscribing(store, name, stop))
        near_busy = await _latency(store, near, numbers)
        far_busy = await _latency(store, far, numbers)
        stop.set()
        done = await busy
        rows += [
            beside.beside(alone, f"a topic in the partition of one of {filled:,}", "before that had any"),
            near_busy.beside(far_busy, f"the same while that one gets {done:,} more", "for a topic elsewhere"),
            Check(
                "greatest object of a hot topic",
                f"at most {OBJECT_BYTES_MAX:,} bytes",
                f"{greatest:,} bytes",
                greatest <= OBJECT_BYTES_MAX,
            ),
        ]
    return rows


async def _latency(store: RiakStore, topic: str, numbers: Iterator[int]) -> Latency:
    async def times_ms(do: Callable[[], Awaitable[object]]) -> float:
        found = []
        for _ in range(TIMED):
            before_s = time.perf_counter()
            await do()
            found.append((time.perf_counter() - before_s) * 1000)
        return median(found)

    async def put() -> None:
        # Only the subscriber set: the client's own set is in no partition, and would hide the difference.
        await store._records._writer.write(plain([(f"neighbour {next(numbers)}", [topic])]))

    return Latency(await times_ms(put), await times_ms(lambda: subscribers(store, [topic])))


async def _keep_subscribing(store: RiakStore, topic: str, stop: asyncio.Event) -> int:
    for number in itertools.count():
        if stop.is_set():
            return number
        await store._records._writer.write(plain([(f"late {number}", [topic])]))
    raise AssertionError


# -- a topic nobody has ever seen


async def unseen(tap: Tap) -> list[Check]:
    """Publish to it at an endpoint."""
    place = Place(tap, 1)
    async with place.store():
        pass
    with place.endpoint() as url:
        socket = await dial(url)
        counted = []
        for first, last in ((0, 1), (1, 1_001)):
            await tap.tally()
            for number in range(first, last):
                topic = "economy/unseen"
                await told(socket, command="publish", client_id="p", topic=topic, payload=number, ack=True)
            counted.append((await tap.tally())["topics"].gets)
        socket.transport.close()
    once, later = counted
    return [
        Check("reads of the first publish to a topic never seen", "at most 2", f"{once}", once <= 2),
        Check("reads of the next 1,000", "none", f"{later}", later == 0),
    ]


# -- messages


async def traffic(tap: Tap, routing: str) -> list[Check]:
    """Send messages through an endpoint, each to ``FAN_OUT`` subscribers, after one to each topic."""
    place = Place(tap, 1)
    async with place.store():
        pass
    with place.endpoint(routing) as url:
        socket = await dial(url)
        for number in range(FAN_OUT):
            client = f"subscriber {number}"
            await told(socket, command="listen", client_id=client)
            topics = [f"economy/traffic/{topic}" for topic in range(TRAFFIC_TOPICS)]
            await told(socket, command="subscribe", client_id=client, topic=topics)
        publisher = await dial(url)
        await _publish(publisher, socket, range(TRAFFIC_TOPICS))
        await tap.tally()
        begin_s = time.monotonic()
        delivered = await _publish(publisher, socket, range(TRAFFIC_TOPICS, TRAFFIC_TOPICS + MESSAGES[routing]))
        took_s = time.monotonic() - begin_s
        tally = await tap.tally()
        socket.transport.close()
        publisher.transport.close()
    registry = tally["endpoints"].gets + tally["endpoints"].puts
    each = tally.requests / delivered
    per_publish = (tally.requests - registry) / MESSAGES[routing]
    measured = (
        f"{tally.requests:,} for {MESSAGES[routing]:,} messages delivered {delivered:,} times in {took_s:.1f} s "
        f"({registry:,} of them heartbeats): {each:.4f} per delivery, {per_publish:.2f} per message without heartbeats"
    )
    if routing == "home":
        return [
            Check(f"store operations in {routing}", f"at most {OPERATIONS_MAX:g} per delivery", measured, each <= 0.01)
        ]
    hashes = tally["seen"].gets + tally["seen"].puts
    measured += (
        f" (set {tally['topics'].gets / MESSAGES[routing]:.2f}, "
        f"locations {tally['locations'].gets / MESSAGES[routing]:.2f}, hash {hashes / MESSAGES[routing]:.2f})"
    )
    return [
        Check(
            f"store operations in {routing}",
            f"the thesis's 1 + {FAN_OUT} per message, and 2 for its hash",
            measured,
            round(per_publish, 1) == FAN_OUT + 3,
        )
    ]


async def _publish(publisher: OutgoingSocket, subscriber: OutgoingSocket, numbers: range) -> int:
    """Publish a message for each number, one by one, wait until all have come, and return how many came."""
    received, came = 0, asyncio.Event()

    def count(_: OutgoingSocket, data: bytes) -> None:
        nonlocal received
        received += 1
        if received == len(numbers) * FAN_OUT:
            came.set()

    subscriber.on_message = count
    for number in numbers:
        # An endpoint looks up a subscriber's location once for several messages that come together; here each message
        # needs its own lookup.
        await told(
            publisher,
            command="publish",
            client_id="p",
            topic=f"economy/traffic/{number % TRAFFIC_TOPICS}",
            payload=f"message {number}".ljust(150),
            ack=True,
        )
    async with asyncio.timeout(ANSWER_S):
        await came.wait()
    return received


async def main() -> None:
    """Run the command."""
    parts = ("batches", "hot", "unseen", "traffic")
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(parts)}; all of them if none is given")
    parser.add_argument("--partitions", type=int, nargs="+", default=PARTITIONS)
    parser.add_argument("--topics", type=int, nargs="+", default=TOPICS)
    parser.add_argument("--subscribers", type=int, nargs="+", default=HOT_SUBSCRIBERS)
    options = parser.parse_args()
    wanted = options.parts or parts
    if unknown := set(wanted) - set(parts):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    async with tapped() as tap:
        if "batches" in wanted:
            for partitions in options.partitions:
                for topics in options.topics:
                    show(await batches(tap, partitions, topics))
        if "hot" in wanted:
            show(await hot(tap, options.subscribers))
        if "unseen" in wanted:
            show(await unseen(tap))
        if "traffic" in wanted:
            for routing in MESSAGES:
                show(await traffic(tap, routing))


if __name__ == "__main__":
    asyncio.run(main())
