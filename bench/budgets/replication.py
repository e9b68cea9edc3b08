"""Measure the cost of replicas: the same load on two endpoints with replicas and on two without, alternately.

    python -m ingeborg.bench.budgets.replication [--rounds 4]

Both clusters run on embedded stores, and one cluster runs with `serve --replication on`. Each publish requests a reply.
First, publishes come one by one, which is the most expensive way. Then they come in bursts, as at a busy endpoint. The
machine is mostly idle at both rates. Half of the publishes arrive at the home of their topic. The CPU time is the sum
for both endpoints, minus the time that they use while idle. The latency is the time from the publisher's write until
the publisher gets the reply. The program takes two minutes, on an idle machine.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import tempfile
import time
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import orjson
import uvloop

from ingeborg.bench.compare.matrix import System
from ingeborg.bench.compare.servers import running
from ingeborg.bench.errors import BenchError
from ingeborg.protocol.outgoing import OutgoingSocket
from ingeborg.protocol.pages import PageError, fetch, samples

from .latency import percentile_us
from .light import TIMEOUT_S
from .model import Check, measured, show
from .scaling import TOPICS, Cluster, Metrics

ENDPOINTS = 2
FANOUTS = (1, 5)


class Kind(NamedTuple):
    """How publishes arrive. ``burst`` is the number of publishes that each endpoint gets together. ``rate`` is the
    number per second to both endpoints together."""

    words: str
    burst: int
    rate: float


KINDS = (Kind("one by one", 1, 400), Kind("in bursts", 16, 1_600))
#: Seconds of one load.
LOAD_S = 2.56
#: Maximum increase of p50, in microseconds. The round trip to the replica takes two wake-ups of a sleeping process, and
#: a busy machine adds a delay.
P50_MORE_US = 1_000
#: Seconds between two checks that all slots have replicas.
LOOK_S = 0.1


class Turn(NamedTuple):
    """The result of one load on one cluster. Per publish, ``cpu_us`` is the CPU time in microseconds, and ``copied``
    the bytes of copies. ``replies_ns`` has the latency of each reply in nanoseconds."""

    cpu_us: float
    copied: float
    replies_ns: list[int]


class Cost(NamedTuple):
    """The result of all rounds. ``cpu_us`` is the lowest CPU time, because other load on the machine can only add to
    it. ``replies_ns`` has the latencies of all replies, sorted."""

    cpu_us: float
    copied: float
    replies_ns: list[int]

    @classmethod
    def of(cls, turns: Sequence[Turn]) -> Cost:
        """Combine the turns of one kind of load."""
        replies_ns = sorted(chain.from_iterable(turn.replies_ns for turn in turns))
        return cls(min(turn.cpu_us for turn in turns), max(turn.copied for turn in turns), replies_ns)


Load = tuple[Kind, int]
"""The kind of publishes, and the number of subscribers of a topic."""

LOADS: Sequence[Load] = [(kind, fanout) for kind in KINDS for fanout in FANOUTS]


def publishes(kind: Kind) -> int:
    """Return the number of publishes of one load. Each endpoint gets every topic equally often, and the load takes
    about ``LOAD_S`` seconds."""
    even = TOPICS * ENDPOINTS
    return round(LOAD_S * kind.rate / even) * even


class _Replied(Cluster):
    """A cluster whose publishes have numbers, which identify their replies."""

    async def __aenter__(self) -> _Replied:
        await super().__aenter__()
        for publisher in self._publishers:
            publisher.on_message = self._replied
        return self

    def _replied(self, socket: OutgoingSocket, data: bytes) -> None:
        now_ns = time.perf_counter_ns()
        reply = orjson.loads(data)
        if reply.get("result") == "success":
            self._replies_ns.append(now_ns - self._sent_ns[reply["id"]])
        self._came(socket, data)

    def _wants_reply(self, fanout: int, number: int) -> bytes:
        frame = self._frame(fanout, number // len(self._urls) % TOPICS)
        return frame[:-1] + b',"ack":true,"id":%d}' % number

    async def turn(self, kind: Kind, fanout: int) -> Turn:
        """Run one load. Raises ``BenchError`` if a delivery or a successful reply is missing."""
        count = publishes(kind)
        frames = [self._wants_reply(fanout, number) for number in range(count)]
        self._sent_ns = [0] * count
        self._replies_ns: list[int] = []
        self._expect(count * (fanout + 1))
        before, start_s = await Metrics.read(self._urls), time.monotonic()
        async for publisher, numbers in self._due(count, kind.rate, kind.burst):
            now_ns = time.perf_counter_ns()
            for number in numbers:
                self._sent_ns[number] = now_ns
            publisher.write(*(frames[number] for number in numbers))
        await self._answers(count * (fanout + 1))
        used = (await Metrics.read(self._urls)).since(before)
        cpu_s = used.cpu_s - self._idle_s * (time.monotonic() - start_s)
        if len(self._replies_ns) != count or used.delivered != count * fanout:
            text = f"{len(self._replies_ns):,} successful replies, {used.delivered:,.0f} deliveries"
            raise BenchError(f"{count:,} publishes to {fanout} subscribers each: {text}")
        return Turn(cpu_s / count * 1e6, used.copied / count, self._replies_ns)


async def ready(urls: Sequence[str]) -> None:
    """Wait until every slot has its replica. Raises ``BenchError`` if that takes too long."""
    try:
        async with asyncio.timeout(TIMEOUT_S):
            for url in urls:
                while not has_replicas((await fetch(url, "/metrics")).text):  # noqa: ASYNC110 - only its page says
                    await asyncio.sleep(LOOK_S)
    except PageError as error:
        raise BenchError(str(error)) from None
    except TimeoutError:
        raise BenchError(f"there are slots without a replica after {TIMEOUT_S:g} s") from None


def has_replicas(page: str) -> bool:
    """Return whether all slots have replicas, according to an endpoint's metrics."""
    values = {sample.name: sample.value for sample in samples(page)}
    return values["ingeborg_slots_without_replica"] == 0


