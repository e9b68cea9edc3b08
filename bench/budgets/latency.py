"""Measure the lowest latency, with one publisher, one subscriber and one message at a time, against a bare echo.

    python -m ingeborg.bench.budgets.latency [--messages 4000]

Three systems take turns: a bare `websockets` echo server, one endpoint, and two endpoints. With two endpoints, messages
are published at one endpoint and received at the other, and either can be the topic's home. The latency is the time
from the publisher's write until the message reaches the subscriber. Publisher and subscriber are in one process. The
program takes half a minute, on an idle machine.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import orjson
import uvloop

from ingeborg.bench.compare.matrix import System
from ingeborg.bench.compare.servers import running
from ingeborg.protocol.outgoing import OutgoingSocket

from .light import TIMEOUT_S, ask, dial, started
from .model import Check, measured, show

#: The number of messages of one turn, and the number of messages at its beginning that do not count.
TURN, WARM_UP = 200, 20
#: The number of topics. Each endpoint is the home of some topics.
TOPICS = 16
ONE_RATIO, TWO_RATIO = 1.5, 3.0

Trip = Callable[[int], Awaitable[object]]
"""A function that sends message number N and waits until it has arrived."""


class _Way:
    """A publisher at one URL, and a subscriber at another."""

    def __init__(self, publisher: OutgoingSocket, subscriber: OutgoingSocket) -> None:
        self._publisher = publisher
        self._waiter: asyncio.Future[None] | None = None
        subscriber.on_message = self._came

    def _came(self, _: OutgoingSocket, data: bytes) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def trip(self, number: int) -> None:
        """See ``Trip``."""
        self._waiter = asyncio.get_running_loop().create_future()
        payload = f"{number:09} ".ljust(150, "x")
        topic = f"latency {number % TOPICS}"
        self._publisher.write(
            orjson.dumps({"command": "publish", "client_id": "p", "topic": topic, "payload": payload})
        )
        await self._waiter


async def _way(urls: Sequence[str]) -> _Way:
    subscriber = await dial(urls[-1])
    await ask(subscriber, orjson.dumps({"command": "listen", "client_id": "s"}))
    topics = [f"latency {number}" for number in range(TOPICS)]
    await ask(subscriber, orjson.dumps({"command": "subscribe", "client_id": "s", "topic": topics}))
    return _Way(await dial(urls[0]), subscriber)


async def _turn(trip: Trip, first: int) -> list[int]:
    """Return the duration of each trip in nanoseconds."""
    found = []
    async with asyncio.timeout(TIMEOUT_S):
        for number in range(first, first + TURN):
            before_ns = time.perf_counter_ns()
            await trip(number)
            found.append(time.perf_counter_ns() - before_ns)
    return found[WARM_UP:]


async def measure(messages: int) -> dict[str, list[int]]:
    """Return sorted latencies in nanoseconds, for ``echo``, ``one`` endpoint and ``two`` endpoints."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        echo_url, _ = stack.enter_context(started("ingeborg.bench.budgets.bare"))
        trips: dict[str, Trip] = {}
        echo = await dial(echo_url + "/echo")
        frame = b"x" * 230
        trips["echo"] = lambda number: ask(echo, frame)
        for name, count in (("one", "1"), ("two", "2")):
            system = System(name=name, system="ingeborg", serve=("--endpoints", count))
            servers = stack.enter_context(running(system, folder / name, layer=False))
            trips[name] = (await _way(servers.urls)).trip
        found: dict[str, list[int]] = {name: [] for name in trips}
        for first in range(0, messages, TURN):
            for name, trip in trips.items():
                found[name] += await _turn(trip, first)
        return {name: sorted(latencies) for name, latencies in found.items()}


def percentile_us(sorted_ns: Sequence[int], share: float) -> float:
    """Return the percentile of nanoseconds, in microseconds."""
    return sorted_ns[min(int(len(sorted_ns) * share), len(sorted_ns) - 1)] / 1e3


def checks(found: dict[str, list[int]]) -> list[Check]:
    """Compare p50 and p99 of one endpoint, and of two endpoints, with p50 and p99 of the echo."""
    rows = []
    for name, words, most in (("one", "one endpoint", ONE_RATIO), ("two", "across two endpoints", TWO_RATIO)):
        for label, share in (("p50", 0.5), ("p99", 0.99)):
            mine, echo = percentile_us(found[name], share), percentile_us(found["echo"], share)
            text = f"{mine:.0f} us, {mine / echo:.2f} times {echo:.0f} us"
            goal = f"at most {most:g} times a bare websockets echo's"
            rows.append(Check(f"latency {label}, {words}", goal, text, mine <= most * echo))
    return rows


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--messages", type=int, default=4000)
    options = parser.parse_args()
    print(measured(), flush=True)
    show(checks(uvloop.run(measure(options.messages))))


if __name__ == "__main__":
    main()
