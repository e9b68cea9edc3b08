"""Runs a cell with real processes: its readers, its producers, and the document's manager.

Owns: the servers, which start once for all cells, and the order of a run. Must never: leave a process behind.

The producers and the manager run in this process. Each reader has a process, because its CPU time is measured.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import orjson
import psutil
import uvloop
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError
from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

from ingeborg.bench import rivals
from ingeborg.bench.budgets.floor import figures
from ingeborg.bench.compare import servers
from ingeborg.bench.compare.matrix import System
from ingeborg.bench.dyconits import rows
from ingeborg.bench.dyconits.cases import ALL, KAFKA, LATEST, LAYERS, PLAIN, Cell
from ingeborg.bench.dyconits.feeds import (
    TIMEOUT_S,
    Send,
    encoded,
    endpoint_sender,
    kafka_consumer,
    kafka_sender,
)
from ingeborg.bench.dyconits.layer.manager import Manager
from ingeborg.bench.dyconits.layer.messages import (
    CONSUMER_REPORTS,
    PRODUCER_REPORTS,
    ConsumerReport,
    ConsumerUpdate,
    MessageError,
    ProducerReport,
    ProducerUpdate,
    consumer_updates,
    producer_updates,
)
from ingeborg.bench.dyconits.layer.producer import Producer
from ingeborg.bench.dyconits.layer.settings import TOPICS
from ingeborg.bench.dyconits.reader import READY, now_ms
from ingeborg.bench.dyconits.workload import Workload
from ingeborg.bench.errors import BenchError
from ingeborg.bench.experiments.experiment import Results, Unit
from ingeborg.bench.starting import Child, awaited, environment, python

Json = dict[str, Any]

READY_S: Final = 60.0
"""Time limit for the start of a reader, in seconds. A start takes a second on an idle machine."""

END_S: Final = 30.0
"""Time limit for a reader to write its rows, in seconds."""

LEADER_S: Final = 0.02
"""Seconds between two checks that new topics have leaders."""

LOOK_S: Final = 1.0
"""Seconds between two readings of the server's values during a run."""

BEGIN_S: Final = 0.5
"""Seconds from the end of the preparations to the first message."""


@dataclass(frozen=True)
class Server:
    """A running server. ``url`` is its URL for clients. ``version`` is its release. ``look`` returns the CPU time of
    its processes, in seconds, and its level of bounds, which is 0 for Kafka."""

    url: str
    version: str
    look: Callable[[], Awaitable[tuple[float, float]]]


def run(due: Sequence[Unit], results: Results, workload: Workload, done: Callable[[Unit, str], None]) -> None:
    """Run the cells in their order, and call ``done`` after each cell. Raises ``BenchError`` if a server does not
    start."""
    with contextlib.ExitStack() as stack:
        started: dict[str, Server] = {}
        for unit in due:
            kind = KAFKA if unit.work.system in (KAFKA, *LAYERS) else PLAIN
            if kind not in started:
                started[kind] = stack.enter_context(_server(kind, results.out))
            try:
                uvloop.run(_Run(unit, results, workload, started[kind]).run())
            except (BenchError, MessageError, KafkaError, WebSocketException, psutil.Error, OSError) as error:
                done(unit, str(error) or type(error).__name__)
            else:
                done(unit, "")


@contextlib.contextmanager
def _server(kind: str, out: Path) -> Iterator[Server]:
    if kind == KAFKA:
        with rivals.running("kafka", state=out / "kafka") as kafka:

            async def of_kafka() -> tuple[float, float]:
                times = [psutil.Process(pid).cpu_times() for pid in kafka.pids]
                return sum(each.user + each.system for each in times), 0.0

            yield Server(kafka.url.partition("://")[2], f"Kafka {kafka.version}", of_kafka)
    else:
        with servers.running(System("ingeborg", "ingeborg"), out / "servers", layer=False) as broker:

            async def of_broker() -> tuple[float, float]:
                found = await figures(broker.urls[0])
                return found["process_cpu_seconds_total"], found["ingeborg_bounds_level"]

            yield Server(broker.urls[0], f"Ingeborg {broker.version}", of_broker)


async def _make(admin: AIOKafkaAdminClient, topics: Sequence[str]) -> None:
    """Make topics, and wait until they have leaders. Raises ``BenchError`` if that takes too long."""
    await admin.create_topics([NewTopic(topic, 1, 1) for topic in topics])
    try:
        async with asyncio.timeout(TIMEOUT_S):
            while any(topic["error_code"] for topic in await admin.describe_topics(topics)):  # noqa: ASYNC110
                await asyncio.sleep(LEADER_S)
    except TimeoutError:
        raise BenchError(f"Kafka has no leaders for its new topics after {TIMEOUT_S:g} s") from None


def _failed(reader: Child) -> BenchError:
    return BenchError(f"{reader.name} has failed:{reader.tail()}")


