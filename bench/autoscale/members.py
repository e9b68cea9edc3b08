"""The groups to compare, as processes.

Owns: the start, the number and the end of a group's processes. Must never: leave a process behind, or end a process
that it has not started.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import orjson
import psutil
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from ingeborg.bench.autoscale import scale
from ingeborg.bench.autoscale.arrivals import Arrivals, unix_ms
from ingeborg.bench.autoscale.cases import FILL
from ingeborg.bench.autoscale.lag import LOOK_S, STABLE_S, LagRule
from ingeborg.bench.errors import BenchError

_CONSUMER = "ingeborg.bench.autoscale.consumer"

#: Time from SIGTERM to SIGKILL, in seconds.
_GRACE_S: Final = 10.0
#: Time-out of a call to Kafka, in seconds.
_TIMEOUT_S: Final = 10.0
#: A group has settled if it has not changed for this time, in seconds.
_QUIET_S: Final = 1.0

#: Scaled defaults of this project's groups, in seconds. The first is the time between two checks for unneeded members.
#: The second is how long a member must be unneeded before it ends.
_LOOK_S: Final = 30.0 / scale.TIME
_DOWN_S: Final = 300.0 / scale.TIME
#: The window over which the monitor measures rates, scaled, in seconds.
_WINDOW_S: Final = 30.0 / scale.TIME

_OURS: Final = """\
[group]
name = "{group}"
topics = ["{topic}"]
members_max = {members_max}
capacity_bytes_per_s = {capacity}
fill = {fill}
algorithm = "{algorithm}"
look_s = {look_s}
down_cooldown_s = {down_cooldown_s}
catch_up_s = {catch_up_s}
start_s = 30
answer_s = 2
stop_s = 6
lost_s = 5
[kafka]
servers = ["{servers}"]
[monitor]
every_s = {every_s}
window_s = {window_s}
[member]
batch_bytes = {batch_bytes}
wait_s = {wait_s}
throttle_bytes_per_s = {throttle}
beat_s = 1
"""

_ENDS: Final = """\
[sink]
kind = "http"
url = "http://127.0.0.1:{port}"
[scaler]
kind = "processes"
state_folder = "members"
grace_s = 10
[web]
port = -1
"""
"""The last tables of each configuration file. They say where members send records, and how members start."""


class Group(ABC):
    """A group that reads a topic. ``decisions`` counts its decisions, if they are not in its journal."""

    decisions = 0

    @abstractmethod
    async def start(self) -> None:
        """Start the group's programs, without waiting for them to be ready."""

    async def tick(self) -> None:  # noqa: B027 (a fixed number of members needs none)
        """Do periodic work. This is called several times a second."""

    @abstractmethod
    def has_joined(self) -> bool:
        """Return whether the programs that were started have joined, so that the load may begin."""

    @abstractmethod
    def has_settled(self, loaded_s: float) -> bool:
        """Return whether every partition has an owner, and no change is pending. ``loaded_s`` is the number of seconds
        for which the group has had its whole load. It is negative while the load is still growing (see ``warming``)."""

    @abstractmethod
    def running(self) -> int:
        """Return the number of member processes, including those that are starting or ending."""

    @abstractmethod
    async def stop(self) -> None:
        """Stop all programs."""


