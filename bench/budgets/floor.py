"""A fan-out for measurements on two cores: an endpoint on the first core, its clients on the last one.

Owns: subscribers that count notifications in the raw bytes that arrive, and a publisher that keeps to planned times.
Must never: judge a figure.

A generator with one core could not read every frame from an endpoint under full load. So only the first subscriber of
each kind counts its notifications, and the kernel discards what the other subscribers receive. One publish in
``PROBE_EVERY`` is a probe: its payload contains the time for which it was planned.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import re
import socket as socketlib
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Self

import orjson

from ingeborg.bench.compare.matrix import System
from ingeborg.bench.compare.servers import running
from ingeborg.bench.errors import BenchError
from ingeborg.protocol.frames import PONG, empty_frame, masked_text_frame
from ingeborg.protocol.outgoing import OutgoingSocket
from ingeborg.protocol.pages import PageError, fetch, samples

from .light import TIMEOUT_S, dial

TOPICS, FANOUT = 100, 20
#: The numbers of the subscribers, out of ``FANOUT``, that count their notifications.
COUNTING = (0, 4, 10)
PAYLOAD_BYTES = 120
PROBE_EVERY = 20
SEED = 51

#: Seconds between two reads of the endpoint's metrics while a load runs.
SAMPLED_S = 0.5

_SKIPPED = re.compile(rb'"skipped":(\d+)')
_PROBE = re.compile(rb'"broadcast":"=(\d+\.\d+)')
#: A buffer whose size is the greatest number of bytes to discard in one call. The kernel never writes to it.
_UNUSED = bytearray(1 << 20)
_MASK = b"\x01\x02\x03\x04"


class Counter(asyncio.Protocol):
    """Counts a connection's notifications.

    Attributes:
        received: the number of notifications.
        due: the number of delivered messages, plus the messages that they replaced.
        probes: the planned time and the arrival time of each probe, in monotonic seconds.
        is_lost: whether the connection is gone.
        socket: the connection's protocol while nothing is counted.
    """

    def __init__(self, socket: OutgoingSocket) -> None:
        self.socket = socket
        self.received = self.due = 0
        self.probes: list[tuple[float, float]] = []
        self.is_lost = False
        self._rest = b""

    def reset(self) -> None:
        """Count from zero."""
        self.received = self.due = 0
        self.probes = []

    def data_received(self, data: bytes) -> None:
        """Count what has arrived, up to the end of the last whole message."""
        self.socket.heard = True  # this shows the keepalive that the connection works
        data = self._rest + data
        end = data.rfind(b"}") + 1
        data, self._rest = data[:end], data[end:]
        received = data.count(b'"broadcast":')
        self.received += received
        self.due += received + sum(map(int, _SKIPPED.findall(data)))
        now = time.monotonic()
        self.probes += [(float(planned), now) for planned in _PROBE.findall(data)]

    def connection_lost(self, exc: Exception | None) -> None:
        """Note the end of the connection."""
        self.is_lost = True
        self.socket.connection_lost(exc)


class Discarder:
    """Makes the kernel discard everything that arrives on a connection."""

    def __init__(self, socket: OutgoingSocket) -> None:
        self.socket = socket
        self._raw = socketlib.socket(fileno=os.dup(socket.transport.get_extra_info("socket").fileno()))
        self.is_lost = False

    def start(self) -> None:
        """Discard from now on."""
        self.socket.pause()
        asyncio.get_running_loop().add_reader(self._raw, self._discard)

    def stop(self) -> None:
        """Let the connection read again."""
        asyncio.get_running_loop().remove_reader(self._raw)
        self.socket.go_on()

    def close(self) -> None:
        """Close the second file descriptor."""
        self._raw.close()

    def _discard(self) -> None:
        with contextlib.suppress(BlockingIOError):
            if not self._raw.recv_into(_UNUSED, 0, socketlib.MSG_TRUNC):
                self.is_lost = True
                asyncio.get_running_loop().remove_reader(self._raw)


class Sample(NamedTuple):
    """The endpoint's level of bounds ``at_s`` seconds after the beginning of a load."""

    at_s: float
    level: float


