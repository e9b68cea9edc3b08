"""Histories of a whole group on a real Kafka: random kills and pauses of its programs must lose nothing.

    python -m tests.autoscaler.kafka.histories --seeds 20

Owns: a group of real processes, its faults, and the expected content of its sink. Must never: look inside a program:
only the sink's content counts.

The seed draws the faults and their times; the machine schedules the processes, so a failing seed may pass the next
time.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

import orjson
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient

from ingeborg.autoscaler.kafka.connecting import ensure_topic, running
from ingeborg.autoscaler.sinks import reading
from ingeborg.bench import rivals

ROOT = Path(__file__).resolve().parents[3]
PARTITIONS = 8
#: Bytes of a record, and records a second: between one member's work and more than three members'.
RECORD_BYTES = 500
RATES = (20, 60, 120, 240)

SETTINGS = """\
[group]
name = "{group}"
topics = ["{topic}"]
members_max = 4
capacity_bytes_per_s = 40_000
look_s = 1
down_cooldown_s = 5
catch_up_s = 10
start_s = 20
answer_s = 1
stop_s = 4
lost_s = 3
[kafka]
servers = ["{address}"]
timeout_s = 10
[monitor]
every_s = 0.5
window_s = 3
[member]
wait_s = 0.2
beat_s = 0.5
[sink]
kind = "files"
folder = "sink"
[scaler]
kind = "processes"
state_folder = "members"
grace_s = 5
[web]
port = -1
"""

#: Possible events, weighted by their number of entries.
EVENTS = (
    *("load", "load", "load"),
    *("kill member", "kill member", "pause member", "pause member"),
    *("kill controller", "pause controller", "kill monitor", "pause monitor"),
    *("end member", "second controller"),
)
#: Seconds of a pause: shorter and longer than ``lost_s``.
PAUSES_S = (0.5, 2.0, 5.0, 8.0)


class Outcome(NamedTuple):
    """The result. ``problems``: violations, in words. ``moves``: ownerships in the sink beyond the first of each
    partition."""

    produced: int
    kept: int
    moves: int
    refused: int
    problems: tuple[str, ...]


class Group:
    """The group's processes. ``folder``: their folder."""

    def __init__(self, folder: Path, group: str, topic: str, address: str) -> None:
        self.folder = folder
        self.topic = topic
        self.address = address
        self.file = folder / "group.toml"
        self.file.write_text(SETTINGS.format(group=group, topic=topic, address=address), encoding="utf-8")
        self.sink = folder / "sink"
        self.sink.mkdir()
        self.parts: dict[str, asyncio.subprocess.Process] = {}
        self.paused: set[int] = set()
        self._extra = 0

    async def start(self, part: str, name: str = "") -> None:
        """Start the controller or the monitor. ``name``: for a second instance."""
        log = (self.folder / f"{name or part}.log").open("ab")
        command = [sys.executable, "-m", "ingeborg.broker.command.cli", "autoscale", str(self.file), "--part", part]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        self.parts[name or part] = await asyncio.create_subprocess_exec(
            *command, stdout=log, stderr=log, cwd=self.folder, env=environment
        )
        log.close()

    def members(self) -> list[int]:
        """Return the members' process numbers, in the order of their names."""
        return pids(self.folder / "members")

    async def happen(self, what: str, chance: Random) -> None:
        """Trigger one of ``EVENTS``, except the load."""
        verb, _, part = what.partition(" ")
        if what == "second controller":
            self._extra += 1
            await self.start("controller", f"controller-{self._extra}")
            return
        if part == "member":
            members = self.members()
            if not members:
                return
            pid = chance.choice(members)
        else:
            process = self.parts.get(part)
            if process is None or process.returncode is not None:
                await self.start(part)
                return
            pid = process.pid
        with contextlib.suppress(ProcessLookupError):
            match verb:
                case "kill":
                    os.kill(pid, signal.SIGKILL)
                    if part != "member":
                        await self.parts[part].wait()
                        await asyncio.sleep(chance.choice((0.0, 1.0, 4.0)))
                        await self.start(part)
                case "end":
                    os.kill(pid, signal.SIGTERM)
                case "pause":
                    os.kill(pid, signal.SIGSTOP)
                    self.paused.add(pid)
                    asyncio.get_running_loop().call_later(chance.choice(PAUSES_S), self.resume, pid)

    def resume(self, pid: int) -> None:
        """Resume the process."""
        self.paused.discard(pid)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    async def rest(self) -> None:
        """Resume all processes, and ensure a controller and a monitor."""
        for pid in list(self.paused):
            self.resume(pid)
        for part in ("controller", "monitor"):
            if self.parts[part].returncode is not None:
                await self.start(part)

    async def end(self) -> None:
        """Kill everything at once."""
        for process in self.parts.values():
            if process.returncode is None:
                process.kill()
                await process.wait()
        for pid in self.members():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def kept(self) -> Iterator[Path]:
        """Return the folders of the partitions in the sink."""
        return iter(sorted((self.sink / self.topic).glob(f"{self.topic}-*")))


