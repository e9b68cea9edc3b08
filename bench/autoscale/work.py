"""One run of the comparison: a group, a stream, and the arrivals.

Owns: the order of a run, and its files. Must never: compute a percentile.

A run begins when its group is warm (`warming`), so the start of the group does not count. If a group does not get warm
in time, its run begins nevertheless, and its facts say so. Members that start later count from their start on. If
records wait for such a member to start, their whole latency counts.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO, Final

import orjson
import psutil
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from ingeborg.bench.autoscale import scale, warming
from ingeborg.bench.autoscale.arrivals import Arrivals, listening, unix_ms
from ingeborg.bench.autoscale.cases import ASSIGNORS, KEDA, Unit
from ingeborg.bench.autoscale.load import Load
from ingeborg.bench.autoscale.members import Fixed, Group, Lagging, Packed, Processes
from ingeborg.bench.autoscale.topics import delete_topic, hurry, make_topic
from ingeborg.bench.autoscale.warming import Warmed
from ingeborg.bench.errors import BenchError
from ingeborg.bench.packing import streams

ARRIVALS, RUNNING, JOURNALS, FACTS = "arrivals", "running", "journals", "runs"
"""Folders of rows; one file for each unit."""

#: Time to wait for data in transit after the stream's end, in seconds.
_AFTER_S: Final = 5.0
_TICK_S: Final = 0.02
_LOOK_S: Final = 0.25
_TIMEOUT_S: Final = 30.0


def stream_of(seed: int, iterations: int, delta: float = scale.DELTA) -> list[list[float]]:
    """Return bytes per second of each partition, one row for each measurement (equation 15; sizes stay at C or below).
    ``delta`` is the greatest change of a size between two measurements, in per cent of C."""
    rows = streams.drawn(scale.PARTITIONS, iterations, delta, seed)
    return [[size / streams.CAPACITY * scale.MOST for size in row] for row in rows]


def path_of(out: Path, kind: str, unit: Unit) -> Path:
    """Return the path of a unit's rows."""
    return out / kind / f"{unit.name}.jsonl"


def kept(unit: Unit, out: Path) -> bool:
    """Return whether the unit has run. The file with its facts shows this, because a run writes it last."""
    return path_of(out, FACTS, unit).is_file()


async def run(unit: Unit, servers: str, out: Path) -> dict[str, Any]:
    """Run the unit and return its facts. Raises ``BenchError`` if a program of the group has ended, or if the group
    does not read all partitions."""
    folder = out / "work" / unit.name
    folder.mkdir(parents=True, exist_ok=True)
    for kind in (ARRIVALS, RUNNING, JOURNALS, FACTS):
        (out / kind).mkdir(exist_ok=True)
    topic = f"load-{unit.name}-{time.time_ns()}"
    admin = AdminClient({"bootstrap.servers": servers})
    make_topic(admin, topic, scale.PARTITIONS)
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 5, "acks": "1"})
    with path_of(out, ARRIVALS, unit).open("wb") as rows, path_of(out, RUNNING, unit).open("wb") as running:
        arrivals = Arrivals(rows, scale.PARTITIONS)
        async with listening(arrivals) as port:
            group = _group(unit, folder, servers, admin, topic, port, arrivals)
            try:
                facts = await Run(unit, group, arrivals, running, producer, topic).run()
            finally:
                await group.stop()
                delete_topic(admin, topic)
    path_of(out, JOURNALS, unit).write_bytes(
        b"".join(orjson.dumps({"unit": unit.name, **note}) + b"\n" for note in _notes(group))
    )
    path_of(out, FACTS, unit).write_bytes(orjson.dumps(facts) + b"\n")
    return facts


def _notes(group: Group) -> Iterable[dict[str, Any]]:
    return group.notes() if isinstance(group, Packed) else []


def _group(
    unit: Unit, folder: Path, servers: str, admin: AdminClient, topic: str, port: int, arrivals: Arrivals
) -> Group:
    name = topic.replace("load-", "group-", 1)
    if unit.system not in (*ASSIGNORS, KEDA):
        return Packed(unit.system, folder, servers, name, topic, port)
    assignor = ASSIGNORS[-1] if unit.system == KEDA else unit.system
    if assignor == ASSIGNORS[-1]:
        hurry(admin, name, 5.0 / scale.TIME)
    given = {
        "servers": servers,
        "group": name,
        "topic": topic,
        "port": port,
        "assignor": assignor,
        "consumed": scale.CONSUMED,
        "batch_bytes": scale.BATCH_BYTES,
        "wait_s": scale.WAIT_S,
        "portion_s": scale.PORTION_S,
        "time_scale": scale.TIME,
    }
    processes = Processes(given, folder / "members.log")
    if unit.system == KEDA:
        return Lagging(processes, unit.number, servers, name, topic, arrivals)
    return Fixed(processes, unit.number, arrivals)


def _busy(before: Any, after: Any) -> float:
    """Return how busy all processors were between the two times, in per cent."""
    idle, whole = (
        sum(getattr(after, name, 0.0) - getattr(before, name, 0.0) for name in names)
        for names in (("idle", "iowait"), before._fields)
    )
    return round(100.0 * (1.0 - idle / whole), 1) if whole else 0.0


