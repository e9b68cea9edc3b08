"""The gain from bounds: the same publishes to subscribers without bounds and with them, alternately.

    python -m ingeborg.bench.budgets.bounds [--rounds 5] [--parts interval,overload]

One endpoint runs on the first core, the publisher and all subscribers on the second. 20 subscribers have all 100
topics.

*Interval* compares the CPU of the endpoint for the same deliveries: without bounds, with `interval_ms` 250 and `all`,
and with `latest`. *Overload* first finds the greatest rate without bounds (p99 within 50 ms), and the greatest rate of
subscribers that allow a staleness of 1 s (all messages within it). Then it publishes half as much again as the first,
with 20 % of the subscribers at high priority, 30 % at medium and 50 % at low, and waits for level 0 afterwards.
Latency is from the moment at which a publish was due. A quarter of an hour of an idle machine.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, Self

import orjson
import uvloop

from ingeborg.bench.compare.matrix import System
from ingeborg.bench.compare.servers import running
from ingeborg.bench.errors import BenchError
from ingeborg.protocol.outgoing import OutgoingSocket
from ingeborg.protocol.pages import PageError, fetch, samples

from .light import TIMEOUT_S, dial
from .model import Check, measured, show

TOPICS, FANOUT = 100, 20
PAYLOAD_BYTES = 120
PARTS = ("interval", "overload")
ROUNDS = 5
SEED = 51

#: Publishes per second of the interval's load, and its length.
INTERVAL_RATE, LOAD_S = 600, 4.0
#: A step of the search for the greatest rate: its factor and its length in seconds.
STEP, STEP_S, FIRST_RATE = 1.15, 3.0, 600
#: The length of the overload, and the longest wait for level 0 afterwards.
OVERLOAD, OVERLOAD_S, CALM_S = 1.5, 10.0, 15.0
LIMIT_MS = 50.0

PLAIN: list[dict[str, Any]] = []
INTERVAL = {"prefix": "", "interval_ms": 250}
STEERED = {"prefix": "", "staleness_ms": 1_000}
KINDS: dict[str, list[dict[str, Any]]] = {
    "plain": PLAIN,
    "all": [INTERVAL],
    "latest": [{**INTERVAL, "deliver": "latest"}],
}
#: The bounds of the overload by priority, and the number of subscribers that have them.
BANDS: dict[str, tuple[list[dict[str, Any]], int]] = {
    "high": ([{"prefix": "", "staleness_ms": 50, "priority": 1}], 4),
    "medium": ([{"prefix": "", "staleness_ms": 1_000, "deliver": "latest"}], 6),
    "low": ([{"prefix": "", "staleness_ms": 5_000, "deliver": "latest", "priority": -1}], 10),
}

#: The goals: CPU saved with `all` and with `latest`, more rate when steered, seconds until level 0.
SAVED = {"all": 0.30, "latest": 0.45}
MORE_RATE, CALM_WITHIN_S = 0.25, 10.0


class Subscriber:
    """A connection, and the latencies of its messages in seconds, each with the number of messages that it stands
    for."""

    def __init__(self, name: str, socket: OutgoingSocket) -> None:
        self.name = name
        self.socket = socket
        self.latencies_s: list[float] = []
        self.due = 0  # messages delivered or skipped
        socket.on_message = self._came

    def _came(self, _: OutgoingSocket, data: bytes) -> None:
        start = data.find(b'"broadcast":"')
        if start >= 0:
            self.latencies_s.append(time.monotonic() - float(data[start + 13 : start + 29]))
            skipped = data.rfind(b'"skipped":')
            self.due += 1 if skipped < 0 else 1 + int(data[skipped + 10 : -1])


class Load(NamedTuple):
    """The result of one load. ``cpu_s``: the endpoint's; ``latencies_s``: by subscriber; ``late_s``: how late the last
    publish was sent; ``is_whole``: every subscriber got every message, or learned that it was skipped."""

    cpu_s: float
    latencies_s: list[list[float]]
    late_s: float
    is_whole: bool

    def p99_ms(self, numbers: Sequence[int]) -> float:
        """The latency of these subscribers that 99 % of their messages do not exceed, in milliseconds."""
        every = sorted(latency for number in numbers for latency in self.latencies_s[number])
        return every[int(len(every) * 0.99)] * 1e3 if every else float("inf")


class Floor:
    """The endpoint with its subscribers and a publisher."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._subscribers: list[Subscriber] = []

    async def __aenter__(self) -> Self:
        topics = [f"topic {number}" for number in range(TOPICS)]
        for number in range(FANOUT):
            socket = await dial(self._url)
            name = f"s{number}"
            for command in ({"command": "listen"}, {"command": "subscribe", "topic": topics}):
                await _done(socket, client_id=name, **command)
            self._subscribers.append(Subscriber(name, socket))
        self._publisher = await dial(self._url)
        return self

    async def __aexit__(self, *_: object) -> None:
        for socket in (self._publisher, *(one.socket for one in self._subscribers)):
            socket.transport.close()
        await asyncio.sleep(0.1)

    async def bind(self, number: int, rules: list[dict[str, Any]]) -> None:
        """Set a subscriber's bounds."""
        one = self._subscribers[number]
        await _done(one.socket, command="bounds", client_id=one.name, bounds=rules)

    async def bind_all(self, rules: list[dict[str, Any]]) -> None:
        """Set the bounds of all subscribers."""
        for number in range(FANOUT):
            await self.bind(number, rules)

    async def load(self, rate: float, seconds: float, settle_s: float) -> Load:
        """Publish evenly, and wait until everything has come, at most ``settle_s``."""
        for one in self._subscribers:
            one.latencies_s, one.due = [], 0
        before = (await self.figures())["process_cpu_seconds_total"]
        count, began = round(rate * seconds), time.monotonic()
        drawn = random.Random(SEED)
        sent = 0
        while sent < count:
            now = time.monotonic()
            frames = []
            while sent < count and began + sent / rate <= now:
                frames.append(self._frame(began + sent / rate, drawn.randrange(TOPICS)))
                sent += 1
            if frames:
                self._publisher.write(*frames)
            await asyncio.sleep(max(began + sent / rate - time.monotonic(), 0.0005))
        late_s = time.monotonic() - began - seconds
        end = time.monotonic() + settle_s
        while time.monotonic() < end and any(one.due < count for one in self._subscribers):  # noqa: ASYNC110 - 20 counts
            await asyncio.sleep(0.02)
        cpu_s = (await self.figures())["process_cpu_seconds_total"] - before
        whole = all(one.due == count for one in self._subscribers)
        return Load(cpu_s, [one.latencies_s for one in self._subscribers], late_s, whole)

    @staticmethod
    def _frame(due: float, topic: int) -> bytes:
        payload = f"{due:016.6f}".ljust(PAYLOAD_BYTES, "x")
        command = {"command": "publish", "client_id": "p", "topic": f"topic {topic}", "payload": payload}
        return orjson.dumps({**command, "dedup": False})

    async def figures(self) -> dict[str, float]:
        """Read the endpoint's metrics without labels."""
        try:
            return {sample.name: sample.value for sample in samples((await fetch(self._url, "/metrics")).text)}
        except PageError as error:
            raise BenchError(str(error)) from None

    async def greatest(self, limit_ms: float) -> float:
        """Return the greatest rate at which 99 % of the messages come within the limit, in publishes per second."""
        rate, held = float(FIRST_RATE), 0.0
        while True:
            load = await self.load(rate, STEP_S, 5.0)
            if not load.is_whole or load.p99_ms(range(FANOUT)) > limit_ms:
                break
            held, rate = rate, rate * STEP
        await self.calm()
        return held

    async def calm(self) -> float:
        """Wait until the endpoint is at level 0. Returns the seconds, or ``CALM_S`` if it is not by then."""
        began = time.monotonic()
        while time.monotonic() - began < CALM_S and (await self.figures())["ingeborg_bounds_level"]:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        return time.monotonic() - began


