"""The monitor with a real Kafka: its measurements, its messages, and its behaviour without Kafka."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from ingeborg.autoscaler.kafka import connecting
from ingeborg.autoscaler.kafka.connecting import KafkaProblem, running
from ingeborg.autoscaler.kafka.monitor import FLOWS_MAX, SPEEDS_TOPIC, Monitor, in_parts
from ingeborg.autoscaler.model import MESSAGE_BYTES_MAX, Flow, Queue, Speeds, decode, encode
from ingeborg.autoscaler.settings import Settings, SettingsError
from ingeborg.bench import rivals
from ingeborg.bench.rivals import servers
from tests import wants
from tests.loadgen.backends.conftest import BRIEF, PATIENCE_S, Server

from .conftest import Cluster, address_of, settings_of
from .test_logs import RECORD_BYTES


class Clock:
    """A clock that stands still between two measurements of the test."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


class Measuring:
    """A monitor with measurements a second apart, or at the test's interval."""

    def __init__(self, settings: Settings) -> None:
        self.clock = Clock()
        self.monitor = Monitor(settings, self.clock)

    async def flows(self, seconds: float = 1.0) -> dict[Queue, Flow]:
        self.clock.now_s += seconds
        return {flow.queue: flow for part in await self.monitor.measure() for flow in part.flows}

    async def missing(self) -> tuple[str, ...]:
        self.clock.now_s += 1.0
        [part] = await self.monitor.measure()
        return part.missing


def of(cluster: Cluster, settings: Settings, *topics: str) -> Settings:
    """Create the test's own group, which reads these topics."""
    return replace(settings, group=replace(settings.group, name=cluster.name, topics=topics))


class Heard(logging.Handler):
    """Collects log lines, and lets a test wait for one."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._more = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
        self._more.set()

    async def has(self, words: str) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not any(words in line for line in self.lines):
                self._more.clear()
                await self._more.wait()


@pytest.fixture
def heard() -> Iterator[Heard]:
    """The autoscaler's log."""
    found = Heard()
    logger = logging.getLogger("ingeborg.autoscale")
    level = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(found)
    yield found
    logger.removeHandler(found)
    logger.setLevel(level)


async def read(cluster: Cluster, topic: str, measurements: int) -> list[list[Speeds]]:
    """Return this number of next sent measurements, each in its parts."""
    consumer = AIOKafkaConsumer(**cluster.options, enable_auto_commit=False)
    found: list[list[Speeds]] = []
    async with running(consumer, cluster.options):
        consumer.assign([TopicPartition(topic, 0)])
        await consumer.seek_to_end()
        async with asyncio.timeout(PATIENCE_S):
            parts: list[Speeds] = []
            while len(found) < measurements:
                message = decode((await consumer.getone()).value)
                assert isinstance(message, Speeds)
                if message.part != len(parts):
                    continue  # the first message may be in the middle of a measurement
                parts.append(message)
                if len(parts) == message.parts:
                    found.append(parts)
                    parts = []
    return found


async def test_speeds_and_stock_are_those_of_what_is_produced(cluster: Cluster, settings: Settings) -> None:
    topic = cluster.topic()
    busy, idle = Queue(topic, 0), Queue(topic, 1)
    await cluster.make(topic, 2)
    await cluster.produce(busy, 20)
    measuring = Measuring(of(cluster, settings, topic))
    assert await measuring.monitor.measure() == ()  # one reading is not enough
    await cluster.produce(busy, 100)
    flows = await measuring.flows(10.0)
    assert set(flows) == {busy, idle}
    assert 100 * 1_000 / 10 < flows[busy].bytes_per_s < 100 * (1_000 + RECORD_BYTES) / 10
    assert 120 * 1_000 < flows[busy].stock < 120 * (1_000 + RECORD_BYTES)
    assert flows[idle] == Flow(idle, 0.0, 0.0)
    await cluster.commit(cluster.name, {busy: 90})
    flows = await measuring.flows(10.0)
    assert 100 * 1_000 / 20 < flows[busy].bytes_per_s < 100 * (1_000 + RECORD_BYTES) / 20
    assert 30 * 1_000 < flows[busy].stock < 30 * (1_000 + RECORD_BYTES)
    await measuring.monitor.close()