class Members(Group):
    """One of Kafka's own groups, which begins with ``count`` members. ``given`` is the argument of the program
    ``consumer``. ``log`` gets the members' output."""

    def __init__(self, given: Mapping[str, Any], log: Path, arrivals: Arrivals, count: int) -> None:
        self._given = given
        self._log = log
        self._arrivals = arrivals
        self._count = count
        self._started = 0
        self._living: list[asyncio.subprocess.Process] = []
        self._ending: list[asyncio.subprocess.Process] = []

    async def start(self) -> None:
        """See ``Group``."""
        await self._scale(self._count)

    async def _scale(self, count: int) -> None:
        """Start or end members until ``count`` members run. The youngest members end first."""
        while len(self._living) > count:
            process = self._living.pop()
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            self._ending.append(process)
        while len(self._living) < count:
            self._started += 1
            argument = orjson.dumps({**self._given, "name": f"member-{self._started}"}).decode()
            with self._log.open("ab") as log:
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", _CONSUMER, argument), stdout=log, stderr=log
                )
            self._living.append(process)

    def has_joined(self) -> bool:
        """Return whether all first members together own all partitions, and have done so for a moment."""
        owned = self._arrivals.owned
        is_whole = len(owned) == self._count and sum(owned.values()) == scale.PARTITIONS and all(owned.values())
        return is_whole and time.monotonic() - self._arrivals.changed_s > _QUIET_S

    def running(self) -> int:
        """Return how many members run. Raises ``BenchError`` if a member has ended unexpectedly."""
        for process in self._living:
            if process.returncode is not None:
                raise BenchError(f"a member has ended with code {process.returncode}: {_tail(self._log)}")
        self._ending = [process for process in self._ending if process.returncode is None]
        return len(self._living) + len(self._ending)

    async def stop(self) -> None:
        """Stop all members at the same time."""
        everyone = [*self._living, *self._ending]
        for process in everyone:
            if process.returncode is None:
                process.kill()
        for process in everyone:
            await process.wait()


class Fixed(Members):
    """Kafka's own assignment to a fixed number of members."""

    def has_settled(self, loaded_s: float) -> bool:
        """Return whether all members have joined. Their number does not depend on the load."""
        return self.has_joined()


class Lagging(Members):
    """Kafka's newest assignment, with the number of members from KEDA's rule. It begins with the number of members that
    the load needs on average, so that the rule does not begin far from the right number."""

    def __init__(self, given: Mapping[str, Any], log: Path, arrivals: Arrivals, lag_each: float) -> None:
        super().__init__(given, log, arrivals, scale.COUNTS[0])
        self._joined = False
        self._rule = LagRule(lag_each, scale.PARTITIONS, STABLE_S / scale.TIME)
        self._admin = AdminClient({"bootstrap.servers": given["servers"]})
        self._looked_s = self._changed_s = time.monotonic()

    async def tick(self) -> None:
        """If a check is due, check the lag and adapt the number of members. The rule starts when the first members have
        joined, because the load starts then, too."""
        now_s = time.monotonic()
        if not self.has_joined() or now_s - self._looked_s < LOOK_S / scale.TIME:
            return
        self._looked_s = now_s
        lag = await asyncio.to_thread(self._lag)
        running = len(self._living)
        wanted = self._rule.wanted(now_s, lag, running)
        if wanted != running:
            self.decisions += 1
            self._changed_s = now_s
            await self._scale(wanted)

    def _lag(self) -> int:
        group = self._given["group"]
        partitions = [TopicPartition(self._given["topic"], number) for number in range(scale.PARTITIONS)]
        asked = self._admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group, partitions)])
        committed = asked[group].result(_TIMEOUT_S).topic_partitions
        latest: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        ends = self._admin.list_offsets(dict.fromkeys(partitions, latest))
        behind = {each.partition: future.result(_TIMEOUT_S).offset for each, future in ends.items()}
        return sum(behind[each.partition] - max(each.offset, 0) for each in committed)

    def has_joined(self) -> bool:
        """Return whether the first members together have owned all partitions at some time."""
        self._joined = self._joined or super().has_joined()
        return self._joined

    def has_settled(self, loaded_s: float) -> bool:
        """Return whether the group has had the whole load for the rule's scaled ``STABLE_S``, and a constant number of
        members for half of this time. Then the rule no longer remembers the start."""
        stable_s = STABLE_S / scale.TIME
        return loaded_s > stable_s and time.monotonic() - self._changed_s > stable_s / 2