async def _done(socket: OutgoingSocket, **command: Any) -> None:
    """Send a command and wait for its success, after any notifications. ``BenchError``."""
    before, answer = socket.on_message, asyncio.get_running_loop().create_future()

    def answered(_: OutgoingSocket, data: bytes) -> None:
        if b'"broadcast":' not in data and not answer.done():
            answer.set_result(bytes(data))

    socket.on_message = answered
    socket.write(orjson.dumps(command))
    async with asyncio.timeout(TIMEOUT_S):
        reply = await answer
    socket.on_message = before
    if b'"success"' not in reply:
        raise BenchError(f"{command['command']}: {reply.decode()}")


async def interval(floor: Floor, rounds: int) -> dict[str, list[float]]:
    """Return the CPU of the endpoint in each round, in microseconds per delivery due, by kind."""
    found: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for number in range(rounds):
        kinds = list(KINDS.items())
        for kind, rules in kinds if number % 2 else kinds[::-1]:
            await floor.bind_all(rules)
            load = await floor.load(INTERVAL_RATE, LOAD_S, 5.0)
            if not load.is_whole:
                raise BenchError(f"{kind}: not every message came")
            found[kind].append(load.cpu_s / (INTERVAL_RATE * LOAD_S * FANOUT) * 1e6)
    return found


