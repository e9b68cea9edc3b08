"""The monitor repeatedly measures the writes into the group's topics, and sends the results (arXiv 2402.06085, V-A).

Owns: the times of measurements, and the handling of failed measurements. Must never: send a figure that was not
measured.

Nobody can read or write a partition without a leader, so the monitor uses the partition's last reading. If a
measurement fails for another reason, the monitor does not send it, and reconnects. The next speeds are then means that
include the time without measurements.

``run`` sends each measurement to the group's speeds topic. A controller in the same process may call ``measure``
instead.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient

from ..model import MESSAGE_BYTES_MAX, Flow, Queue, Speeds, encode
from ..settings import Settings, SettingsError
from ..speeds import Meter, Reading
from .connecting import (
    KafkaProblem,
    asking,
    client_options,
    close,
    ensure_topic,
    running,
    servers_of,
    start,
    timeout_of,
)
from .logs import Logs

_log = logging.getLogger("ingeborg.autoscale")

#: Maximum number of flows in one message. A controller reads a message of this size in a few milliseconds.
FLOWS_MAX: Final = 5_000
#: Maximum size in bytes of a flow in JSON without the topic's name: two numbers of up to 24 characters, a number of up
#: to 10 characters, and punctuation.
_FLOW_BYTES: Final = 70
#: Maximum number of bytes of a message, without its flows and missing topics.
_HEAD_BYTES: Final = 1_000
#: Maximum number of seconds between two attempts while measurements fail.
_AGAIN_S_MAX: Final = 30.0

#: Settings of the speeds topic, which keeps an hour of messages. The segments are shorter than Kafka's default of a
#: week, because Kafka deletes only whole segments. The timestamps come from the broker, because Kafka 4 would otherwise
#: reject all messages from a monitor whose clock is more than an hour ahead.
SPEEDS_TOPIC: Final = {"retention.ms": "3600000", "segment.ms": "600000", "message.timestamp.type": "LogAppendTime"}


class Monitor:
    """Runs the monitor. ``clock``: a monotonic clock, in seconds. ``problem``: the reason why measurements fail at the
    moment, or ``""``. The constructor raises ``SettingsError`` if a file named in the settings is unusable."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        client_options(settings, "monitor")
        self._settings = settings
        self._clock = clock
        self._name = secrets.token_hex(8)
        self._serial = 0
        self._meter = Meter(
            by_offsets=settings.monitor.measure == "offsets",
            window_s=settings.monitor.window_s,
            earliest=settings.member.start_from == "earliest",
        )
        self._readings: dict[Queue, Reading] = {}
        self._client: AIOKafkaClient | None = None
        self._logs: Logs | None = None
        self._producer: AIOKafkaProducer | None = None
        self.problem = ""

    @property
    def shrunk(self) -> int:
        """How often a queue was shorter than before, because its topic was recreated or retention has cut its log."""
        return self._meter.shrunk

    async def run(self) -> None:
        """Measure and send until cancelled, then close all connections."""
        every_s = self._settings.monitor.every_s
        pause_s = every_s
        try:
            while True:
                began_s = self._clock()
                try:
                    await self._send(await self.measure())
                except (KafkaProblem, SettingsError) as error:
                    self._failed(str(error))
                    await self.close()
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, max(_AGAIN_S_MAX, every_s))
                else:
                    self._works()
                    pause_s = every_s
                    await asyncio.sleep(max(0.0, began_s + every_s - self._clock()))
        finally:
            await self.close()

    async def measure(self) -> tuple[Speeds, ...]:
        """Return the parts of one measurement. The first call returns an empty tuple, because a speed needs two
        readings. The method connects if there is no connection, for example after a problem. Raises ``KafkaProblem``,
        or ``SettingsError`` if a file named in the settings has become unusable."""
        logs = self._logs or await self._connect()
        try:
            counts = await logs.partitions(self._settings.group.topics)
            queues = [Queue(topic, number) for topic, count in counts.items() for number in range(count or 0)]
            begins, ends, sizes, committed = await asyncio.gather(
                logs.begin_offsets(queues),
                logs.end_offsets(queues),
                logs.log_sizes(queues),
                logs.committed(self._settings.group.name, queues),
            )
        except KafkaProblem:
            await self.close()
            raise
        readings = {}
        for queue in queues:
            if queue in begins and queue in ends and queue in sizes:
                readings[queue] = Reading(begins[queue], ends[queue], sizes[queue], committed.get(queue))
            elif queue in self._readings:
                readings[queue] = self._readings[queue]
        self._readings = readings
        flows = self._meter.flows(self._clock(), readings)
        missing = sorted(topic for topic, count in counts.items() if count is None)
        if not self._meter.span_s:
            return ()
        self._serial += 1
        topics = self._settings.group.fingerprint
        return tuple(in_parts(self._name, self._serial, self._settings.monitor.window_s, flows, missing, topics))

    async def close(self) -> None:
        """Close all connections. The next measurement opens new ones."""
        client, producer = self._client, self._producer
        self._client = self._logs = self._producer = None
        if producer is not None:
            await close(producer)
        if client is not None:
            await close(client)

    async def _connect(self) -> Logs:
        options = client_options(self._settings, "monitor")
        client = AIOKafkaClient(**options)
        await start(client, options)
        self._client = client
        self._logs = Logs(client, servers_of(options), timeout_of(options), self._settings.kafka.user)
        return self._logs

    async def _send(self, parts: Sequence[Speeds]) -> None:
        """Send all parts concurrently, in order."""
        if not parts:
            return
        producer = self._producer or await self._open()
        topic, kafka = self._settings.speeds_topic, self._settings.kafka
        async with asking(f"cannot write to topic {topic}", ",".join(kafka.servers), kafka.timeout_s):
            await asyncio.gather(*[await producer.send(topic, encode(part), partition=0) for part in parts])

    async def _open(self) -> AIOKafkaProducer:
        options = client_options(self._settings, "monitor")
        async with running(AIOKafkaAdminClient(**options), options) as admin:
            await ensure_topic(
                *(admin, self._settings.speeds_topic, 1, self._settings.kafka.replication, SPEEDS_TOPIC),
                servers=servers_of(options),
                timeout_s=timeout_of(options),
            )
        producer = AIOKafkaProducer(**options, acks="all")
        await start(producer, options)
        self._producer = producer
        return producer

    def _failed(self, words: str) -> None:
        if not self.problem:
            _log.warning("cannot measure: %s", words)
        self.problem = words

    def _works(self) -> None:
        if self.problem:
            _log.info("measurements work again")
        self.problem = ""


def in_parts(
    monitor: str, serial: int, window_s: float, flows: Sequence[Flow], missing: Sequence[str], topics: str = ""
) -> Iterator[Speeds]:
    """Split a measurement into messages that Kafka accepts. Each message has at most ``FLOWS_MAX`` flows and
    ``MESSAGE_BYTES_MAX`` bytes, and contains ``missing``. There is at least one message."""
    room = MESSAGE_BYTES_MAX - _HEAD_BYTES - sum(len(topic) + 3 for topic in missing)
    cuts, size = [0], 0
    for at, flow in enumerate(flows):
        more = len(flow.queue.topic) + _FLOW_BYTES
        if at - cuts[-1] == FLOWS_MAX or size + more > room:
            cuts.append(at)
            size = 0
        size += more
    for part, (first, behind) in enumerate(zip(cuts, [*cuts[1:], len(flows)], strict=True)):
        yield Speeds(monitor, serial, part, len(cuts), window_s, tuple(flows[first:behind]), tuple(missing), topics)
