"""Real processes of the autoscaler with a real Kafka: the causes of their end, exit codes, and leftovers."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import orjson
import pytest

from ingeborg.autoscaler import run
from ingeborg.autoscaler.kafka.channel import Incoming, Outgoing, incoming, outgoing
from ingeborg.autoscaler.kafka.connecting import ensure_topic
from ingeborg.autoscaler.model import Bye, Hello, Queue, Start, Started, Welcome
from ingeborg.autoscaler.sinks import reading
from ingeborg.bench.starting import Child, awaited
from tests.loadgen.backends.conftest import PATIENCE_S

from .kafka.conftest import Cluster
from .kafka.histories import ROOT

FILE = """\
[group]
name = "{group}"
topics = ["{group}"]
members_max = 2
capacity_bytes_per_s = 100_000
[kafka]
servers = ["{address}"]
timeout_s = {timeout_s}
[monitor]
every_s = 0.2
window_s = 1
[member]
wait_s = {wait_s}
beat_s = 0.1
[sink]
kind = "files"
folder = "sink"
[scaler]
kind = "none"
[web]
port = {port}
"""


class Programs:
    """The programs of one group. ``folder``: contains its file."""

    def __init__(self, folder: Path, group: str, address: str) -> None:
        self.folder = folder
        self.group = group
        self._address = address
        self._children: list[Child] = []
        (folder / "sink").mkdir()

    def write(self, port: int = -1, wait_s: float = 0.1, timeout_s: float = 20.0, more: str = "") -> None:
        """The group's file."""
        values = {"group": self.group, "address": self._address, "port": port, "wait_s": wait_s}
        text = FILE.format(timeout_s=timeout_s, **values) + more
        (self.folder / "group.toml").write_text(text, encoding="utf-8")

    def start(self, part: str, *arguments: str) -> Child:
        """Start a program. Its log gets both output streams."""
        command = [sys.executable, "-m", "ingeborg.broker.command.cli", "autoscale", "group.toml", "--part", part]
        log = self.folder / f"{part}-{len(self._children)}.log"
        environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "100"}
        child = Child(part, [*command, *arguments], log, environment=environment, directory=self.folder)
        self._children.append(child)
        return child

    async def end(self) -> None:
        """Kill the programs in any state."""
        for child in self._children:
            await awaited(child.end())


@pytest.fixture
async def programs(cluster: Cluster, tmp_path: Path) -> AsyncIterator[Programs]:
    """The programs of a group that reads a topic of the same name with two partitions."""
    await cluster.make(cluster.name, 2)
    found = Programs(tmp_path, cluster.name, cluster.address)
    found.write()
    yield found
    await found.end()


async def said(child: Child, pattern: str) -> str:
    return await awaited(child.line(pattern, PATIENCE_S))


async def ended(child: Child) -> int:
    return await awaited(child.ended(PATIENCE_S))


@asynccontextmanager
async def controlling(cluster: Cluster) -> AsyncIterator[tuple[Incoming, Outgoing]]:
    """Yield the controller's two channels: the test plays the controller."""
    topic = f"{cluster.name}.metadata"
    await ensure_topic(cluster.admin, topic, 5, 1, {}, servers=cluster.address, timeout_s=PATIENCE_S)
    async with incoming(cluster.options, topic) as heard, outgoing(cluster.options, topic) as says:
        await heard.read_from({0: 0})
        yield heard, says