class Run:
    """One run: a group reads a topic, into which ``producer`` writes the unit's stream. ``running`` is a file for the
    number of members over time."""

    def __init__(
        self, unit: Unit, group: Group, arrivals: Arrivals, running: BinaryIO, producer: Producer, topic: str
    ) -> None:
        self._unit = unit
        self._group = group
        self._arrivals = arrivals
        self._running = running
        self._producer = producer
        self._topic = topic
        self._stream = stream_of(unit.seed, unit.iterations, unit.delta)
        self._value = b"x" * scale.RECORD_BYTES
        #: For each partition, the due times of its records, in the order of their offsets.
        self._sent: list[list[int]] = [[] for _ in range(scale.PARTITIONS)]
        self._looked_s = 0.0
        self._late_ms_max = 0

    async def run(self) -> dict[str, Any]:
        """Start the group, warm it up, and let it read the stream. Return the facts of the run."""
        await self._group.start()
        warmed = await self.warm_up()
        before = psutil.cpu_times()
        begun_ms = unix_ms()
        load = Load(self._stream, scale.ITERATION_S, scale.RECORD_BYTES, self._unit.seed)
        self._late_ms_max = 0
        await self._produce(load, load.length_s)
        ended_ms = unix_ms()
        busy = _busy(before, psutil.cpu_times())
        unread = self._unread()
        await self._wait(lambda: self._unread() == 0, _AFTER_S)
        at_ms, never_read = unix_ms(), self._unread()
        for partition, times in enumerate(self._sent):
            self._arrivals.waiting(at_ms, partition, times[self._arrivals.next[partition] :])
        if self._producer.flush(_TIMEOUT_S):
            raise BenchError("Kafka has not taken all records in time")
        return {
            "unit": self._unit.name,
            "part": self._unit.part,
            "system": self._unit.system,
            "number": self._unit.number,
            "seed": self._unit.seed,
            "delta": self._unit.delta,
            "begun_ms": begun_ms,
            "ended_ms": ended_ms,
            "warming_s": round(warmed.warming_s, 1),
            "settled": warmed.settled,
            "caught_up": warmed.caught_up,
            "behind_s": round(warmed.behind_s, 3),
            "unread_before": warmed.unread,
            "iterations": len(self._stream),
            "bytes_per_s": sum(map(sum, self._stream)) / len(self._stream),
            "unread": unread,
            "never_read": never_read,
            "again": self._arrivals.again,
            "refused": self._arrivals.refused,
            "sent_late_ms": self._late_ms_max,
            "busy_percent": busy,
            "decisions": getattr(self._group, "decisions", 0),
        }

    async def warm_up(self) -> Warmed:
        """When the group has joined, give it the load of the warm-up until it is warm, or until the time is over.
        Return the group's state. Raises ``BenchError`` if the group does not join, or does not read some partition."""
        await self._wait(self._group.has_joined, warming.JOIN_S_MAX)
        if not self._group.has_joined():
            raise BenchError(f"{self._unit.name} has not joined in {warming.JOIN_S_MAX:g} s")
        begun_s = time.monotonic()
        load = Load(warming.ramp(self._stream[0]), 1.0, scale.RECORD_BYTES, self._unit.seed)

        def state() -> tuple[float, bool, float]:
            since_s = time.monotonic() - begun_s
            settled = self._group.has_settled(warming.loaded_s(since_s))
            return since_s, settled, warming.behind_s(unix_ms(), self._sent, self._arrivals.next)

        await self._produce(load, load.length_s, lambda: warming.is_over(*state()))
        since_s, settled, behind_s = state()
        silent = sum(bool(times) and not count for times, count in zip(self._sent, self._arrivals.next, strict=True))
        if silent:
            raise BenchError(f"{self._unit.name}: no member has read from {silent} partitions in {since_s:.0f} s")
        return Warmed(since_s, settled, warming.has_caught_up(behind_s), behind_s, self._unread())

    async def _produce(self, load: Load, length_s: float, is_over: Any = None) -> None:
        begun_s, begun_ms = time.monotonic(), unix_ms()
        while True:
            now_s = time.monotonic() - begun_s
            for each in load.due(now_s):
                self._send(each.partition, begun_ms + int(each.time_s * 1e3))
            self._producer.poll(0)
            if now_s >= length_s:
                return
            if await self._look() and is_over is not None and is_over():
                return
            await asyncio.sleep(_TICK_S)

    def _send(self, partition: int, time_ms: int) -> None:
        self._late_ms_max = max(self._late_ms_max, unix_ms() - time_ms)
        self._sent[partition].append(time_ms)
        self._producer.produce(self._topic, self._value, partition=partition, timestamp=time_ms)

    async def _wait(self, is_over: Any, most_s: float) -> None:
        until_s = time.monotonic() + most_s
        while time.monotonic() < until_s and not is_over():
            self._producer.poll(0)
            await self._look()
            await asyncio.sleep(_TICK_S)

    async def _look(self) -> bool:
        """If it is time, let the group do its periodic work and write down how many members run. Return whether it was
        time."""
        now_s = time.monotonic()
        if now_s - self._looked_s < _LOOK_S:
            return False
        self._looked_s = now_s
        await self._group.tick()
        row = {"unit": self._unit.name, "at": unix_ms(), "running": self._group.running()}
        self._running.write(orjson.dumps(row) + b"\n")
        return True

    def _unread(self) -> int:
        return sum(len(times) for times in self._sent) - sum(self._arrivals.next)
