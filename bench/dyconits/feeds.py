"""Carry messages from a producer to a reader: through Kafka, or through an endpoint of this broker.

Owns: the use of Kafka's protocol and of this broker's protocol. Must never: delay or reorder messages, because the
reader or the endpoint does that.

A payload contains the message's number within its topic, and its production time. The name of each topic begins with
the name of the run.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol

import orjson
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from websockets.asyncio.client import ClientConnection, connect

from ingeborg.bench.dyconits.layer.settings import TOPICS
from ingeborg.bench.errors import BenchError
from ingeborg.protocol.credit import Credit

# aiokafka's log is not needed. Whenever aiokafka logs an error, it also raises the error, or tries again.
logging.getLogger("aiokafka").addHandler(logging.NullHandler())

TIMEOUT_S: Final = 30.0
"""Time limit for connecting, and for an answer, in seconds."""

FETCH_WAIT_MS: Final = 100
"""How long Kafka may hold a fetch if there are no messages."""

UNREAD_MAX: Final = 1_000_000
"""Number of messages that a reader without bounds may have in its memory. A run has fewer messages."""


class Message(NamedTuple):
    """A message. ``number``: its place in the topic, from 1. ``produced_ms``: its production time in monotonic
    milliseconds. ``skipped``: the number of messages that it replaces."""

    number: int
    produced_ms: float
    skipped: int = 0


def encoded(number: int, produced_ms: float, size: int) -> str:
    """Return a payload of ``size`` characters."""
    return f"{number} {produced_ms:.1f} ".ljust(size, "x")


def decoded(payload: str) -> tuple[int, float]:
    """Return the number and the production time of a payload."""
    number, produced_ms, _ = payload.split(" ", 2)
    return int(number), float(produced_ms)


class Feed(Protocol):
    """The messages of all topics. For each topic, ``received`` has the number of the last message that has reached this
    process. ``received`` is empty if these numbers are not known."""

    received: dict[str, int]

    async def start(self) -> None:
        """Connect and subscribe. Raises ``BenchError`` if that fails."""

    async def read(self) -> None:
        """Take arriving messages until the task is cancelled. Raises ``BenchError`` if the connection is lost."""

    async def next(self, topic: str) -> Message:
        """Wait for the next message of a topic."""

    async def done(self) -> None:
        """Report that a message has been processed."""

    async def stop(self) -> None:
        """Disconnect."""


async def kafka_consumer(servers: str, topics: Sequence[str]) -> AIOKafkaConsumer:
    """Return a started consumer of topics with one partition, from their beginning. The consumer has no group, and
    commits nothing."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=servers,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=FETCH_WAIT_MS,
    )
    await consumer.start()
    consumer.assign([TopicPartition(topic, 0) for topic in topics])
    return consumer


class KafkaFeed:
    """A feed through Kafka. Each topic has its own consumer, as in the document's programs."""

    def __init__(self, servers: str, run: str) -> None:
        self.received: dict[str, int] = {}
        self._consumers: dict[str, AIOKafkaConsumer] = {}
        self._servers = servers
        self._run = run

    async def start(self) -> None:
        """See ``Feed``."""
        for topic in TOPICS:
            self._consumers[topic] = await kafka_consumer(self._servers, [f"{self._run}-{topic}"])

    async def read(self) -> None:
        """Do nothing, because the consumers read in separate tasks."""

    async def next(self, topic: str) -> Message:
        """See ``Feed``."""
        record = await self._consumers[topic].getone()
        return Message(*decoded(record.value.decode()))

    async def done(self) -> None:
        """Do nothing, because a consumer of Kafka asks for each message."""

    async def stop(self) -> None:
        """See ``Feed``."""
        for consumer in self._consumers.values():
            await consumer.stop()


class EndpointFeed:
    """A client of this broker. ``rules`` are its bounds, or None for no bounds. The topics in these rules do not begin
    with the name of the run. ``window`` is the window of a client with bounds."""

    def __init__(self, url: str, run: str, name: str, rules: Sequence[Any] | None, window: int) -> None:
        self.received = dict.fromkeys(TOPICS, 0)
        self._url = url
        self._name = f"{run}-{name}"
        self._names = {f"{run}-{topic}": topic for topic in TOPICS}
        self._bounds: dict[str, Any] = {}
        if rules is not None:
            named = [{**rule, "topic": f"{run}-{rule['topic']}"} if "topic" in rule else rule for rule in rules]
            self._bounds = {"bounds": named, "window": window}
        self._queues: dict[str, asyncio.Queue[Message]] = {topic: asyncio.Queue(UNREAD_MAX) for topic in TOPICS}
        self._credit = None if rules is None else Credit(window)
        self._socket: ClientConnection

    async def start(self) -> None:
        """See ``Feed``."""
        self._socket = await connect(self._url, compression=None, max_size=None, open_timeout=TIMEOUT_S)
        await ask(self._socket, command="listen", client_id=self._name, **self._bounds)
        await ask(self._socket, command="subscribe", client_id=self._name, topic=[*self._names])

    async def read(self) -> None:
        """See ``Feed``."""
        async for frame in self._socket:
            message = orjson.loads(frame)
            topic = self._names.get(message.get("key"))
            if topic is None or "broadcast" not in message:
                raise BenchError(f"the endpoint sent an unexpected message: {frame[:200]!r}")
            number, produced_ms = decoded(message["broadcast"])
            self.received[topic] = number
            self._queues[topic].put_nowait(Message(number, produced_ms, message.get("skipped", 0)))
        raise BenchError(f"the endpoint closed the connection: {self._socket.close_reason}")

    async def next(self, topic: str) -> Message:
        """See ``Feed``."""
        return await self._queues[topic].get()

    async def done(self) -> None:
        """Confirm half a window at a time, as the client libraries do."""
        count = None if self._credit is None else self._credit.processed()
        if count is not None:
            command = {"command": "credit", "client_id": self._name, "count": count}
            await self._socket.send(orjson.dumps(command), text=True)

    async def stop(self) -> None:
        """See ``Feed``."""
        await self._socket.close()


async def ask(socket: ClientConnection, **command: Any) -> None:
    """Send a command, and wait for its success. Notifications that arrive before the reply are dropped. Raises
    ``BenchError``."""
    await socket.send(orjson.dumps(command), text=True)
    async with asyncio.timeout(TIMEOUT_S):
        while not {"result", "error"} & set(answer := orjson.loads(await socket.recv())):
            pass
    if "error" in answer:
        raise BenchError(f"{command['command']}: {answer}")


Send = Callable[[str, str], Awaitable[None]]
"""A function that sends a payload to a topic of the run."""


def kafka_sender(producer: AIOKafkaProducer, run: str) -> Send:
    """Return a function that produces through Kafka, without waiting for the acknowledgement."""

    async def send(topic: str, payload: str) -> None:
        await producer.send(f"{run}-{topic}", payload.encode())

    return send


def endpoint_sender(socket: ClientConnection, run: str) -> Send:
    """Return a function that publishes through an endpoint, without an acknowledgement."""

    async def send(topic: str, payload: str) -> None:
        command = {"command": "publish", "client_id": f"{run}-p", "topic": f"{run}-{topic}", "payload": payload}
        await socket.send(orjson.dumps({**command, "dedup": False}), text=True)

    return send