class Load(NamedTuple):
    """The result of one load.

    Attributes:
        published: the number of publishes.
        cpu_s: CPU time of the endpoint's process.
        generator: the share of a core that this process used while it published.
        received: the number of notifications of all counting subscribers together.
        is_whole: each counting subscriber got every message, or learned that the message was skipped.
        samples: samples of the endpoint's metrics.
        probes: for each counting subscriber, its ``Counter.probes``.
    """

    published: int
    cpu_s: float
    generator: float
    received: int
    is_whole: bool
    samples: list[Sample]
    probes: list[list[tuple[float, float]]]


class Floor:
    """The clients of one endpoint. ``url`` is the endpoint's URL."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._sockets: list[OutgoingSocket] = []
        self._counters: list[Counter] = []
        self._discarders: list[Discarder] = []
        self._plain = [_publish(topic, "x" * PAYLOAD_BYTES) for topic in range(TOPICS)]
        self._drawn = random.Random(SEED)

    async def __aenter__(self) -> Self:
        topics = [_topic(number) for number in range(TOPICS)]
        for number in range(FANOUT):
            socket = await dial(self._url)
            self._sockets.append(socket)
            if number in COUNTING:
                self._counters.append(Counter(socket))
            else:
                self._discarders.append(Discarder(socket))
            await _done(socket, command="listen", client_id=_subscriber(number))
            await _done(socket, command="subscribe", client_id=_subscriber(number), topic=topics)
        self._publisher = await dial(self._url)
        await self.load(constant(600.0), 1.0, 5.0)  # after this load, the caches have all topics
        return self

    async def __aexit__(self, *_: object) -> None:
        for discarder in self._discarders:
            discarder.close()
        for socket in (self._publisher, *self._sockets):
            socket.transport.close()
        await asyncio.sleep(0.1)

    async def bind(self, rules: Callable[[int], Any]) -> None:
        """Set the bounds of each subscriber. ``rules`` returns the bounds for a subscriber's number."""
        for number, socket in enumerate(self._sockets):
            await _done(socket, command="bounds", client_id=_subscriber(number), bounds=rules(number))

    async def load(self, rate: Callable[[float], float], seconds: float, settle_s: float) -> Load:
        """Publish, and wait until every message has arrived.

        Args:
            rate: takes the seconds since the beginning, and returns the publishes per second.
            seconds: how long to publish.
            settle_s: how long to wait for the last messages.

        Raises:
            BenchError: a client lost its connection, or the endpoint did not answer.
        """
        samples: list[Sample] = []
        with self._counting():
            before = (await figures(self._url))["process_cpu_seconds_total"]
            began, cpu = time.monotonic(), time.process_time()
            sampling = asyncio.create_task(self.sample(samples, seconds + settle_s))
            try:
                count = await self._publish(began, rate, seconds)
                generator = (time.process_time() - cpu) / (time.monotonic() - began)
                end = time.monotonic() + settle_s
                while time.monotonic() < end and any(one.due < count for one in self._counters):  # noqa: ASYNC110 - 20 counts
                    await asyncio.sleep(0.02)
            finally:
                sampling.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await sampling  # raises an error if the endpoint did not answer
            cpu_s = (await figures(self._url))["process_cpu_seconds_total"] - before
            if any(one.is_lost for one in self._counters) or any(one.is_lost for one in self._discarders):
                raise BenchError("the endpoint closed the connection of a subscriber")
        received = sum(one.received for one in self._counters)
        is_whole = all(one.due == count for one in self._counters)
        return Load(count, cpu_s, generator, received, is_whole, samples, [one.probes for one in self._counters])

    async def _publish(self, began: float, rate: Callable[[float], float], seconds: float) -> int:
        drawn, planned, sent = self._drawn, began, 0
        while planned < began + seconds:
            now = time.monotonic()
            frames = []
            while planned <= now and planned < began + seconds:
                topic = drawn.randrange(TOPICS)
                if sent % PROBE_EVERY:
                    frame = self._plain[topic]
                else:
                    frame = _publish(topic, f"={planned:016.6f}".ljust(PAYLOAD_BYTES, "x"))
                frames.append(frame)
                sent += 1
                planned += 1.0 / rate(planned - began)
            if self._publisher.over.done():
                raise BenchError(
                    "the endpoint closed the connection of the publisher: perhaps its pongs waited too long"
                )
            self._publisher.transport.write(b"".join(frames))
            await asyncio.sleep(max(planned - time.monotonic(), 0.0005))
        return sent

    async def sample(self, samples: list[Sample], seconds: float) -> None:
        """Append the endpoint's metrics every ``SAMPLED_S`` seconds, for this number of seconds."""
        began = time.monotonic()
        while (at_s := time.monotonic() - began) < seconds:
            samples.append(Sample(at_s, (await figures(self._url))["ingeborg_bounds_level"]))
            for socket in self._sockets:  # this answers pings, which no other code does here
                socket.transport.write(empty_frame(PONG, masked=True))
            await asyncio.sleep(SAMPLED_S)

    @contextlib.contextmanager
    def _counting(self) -> Iterator[None]:
        """Let counters and discarders read from the subscribers' connections during the block."""
        for counter in self._counters:
            counter.reset()
            counter.socket.transport.set_protocol(counter)
        for discarder in self._discarders:
            discarder.start()
        try:
            yield
        finally:
            for discarder in self._discarders:
                discarder.stop()
            for counter in self._counters:
                counter.socket.transport.set_protocol(counter.socket)