async def test_by_the_sizes_of_logs_it_is_the_same_where_nothing_is_deleted(
    cluster: Cluster, settings: Settings
) -> None:
    queue = Queue(cluster.topic(), 0)
    await cluster.make(queue.topic)
    await cluster.produce(queue, 20)
    settings = of(cluster, settings, queue.topic)
    offsets = Measuring(settings)
    sizes = Measuring(replace(settings, monitor=replace(settings.monitor, measure="log_sizes")))
    for measuring in (offsets, sizes):
        await measuring.monitor.measure()
    await cluster.produce(queue, 100)
    found = [(await measuring.flows(10.0))[queue] for measuring in (offsets, sizes)]
    assert found[0].bytes_per_s == pytest.approx(found[1].bytes_per_s)
    assert found[0].stock == found[1].stock
    for measuring in (offsets, sizes):
        await measuring.monitor.close()


async def test_what_the_group_has_never_read_is_stock_if_it_begins_at_the_beginning(
    cluster: Cluster, settings: Settings
) -> None:
    queue = Queue(cluster.topic(), 0)
    await cluster.make(queue.topic)
    await cluster.produce(queue, 20)
    settings = of(cluster, settings, queue.topic)
    measuring = Measuring(replace(settings, member=replace(settings.member, start_from="latest")))
    await measuring.monitor.measure()
    assert (await measuring.flows())[queue].stock == 0.0
    await measuring.monitor.close()


@pytest.mark.parametrize("measure", ["offsets", "log_sizes"])
async def test_deleted_records_make_no_speed_negative_and_no_record_large(
    cluster: Cluster, settings: Settings, measure: str
) -> None:
    queue = Queue(cluster.topic(), 0)
    await cluster.make(queue.topic)
    settings = of(cluster, settings, queue.topic)
    measuring = Measuring(replace(settings, monitor=replace(settings.monitor, measure=measure)))
    await measuring.monitor.measure()
    await cluster.produce(queue, 500)
    await measuring.flows()
    await cluster.delete_records(queue, 499)
    before = await measuring.flows()
    assert 0 < before[queue].stock < 1_000 + RECORD_BYTES
    await cluster.produce(queue, 10)
    flow = (await measuring.flows())[queue]
    assert 510 * 1_000 / 3 < flow.bytes_per_s < 510 * (1_000 + RECORD_BYTES) / 3
    assert flow.stock < 11 * (1_000 + RECORD_BYTES)
    await measuring.monitor.close()


async def test_a_log_that_is_cut_makes_no_speed_negative(inside: Cluster, tmp_path: Path) -> None:
    """Kafka removes a segment when all its records are deleted and the next one has begun."""
    queue, logs = Queue(inside.topic(), 0), inside.logs()
    await inside.make(queue.topic, config={"segment.bytes": "1048576", "file.delete.delay.ms": "0"})
    settings = of(inside, settings_of(tmp_path, [inside.address]), queue.topic)
    offsets = Measuring(settings)
    sizes = Measuring(replace(settings, monitor=replace(settings.monitor, measure="log_sizes")))
    await inside.produce(queue, 1_500)
    for measuring in (offsets, sizes):
        await measuring.monitor.measure()
    await inside.produce(queue, 100)
    await inside.delete_records(queue, 1_550)
    await logs.partitions([queue.topic])
    async with asyncio.timeout(PATIENCE_S):
        while (await logs.log_sizes([queue]))[queue] > 1_000_000:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    by_offsets, by_sizes = (await offsets.flows(10.0))[queue], (await sizes.flows(10.0))[queue]
    assert sizes.monitor.shrunk == 1
    assert by_sizes.bytes_per_s == 0.0
    assert offsets.monitor.shrunk == 0
    assert by_offsets.bytes_per_s > 100 * 1_000 / 10
    for measuring in (offsets, sizes):
        await measuring.monitor.close()


