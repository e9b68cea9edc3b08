"""A reader of a run, as a separate process.

    python -m ingeborg.bench.dyconits.reader '{"name": …}'

Owns: the units that a message costs, the samples, and the programs of the document's consumer around them. Must never:
end without writing its rows, except after an error.

The program prints ``ready`` when it has subscribed. It then gets a line on its standard input: the beginning of the
measured time, in monotonic milliseconds. It writes its rows when this input ends.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import uvloop
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from ingeborg.bench.dyconits import rows
from ingeborg.bench.dyconits.feeds import EndpointFeed, Feed, KafkaFeed, kafka_consumer
from ingeborg.bench.dyconits.layer.consumer import Consumer
from ingeborg.bench.dyconits.layer.messages import CONSUMER_REPORTS, ConsumerUpdate, consumer_updates
from ingeborg.bench.dyconits.layer.settings import TOPICS, ConsumerSettings, Readings
from ingeborg.bench.experiments import units

READY: Final = "ready"


def now_ms() -> float:
    """Return the time in monotonic milliseconds, which all processes share."""
    return time.monotonic() * 1e3


class Units:
    """The server of a reader. A unit occupies the server for ``unit_s`` seconds. During that time, it uses the CPU for
    ``cpu_s`` seconds. The time that the reader spends between two units also counts, up to the length of one unit. So a
    reader that is always busy keeps its rate."""

    def __init__(self, unit_s: float, cpu_s: float) -> None:
        self._unit_s = unit_s
        self._cpu_s = cpu_s
        self._free_s = 0.0

    def work(self) -> None:
        """Process a unit. This blocks the process, as the lock of a log does."""
        self._free_s = max(self._free_s, time.monotonic() - self._unit_s) + self._unit_s
        until_s = time.thread_time() + self._cpu_s
        while time.thread_time() < until_s:
            pass
        time.sleep(max(self._free_s - time.monotonic(), 0.0))


class Layer:
    """The document's consumer around a reader: it reports, and takes the manager's updates, through Kafka."""

    def __init__(self, given: dict[str, Any], control: Consumer) -> None:
        self.control = control
        self.rows: list[rows.Control] = []
        self.messages = 0
        self._run = given["run"]
        self._report_s = given["settings"]["report_ms"] / 1e3
        self._servers = given["servers"]
        self._producer = AIOKafkaProducer(bootstrap_servers=self._servers)
        self._consumer: AIOKafkaConsumer

    async def start(self) -> None:
        """Connect to Kafka."""
        await self._producer.start()
        topic = f"{self._run}-{consumer_updates(self.control.name)}"
        self._consumer = await kafka_consumer(self._servers, [topic])

    async def report(self) -> None:
        """Send reports periodically."""
        cpu_s, at_s = time.process_time(), time.monotonic()
        while True:
            await asyncio.sleep(max(at_s + self._report_s - time.monotonic(), 0.0))
            used_s, then_s = time.process_time() - cpu_s, time.monotonic() - at_s
            cpu_s, at_s = cpu_s + used_s, at_s + then_s
            report = self.control.report(used_s / then_s * 100, now_ms())
            await self._producer.send(f"{self._run}-{CONSUMER_REPORTS}", report.text().encode())

    async def update(self) -> None:
        """Take the manager's updates."""
        async for record in self._consumer:
            self.messages += 1
            self.control.updated(ConsumerUpdate.parse(record.value.decode()), now_ms())
            for topic in TOPICS:
                values = (self.control.delay_ms(topic), *self.control.bounds(topic), self.control.priority(topic))
                self.rows.append(rows.Control(self.control.name, topic, now_ms(), *values))

    async def stop(self) -> None:
        """Disconnect."""
        await self._producer.stop()
        await self._consumer.stop()