class _Run:
    """One cell."""

    def __init__(self, unit: Unit, results: Results, workload: Workload, server: Server) -> None:
        self._unit = unit
        self._cell: Cell = unit.work
        self._results = results
        self._workload = workload
        self._setup = workload.experiments[self._cell.experiment]
        self._server = server
        self._name = f"d{time.time_ns():x}"
        self._folder = results.out / "work" / unit.name
        manager, self._consumer, producer = workload.settings(self._cell.experiment)
        readings = LAYERS.get(self._cell.system)
        self._readings = readings
        self._manager = None if readings is None else Manager(manager, readings)
        self._producers = {topic: Producer(f"p-{topic}", topic, producer, self._cell.seed) for topic in TOPICS}
        self._report_s = producer.report_ms / 1e3
        self._times: dict[str, list[float]] = {topic: [] for topic in TOPICS}
        self._late_ms = 0.0
        self._level = 0.0
        self._ended = asyncio.Event()
        self._reports = 0
        self._managing: list[asyncio.Task[None]] = []

    @property
    def _on_kafka(self) -> bool:
        return self._cell.system in (KAFKA, *LAYERS)

    async def run(self) -> None:
        """Run the cell, and keep its rows."""
        self._folder.mkdir(parents=True, exist_ok=True)
        async with contextlib.AsyncExitStack() as stack:
            send = await stack.enter_async_context(self._kafka() if self._on_kafka else self._endpoint())
            readers = [await self._reader(stack, number) for number in range(1, self._workload.readers.count + 1)]
            for reader in readers:
                await awaited(reader.line(READY, READY_S))
            if self._manager is not None:
                await asyncio.sleep(self._workload.lead_s)
            before_s, _ = await self._server.look()
            begun_ms = now_ms() + BEGIN_S * 1e3
            await self._produce(send, begun_ms, readers)
            server_s = (await self._server.look())[0] - before_s
            self._ended.set()
            for reader in readers:
                with contextlib.suppress(BrokenPipeError):  # ``reader.ended`` below says why the reader has ended
                    reader.stdin.write(f"{begun_ms}\n".encode())
                    reader.stdin.close()
            for reader in readers:
                if await awaited(reader.ended(END_S)):
                    raise _failed(reader)
        self._keep(begun_ms, server_s)

    def _keep(self, begun_ms: float, server_s: float) -> None:
        produced = (
            row
            for topic, times in self._times.items()
            for row in rows.produced(topic, [time_ms - begun_ms for time_ms in times])
        )
        self._results.keep(rows.PRODUCED, self._unit.name, produced)
        for kind in (rows.SAMPLES, rows.USED, rows.CONTROLS):
            lines = (line for path in sorted(self._folder.glob(f"*.{kind}.jsonl")) for line in path.open("rb"))
            self._results.keep(kind, self._unit.name, map(orjson.loads, lines))
        messages = sum(orjson.loads(path.read_bytes())["messages"] for path in self._folder.glob("*.json"))
        facts = {
            **asdict(self._cell),
            "unit": self._unit.name,
            "part": self._unit.part,
            "server": self._server.version,
            "units": self._setup.units,
            "server_s": round(server_s, 3),
            "level": self._level,
            "late_ms": round(self._late_ms, 1),
            "updates": messages,
            "reports": self._reports,
        }
        self._results.keep(rows.FACTS, self._unit.name, [facts])
        for path in self._folder.iterdir():
            path.unlink()
        self._folder.rmdir()

    # Readers

    async def _reader(self, stack: contextlib.AsyncExitStack, number: int) -> Child:
        readers = self._workload.readers
        given: Json = {
            "name": f"c{number}",
            "run": self._name,
            "units": self._setup.units,
            "unit_ms": readers.unit_ms,
            "cpu_ms": readers.cpu_ms,
            "out": str(self._folder),
        }
        if self._on_kafka:
            given["servers"] = self._server.url
        else:
            rules = {ALL: self._setup.all, LATEST: self._setup.latest}.get(self._cell.system)
            given |= {"url": self._server.url, "rules": rules, "window": readers.window}
        if self._readings is not None:
            given |= {"settings": asdict(self._consumer), "readings": asdict(self._readings)}
        child = Child(
            f"reader {number}",
            python("ingeborg.bench.dyconits.reader", orjson.dumps(given).decode()),
            self._folder / f"c{number}.log",
            environment=environment(),
            stdin=subprocess.PIPE,
        )
        stack.push_async_callback(lambda: awaited(child.end()))
        return child

    # Producers

    async def _produce(self, send: Send, begun_ms: float, readers: Sequence[Child]) -> None:
        """Produce all messages of the run. Raises the error that ended a producer, a reader or the manager."""
        try:
            async with asyncio.TaskGroup() as tasks:
                watching = tasks.create_task(self._watch(readers))
                producing = [
                    tasks.create_task(self._topic(topic, send, begun_ms + number))
                    for number, topic in enumerate(TOPICS)
                ]
                await asyncio.wait(producing)
                watching.cancel()
        except ExceptionGroup as group:
            raise group.exceptions[0] from None

    async def _watch(self, readers: Sequence[Child]) -> None:
        """Note the greatest level of the server. Raises the error that ended a reader or the manager."""
        while True:
            for reader in readers:
                if not reader.runs:
                    raise _failed(reader)
            for task in self._managing:
                if task.done():
                    task.result()  # raises an error, because these tasks end after the producers
            self._level = max(self._level, (await self._server.look())[1])
            await asyncio.sleep(LOOK_S)

    async def _topic(self, topic: str, send: Send, due_ms: float) -> None:
        producer, times = self._producers[topic], self._times[topic]
        end_ms = due_ms + self._cell.length_s * 1e3
        while due_ms < end_ms:
            # A sleep may end a fraction of a millisecond early.
            while (wait_ms := due_ms - now_ms()) > 0:  # noqa: ASYNC110
                await asyncio.sleep(wait_ms / 1e3)
            at_ms = now_ms()
            self._late_ms = max(self._late_ms, at_ms - due_ms)
            times.append(at_ms)
            async with asyncio.timeout(TIMEOUT_S):
                await send(topic, encoded(len(times), at_ms, self._workload.payload_bytes))
            due_ms = producer.next_ms(due_ms)

    @contextlib.asynccontextmanager
    async def _endpoint(self) -> AsyncIterator[Send]:
        async with connect(self._server.url, compression=None, open_timeout=TIMEOUT_S) as socket:
            yield endpoint_sender(socket, self._name)

    @contextlib.asynccontextmanager
    async def _kafka(self) -> AsyncIterator[Send]:
        names = list(TOPICS)
        if self._manager is not None:
            consumers = [f"c{number}" for number in range(1, self._workload.readers.count + 1)]
            names += [CONSUMER_REPORTS, PRODUCER_REPORTS, *map(consumer_updates, consumers)]
            names += [producer_updates(producer.name) for producer in self._producers.values()]
        topics = [f"{self._name}-{name}" for name in names]
        admin = AIOKafkaAdminClient(bootstrap_servers=self._server.url)
        await admin.start()
        try:
            await _make(admin, topics)
            producer = AIOKafkaProducer(bootstrap_servers=self._server.url, acks=1)
            await producer.start()
            try:
                async with self._managed(producer):
                    yield kafka_sender(producer, self._name)
                await producer.flush()
            finally:
                await producer.stop()
        finally:
            with contextlib.suppress(KafkaError):
                await admin.delete_topics(topics)
            await admin.close()

    # The document's manager, and its producers' reports

    @contextlib.asynccontextmanager
    async def _managed(self, producer: AIOKafkaProducer) -> AsyncIterator[None]:
        if self._manager is None:
            yield
            return
        names = [CONSUMER_REPORTS, PRODUCER_REPORTS]
        names += [producer_updates(one.name) for one in self._producers.values()]
        consumer = await kafka_consumer(self._server.url, [f"{self._name}-{name}" for name in names])
        self._managing = [asyncio.create_task(self._manage(consumer, producer))]
        self._managing += [asyncio.create_task(self._report(one, producer)) for one in self._producers.values()]
        try:
            yield
        finally:
            for task in self._managing:
                task.cancel()
            await asyncio.wait(self._managing)
            await consumer.stop()

    async def _manage(self, consumer: AIOKafkaConsumer, producer: AIOKafkaProducer) -> None:
        assert self._manager is not None
        async for record in consumer:
            text = record.value.decode()
            name = record.topic.removeprefix(f"{self._name}-")
            updates: Sequence[ConsumerUpdate | ProducerUpdate] = ()
            if name == CONSUMER_REPORTS:
                updates = self._manager.consumer_report(ConsumerReport.parse(text))
            elif name == PRODUCER_REPORTS:
                updates = self._manager.producer_report(ProducerReport.parse(text), record.timestamp)
            else:
                update = ProducerUpdate.parse(text)
                self._producers[update.producer.removeprefix("p-")].updated(update, now_ms())
            self._reports += name in (CONSUMER_REPORTS, PRODUCER_REPORTS)
            for one in updates:
                await producer.send(f"{self._name}-{one.to}", one.text().encode())

    async def _report(self, producer: Producer, sender: AIOKafkaProducer) -> None:
        """Send reports until all messages are produced. Then report that the topic has ended."""
        due_s = time.monotonic()
        while not self._ended.is_set():
            await sender.send(f"{self._name}-{PRODUCER_REPORTS}", producer.report().text().encode())
            due_s += self._report_s
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(due_s - time.monotonic(), 0.0)):
                    await self._ended.wait()
        report = producer.report(has_ended=True)
        await sender.send(f"{self._name}-{PRODUCER_REPORTS}", report.text().encode())
