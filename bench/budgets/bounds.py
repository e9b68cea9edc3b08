"""The gain from bounds: the same publishes to subscribers without bounds and with an interval, alternately.

    python -m ingeborg.bench.budgets.bounds [--rounds 5]

One endpoint runs on the first core, the publisher and all subscribers on the second. 20 subscribers have all 100
topics. Publishes come one by one. CPU time is the endpoint's for the same deliveries: without bounds, with
`interval_ms` 250 and `all`, and with `latest`. It takes two minutes on an idle machine.
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
ROUNDS = 5
SEED = 51

#: Publishes per second of the interval's load, and its length.
INTERVAL_RATE, LOAD_S = 600, 4.0
PLAIN: list[dict[str, Any]] = []
INTERVAL = {"prefix": "", "interval_ms": 250}
KINDS: dict[str, list[dict[str, Any]]] = {
    "plain": PLAIN,
    "all": [INTERVAL],
    "latest": [{**INTERVAL, "deliver": "latest"}],
}
#: The goals: the share of CPU saved with `all` and with `latest`.
SAVED = {"all": 0.30, "latest": 0.45}


class Subscriber:
    """A connection that counts its notifications (``received``), and the messages that they stand for (``due``)."""

    def __init__(self, name: str, socket: OutgoingSocket) -> None:
        self.name = name
        self.socket = socket
        self.received = self.due = 0
        socket.on_message = self._came

    def _came(self, _: OutgoingSocket, data: bytes) -> None:
        if b'"broadcast":' in data:
            skipped = data.rfind(b'"skipped":')
            self.received += 1
            self.due += 1 if skipped < 0 else 1 + int(data[skipped + 10 : -1])


class Load(NamedTuple):
    """The result of one load. ``cpu_s``: the endpoint's; ``received``: notifications of all subscribers; ``is_whole``:
    every subscriber got every message, or learned that it was skipped."""

    cpu_s: float
    received: int
    is_whole: bool


class Floor:
    """The endpoint with its subscribers and a publisher."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._subscribers: list[Subscriber] = []

    async def __aenter__(self) -> Self:
        await self._open()
        return self

    async def __aexit__(self, *_: object) -> None:
        for socket in (self._publisher, *(one.socket for one in self._subscribers)):
            socket.transport.close()
        await asyncio.sleep(0.1)

    async def _open(self) -> None:
        self._subscribers = []
        topics = [f"topic {number}" for number in range(TOPICS)]
        for number in range(FANOUT):
            socket = await dial(self._url)
            name = f"s{number}"
            for command in ({"command": "listen"}, {"command": "subscribe", "topic": topics}):
                await _done(socket, client_id=name, **command)
            self._subscribers.append(Subscriber(name, socket))
        self._publisher = await dial(self._url)

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
            one.received = one.due = 0
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
        end = time.monotonic() + settle_s
        while time.monotonic() < end and any(one.due < count for one in self._subscribers):  # noqa: ASYNC110 - 20 counts
            await asyncio.sleep(0.02)
        cpu_s = (await self.figures())["process_cpu_seconds_total"] - before
        whole = all(one.due == count for one in self._subscribers)
        return Load(cpu_s, sum(one.received for one in self._subscribers), whole)

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


async def measure(rounds: int) -> list[Check]:
    """Measure. ``BenchError``: a message is missing, or the endpoint does not answer."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, cores[:1])  # the endpoint inherits this core
        server = stack.enter_context(running(System("ingeborg", "ingeborg"), folder, layer=False))
        os.sched_setaffinity(0, cores[-1:])
        async with Floor(server.urls[0]) as floor:
            await floor.load(INTERVAL_RATE, 1.0, 5.0)  # from here on the caches have all topics
            return interval_checks(await interval(floor, rounds))


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


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    print(measured(), flush=True)
    try:
        show(uvloop.run(measure(options.rounds)))
    except BenchError as error:
        parser.exit(1, f"{error}\n")


if __name__ == "__main__":
    main()