async def test_a_topic_that_is_not_there_vanishes_and_comes_back(cluster: Cluster, settings: Settings) -> None:
    kept, lost = Queue(cluster.topic("kept"), 0), Queue(cluster.topic("lost"), 0)
    await cluster.make(kept.topic)
    measuring = Measuring(of(cluster, settings, kept.topic, lost.topic))
    await measuring.monitor.measure()
    assert await measuring.missing() == (lost.topic,)
    await cluster.make(lost.topic)
    await cluster.produce(lost, 50)
    assert set(await measuring.flows()) == {kept, lost}
    assert await measuring.missing() == ()
    await cluster.delete(lost.topic)
    assert set(await measuring.flows()) == {kept}
    assert await measuring.missing() == (lost.topic,)
    await cluster.make(lost.topic)
    await cluster.produce(lost, 5)
    assert (await measuring.flows())[lost].bytes_per_s == 0.0
    await cluster.produce(lost, 10)
    assert (await measuring.flows())[lost].bytes_per_s > 10 * 1_000
    await measuring.monitor.close()


async def test_a_topic_made_anew_between_two_measurements_is_no_growth_below_zero(
    cluster: Cluster, settings: Settings
) -> None:
    queue = Queue(cluster.topic(), 0)
    await cluster.make(queue.topic)
    await cluster.produce(queue, 50)
    measuring = Measuring(of(cluster, settings, queue.topic))
    await measuring.monitor.measure()
    await cluster.delete(queue.topic)
    await cluster.make(queue.topic)
    await cluster.produce(queue, 5)
    flow = (await measuring.flows())[queue]
    assert flow.bytes_per_s == 0.0
    assert 5 * 1_000 < flow.stock < 5 * (1_000 + RECORD_BYTES)
    assert measuring.monitor.shrunk == 1
    await measuring.monitor.close()


async def test_partitions_that_are_added_are_measured(cluster: Cluster, settings: Settings) -> None:
    topic = cluster.topic()
    await cluster.make(topic)
    measuring = Measuring(of(cluster, settings, topic))
    await measuring.monitor.measure()
    assert set(await measuring.flows()) == {Queue(topic, 0)}
    await cluster.widen(topic, 3)
    await measuring.flows()
    await cluster.produce(Queue(topic, 2), 10)
    flows = await measuring.flows()
    assert set(flows) == {Queue(topic, number) for number in range(3)}
    assert flows[Queue(topic, 2)].bytes_per_s > 10 * 1_000
    await measuring.monitor.close()