async def figures(url: str) -> dict[str, float]:
    """Read the metrics of an endpoint that have no labels. Raises ``BenchError`` if the endpoint does not answer."""
    try:
        return {sample.name: sample.value for sample in samples((await fetch(url, "/metrics")).text)}
    except PageError as error:
        raise BenchError(str(error)) from None


@contextlib.asynccontextmanager
async def endpoint() -> AsyncIterator[str]:
    """Start an endpoint on the first core, and yield its URL. Until the block ends, this process runs on the last
    core."""
    cores = sorted(os.sched_getaffinity(0))
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stack.callback(os.sched_setaffinity, 0, cores)
        os.sched_setaffinity(0, cores[:1])  # the endpoint inherits this core
        server = stack.enter_context(running(System("ingeborg", "ingeborg"), folder, layer=False))
        os.sched_setaffinity(0, cores[-1:])
        yield server.urls[0]


@contextlib.asynccontextmanager
async def floor() -> AsyncIterator[Floor]:
    """Start an endpoint, and its clients."""
    async with endpoint() as url, Floor(url) as found:
        yield found


def constant(rate: float) -> Callable[[float], float]:
    """Return a rate that does not change."""
    return lambda _: rate


def _topic(number: int) -> str:
    return f"topic {number}"


def _subscriber(number: int) -> str:
    return f"s{number}"


def _publish(topic: int, payload: str) -> bytes:
    """Return the frame of a publish. All frames have the same masking key, so that they can be made before the load."""
    command = {"command": "publish", "client_id": "p", "topic": _topic(topic), "payload": payload, "dedup": False}
    return masked_text_frame(orjson.dumps(command), _MASK)


async def _done(socket: OutgoingSocket, **command: Any) -> None:
    """Send a command and wait for its success. Raises ``BenchError`` if it failed."""
    before, answer = socket.on_message, asyncio.get_running_loop().create_future()

    def answered(_: OutgoingSocket, data: bytes) -> None:
        if b'"broadcast":' not in data and not answer.done():  # a change of bounds releases messages first
            answer.set_result(bytes(data))

    socket.on_message = answered
    socket.write(orjson.dumps(command))
    async with asyncio.timeout(TIMEOUT_S):
        reply = await answer
    socket.on_message = before
    if b'"success"' not in reply:
        raise BenchError(f"{command['command']}: {reply.decode()}")
