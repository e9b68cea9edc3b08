"""The files sink: the contract, its time limit, its errors, members that are cut off anywhere, real processes."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

import pytest
import pytest_asyncio
from hypothesis import given, settings
from hypothesis import strategies as st

from ingeborg.autoscaler.sinks.base import Place, Record, RefusedError, Sink, SinkError
from ingeborg.autoscaler.sinks.chain import partition_folder
from ingeborg.autoscaler.sinks.files import OLD_S, THREADS, FilesSink
from ingeborg.autoscaler.sinks.lines import Line
from ingeborg.autoscaler.sinks.reading import Ownership, Refusal, owners, records, refusals
from ingeborg.bench.starting import Child, awaited, python

from .contract import SinkContract
from .stages import PATIENCE_S, PLACE, TAKEN, Hold, Once, WatchedDisk, batch, lines
from .stepping import Call, SteppedThreads

NOW_S = 1_700_000_000.0


def folder_of(root: Path, place: Place = PLACE) -> Path:
    return partition_folder(root, place.table, place.topic, place.partition)


def entries(folder: Path) -> list[str]:
    """Return the names of all files inside."""
    return sorted(path.name for path in folder.iterdir())


def broken(number: int) -> OSError:
    return OSError(number, os.strerror(number))


class FilesStage:
    """A folder. Each sink has its own disk object for it, as each process would."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._disks: dict[Sink, WatchedDisk] = {}

    def sink(self) -> FilesSink:
        disk = WatchedDisk()
        sink = FilesSink(self.root, PATIENCE_S, now_s=lambda: NOW_S, disk=disk)
        self._disks[sink] = disk
        return sink

    def hold(self, sink: Sink) -> Hold:
        hold = Hold()
        Once(self._disks[sink], "publish", hold.stop)
        return hold

    def fail(self, sink: Sink) -> None:
        self._raise_at(sink, "draft")

    def lose(self, sink: Sink) -> None:
        self._raise_at(sink, "sync")  # the link exists

    def _raise_at(self, sink: Sink, step: str) -> None:
        def fail() -> None:
            raise broken(errno.ENOSPC)

        Once(self._disks[sink], step, fail)

    def kept(self, place: Place) -> list[Line]:
        return list(records(folder_of(self.root, place)))

    async def close(self) -> None:
        for sink in self._disks:
            await sink.close()


@pytest_asyncio.fixture
async def stage(tmp_path: Path) -> AsyncIterator[FilesStage]:
    made = FilesStage(tmp_path)
    yield made
    await made.close()


class TestContract(SinkContract):
    """The contract of every sink."""


# Refusals are counted


async def test_each_refused_batch_is_counted(stage: FilesStage) -> None:
    old = stage.sink()
    await old.open(PLACE)
    await stage.sink().open(TAKEN)
    for size in (3, 1):
        with pytest.raises(RefusedError):
            await old.append(PLACE, batch(0, size))
    time_ms = int(NOW_S * 1_000)
    assert refusals(stage.root) == [Refusal(time_ms, "web", 3, 7, 8, "m-1", size) for size in (3, 1)]


async def test_a_refusal_that_cannot_be_counted_is_logged_and_stands(
    stage: FilesStage, caplog: pytest.LogCaptureFixture
) -> None:
    old = stage.sink()
    await old.open(PLACE)
    await stage.sink().open(TAKEN)
    (stage.root / "refused.jsonl").mkdir()
    with pytest.raises(RefusedError):
        await old.append(PLACE, batch(0, 3))
    assert "cannot record a refused batch" in caplog.text


# Time limit


class SlowStage:
    """A sink whose disk blocks a step for longer than the sink waits."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.disk = WatchedDisk()
        self.sink = FilesSink(root, PATIENCE_S, disk=self.disk)

    async def given_up(self, step: str, records: Sequence[Record]) -> tuple[Hold, FilesSink]:
        """Run an ``append`` that blocks at the step until its time is over."""
        hold = Hold()
        Once(self.disk, step, hold.stop)
        with mock.patch.object(self.sink, "_timeout_s", 0.05), pytest.raises(SinkError, match="has not answered in"):
            await self.sink.append(PLACE, records)
        await hold.reached()
        return hold, self.sink


async def ended(sink: FilesSink) -> None:
    """Wait until the sink's threads have ended."""
    await sink.close()
    await asyncio.wait_for(asyncio.to_thread(sink._threads.shutdown, wait=True), PATIENCE_S)