async def test_a_partition_without_a_leader_counts_as_before(
    cluster: Cluster, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Imitate a partition whose only replica is on a broker that is down: it exists, but its values are unknown."""
    topic = cluster.topic()
    one, other = Queue(topic, 0), Queue(topic, 1)
    await cluster.make(topic, 2)
    await cluster.produce(one, 20)
    measuring = Measuring(of(cluster, settings, topic))
    await measuring.monitor.measure()
    before = await measuring.flows()
    logs = measuring.monitor._logs
    assert logs is not None
    asked = logs.partitions

    async def without_leader(topics: Sequence[str]) -> dict[str, int | None]:
        found = await asked(topics)
        del logs._leaders[one]
        return found

    monkeypatch.setattr(logs, "partitions", without_leader)
    await cluster.produce(other, 10)
    flows = await measuring.flows()
    assert flows[one] == before[one]
    assert flows[other].bytes_per_s > 0
    await measuring.monitor.close()


async def test_measurements_are_sent_and_end_when_it_is_cancelled(cluster: Cluster, settings: Settings) -> None:
    queue, absent = Queue(cluster.topic("there"), 0), cluster.topic("absent")
    await cluster.make(queue.topic)
    settings = of(cluster, settings, queue.topic, absent)
    settings = replace(settings, monitor=replace(settings.monitor, every_s=0.05))
    await cluster.make(settings.speeds_topic)
    await cluster.produce(queue, 1)
    monitor = Monitor(settings)
    before = asyncio.all_tasks()
    task = asyncio.create_task(monitor.run())
    measured = await read(cluster, settings.speeds_topic, 3)
    await cluster.produce(queue, 100)
    measured += await read(cluster, settings.speeds_topic, 1)
    serials = [parts[0].serial for parts in measured]
    assert serials == sorted(set(serials))
    for [part] in measured:
        assert part.monitor == measured[0][0].monitor
        assert part.missing == (absent,)
        assert [flow.queue for flow in part.flows] == [queue]
    assert measured[-1][0].flows[0].bytes_per_s > 0
    task.cancel()
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.wait([task])
    assert task.cancelled()
    async with asyncio.timeout(PATIENCE_S):  # readers of sockets end in the next turns of the loop
        await asyncio.gather(*(asyncio.all_tasks() - before), return_exceptions=True)
    assert monitor.problem == ""


async def test_the_topic_of_speeds_is_made_and_forgets(cluster: Cluster, settings: Settings, heard: Heard) -> None:
    queue = Queue(cluster.topic(), 0)
    await cluster.make(queue.topic)
    settings = of(cluster, settings, queue.topic)
    settings = replace(settings, monitor=replace(settings.monitor, every_s=0.05))
    task = asyncio.create_task(Monitor(settings).run())
    logs = cluster.logs()
    async with asyncio.timeout(PATIENCE_S):
        while not (await logs.partitions([settings.speeds_topic]))[settings.speeds_topic]:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    assert len(await read(cluster, settings.speeds_topic, 2)) == 2
    assert await cluster.config(settings.speeds_topic, *SPEEDS_TOPIC) == SPEEDS_TOPIC
    task.cancel()
    await asyncio.wait([task], timeout=PATIENCE_S)
    assert heard.lines == []


@pytest.mark.slow
async def test_while_kafka_is_down_nothing_is_sent_and_it_is_said_once(
    tmp_path: Path, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    wants.server("kafka")
    monkeypatch.setattr(connecting, "_CLOSE_S", 0.5)
    brief = servers._environment() | BRIEF
    monkeypatch.setattr(servers, "_environment", lambda: brief)
    server = await asyncio.to_thread(rivals.up, "kafka", tmp_path)
    try:
        cluster = Cluster(address_of(server.url), "outage")
        await cluster.open()
        queue = Queue(cluster.topic(), 0)
        await cluster.make(queue.topic)
        await cluster.produce(queue, 10)
        settings = settings_of(
            *(tmp_path, [cluster.address], "outage", (queue.topic,), {"every_s": 0.05}), timeout_s=2.0
        )
        await cluster.make(settings.speeds_topic)
        task = asyncio.create_task(Monitor(settings).run())
        [[last]] = await read(cluster, settings.speeds_topic, 1)
        await cluster.close()

        await asyncio.to_thread(rivals.down, "kafka", tmp_path)
        await heard.has("cannot measure")
        await asyncio.to_thread(rivals.up, "kafka", tmp_path, server.port, False)
        await heard.has("measurements work again")

        cluster = Cluster(cluster.address, "outage")
        await cluster.open()
        [[first]] = await read(cluster, settings.speeds_topic, 1)
        assert first.monitor == last.monitor
        assert first.serial > last.serial
        assert [flow.stock for flow in first.flows] == [flow.stock for flow in last.flows]
        assert first.flows[0].stock > 10 * 1_000
        assert first.missing == ()
        task.cancel()
        await asyncio.wait([task], timeout=PATIENCE_S)
        await cluster.close()
        assert [line.partition(":")[0] for line in heard.lines] == ["cannot measure", "measurements work again"]
        assert cluster.address in heard.lines[0]
    finally:
        await asyncio.to_thread(rivals.down, "kafka", tmp_path)


async def test_a_server_that_does_not_answer_fails_the_measurement(
    cluster: Cluster, settings: Settings, kafka: Server
) -> None:
    topic = cluster.topic()
    await cluster.make(topic)
    settings = replace(of(cluster, settings, topic), kafka=replace(settings.kafka, timeout_s=1.0))
    measuring = Measuring(settings)
    await measuring.monitor.measure()
    kafka.pause()
    try:
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(KafkaProblem, match="no answer arrived in time"):
                await measuring.flows()
            with pytest.raises(KafkaProblem, match=r"cannot connect: .*no answer arrived in time"):
                await measuring.flows()
    finally:
        kafka.resume()
    assert set(await measuring.flows()) == {Queue(topic, 0)}
    await measuring.monitor.close()


async def test_pauses_grow_to_half_a_minute_and_are_short_again_after(
    tmp_path: Path, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monitor = Monitor(settings_of(tmp_path, ["127.0.0.1:1"]))
    results = [False] * 8 + [True] + [False] * 2
    paused: list[float] = []

    async def measure() -> tuple[Speeds, ...]:
        if not results:
            raise asyncio.CancelledError
        if results.pop(0):
            return ()
        raise KafkaProblem("it is down")

    async def sleep(seconds: float) -> None:
        paused.append(seconds)

    monkeypatch.setattr(monitor, "measure", measure)
    monkeypatch.setattr(asyncio, "sleep", sleep)
    with pytest.raises(asyncio.CancelledError):
        await monitor.run()
    assert paused[:8] == [1, 2, 4, 8, 16, 30, 30, 30]
    assert paused[8] == pytest.approx(1.0, abs=0.1)
    assert paused[9:] == [1, 2]
    assert heard.lines == ["cannot measure: it is down", "measurements work again", "cannot measure: it is down"]
    assert monitor.problem == "it is down"


def test_a_file_that_cannot_be_used_is_told_at_once(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, ["127.0.0.1:1"], security="ssl", ca_file="ca.pem")
    with pytest.raises(SettingsError, match=r"\[kafka\] ca_file: .*ca\.pem: No such file"):
        Monitor(settings)


# Messages


def flows_of(count: int, topic: str = "orders") -> list[Flow]:
    return [Flow(Queue(topic, number), 1.5 * number, 0.0) for number in range(count)]


@given(
    st.integers(0, 12_000),
    st.integers(1, 249),
    st.lists(st.text("missing", min_size=1, max_size=249), max_size=50),
)
def test_parts_are_messages_that_kafka_takes_and_together_all(count: int, length: int, missing: list[str]) -> None:
    flows = flows_of(count, "t" * length)
    parts = list(in_parts("monitor", 7, 30.0, flows, missing))
    assert [part.part for part in parts] == list(range(len(parts)))
    assert {part.parts for part in parts} == {len(parts)}
    assert [flow for part in parts for flow in part.flows] == flows
    for part in parts:
        assert len(part.flows) <= FLOWS_MAX
        assert part.missing == tuple(missing)
        data = encode(part)
        assert len(data) <= MESSAGE_BYTES_MAX
        assert decode(data) == part


def test_the_largest_figures_and_names_fit() -> None:
    flows = [Flow(Queue("t" * 249, 2**31 - 1), 1.7976931348623157e308, 4.9406564584124654e-300)] * 10_000
    missing = ["m" * 249] * 1_000
    for part in in_parts("n" * 16, 2**53 - 1, 30.0, flows, missing):
        assert len(encode(part)) <= MESSAGE_BYTES_MAX


def test_without_flows_there_is_one_message() -> None:
    assert list(in_parts("monitor", 1, 30.0, [], ["orders"])) == [Speeds("monitor", 1, 0, 1, 30.0, (), ("orders",))]