class Program:
    """A process of `ingeborg autoscale`, and the members that it starts as processes. ``folder`` has its files. The
    subfolder ``members`` has the files about its members. ``text`` is the beginning of its configuration file. Members
    send their records to ``port``. ``part`` is the value of its option ``--part``. Its journal is the file
    ``journal``."""

    def __init__(self, folder: Path, text: str, port: int, part: str = "all") -> None:
        self._folder = folder
        self._part = part
        self._process: asyncio.subprocess.Process | None = None
        self.journal = folder / "journal.jsonl"
        self._file = folder / "group.toml"
        self._file.write_text(text + _ENDS.format(port=port), encoding="utf-8")

    async def start(self) -> None:
        """Start the program, without waiting until it is ready."""
        self.journal.unlink(missing_ok=True)
        command = ["autoscale", str(self._file), "--part", self._part]
        if self._part != "monitor":
            command += ["--journal", str(self.journal)]
        with (self._folder / "autoscale.log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "ingeborg.broker.command.cli", *command), stdout=log, stderr=log
            )

    def check(self) -> None:
        """Raise ``BenchError`` if the program has ended."""
        if self._process is not None and self._process.returncode is not None:
            raise BenchError(f"ingeborg autoscale has ended: {_tail(self._folder / 'autoscale.log')}")

    def notes(self) -> list[dict[str, Any]]:
        """Return the journal so far."""
        with contextlib.suppress(FileNotFoundError):
            return [orjson.loads(line) for line in self.journal.read_bytes().splitlines() if line.endswith(b"}")]
        return []

    def members(self) -> list[int]:
        """Return the members' process numbers."""
        return pids(self._folder / "members")

    async def stop(self) -> None:
        """Stop the program, then its members. If the members were stopped first, the controller would restart them."""
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()
            try:
                async with asyncio.timeout(_GRACE_S):
                    await self._process.wait()
            except TimeoutError:
                self._process.kill()
                await self._process.wait()
        ending = [psutil.Process(pid) for pid in self.members()]
        for process in ending:
            with contextlib.suppress(psutil.Error):
                process.kill()
        await asyncio.to_thread(psutil.wait_procs, ending, _GRACE_S)


class Packed(Program, Group):
    """`ingeborg autoscale` as a group in the comparison."""

    def __init__(self, system: str, folder: Path, given: Mapping[str, Any]) -> None:
        text = _OURS.format(
            **{name: given[name] for name in ("group", "topic", "servers")},
            members_max=scale.PARTITIONS,
            capacity=scale.CONSUMED * (1 + scale.OVERHEAD_BYTES / scale.RECORD_BYTES),
            fill=FILL[system],
            algorithm=system.partition("-")[0],
            look_s=_LOOK_S,
            down_cooldown_s=_DOWN_S,
            catch_up_s=60.0 / scale.TIME,
            every_s=2.0 / scale.TIME,
            window_s=_WINDOW_S,
            batch_bytes=scale.BATCH_BYTES,
            wait_s=scale.WAIT_S,
            throttle=scale.CONSUMED,
        )
        super().__init__(folder, text, given["port"])

    async def tick(self) -> None:
        """Raise ``BenchError`` if the program has ended. It needs no periodic work."""
        self.check()

    def has_joined(self) -> bool:
        """Return whether the controller knows the group. The controller starts members when it has measured a load."""
        return any(note["event"] == "synchronized" for note in self.notes())

    def has_settled(self, loaded_s: float) -> bool:
        """Return whether the monitor has measured the whole load, the last change is complete, and its decision is
        older than the time for which the group keeps unneeded members."""
        if loaded_s < _WINDOW_S + _LOOK_S:
            return False
        times = {note["event"]: note["unix_ms"] for note in self.notes()}
        decided_ms, settled_ms = times.get("decided", 0), times.get("settled", -1)
        return bool(settled_ms >= decided_ms and unix_ms() - decided_ms > (_DOWN_S + 2 * _LOOK_S) * 1e3)

    def running(self) -> int:
        """See ``Group``."""
        return len(self.members())


def pids(folder: Path) -> list[int]:
    """Return the process numbers of the running members that the scaler `processes` has listed in this folder."""
    found = []
    for path in folder.glob("*.json"):
        with contextlib.suppress(OSError, orjson.JSONDecodeError):
            pid = orjson.loads(path.read_bytes()).get("pid")
            if isinstance(pid, int) and _lives(pid):
                found.append(pid)
    return found


def _lives(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def _tail(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")[-500:] if path.is_file() else ""
