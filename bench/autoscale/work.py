"""One run of the comparison: a group, a stream, and the arrivals.

Owns: the order of a run, and its rows. Must never: compute a percentile.

A run begins when its group is warm (`warming`), so the start of the group does not count. If a group does not get warm
in time, its run begins anyway, and its facts say so. A member that starts later counts from its start. If records wait
for such a member to start, their whole latency counts.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any, Final

import psutil
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from ingeborg.bench.autoscale import scale, warming
from ingeborg.bench.autoscale.arrivals import Arrivals, listening, unix_ms
from ingeborg.bench.autoscale.cases import ASSIGNORS, KEDA, GroupRun
from ingeborg.bench.autoscale.load import Load
from ingeborg.bench.autoscale.members import Fixed, Group, Lagging, Packed
from ingeborg.bench.autoscale.topics import delete_topic, flush, hurry, make_topic
from ingeborg.bench.autoscale.warming import Warmed
from ingeborg.bench.errors import BenchError
from ingeborg.bench.experiments.experiment import Results
from ingeborg.bench.packing import streams

ARRIVALS, RUNNING, JOURNALS, FACTS = "arrivals", "running", "journals", "facts"
"""Folders of rows."""

#: Time to wait for data in transit after the stream's end, in seconds.
_AFTER_S: Final = 5.0
_TICK_S: Final = 0.02
_LOOK_S: Final = 0.25


def stream_of(seed: int, iterations: int, delta: float = scale.DELTA) -> list[list[float]]:
    """Return the bytes per second of each partition, with one row for each measurement (equation 15; no size exceeds
    C). Between two measurements, a size changes by at most ``delta`` per cent of C."""
    rows = streams.drawn(scale.PARTITIONS, iterations, delta, seed)
    return [[size / streams.CAPACITY * scale.MOST for size in row] for row in rows]


async def run(work: GroupRun, servers: str, results: Results) -> dict[str, Any]:
    """Run the group on its stream, and store the rows. Return the facts of the run. Raises ``BenchError`` if a program
    of the group has ended, or if the group does not read all partitions."""
    folder = results.out / "work" / work.name
    folder.mkdir(parents=True, exist_ok=True)
    topic = f"load-{work.name}-{time.time_ns()}"
    admin = AdminClient({"bootstrap.servers": servers})
    make_topic(admin, topic, scale.PARTITIONS)
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 5, "acks": "1"})
    arrivals = Arrivals(scale.PARTITIONS)
    async with listening(arrivals) as port:
        group = _group(work, folder, servers, admin, topic, port, arrivals)
        measured = Run(work, group, arrivals, producer, topic)
        try:
            facts = await measured.run()
        finally:
            await group.stop()
            delete_topic(admin, topic)
    results.keep(ARRIVALS, work.name, arrivals.rows)
    results.keep(RUNNING, work.name, measured.running)
    if isinstance(group, Packed):
        results.keep(JOURNALS, work.name, ({"unit": work.name, **note} for note in group.notes()))
    return facts


def _group(
    work: GroupRun, folder: Path, servers: str, admin: AdminClient, topic: str, port: int, arrivals: Arrivals
) -> Group:
    group = topic.replace("load-", "group-", 1)
    given: dict[str, Any] = {"servers": servers, "group": group, "topic": topic, "port": port}
    if work.system not in (*ASSIGNORS, KEDA):
        return Packed(work.system, folder, given)
    assignor = ASSIGNORS[-1] if work.system == KEDA else work.system
    if assignor == ASSIGNORS[-1]:
        hurry(admin, group, 5.0 / scale.TIME)
    given |= {
        "assignor": assignor,
        "consumed": scale.CONSUMED,
        "batch_bytes": scale.BATCH_BYTES,
        "wait_s": scale.WAIT_S,
        "portion_s": scale.PORTION_S,
        "time_scale": scale.TIME,
    }
    return (Lagging if work.system == KEDA else Fixed)(given, folder / "members.log", arrivals, work.number)


def _busy(before: Any, after: Any) -> float:
    """Return how busy the processors were between the two times, in per cent of all processors."""
    idle, whole = (
        sum(getattr(after, name, 0.0) - getattr(before, name, 0.0) for name in names)
        for names in (("idle", "iowait"), before._fields)
    )
    return round(100.0 * (1.0 - idle / whole), 1) if whole else 0.0


class Run:
    """One run: a group reads a topic, into which ``producer`` writes the stream. ``running`` has a row with the number
    of members for each time at which the run checks its group."""

    def __init__(self, work: GroupRun, group: Group, arrivals: Arrivals, producer: Producer, topic: str) -> None:
        self._work = work
        self._group = group
        self._arrivals = arrivals
        self.running: list[dict[str, Any]] = []
        self._producer = producer
        self._topic = topic
        self._stream = stream_of(work.seed, work.iterations, work.delta)
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
        load = Load(self._stream, scale.ITERATION_S, scale.RECORD_BYTES, self._work.seed)
        self._late_ms_max = 0
        await self._produce(load, load.length_s)
        ended_ms = unix_ms()
        busy = _busy(before, psutil.cpu_times())
        unread = self._unread()
        await self._wait(lambda: self._unread() == 0, _AFTER_S)
        at_ms, never_read = unix_ms(), self._unread()
        for partition, times in enumerate(self._sent):
            self._arrivals.waiting(at_ms, partition, times[self._arrivals.next[partition] :])
        flush(self._producer)
        return {
            "unit": self._work.name,
            "system": self._work.system,
            "number": self._work.number,
            "seed": self._work.seed,
            "delta": self._work.delta,
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
            "decisions": self._group.decisions,
        }

    async def warm_up(self) -> Warmed:
        """Wait until the group has joined. Then give it the load of the warm-up until it is warm, or until the time
        limit. Return the group's state. Raises ``BenchError`` if the group does not join, or does not read some
        partition."""
        await self._wait(self._group.has_joined, warming.JOIN_S_MAX)
        if not self._group.has_joined():
            raise BenchError(f"{self._work.name} has not joined in {warming.JOIN_S_MAX:g} s")
        begun_s = time.monotonic()
        load = Load(warming.ramp(self._stream[0]), 1.0, scale.RECORD_BYTES, self._work.seed)

        def state() -> tuple[float, bool, float]:
            since_s = time.monotonic() - begun_s
            settled = self._group.has_settled(warming.loaded_s(since_s))
            return since_s, settled, warming.behind_s(unix_ms(), self._sent, self._arrivals.next)

        await self._produce(load, load.length_s, lambda: warming.is_over(*state()))
        since_s, settled, behind_s = state()
        silent = sum(bool(times) and not count for times, count in zip(self._sent, self._arrivals.next, strict=True))
        if silent:
            raise BenchError(f"{self._work.name}: no member has read from {silent} partitions in {since_s:.0f} s")
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
        self._producer.produce(self._topic, b"x" * scale.RECORD_BYTES, partition=partition, timestamp=time_ms)

    async def _wait(self, is_over: Any, most_s: float) -> None:
        until_s = time.monotonic() + most_s
        while time.monotonic() < until_s and not is_over():
            self._producer.poll(0)
            await self._look()
            await asyncio.sleep(_TICK_S)

    async def _look(self) -> bool:
        """If the next check is due, let the group do its periodic work and record how many members run. Return whether
        the check was due."""
        now_s = time.monotonic()
        if now_s - self._looked_s < _LOOK_S:
            return False
        self._looked_s = now_s
        await self._group.tick()
        self.running.append({"unit": self._work.name, "at": unix_ms(), "running": self._group.running()})
        return True

    def _unread(self) -> int:
        return sum(len(times) for times in self._sent) - sum(self._arrivals.next)