@pytest.mark.parametrize("step", ["names", "draft", "publish", "sync", "remove"])
@pytest.mark.parametrize("first_goes_on", ["before", "between", "after"])
async def test_a_batch_that_was_given_up_is_kept_once_whenever_its_thread_goes_on(
    tmp_path: Path, step: str, first_goes_on: str
) -> None:
    stage = SlowStage(tmp_path)
    await stage.sink.open(PLACE)
    await stage.sink.append(PLACE, batch(0, 2))
    hold, sink = await stage.given_up(step, batch(2, 4))
    if first_goes_on == "before":
        hold.release()
    await sink.append(PLACE, batch(2, 4))
    if first_goes_on == "between":
        hold.release()
    await sink.append(PLACE, batch(4, 6))
    hold.release()
    await ended(sink)
    assert list(records(folder_of(tmp_path))) == lines(PLACE, batch(0, 6))


async def test_a_batch_that_was_given_up_is_not_kept_behind_the_next_owner(tmp_path: Path) -> None:
    stage = SlowStage(tmp_path)
    await stage.sink.open(PLACE)
    hold, sink = await stage.given_up("publish", batch(0, 2))
    other = FilesSink(tmp_path)
    assert await other.open(TAKEN) is None
    await other.append(TAKEN, batch(0, 3))
    hold.release()
    await ended(sink)
    await ended(other)
    assert list(records(folder_of(tmp_path))) == lines(TAKEN, batch(0, 3))
    assert [each.records for each in refusals(tmp_path)] == [2]


async def test_a_cancelled_batch_leaves_the_number_unknown_as_well(tmp_path: Path) -> None:
    stage = SlowStage(tmp_path)
    await stage.sink.open(PLACE)
    hold = Hold()
    Once(stage.disk, "publish", hold.stop)
    task = asyncio.create_task(stage.sink.append(PLACE, batch(0, 2)))
    await hold.reached()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await stage.sink.append(PLACE, batch(0, 2))
    hold.release()
    await stage.sink.append(PLACE, batch(2, 3))
    await ended(stage.sink)
    assert list(records(folder_of(tmp_path))) == lines(PLACE, batch(0, 3))


async def test_calls_that_hang_hold_no_other_up_for_longer_than_its_limit(tmp_path: Path) -> None:
    hold = Hold()
    disk = WatchedDisk(lambda step, path: hold.stop())
    sink = FilesSink(tmp_path, 0.05, disk=disk)
    for number in range(THREADS + 2):
        with pytest.raises(SinkError, match=r"has not answered in 0.05 s: check its disk"):
            await sink.open(PLACE._replace(partition=number))
    hold.release()
    await ended(sink)


# Errors


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "No space left on device; free space on its disk"),
        (errno.EDQUOT, "free space in the quota"),
        (errno.EACCES, "Permission denied; let the members' user write there"),
        (errno.EROFS, "mount it writable"),
        (errno.ENOTSUP, "must support hard links"),
        (errno.EIO, "check its disk"),
        (errno.ETIMEDOUT, "check its disk"),
    ],
)
@pytest.mark.parametrize("step", ["draft", "publish", "sync"])
async def test_an_error_of_the_system_says_what_to_do_and_the_batch_can_be_sent_again(
    tmp_path: Path, step: str, number: int, words: str
) -> None:
    disk = WatchedDisk()
    sink = FilesSink(tmp_path, disk=disk)
    await sink.open(PLACE)

    def fail() -> None:
        raise broken(number)

    Once(disk, step, fail)
    with pytest.raises(SinkError, match=words):
        await sink.append(PLACE, batch(0, 2))
    await sink.append(PLACE, batch(0, 2))
    await sink.close()
    assert list(records(folder_of(tmp_path))) == lines(PLACE, batch(0, 2))


async def test_a_disk_that_is_full_for_long_gets_no_fences(tmp_path: Path) -> None:
    disk = WatchedDisk()
    sink = FilesSink(tmp_path, disk=disk)
    await sink.open(PLACE)
    before = entries(folder_of(tmp_path))

    def full(step: str, path: Path) -> None:
        if step == "draft":
            raise broken(errno.ENOSPC)

    disk.at = full
    for _ in range(3):
        with pytest.raises(SinkError):
            await sink.append(PLACE, batch(0, 2))
    await sink.close()
    assert entries(folder_of(tmp_path)) == before


async def test_a_folder_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    sink = FilesSink(tmp_path / "not" / "there")
    with pytest.raises(SinkError, match=r"No such file or directory; create the folder of \[sink\] folder, or mount"):
        await sink.open(PLACE)
    await sink.close()
    assert entries(tmp_path) == []