async def own(name: str, queue: Queue, heard: Incoming, says: Outgoing) -> None:
    """Give the member a number and the queue, repeatedly until it reports that it reads it."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            for each in await heard.take(0.1):
                match each.message:
                    case Hello() as hello if hello.name == name:
                        await says.send(0, Welcome(name, hello.nonce, 1, 1))
                    case Started():
                        return
            await says.send(1, Start(name, 1, 1, (queue,)))


async def test_a_member_that_is_told_to_end_has_everything_in_the_sink_and_says_farewell(
    cluster: Cluster, programs: Programs
) -> None:
    """``wait_s`` is long: the member still holds its records when the signal comes."""
    queue = Queue(cluster.name, 0)
    programs.write(wait_s=60.0)
    async with controlling(cluster) as (heard, says):
        member = programs.start("member", "--name", "m")
        await own("m", queue, heard, says)
        await cluster.produce(queue, 200)
        async with asyncio.timeout(PATIENCE_S):
            has_read = 0.0
            while not has_read:
                for each in await heard.take(0.1):
                    has_read += sum(held.bytes_per_s for held in getattr(each.message, "held", ()))
        folder = programs.folder / "sink" / queue.topic / f"{queue.topic}-0"
        member.signal(signal.SIGTERM)
        assert await ended(member) == run.DONE
        kept = [line.offset for line in reading.records(folder)]
        assert kept == [*range(len(kept))]
        assert kept
        last = None
        while received := await heard.take(0.5):
            last = received[-1].message
        assert isinstance(last, Bye)
        assert last.name == "m"
    assert await cluster.logs().committed(cluster.name, [queue]) == {queue: len(kept)}
    assert "ending after the records already read" in member.said()
    assert "Traceback" not in member.said()


async def test_a_member_without_kafka_goes_on_trying_and_ends_when_it_is_told(tmp_path: Path) -> None:
    programs = Programs(tmp_path, "nobody", "127.0.0.1:1")
    programs.write(timeout_s=1.0)
    member = programs.start("member")
    try:
        await said(member, "Kafka at 127.0.0.1:1: cannot connect")
        await said(member, "cannot connect")
        member.signal(signal.SIGTERM)
        assert await ended(member) == run.DONE
    finally:
        await programs.end()


async def test_a_second_controller_ends_the_first_one(programs: Programs) -> None:
    first = programs.start("controller")
    await said(first, "term 1: asking members")
    second = programs.start("controller", "--journal", "journal.jsonl")
    assert await ended(first) == run.RESIGNED
    assert "a newer controller has begun" in first.said()
    assert "Traceback" not in first.said()
    await said(second, "asking members")
    second.signal(signal.SIGINT)
    assert await ended(second) == run.DONE
    notes = [orjson.loads(line) for line in (programs.folder / "journal.jsonl").read_bytes().splitlines()]
    assert notes[0]["event"] == "synchronizing"
    assert set(notes[0]) == {"time_s", "unix_ms", "event", "words"}


async def test_all_in_one_shows_what_it_measures_and_ends_in_order(cluster: Cluster, programs: Programs) -> None:
    programs.write(port=0)
    program = programs.start("all", "--watch")
    url = (await said(program, "pages and metrics: ")).partition("metrics: ")[2].strip()
    async with aiohttp.ClientSession(url, timeout=aiohttp.ClientTimeout(PATIENCE_S)) as http:
        queues = wanted = 0
        async with asyncio.timeout(PATIENCE_S):
            while not (queues == 2 and wanted == 1):
                await cluster.produce(Queue(cluster.name, 0), 1)
                async with http.get("picture.json") as answer:
                    found = await answer.json()
                queues, wanted = int(found["heading"].partition(" queues")[0].split()[-1]), found["wanted"]
        async with http.get("healthz") as answer:
            assert answer.status == 200
    program.signal(signal.SIGTERM)
    assert await ended(program) == run.DONE
    assert "Traceback" not in program.said()


async def test_a_monitor_ends_in_order(cluster: Cluster, programs: Programs) -> None:
    monitor = programs.start("monitor")
    async with incoming(cluster.options, f"{cluster.name}.speeds") as heard, asyncio.timeout(PATIENCE_S):
        logs = cluster.logs()
        while not (await logs.partitions([f"{cluster.name}.speeds"]))[f"{cluster.name}.speeds"]:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        await heard.read_from({0: 0})
        while not await heard.take(0.1):
            pass
    monitor.signal(signal.SIGTERM)
    assert await ended(monitor) == run.DONE
    assert "Traceback" not in monitor.said()


async def test_a_dry_run_says_what_would_be_done(cluster: Cluster, programs: Programs) -> None:
    program = programs.start("all", "--dry-run")

    async def produce() -> None:
        while True:
            await cluster.produce(Queue(cluster.name, 0), 5)
            await asyncio.sleep(0.05)

    producing = asyncio.create_task(produce())
    try:
        await said(program, "^would decide: ")
    finally:
        producing.cancel()
        await asyncio.wait([producing], timeout=PATIENCE_S)
    program.signal(signal.SIGTERM)
    assert await ended(program) == run.DONE
    topics = await cluster.admin.list_topics()
    assert f"{cluster.name}.metadata" not in topics


async def test_a_port_that_is_taken_is_said(programs: Programs) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        programs.write(port=port)
        program = programs.start("controller")
        assert await ended(program) == run.FAILED
    assert f"[web] 127.0.0.1, port {port}: Address already in use; set another address" in program.said()
    assert "Traceback" not in program.said()


async def test_a_journal_on_a_full_disk_ends_nothing(cluster: Cluster, programs: Programs) -> None:
    program = programs.start("controller", "--journal", "/dev/full")
    assert "the journal /dev/full: No space left on device" in await said(program, "cannot write")
    # It continues: a member that says hello gets a number.
    async with controlling(cluster) as (heard, says):
        await says.send(0, Hello("m", "nonce", 0.0))
        async with asyncio.timeout(PATIENCE_S):
            while not any(isinstance(each.message, Welcome) for each in await heard.take(0.1)):
                pass
    program.signal(signal.SIGTERM)
    assert await ended(program) == run.DONE
    assert program.said().count("cannot write all lines") == 1


async def test_a_journal_that_cannot_be_written_is_said(programs: Programs) -> None:
    program = programs.start("controller", "--journal", "absent/journal.jsonl")
    assert await ended(program) == run.FAILED
    assert "absent/journal.jsonl" in program.said()
    assert "Traceback" not in program.said()


@pytest.mark.parametrize("part", ["controller", "monitor", "member"])
async def test_a_file_that_is_named_and_not_there_is_a_mistake_in_the_file(programs: Programs, part: str) -> None:
    programs.write()
    file = programs.folder / "group.toml"
    lines = 'security = "sasl_plaintext"\nuser = "u"\npassword_file = "absent"\n[monitor]\n'
    file.write_text(file.read_text(encoding="utf-8").replace("[monitor]\n", lines), encoding="utf-8")
    program = programs.start(part)
    assert await ended(program) == run.USAGE
    assert "[kafka] password_file" in program.said()
    assert "Traceback" not in program.said()


def test_a_member_has_the_name_of_its_scaler_or_one_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(run.NAME_VARIABLE, "pod-1")
    assert run.member_name() == "pod-1"
    monkeypatch.delenv(run.NAME_VARIABLE)
    assert run.member_name().startswith(f"{socket.gethostname()}-{os.getpid()}-")