def pids(folder: Path) -> list[int]:
    """Return the process numbers of the members in this folder of a `processes` scaler, in the order of their names."""
    found = []
    for path in sorted(folder.glob("*.json")):
        with contextlib.suppress(OSError, ValueError):
            pid = orjson.loads(path.read_bytes()).get("pid")
            if isinstance(pid, int) and _is_alive(pid):
                found.append(pid)
    return found


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def run(
    seed: int,
    address: str,
    folder: Path,
    seconds: float,
    patience_s: float = 90.0,
    last: Callable[[Group], Awaitable[None]] | None = None,
) -> Outcome:
    """Run one history. ``patience_s``: seconds after the last fault until the sink must have everything. ``last``: the
    event after ``seconds``, while production continues."""
    chance = Random(seed)
    topic = f"orders-{seed}-{time.time_ns()}"
    group = Group(folder, f"group-{seed}-{time.time_ns()}", topic, address)
    options = {"bootstrap_servers": [address], "request_timeout_ms": 30_000}
    async with running(AIOKafkaAdminClient(**options), options) as admin:
        await ensure_topic(admin, topic, PARTITIONS, 1, {}, servers=address, timeout_s=60.0)
    produced = [0] * PARTITIONS
    rate = RATES[1]
    try:
        async with running(AIOKafkaProducer(**options, acks="all"), options) as producer:

            async def produce() -> None:
                while True:
                    began_s = time.monotonic()
                    sent = []
                    for _ in range(max(rate // 10, 1)):
                        # The first partitions get more than the others.
                        partition = min(chance.randrange(PARTITIONS), chance.randrange(PARTITIONS))
                        value = f"{partition}:{produced[partition]}:".ljust(RECORD_BYTES, "x").encode()
                        produced[partition] += 1
                        sent.append(await producer.send(topic, value, partition=partition))
                    await asyncio.gather(*sent)
                    await asyncio.sleep(max(0.0, began_s + 0.1 - time.monotonic()))

            producing = asyncio.create_task(produce())
            await group.start("monitor")
            await group.start("controller")
            until_s = time.monotonic() + seconds
            while time.monotonic() < until_s:
                await asyncio.sleep(chance.uniform(0.5, 3.0))
                what = chance.choice(EVENTS)
                if what == "load":
                    rate = chance.choice(RATES)
                else:
                    await group.happen(what, chance)
            if last is not None:
                await last(group)
            await group.rest()
            await asyncio.sleep(1.0)
            producing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await producing
            await producer.flush()
        until_s = time.monotonic() + patience_s
        while time.monotonic() < until_s and in_sink(group) < sum(produced):
            await asyncio.sleep(0.5)
            if group.parts["controller"].returncode is not None:
                await group.start("controller")  # as its supervisor would
        # Wait a little longer: duplicates may still be under way.
        await asyncio.sleep(1.0)
    finally:
        await group.end()
    return judged(group, produced)


def in_sink(group: Group) -> int:
    """Return the number of records in the sink."""
    return sum(1 for folder in group.kept() for _ in reading.records(folder))


def judged(group: Group, produced: list[int]) -> Outcome:
    """Compare the sink's content with the expected one: each record once, in order, from one owner at a time."""
    problems, kept, moves = [], 0, 0
    for partition, count in enumerate(produced):
        folder = group.sink / group.topic / f"{group.topic}-{partition}"
        values = (
            [(line.value or b"").decode().split(":")[1] for line in reading.records(folder)] if folder.is_dir() else []
        )
        kept += len(values)
        numbers = [int(value) for value in values]
        if numbers != list(range(count)):
            seen = set(numbers)
            missing = [number for number in range(count) if number not in seen]
            twice = len(numbers) - len(seen)
            problems.append(
                f"partition {partition}: {count} were produced; {len(missing)} are missing (the first: {missing[:3]}), "
                f"{twice} are there twice, in order: {numbers == sorted(numbers)}"
            )
        if folder.is_dir():
            epochs = [owner.epoch for owner in reading.owners(folder)]
            moves += max(len(epochs) - 1, 0)
            if epochs != sorted(set(epochs)):
                problems.append(f"partition {partition} was taken from two at a time: epochs {epochs}")
    return Outcome(sum(produced), kept, moves, len(reading.refusals(group.sink)), tuple(problems))


def main() -> int:
    """Run the command: histories by their seeds, on a separate Kafka."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=20, help="how many (20)")
    parser.add_argument("--first", type=int, default=1, help="the first seed (1)")
    parser.add_argument("--seconds", type=float, default=25.0, help="of faults in each (25)")
    given = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory() as name, rivals.running("kafka", state=Path(name) / "kafka") as server:
        address = server.url.partition("://")[2]
        for seed in range(given.first, given.first + given.seeds):
            folder = Path(name) / str(seed)
            folder.mkdir()
            outcome = asyncio.run(run(seed, address, folder, given.seconds))
            counts = f"{outcome.produced:,} produced, {outcome.kept:,} kept"
            words = f"{counts}, {outcome.moves} moves, {outcome.refused} refused"
            print(
                f"seed {seed}: {words}: {'; '.join(outcome.problems) or 'nothing lost, nothing twice, in order'}",
                flush=True,
            )
            if outcome.problems:
                failed += 1
                for log in [*folder.glob("*.log"), *folder.glob("members/*.log")]:
                    print(f"--- {log.name}\n{log.read_text(encoding='utf-8', errors='replace')[-3000:]}", flush=True)
    print(f"{given.seeds} histories, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