async def test_a_file_in_the_way_is_told(tmp_path: Path) -> None:
    (tmp_path / PLACE.table).touch()
    sink = FilesSink(tmp_path)
    with pytest.raises(SinkError, match="there is a file where a folder should be"):
        await sink.open(PLACE)
    await sink.close()


@pytest.mark.parametrize("table", ["", ".", "..", "a/b", "../up", "a\0b", "refused.jsonl"])
async def test_a_table_that_cannot_be_a_folder_is_refused_before_anything_is_made(tmp_path: Path, table: str) -> None:
    place = PLACE._replace(table=table)
    sink = FilesSink(tmp_path)
    with pytest.raises(SinkError, match=r"set another name in \[sink\] tables"):
        await sink.open(place)
    with pytest.raises(SinkError, match="a table cannot be called"):
        await sink.append(place, batch(0, 1))
    with pytest.raises(SinkError, match="a topic cannot be called"):
        await sink.open(PLACE._replace(topic=table))
    await sink.close()
    assert entries(tmp_path) == []


async def test_what_killed_writers_have_left_is_removed_when_it_is_old(tmp_path: Path) -> None:
    sink = FilesSink(tmp_path, now_s=lambda: NOW_S)
    await sink.open(PLACE)
    for name, age_s in ((".old", OLD_S + 1), (".young", OLD_S - 1)):
        (folder_of(tmp_path) / name).touch()
        os.utime(folder_of(tmp_path) / name, (NOW_S - age_s, NOW_S - age_s))
    await sink.open(TAKEN)
    await sink.close()
    assert [name for name in entries(folder_of(tmp_path)) if name.startswith(".")] == [".young"]


async def test_a_member_may_append_without_having_opened(tmp_path: Path) -> None:
    """A new sink gets each batch, as after a restart of a service with this sink behind it."""
    for first in (0, 2):
        sink = FilesSink(tmp_path)
        await sink.append(PLACE, batch(first, first + 2))
        await sink.close()
    assert list(owners(folder_of(tmp_path))) == [Ownership(7, "m-1", 0, 3, 4)]


# Members that are cut off anywhere


#: Steps where members meet, and where a member may have stored a batch without knowing. Between two such steps, a
#: member does at most one thing that another one sees.
STEPS = frozenset({"names", "publish", "sync", "last_line"})


@dataclass
class Member:
    """A member process, as in ``membership`` and the member's cycle. It opens, continues from the sink's offset,
    repeats a batch until it knows the outcome, and releases the partition after a refusal."""

    root: Path
    name: str
    epoch: int = 0
    next: int | None = None
    sending: list[Record] = field(default_factory=list)
    task: asyncio.Task[int | None] | None = None
    strays: list[Call] = field(default_factory=list)
    acknowledged: int = 0

    def __post_init__(self) -> None:
        self.threads = SteppedThreads(STEPS)
        self.sink = FilesSink(self.root, PATIENCE_S, disk=self.threads.disk, threads=self.threads)

    @property
    def place(self) -> Place:
        return PLACE._replace(epoch=self.epoch, member=self.name)

    def own(self, epoch: int) -> None:
        """Start at the controller's order. A call under way continues."""
        self.give_up()
        self.epoch, self.next, self.sending = epoch, None, []

    def give_up(self) -> None:
        """Let the time limit pass; the thread does not know."""
        if self.task is not None:
            self.task.cancel()
            self.task = None
            self.strays.append(self.threads.begun[-1])

    def die(self) -> None:
        """Kill the process, and restart it."""
        self.give_up()
        self.__post_init__()
        self.epoch, self.next, self.sending, self.strays = 0, None, [], []

    async def go(self, steps: int, size: int) -> None:
        """Run this many steps of the call under way; without one, begin the next call."""
        if self.task is None:
            if self.next is not None and not self.sending:
                self.sending = batch(self.next, self.next + size)
            self.task = asyncio.create_task(self._act())
            await asyncio.sleep(0)  # it begins
        call = self.threads.begun[-1]
        call.go(steps)
        if call.is_over:
            await self._over(self.task)
            self.task = None

    async def _act(self) -> int | None:
        if self.next is None:
            return await self.sink.open(self.place) or 0
        await self.sink.append(self.place, self.sending)
        return None

    async def _over(self, task: asyncio.Task[int | None]) -> None:
        try:
            found = await asyncio.wait_for(task, PATIENCE_S)
        except RefusedError:
            self.epoch, self.next, self.sending = 0, None, []
            return
        if self.next is None:
            self.next = found
        else:
            self.next = self.acknowledged = self.sending[-1].offset + 1
            self.sending = []


