"""Compare the cost of a message whose topic is in the routing cache with the cost of a message whose topic is not.

    python -m ingeborg.bench.budgets.misses [--full]

The load uses one endpoint, and one client with many subscriptions. In some turns, the client publishes to all its
topics, one after another. Then no topic is in the cache when its message arrives (a miss). In the other turns, it
publishes to the same few topics again and again (hits). The figures are the CPU time of each message, and the number of
messages per second with many in transit. The program takes a minute. With ``--full``, it measures more numbers of
topics: from the fewest to the most, each twice the previous one. It then takes four minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import cycle, islice
from statistics import median
from typing import NamedTuple

import orjson
import psutil
import uvloop

from ingeborg.bench.errors import BenchError
from ingeborg.protocol.outgoing import OutgoingSocket

from .light import TIMEOUT_S, ask, cpu_s, dial, started
from .model import Check, show

#: The smallest and the greatest number of subscribed topics. The cache holds fewer topics than either number. The
#: greater number reflects this broker's goal of millions of topics.
FEWEST, MOST = 1 << 16, 1 << 21
#: Number of topics of the hits.
HITS = 1 << 10
#: Topics of one `subscribe`, messages of one turn, and maximum number of messages in transit.
TOPICS_AT_ONCE, MESSAGES, WINDOW = 4_096, 20_000, 512
TURNS = 5
#: Maximum extra cost of a miss, in microseconds.
MISS_US = 4.0
#: Minimum rate of misses, as a share of the rate that their CPU time allows. If the rate is lower, messages wait for
#: something other than the CPU.
NO_WAITING = 0.9


class Turn(NamedTuple):
    """CPU microseconds of the endpoint for a message, and messages per second from end to end."""

    cpu_us: float
    per_s: float


class Client:
    """A client that subscribes, publishes, and receives its own publishes."""

    def __init__(self, url: str, process: psutil.Process) -> None:
        self._url, self._process = url, process
        self._came = 0
        self._room = asyncio.Event()
        self._number = 0

    async def __aenter__(self) -> Client:
        self._socket = await dial(self._url, self._count)
        await self._ask({"command": "listen", "client_id": "client"})
        return self

    async def __aexit__(self, *_: object) -> None:
        self._socket.transport.close()

    def _count(self, _: OutgoingSocket, data: bytes) -> None:
        self._came += 1
        self._room.set()

    async def _ask(self, command: dict[str, object]) -> None:
        answer = await ask(self._socket, orjson.dumps(command))
        if answer != b'{"result":"success"}':
            raise BenchError(f"an endpoint refused a command: {answer[:200]!r}")

    async def subscribe(self, first: int, last: int) -> None:
        """Subscribe to the topics with the numbers from ``first`` to ``last`` - 1."""
        for start in range(first, last, TOPICS_AT_ONCE):
            topics = [topic(number) for number in range(start, min(start + TOPICS_AT_ONCE, last))]
            await self._ask({"command": "subscribe", "client_id": "client", "topic": topics})

    async def publish(self, numbers: Sequence[int]) -> Turn:
        """Publish a message to each of these topics, in this order, and wait until the last message has arrived."""
        frames = [self._frame(number) for number in numbers]
        self._came = sent = 0
        before_s, start_s = cpu_s(self._process), time.perf_counter()
        while self._came < len(frames):
            # Write several frames together, because frames also arrive together on a busy socket.
            free = min(WINDOW - (sent - self._came), len(frames) - sent)
            if free:
                self._socket.write(*frames[sent : sent + free])
                sent += free
            self._room.clear()
            async with asyncio.timeout(TIMEOUT_S):
                await self._room.wait()
        took_s = time.perf_counter() - start_s
        return Turn((cpu_s(self._process) - before_s) / len(frames) * 1e6, len(frames) / took_s)

    def _frame(self, number: int) -> bytes:
        self._number += 1
        payload = f"{self._number:09} ".ljust(120, "x")
        return orjson.dumps({"command": "publish", "client_id": "client", "topic": topic(number), "payload": payload})


def topic(number: int) -> str:
    """Return the topic with this number. It looks like the name of a song."""
    return f"some artist - song {number}"


async def measure(sizes: Sequence[int]) -> dict[int, tuple[Turn, Turn]]:
    """For each number of topics, return the medians of the turns with hits and the medians of the turns with misses."""
    found = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        started("ingeborg.broker.command.cli", "serve", "--port", "0", "--store", f"lmdb:{folder}/store") as (
            url,
            process,
        ),
    ):
        async with Client(url, process) as client:
            there = 0
            for size in sizes:
                await client.subscribe(there, size)
                there = size
                every: Iterator[int] = cycle(range(size))
                few = [number % HITS for number in range(MESSAGES)]
                await client.publish(list(islice(every, MESSAGES)))  # evicts the topics that `subscribe` has cached
                await client.publish(few)
                turns = [
                    (await client.publish(few), await client.publish(list(islice(every, MESSAGES))))
                    for _ in range(TURNS)
                ]
                hits, misses = zip(*turns, strict=True)
                found[size] = _middle(hits), _middle(misses)
    return found


def _middle(turns: Sequence[Turn]) -> Turn:
    return Turn(median(turn.cpu_us for turn in turns), median(turn.per_s for turn in turns))


def checks(found: dict[int, tuple[Turn, Turn]]) -> list[Check]:
    """Compare the two figures for each number of topics with their goals."""
    rows = []
    for size, (hit, miss) in found.items():
        more_us = miss.cpu_us - hit.cpu_us
        rows.append(
            Check(
                f"a miss, {size:,} topics",
                f"at most {MISS_US:g} us more than a hit",
                f"{more_us:+.1f} us, from {hit.cpu_us:.1f} to {miss.cpu_us:.1f}",
                more_us <= MISS_US,
            )
        )
        share, least = miss.per_s / hit.per_s, NO_WAITING * hit.cpu_us / miss.cpu_us
        rows.append(
            Check(
                f"rate of misses, {size:,} topics",
                f"at least {NO_WAITING:.0%} of the rate that the CPU time allows",
                f"{share:.0%} of {hit.per_s:,.0f}/s; the CPU time allows {least / NO_WAITING:.0%}",
                share >= least,
            )
        )
    return rows


def sizes(full: bool) -> list[int]:
    """Return the numbers of topics."""
    if not full:
        return [FEWEST, MOST]
    return [1 << power for power in range(FEWEST.bit_length() - 1, MOST.bit_length())]


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--full", action="store_true")
    show(checks(uvloop.run(measure(sizes(parser.parse_args().full)))))


if __name__ == "__main__":
    main()
