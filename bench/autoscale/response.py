"""The time of each step of a change (figures 14 to 17).

Owns: the controller's input, and its timing. Must never: decide anything.

As in the document (section VI-F), streams of measurements with small and large changes replace the monitor, and the
algorithm is MWF. The controller, its member processes and Kafka are real. Members always read at their permitted speed,
so each change reaches them in the middle of a batch. As in the document, the next measurement waits until the previous
change has settled. The controller's own times are in its journal.

A separate experiment measures how soon a monitor detects a change. In it, the rate into one topic repeatedly doubles
and halves.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from ingeborg.autoscaler.model import Flow, Queue, Speeds, decode, encode
from ingeborg.bench.autoscale import scale
from ingeborg.bench.autoscale.arrivals import Arrivals, listening, unix_ms
from ingeborg.bench.autoscale.cases import CHANGES_S, Changes, Steps
from ingeborg.bench.autoscale.load import Load
from ingeborg.bench.autoscale.members import Program
from ingeborg.bench.autoscale.topics import delete_topic, fill, make_topic
from ingeborg.bench.errors import BenchError
from ingeborg.bench.experiments.experiment import Results
from ingeborg.bench.packing import streams

JOURNALS, LONG_JOURNALS, STEPS = "changes", "changes-long", "steps"
"""Folders of rows."""

#: ``scale.CONSUMED`` limits the members' speed. With this size, a batch takes as long to fill as a batch in the
#: document.
_BATCH_BYTES: Final = int(scale.CONSUMED * 5.0 / 2.3)
#: The number of bytes in each partition at the start, per second of the experiment. A member reads less from a
#: partition, because it reads nearly two partitions on average.
_BACKLOG_BYTES_PER_S: Final = scale.CONSUMED * 0.6
#: If a measurement changes nothing, the next measurement follows after this time, in seconds. It is longer than the
#: controller's check interval.
_QUIET_S: Final = 1.5
#: Time limit for a change to settle, in seconds.
_CHANGE_S_MAX: Final = 60.0

_FILE: Final = """\
[group]
name = "{group}"
topics = ["{topic}"]
members_max = 32
capacity_bytes_per_s = {capacity}
algorithm = "mwf"
look_s = 1
down_cooldown_s = 0
catch_up_s = 0
start_s = 30
[kafka]
servers = ["{servers}"]
[member]
batch_bytes = {batch_bytes}
wait_s = {wait_s}
throttle_bytes_per_s = {throttle}
"""


@asynccontextmanager
async def _program(
    name: str, partitions: int, servers: str, results: Results, part: str, wait_s: float
) -> AsyncIterator[tuple[Program, str, str]]:
    """Run a program of the autoscaler. Yields the program, its group and its topic."""
    folder = results.out / "work" / name
    folder.mkdir(parents=True, exist_ok=True)
    topic, group = f"{name}-{time.time_ns()}", f"group-{name}-{time.time_ns()}"
    admin = AdminClient({"bootstrap.servers": servers})
    make_topic(admin, topic, partitions)
    async with listening(Arrivals(partitions, reads_lines=False)) as port:
        text = _FILE.format(
            group=group,
            topic=topic,
            servers=servers,
            capacity=scale.CONSUMED,
            batch_bytes=_BATCH_BYTES,
            wait_s=wait_s,
            throttle=scale.CONSUMED,
        )
        program = Program(folder, text, port, part)
        try:
            yield program, group, topic
        finally:
            await program.stop()
            delete_topic(admin, topic)


async def changes(work: Changes, servers: str, results: Results) -> dict[str, Any]:
    """Send a stream of measurements, store the controller's journal, and return the facts of the run. Before each
    measurement, wait until the change that the previous measurement caused is complete."""
    # With this long wait, members send a batch only when it is full.
    async with _program(work.name, scale.PARTITIONS, servers, results, "controller", 10.0) as (program, group, topic):
        producer = Producer({"bootstrap.servers": servers, "linger.ms": 20, "acks": "1"})
        places = [(topic, partition) for partition in range(scale.PARTITIONS)]
        records = int(_BACKLOG_BYTES_PER_S * work.cost) // scale.RECORD_BYTES * scale.PARTITIONS
        await asyncio.to_thread(fill, producer, places, records, scale.RECORD_BYTES)
        await program.start()
        await _until(program, "synchronized", 0, _CHANGE_S_MAX)
        begun_s = time.monotonic()
        measurements = 0
        rows = streams.drawn(scale.PARTITIONS, work.count or 100_000, work.delta, 1)
        for row in rows:
            if not work.count and time.monotonic() - begun_s >= CHANGES_S:
                break
            sizes = [size / streams.CAPACITY * scale.MOST for size in row]
            before = len(program.notes())
            measurements += 1
            flows = tuple(Flow(Queue(topic, number), size, 0.0) for number, size in enumerate(sizes))
            speeds = Speeds("stream", measurements, 0, 1, 30.0, flows, ())
            producer.produce(f"{group}.speeds", encode(speeds), partition=0)
            producer.flush(_CHANGE_S_MAX)
            await _settled(program, before)
        notes = program.notes()
    kind = LONG_JOURNALS if work.count else JOURNALS
    results.keep(kind, f"delta-{work.delta:g}", ({"delta": work.delta, **note} for note in notes))
    return {"delta": work.delta, "measurements": measurements, "seconds": time.monotonic() - begun_s}


async def _until(program: Program, event: str, before: int, most_s: float) -> None:
    until_s = time.monotonic() + most_s
    while all(note["event"] != event for note in program.notes()[before:]):
        program.check()
        if time.monotonic() > until_s:
            raise BenchError(f"the controller has not reached {event} in {most_s:g} s")
        await asyncio.sleep(0.05)


async def _settled(program: Program, before: int) -> None:
    """Wait until the change that the measurement caused is complete. If no decision follows soon, there is no
    change."""
    quiet_s = time.monotonic() + _QUIET_S
    while time.monotonic() < quiet_s:
        program.check()
        events = [note["event"] for note in program.notes()[before:]]
        if "decided" in events:
            await _until(program, "settled", before + events.index("decided"), _CHANGE_S_MAX)
            return
        await asyncio.sleep(0.05)


async def steps(work: Steps, servers: str, results: Results) -> dict[str, Any]:
    """Change the load of one partition in steps, and store the monitor's values. Return the facts of the run."""
    async with _program(work.name, 1, servers, results, "monitor", 1.0) as (program, group, topic):
        load = Load([[rate] for rate in scale.STEP_RATES], scale.STEP_S, scale.RECORD_BYTES, 1)
        producer = Producer({"bootstrap.servers": servers, "linger.ms": 5, "acks": "1"})
        consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": f"{group}-reader",
                "auto.offset.reset": "earliest",
                # The monitor makes the topic. By default, a consumer checks for a missing topic only every five
                # minutes.
                "topic.metadata.refresh.interval.ms": 500,
            }
        )
        await program.start()
        begun_ms = unix_ms()
        writing = asyncio.create_task(_write(load, producer, topic))
        try:
            found = await asyncio.to_thread(_heard, consumer, f"{group}.speeds", load.length_s)
            await writing
        finally:
            writing.cancel()
            consumer.close()
    rows = ({"time_s": (at_ms - begun_ms) / 1e3, "bytes_per_s": rate} for at_ms, rate in found)
    results.keep(STEPS, work.name, rows)
    return {"steps": list(scale.STEP_RATES), "step_s": scale.STEP_S}


async def _write(load: Load, producer: Producer, topic: str) -> None:
    begun_s = time.monotonic()
    while (now_s := time.monotonic() - begun_s) < load.length_s:
        for _ in load.due(now_s):
            producer.produce(topic, b"x" * scale.RECORD_BYTES, partition=0)
        producer.poll(0)
        await asyncio.sleep(0.02)


def _heard(consumer: Consumer, topic: str, seconds: float) -> list[tuple[int, float]]:
    consumer.subscribe([topic])
    until_s = time.monotonic() + seconds
    found = []
    while time.monotonic() < until_s:
        message = consumer.poll(0.2)
        if message is None or message.error() is not None:
            continue
        speeds = decode(message.value())
        if isinstance(speeds, Speeds):
            found.append((message.timestamp()[1], sum(flow.bytes_per_s for flow in speeds.flows)))
    return found