MEMBERS = 2
#: Two members in the middle of a call, a step apart, cause most errors, so the test draws these most often.
ACTS = st.tuples(
    st.sampled_from(["go"] * 8 + ["finish"] * 4 + ["give up", "stray", "own", "die"]),
    st.integers(0, MEMBERS - 1),
    st.sampled_from([1, 1, 1, 2, 2, 3, 3, 4, 5, 6, 7, 8]),
)


@settings(max_examples=120)
@given(st.lists(ACTS, min_size=30, max_size=80))
def test_whatever_is_cut_off_where_nothing_is_kept_twice_and_nothing_is_lost(acts: list[tuple[str, int, int]]) -> None:
    """Check the naive model of a partition: all offsets from 0 on, once each, with epochs that never fall."""
    root = Path(tempfile.mkdtemp())
    try:
        with mock.patch("ingeborg.autoscaler.sinks.disk.os.fsync"):  # this test has no crash of the machine
            asyncio.run(played(root, acts))
    finally:
        shutil.rmtree(root)


async def played(root: Path, acts: list[tuple[str, int, int]]) -> None:
    """Run the acts, let everything that was cut off end, then check the stored records."""
    members = [Member(root, f"m-{number}") for number in range(MEMBERS)]
    killed: list[Call] = []
    epoch = 1
    members[0].own(epoch)
    for act, number, steps in acts:
        member = members[number]
        match act:
            case "go" | "finish" if member.epoch:
                await member.go(steps if act == "go" else 1_000, 1 + steps % 3)
            case "go" | "finish" | "own":
                epoch += 1
                member.own(epoch)
            case "give up":
                member.give_up()
            case "stray" if member.strays:
                member.strays[steps % len(member.strays)].go(steps)
            case "die":
                member.give_up()
                killed += member.strays
                member.die()
    for member in members:
        member.give_up()
        for stray in member.strays:
            stray.go()
    last = Member(root, "last", epoch + 1)
    await last.go(1_000, 1)
    await last.go(1_000, 2)
    for call in killed:
        call.kill()

    kept = list(records(folder_of(root)))
    assert [line.offset for line in kept] == list(range(len(kept)))
    assert [line.epoch for line in kept] == sorted(line.epoch for line in kept)
    assert all(line[5:] == tuple(batch(line.offset, line.offset + 1)[0])[1:] for line in kept)
    assert len(kept) == last.acknowledged >= max(member.acknowledged for member in members)


# Real processes


def member(tmp_path: Path, step: str, end: str) -> Child:
    """Start ``member`` as a process, with the folder ``kept``."""
    (tmp_path / "kept").mkdir()
    command = python("tests.autoscaler.sinks.member", str(tmp_path / "kept"), step, end)
    return Child("a member", command, tmp_path / "log", stdin=subprocess.PIPE)


async def test_a_process_that_was_stopped_before_the_link_is_refused_when_it_goes_on(tmp_path: Path) -> None:
    root = tmp_path / "kept"
    child = member(tmp_path, "publish", "wait")
    try:
        await awaited(child.line("here", PATIENCE_S))
        child.signal(signal.SIGSTOP)
        other = FilesSink(root)
        assert await other.open(TAKEN) == 2
        await other.append(TAKEN, batch(2, 5))
        child.stdin.write(b"go on\n")
        child.stdin.flush()
        child.signal(signal.SIGCONT)
        await awaited(child.line("refused: there is epoch 8", PATIENCE_S))
        assert await awaited(child.ended(PATIENCE_S)) == 0
        await other.append(TAKEN, batch(5, 6))
        await other.close()
    finally:
        await awaited(child.end())
    assert list(owners(folder_of(root))) == [Ownership(7, "m-1", 0, 1, 2), Ownership(8, "m-2", 2, 5, 4)]
    assert [refusal[1:] for refusal in refusals(root)] == [("web", 3, 7, 8, "m-1", 2)]


@pytest.mark.parametrize(("step", "next_offset"), [("draft", 2), ("publish", 2), ("sync", 4), ("remove", 4)])
async def test_a_process_that_is_killed_leaves_whole_batches(tmp_path: Path, step: str, next_offset: int) -> None:
    root = tmp_path / "kept"
    child = member(tmp_path, step, "die")
    try:
        assert await awaited(child.ended(PATIENCE_S)) == -signal.SIGKILL
    finally:
        await awaited(child.end())
    other = FilesSink(root)
    assert await other.open(TAKEN) == next_offset
    await other.append(TAKEN, batch(next_offset, 6))
    await other.close()
    kept = list(records(folder_of(root)))
    assert kept == lines(PLACE, batch(0, next_offset)) + lines(TAKEN, batch(next_offset, 6))