async def measure(rounds: int) -> dict[Load, tuple[Cost, Cost]]:
    """Return, for each load, the cost without replicas and the cost with replicas."""
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        clusters: list[_Replied] = []
        for name in ("off", "on"):
            serve = ("--endpoints", str(ENDPOINTS), "--replication", name)
            system = System(name=name, system="ingeborg", serve=serve)
            urls = stack.enter_context(running(system, folder / name, layer=False)).urls
            if name == "on":
                await ready(urls)
            clusters.append(await stack.enter_async_context(_Replied(urls, FANOUTS)))
        for cluster in clusters:
            for fanout in FANOUTS:  # afterwards, the routing caches hold all topics
                await cluster.turn(KINDS[-1], fanout)
        await asyncio.gather(*(cluster.idle() for cluster in clusters))
        turns: dict[Load, tuple[list[Turn], list[Turn]]] = {load: ([], []) for load in LOADS}
        for number in range(rounds):
            for load, both in turns.items():
                # The order alternates. So a slow change of the machine's speed favours neither cluster.
                for place in (0, 1) if number % 2 else (1, 0):
                    both[place].append(await clusters[place].turn(*load))
        return {load: (Cost.of(off), Cost.of(on)) for load, (off, on) in turns.items()}


def checks(found: dict[Load, tuple[Cost, Cost]]) -> list[Check]:
    """Compare the latency of single publishes with its goal. The other figures are only reported."""
    rows = []
    for (kind, fanout), (off, on) in found.items():
        words = f"{kind.words}, {fanout} subscriber{'s' * (fanout > 1)}"
        more_us, times = on.cpu_us - off.cpu_us, on.cpu_us / off.cpu_us
        text = f"{more_us:+.0f} us, {times:.2f} times {off.cpu_us:.0f} us"
        rows.append(Check(f"CPU per publish with replicas, {words}", "reported", text, True))
        p50, p50_off = (percentile_us(cost.replies_ns, 0.5) for cost in (on, off))
        text = f"{p50 - p50_off:+.0f} us, from {p50_off:.0f} to {p50:.0f}"
        is_met = kind.burst > 1 or p50 - p50_off <= P50_MORE_US
        goal = "reported" if kind.burst > 1 else f"at most {P50_MORE_US / 1e3:g} ms more than without"
        rows.append(Check(f"p50 of a reply with replicas, {words}", goal, text, is_met))
    return rows


def report(rounds: int = 4) -> list[Check]:
    """Measure, print the table, and return the checks. Raises ``BenchError``."""
    found = uvloop.run(measure(rounds))
    print(f"{'':12}  {'subscribers':11}  replicas  CPU us per publish  p50 us   p99 us  copied bytes per publish")
    for (kind, fanout), both in found.items():
        for words, cost in zip(("off", "on"), both, strict=True):
            p50, p99 = (percentile_us(cost.replies_ns, share) for share in (0.5, 0.99))
            print(
                f"{kind.words:12}  {fanout:11}  {words:8}  {cost.cpu_us:18.0f}  {p50:6.0f}  {p99:7.0f}"
                f"  {cost.copied:24.0f}"
            )
    return checks(found)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=4)
    options = parser.parse_args()
    print(measured(), flush=True)
    try:
        show(report(options.rounds))
    except BenchError as error:
        parser.exit(1, f"{error}\n")


if __name__ == "__main__":
    main()
