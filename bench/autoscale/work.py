"""One run of the comparison: a group, a stream, and the arrivals.

Owns: the order of a run, and its files. Must never: compute a percentile.

A run begins when the group has settled under the stream's first measurement, so the start of the group does not count.
Members that start later count from their start on. If records wait for such a member to start, their whole latency
counts.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import orjson
import psutil
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from ingeborg.bench.autoscale import scale
from ingeborg.bench.autoscale.arrivals import Arrivals, listening, unix_ms
from ingeborg.bench.autoscale.cases import ASSIGNORS, KEDA, Unit
from ingeborg.bench.autoscale.load import Load
from ingeborg.bench.autoscale.members import Fixed, Group, Lagging, Packed, Processes
from ingeborg.bench.autoscale.topics import delete_topic, hurry, make_topic
from ingeborg.bench.errors import BenchError
from ingeborg.bench.packing import streams

ARRIVALS, RUNNING, JOURNALS, FACTS = "arrivals", "running", "journals", "runs"
"""Folders of rows; one file for each unit."""

#: Time limit for a group to settle and to read the records written so far, in seconds.
_SETTLE_S_MAX: Final = 80.0
#: If the number of members follows the load, the load grows gradually to its first value in this time, in seconds. The
#: whole load at once would need more members than the group needs later.
_RAMP_S: Final = 20
#: A group has caught up when its latency is below this value, in seconds.
_CAUGHT_UP_S: Final = 1.0
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


async def run(unit: Unit, servers: str, out: Path, iterations: int, delta: float = scale.DELTA) -> dict[str, Any]:
    """Run the unit and return its facts. Raises ``BenchError`` if a program of the group has ended, or if the group
    does not settle."""
    folder = out / "work" / unit.name
    folder.mkdir(parents=True, exist_ok=True)
    for kind in (ARRIVALS, RUNNING, JOURNALS, FACTS):
        (out / kind).mkdir(exist_ok=True)
    topic = f"load-{unit.name}-{time.time_ns()}"
    admin = AdminClient({"bootstrap.servers": servers})
    make_topic(admin, topic, scale.PARTITIONS)
    with path_of(out, ARRIVALS, unit).open("wb") as rows, path_of(out, RUNNING, unit).open("wb") as running:
        arrivals = Arrivals(rows, scale.PARTITIONS)
        async with listening(arrivals) as port:
            group = _group(unit, folder, servers, admin, topic, port, arrivals)
            stream = stream_of(unit.seed, iterations, delta)
            one = _Run(unit, group, arrivals, running, servers, topic, stream)
            try:
                facts = {**await one.run(), "delta": delta}
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
        return Lagging(processes, unit.number, servers, name, topic)
    return Fixed(processes, unit.number, arrivals)


def _busy(before: Any, after: Any) -> float:
    """Return how busy all processors were between the two times, in per cent."""
    idle, whole = (
        sum(getattr(after, name, 0.0) - getattr(before, name, 0.0) for name in names)
        for names in (("idle", "iowait"), before._fields)
    )
    return round(100.0 * (1.0 - idle / whole), 1) if whole else 0.0


class _Run:
    def __init__(
        self,
        unit: Unit,
        group: Group,
        arrivals: Arrivals,
        running: Any,
        servers: str,
        topic: str,
        stream: list[list[float]],
    ) -> None:
        self._unit = unit
        self._group = group
        self._arrivals = arrivals
        self._running = running
        self._topic = topic
        self._stream = stream
        self._producer = Producer({"bootstrap.servers": servers, "linger.ms": 5, "acks": "1"})
        self._value = b"x" * scale.RECORD_BYTES
        #: For each partition, the due times of its records, in the order of their offsets.
        self._sent: list[list[int]] = [[] for _ in range(scale.PARTITIONS)]
        self._looked_s = 0.0
        self._late_ms_max = 0

    async def run(self) -> dict[str, Any]:
        await self._group.start()
        warming_s = await self._settle()
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
            "system": self._unit.system,
            "number": self._unit.number,
            "seed": self._unit.seed,
            "begun_ms": begun_ms,
            "ended_ms": ended_ms,
            "warming_s": round(warming_s, 1),
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

    async def _settle(self) -> float:
        """Wait until the group has settled. If the group's number of members follows the load, the group gets the load
        of the first measurement, and has settled only when it has also caught up with this load. A group with a fixed
        number of members might never catch up, so it gets no records before the run."""
        begun_s = time.monotonic()
        scales = not isinstance(self._group, Fixed)
        ramp = [
            [rate * min((second + 1) / _RAMP_S, 1.0) for rate in self._stream[0]]
            for second in range(int(_SETTLE_S_MAX))
        ]
        load = Load(ramp, 1.0, scale.RECORD_BYTES, self._unit.seed)

        def is_over() -> bool:
            caught_up = max(self._arrivals.late_s) < _CAUGHT_UP_S and all(self._arrivals.next)
            return self._group.has_settled() and (caught_up or not scales)

        if scales:
            await self._produce(load, load.length_s, is_over)
        else:
            await self._wait(is_over, _SETTLE_S_MAX)
        if not (all(self._arrivals.next) if scales else self._group.has_settled()):
            raise BenchError(f"{self._unit.name} does not read all partitions after {_SETTLE_S_MAX:g} s")
        return time.monotonic() - begun_s

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