class Overload(NamedTuple):
    """A round: publishes per second, p99 in milliseconds by band (``plain``: without bounds), seconds until level 0."""

    plain_rate: float
    steered_rate: float
    p99_ms: dict[str, float]
    calm_s: float


async def overload(floor: Floor, rounds: int) -> list[Overload]:
    """Find the greatest rates, exceed the plain one, and wait for level 0."""
    found = []
    for _ in range(rounds):
        await floor.bind_all(PLAIN)
        plain = await floor.greatest(LIMIT_MS)
        await floor.bind_all([STEERED])
        steered = await floor.greatest(1_000 + LIMIT_MS)
        await floor.bind_all(PLAIN)
        without = await floor.load(plain * OVERLOAD, OVERLOAD_S, CALM_S)
        await floor.calm()
        numbers: dict[str, list[int]] = {}
        next_number = 0
        for band, (rules, count) in BANDS.items():
            numbers[band] = list(range(next_number, next_number + count))
            next_number += count
            for number in numbers[band]:
                await floor.bind(number, rules)
        load = await floor.load(plain * OVERLOAD, OVERLOAD_S, 6.0)
        p99 = {"plain": without.p99_ms(range(FANOUT)), **{band: load.p99_ms(of) for band, of in numbers.items()}}
        found.append(Overload(plain, steered, p99, await floor.calm()))
    return found


async def measure(parts: Sequence[str], rounds: int) -> list[Check]:
    """Measure the parts. ``BenchError``: a message is missing, or the endpoint does not answer."""
    rows: list[Check] = []
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, cores[:1])  # the endpoint inherits this core
        server = stack.enter_context(running(System("ingeborg", "ingeborg"), folder, layer=False))
        os.sched_setaffinity(0, cores[-1:])
        async with Floor(server.urls[0]) as floor:
            await floor.load(INTERVAL_RATE, 1.0, 5.0)  # from here on the caches have all topics
            if "interval" in parts:
                rows += interval_checks(await interval(floor, rounds))
            if "overload" in parts:
                rows += overload_checks(await overload(floor, rounds))
    return rows


def spread(values: Sequence[float], form: str) -> str:
    """Return the median, and the range of all values."""
    return f"{median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def interval_checks(found: Mapping[str, Sequence[float]]) -> list[Check]:
    """Compare each kind with ``plain``, round by round."""
    rows = []
    for kind, goal in SAVED.items():
        saved = [1 - with_us / plain_us for with_us, plain_us in zip(found[kind], found["plain"], strict=True)]
        text = f"{spread(saved, '.0%')} of {spread(found['plain'], '.2f')} us per delivery due"
        figure = f"CPU of the endpoint saved by interval_ms 250, {kind}"
        rows.append(Check(figure, f"at least {goal:.0%}", text, median(saved) >= goal))
    return rows


def overload_checks(found: Sequence[Overload]) -> list[Check]:
    """Compare the rates, the latency of high priority with the limit, and the time until level 0."""
    more = [one.steered_rate / one.plain_rate - 1 for one in found]
    rates = [one.plain_rate for one in found]
    text = f"{spread(more, '+.0%')} of {spread(rates, ',.0f')} publishes/s"
    rows = [Check("greatest rate with a staleness of 1 s", f"{MORE_RATE:+.0%}", text, median(more) >= MORE_RATE)]
    for band in ("high", "medium", "low", "plain"):
        p99 = [one.p99_ms[band] for one in found]
        is_met = band != "high" or median(p99) <= LIMIT_MS
        goal = f"at most {LIMIT_MS:g} ms" if band == "high" else "reported"
        words = "without bounds" if band == "plain" else f"priority {band}"
        rows.append(
            Check(f"p99 at {OVERLOAD:.0%} of the greatest rate, {words}", goal, spread(p99, ",.0f") + " ms", is_met)
        )
    calm = [one.calm_s for one in found]
    goal = f"at most {CALM_WITHIN_S:g} s"
    rows.append(Check("level 0 after the overload", goal, spread(calm, ".1f") + " s", max(calm) <= CALM_WITHIN_S))
    return rows


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--parts", default=",".join(PARTS), help="interval, overload, or both with a comma")
    options = parser.parse_args()
    print(measured(), flush=True)
    try:
        show(uvloop.run(measure(options.parts.split(","), options.rounds)))
    except BenchError as error:
        parser.exit(1, f"{error}\n")


if __name__ == "__main__":
    main()
