"""E6: three endpoints with a fan-out of 20. One endpoint is killed while messages flow.

Owns: the load, the kill, and the comparison of the messages that subscribers got with the messages that they should
have got. Must never: judge.

Each endpoint has a third of the subscribers. The subscribers of the killed endpoint connect to another endpoint and set
their bounds again. The publisher asks for an acknowledgement of each message. So a subscriber of a living endpoint must
learn of every acknowledged message, and only of published messages.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Final

import orjson
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException

from ingeborg.bench.dyconits.feeds import TIMEOUT_S, ask
from ingeborg.bench.errors import BenchError
from ingeborg.bench.starting import Endpoint, end_all

TOPICS, FANOUT, ENDPOINTS = 100, 20, 3
RATE, LOAD_S, KILL_AT_S = 600.0, 18.0, 6.0
"""Publishes per second, the length of the load in seconds, and the time at which an endpoint is killed, in seconds."""

SETTLE_S: Final = 10.0
"""How long the subscribers wait for the last messages, in seconds."""

INTERVAL: Final = {"prefix": "", "interval_ms": 250}
KINDS: Final[dict[str, list[dict[str, Any]]]] = {
    "plain": [],
    "all": [INTERVAL],
    "latest": [{**INTERVAL, "deliver": "latest"}],
}
RETRY_S: Final = 0.1
"""Pause before a subscriber connects again, in seconds."""


class _Subscriber:
    """A subscriber. For each topic, ``due`` has the count of messages of which the subscriber has learned, and ``last``
    has the number of the last message. ``ages_s`` has, for each message, the time of arrival in monotonic seconds, and
    the age in seconds."""

    def __init__(self, name: str, urls: Sequence[str], rules: list[dict[str, Any]]) -> None:
        self._name = name
        self._urls = list(urls)
        self._rules = rules
        self._socket: ClientConnection
        self.due = [0] * TOPICS
        self.last = [0] * TOPICS
        self.ages_s: list[tuple[float, float]] = []
        self.connections = 0

    async def open(self) -> None:
        """Connect to the first endpoint that answers."""
        self._socket = await connect(self._urls[0], compression=None, max_size=None, open_timeout=TIMEOUT_S)
        bounds = {"bounds": self._rules} if self._rules else {}
        await ask(self._socket, command="listen", client_id=self._name, **bounds)
        if not self.connections:
            await ask(self._socket, command="subscribe", client_id=self._name, topic=[*map(_topic, range(TOPICS))])
        self.connections += 1

    async def read(self) -> None:
        """Read forever, and connect to another endpoint when the connection is lost."""
        while True:
            with contextlib.suppress(ConnectionClosed):
                async for frame in self._socket:
                    self._came(orjson.loads(frame))
            self._urls = self._urls[1:] + self._urls[:1]
            await asyncio.sleep(RETRY_S)
            with contextlib.suppress(OSError, WebSocketException):
                await self.open()

    def _came(self, message: dict[str, Any]) -> None:
        topic, number, at_s = message["broadcast"]
        now_s = time.monotonic()
        self.due[topic] += 1 + message.get("skipped", 0)
        self.last[topic] = max(self.last[topic], number)
        self.ages_s.append((now_s, now_s - at_s))

    async def close(self) -> None:
        """Disconnect."""
        await self._socket.close()


def _topic(number: int) -> str:
    return f"topic {number}"


class _Publisher:
    """Publishes to random topics. ``acknowledged`` has the number of acknowledged messages of each topic, and
    ``refused`` counts publishes that failed."""

    def __init__(self, socket: ClientConnection, seed: int) -> None:
        self._socket = socket
        self._drawn = random.Random(f"killed {seed}")
        self._topics: list[int] = []
        self.published = [0] * TOPICS
        self.acknowledged = [0] * TOPICS
        self.refused = 0
        self.answers = 0

    async def publish(self) -> None:
        """Publish the whole load."""
        began_s = time.monotonic()
        for number in range(round(RATE * LOAD_S)):
            if (wait_s := began_s + number / RATE - time.monotonic()) > 0:
                await asyncio.sleep(wait_s)
            topic = self._drawn.randrange(TOPICS)
            self._topics.append(topic)
            self.published[topic] += 1
            payload = [topic, self.published[topic], time.monotonic()]
            command = {"command": "publish", "client_id": "p", "topic": _topic(topic), "payload": payload}
            await self._socket.send(orjson.dumps({**command, "ack": True, "dedup": False, "id": number}), text=True)

    async def read(self) -> None:
        """Count the answers."""
        async for frame in self._socket:
            answer = orjson.loads(frame)
            self.answers += 1
            if answer.get("result") == "success":
                self.acknowledged[self._topics[answer["id"]]] += 1
            else:
                self.refused += 1


@contextlib.asynccontextmanager
async def _reading(readers: Sequence[_Subscriber | _Publisher]) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(reader.read()) for reader in readers]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.result()  # raises the error that ended the task


async def run(kind: str, seed: int) -> dict[str, Any]:
    """Run the load once, and return the facts. Raises ``BenchError`` if an endpoint that was not killed fails."""
    with tempfile.TemporaryDirectory(prefix="bench-dyconits-") as folder:
        options = ["--host", "127.0.0.1", "--store", f"lmdb:{folder}/store"]
        endpoints = [Endpoint(name, options, Path(folder)) for name in ("a", "b", "c")[:ENDPOINTS]]
        try:
            for endpoint in endpoints:
                await endpoint.start()
            return await _load(kind, seed, endpoints)
        finally:
            await end_all(endpoints)


async def _load(kind: str, seed: int, endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    urls = [endpoint.url for endpoint in endpoints]
    subscribers = [
        _Subscriber(f"s{number}", urls[number % ENDPOINTS :] + urls[: number % ENDPOINTS], KINDS[kind])
        for number in range(FANOUT)
    ]
    async with connect(urls[0], compression=None, open_timeout=TIMEOUT_S) as socket:
        publisher = _Publisher(socket, seed)
        for subscriber in subscribers:
            await subscriber.open()
        living = endpoints[:-1]
        async with _reading([*subscribers, publisher]):
            before_s = _cpu_s(living)
            publishing = asyncio.create_task(publisher.publish())
            await asyncio.sleep(KILL_AT_S)
            killed_s = time.monotonic()
            await endpoints[-1].kill()
            async with asyncio.timeout(LOAD_S + TIMEOUT_S):
                await publishing
            ended_s = time.monotonic()
            await _settled(publisher, _stayed(subscribers))
            cpu_s = _cpu_s(living) - before_s
        for subscriber in subscribers:
            await subscriber.close()
    if not all(endpoint.runs for endpoint in living):
        raise BenchError("an endpoint that was not killed has ended")
    return _facts(kind, publisher, subscribers, killed_s, ended_s) | {"cpu_s": round(cpu_s, 3)}


def _stayed(subscribers: Sequence[_Subscriber]) -> list[_Subscriber]:
    """Return the subscribers whose endpoint is not killed. The other subscribers miss the messages that are published
    until they are connected again."""
    return [one for number, one in enumerate(subscribers) if number % ENDPOINTS != ENDPOINTS - 1]


def _cpu_s(endpoints: Sequence[Endpoint]) -> float:
    processes = [endpoint.process for endpoint in endpoints]
    times = [process.cpu_times() for process in processes if process is not None]
    return sum(each.user + each.system for each in times)


async def _settled(publisher: _Publisher, subscribers: Sequence[_Subscriber]) -> None:
    """Wait until the last messages have arrived, or until the time limit."""
    until_s = time.monotonic() + SETTLE_S
    while time.monotonic() < until_s and (  # noqa: ASYNC110 - it looks at 20 counts
        publisher.answers < len(publisher._topics)
        or any(subscriber.last != publisher.published for subscriber in subscribers)
    ):
        await asyncio.sleep(0.05)


def _facts(
    kind: str, publisher: _Publisher, subscribers: Sequence[_Subscriber], killed_s: float, ended_s: float
) -> dict[str, Any]:
    """Compare the messages that each subscriber got with the messages that it should have got."""
    stayed = _stayed(subscribers)
    ages = [(at_s, age_s) for one in stayed for at_s, age_s in one.ages_s if at_s <= ended_s]
    after = sorted(age_s for at_s, age_s in ages if at_s > killed_s)
    before = sorted(age_s for at_s, age_s in ages if at_s <= killed_s)
    return {
        "kind": kind,
        "published": sum(publisher.published),
        "acknowledged": sum(publisher.acknowledged),
        "refused": publisher.refused,
        "deliveries": sum(len(one.ages_s) for one in stayed),
        "due": sum(sum(one.due) for one in stayed),
        "lost": sum(
            max(known - due, 0) for one in stayed for known, due in zip(publisher.acknowledged, one.due, strict=True)
        ),
        "surplus": sum(
            max(due - count, 0) for one in stayed for count, due in zip(publisher.published, one.due, strict=True)
        ),
        "last_missing": sum(
            last < count for one in stayed for last, count in zip(one.last, publisher.published, strict=True)
        ),
        "moved_connections": sum(one.connections for one in subscribers if one not in stayed),
        "age_before_s": _percentiles(before),
        "age_after_s": _percentiles(after),
    }


def _percentiles(ages_s: Sequence[float]) -> list[float]:
    """Return median, 99th percentile and maximum of the ages, in seconds."""
    if not ages_s:
        return []
    return [round(ages_s[min(int(share * len(ages_s)), len(ages_s) - 1)], 4) for share in (0.5, 0.99, 1.0)]