class Reader:
    """Processes the messages of all topics. The topics take turns, one unit at a time. ``given`` is the program's
    argument, and ``control`` has the delays of the document's consumer."""

    def __init__(self, given: dict[str, Any], feed: Feed, control: Consumer | None = None) -> None:
        self._given = given
        self._feed = feed
        self._control = control
        self._units = Units(given["unit_ms"] / 1e3, given["cpu_ms"] / 1e3)
        self._taken = dict.fromkeys(TOPICS, 0)
        self._skipped = dict.fromkeys(TOPICS, 0)
        self._last = dict.fromkeys(TOPICS, 0)
        self.samples: list[rows.Sample] = []
        self.used: list[rows.Used] = []

    async def read(self, topic: str) -> None:
        """Process a topic's messages, until the manager says that the topic has ended."""
        cost = self._given["units"][topic]
        begun_s = 0.0
        while self._control is None or not self._control.has_ended(topic):
            if self._control is not None:
                delay_s = begun_s + self._control.delay_ms(topic) / 1e3 - time.monotonic()
                if delay_s > 0:
                    await asyncio.sleep(delay_s)
                begun_s = time.monotonic()
            message = await self._feed.next(topic)
            for _ in range(cost):
                self._units.work()
                await asyncio.sleep(0)
            self._taken[topic] += 1
            self._skipped[topic] += message.skipped
            self._last[topic] = message.number
            if self._control is not None:
                self._control.took(topic, message.produced_ms)
            await self._feed.done()

    async def sample(self) -> None:
        """Periodically note the state of each topic, and the CPU time."""
        due_s = time.monotonic()
        while True:
            at_ms = now_ms()
            name = self._given["name"]
            for topic in TOPICS:
                received = self._feed.received.get(topic, self._last[topic])
                counts = (self._taken[topic], self._skipped[topic], self._last[topic], received)
                self.samples.append(rows.Sample(name, topic, at_ms, *counts))
            self.used.append(rows.Used(name, at_ms, time.process_time()))
            due_s = max(due_s + rows.SAMPLE_MS / 1e3, time.monotonic())
            await asyncio.sleep(due_s - time.monotonic())

    async def run(self, layer: Layer | None) -> float:
        """Read until the standard input ends. Return the beginning of the measured time, in monotonic milliseconds."""
        await self._feed.start()
        if layer is not None:
            await layer.start()
        print(READY, flush=True)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self.read(topic)) for topic in TOPICS]
            tasks += [group.create_task(self._feed.read()), group.create_task(self.sample())]
            if layer is not None:
                tasks += [group.create_task(layer.report()), group.create_task(layer.update())]
            (line,) = await _lines()
            for task in tasks:
                task.cancel()
        await self._feed.stop()
        if layer is not None:
            await layer.stop()
        return float(line)


async def _lines() -> list[str]:
    """Wait for the end of the standard input, and return its lines."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return (await reader.read()).decode().splitlines()


async def _all(given: dict[str, Any]) -> None:
    feed: Feed
    layer: Layer | None = None
    if "url" in given:
        feed = EndpointFeed(given["url"], given["run"], given["name"], given["rules"], given["window"])
    else:
        feed = KafkaFeed(given["servers"], given["run"])
    if "settings" in given:
        settings, readings = ConsumerSettings(**given["settings"]), Readings(**given["readings"])
        layer = Layer(given, Consumer(given["name"], TOPICS, settings, readings))
    reader = Reader(given, feed, None if layer is None else layer.control)
    begun_ms = await reader.run(layer)
    controls = [] if layer is None else layer.rows
    named: dict[str, Sequence[rows.Sample | rows.Used | rows.Control]] = {
        rows.SAMPLES: reader.samples,
        rows.USED: reader.used,
        rows.CONTROLS: controls,
    }
    for kind, values in named.items():
        moved = (value._replace(at_ms=value.at_ms - begun_ms) for value in values)
        units.keep(Path(given["out"]) / f"{given['name']}.{kind}.jsonl", rows.rows(moved))
    messages = 0 if layer is None else layer.messages
    units.keep(Path(given["out"]) / f"{given['name']}.json", [{"messages": messages}])


def main() -> None:
    """Run the program."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
    uvloop.run(_all(json.loads(sys.argv[1])))


if __name__ == "__main__":
    main()
