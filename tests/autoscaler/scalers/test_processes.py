"""Members as real processes of a program that knows only signals."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import psutil
import pytest

from ingeborg.autoscaler.scalers import processes, recognising
from ingeborg.autoscaler.scalers.base import Running, ScalerError
from ingeborg.autoscaler.scalers.processes import LASTING_S, PAUSE_S_MAX, Ended, ProcessScaler

from .contract import PATIENCE_S, ScalerContract, World

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = Path(__file__).with_name("member.py")
GRACE_S = 60.0


class Clock:
    """A clock that only the test moves."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


class Machine(World):
    """A world with processes. ``program``: a copy of the member's program, which identifies this test's processes."""

    def __init__(self, folder: Path) -> None:
        self.clock = Clock()
        self.folder = folder / "members"
        self.program = folder / "member.py"
        self.program.write_bytes(PROGRAM.read_bytes())

    def scaler(self, kind: str = "patient", group: str = "orders", **how: Any) -> ProcessScaler:
        # -I -S: starts in a fifth of the time.
        command = how.pop("command", (sys.executable, "-I", "-S", str(self.program), kind))
        return ProcessScaler(command, self.folder, GRACE_S, group, clock=self.clock, **how)

    async def settle(self) -> None:
        """Wait until members have started, and ending ones have ended."""
        await until(lambda: all(self.is_up(each["name"]) or self.is_gone(each) for each in self.records()))
        await until(lambda: all(self.is_gone(each) for each in self.records() if each["told_s"] is not None))

    async def breaks(self) -> None:
        """Write into the folder, as another program would."""
        (self.folder / "other.json").write_text("{}")

    def records(self) -> list[dict[str, Any]]:
        """Return the content of the files ``NAME.json``."""
        return [orjson.loads(file.read_bytes()) for file in sorted(self.folder.glob("*.json"))]

    def record(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = orjson.loads((self.folder / f"{name}.json").read_bytes())
        return found

    def write(self, record: dict[str, Any]) -> None:
        (self.folder / f"{record['name']}.json").write_bytes(orjson.dumps(record))

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def is_up(self, name: str) -> bool:
        """Wait until the member has printed ``up``: from then on it handles signals."""
        file = self.folder / f"{name}.log"
        return file.exists() and file.read_text().startswith("up ")

    @staticmethod
    def is_gone(record: dict[str, Any]) -> bool:
        seen = recognising.look(record["pid"])
        return seen is None or seen.has_ended or seen.started != record["started"]

    def processes(self) -> list[psutil.Process]:
        """Return all processes of this test that have not ended."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if any(str(self.program) in each for each in process.cmdline()):
                    found.append(process)
        return found

    async def members(self, scaler: ProcessScaler, count: int) -> list[str]:
        """Start this number of members, and wait until they are up."""
        await scaler.scale(count, ())
        await self.settle()
        return sorted(await self.reached(scaler, count))


async def until(condition: Callable[[], Any]) -> None:
    """Poll until the condition holds, because the processes are not our children."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            if condition():
                return
            await asyncio.sleep(0.005)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path)
    yield machine
    for process in machine.processes():
        with suppress(psutil.Error):
            process.kill()
        with suppress(ChildProcessError):
            os.waitpid(process.pid, 0)
    with suppress(ValueError):  # a test may have written something else there
        for pid in [record["pid"] for record in machine.records() if record.get("pid")]:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


@pytest.fixture
async def stranger() -> AsyncIterator[asyncio.subprocess.Process]:
    """Start a process that is not a member; it runs until its standard input ends. Members that start later have a
    later start time, which the system counts in ticks."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", "-c", "input()"), stdin=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    later = time.monotonic() + 2 / os.sysconf("SC_CLK_TCK")
    await until(lambda: time.monotonic() > later)
    yield process
    if process.returncode is None:
        process.kill()
    await process.wait()


class TestProcesses(ScalerContract):
    """The contract."""


async def test_a_member_is_told_its_name_which_nobody_else_has(world: Machine) -> None:
    names = await world.members(world.scaler(), 3)
    host = re.escape(socket.gethostname().partition(".")[0][:30])
    assert len(set(names)) == 3
    for name in names:
        assert re.fullmatch(rf"orders-{host}-[0-9a-f]{{6}}", name)
        # It has its own session, and no input.
        assert world.log(name) == f"up patient --name {name} True True\n"


async def test_the_longest_names_are_names_of_files(world: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "a_b" * 80)
    [name] = await world.members(world.scaler(group="g" * 200), 1)
    assert name.startswith("g" * 200 + "-a-ba-b")
    assert len(name) <= 253


async def test_members_survive_the_death_of_their_autoscaler(world: Machine) -> None:
    """A separate process starts two members and is killed. The next one finds them, and they are not its children."""
    source = (
        "import asyncio, os, signal, sys; from pathlib import Path\n"
        "from ingeborg.autoscaler.scalers.processes import ProcessScaler\n"
        f"scaler = ProcessScaler({[sys.executable, '-I', '-S', str(world.program), 'patient']!r}, "
        f"Path({str(world.folder)!r}), 60.0, 'orders')\n"
        "asyncio.run(scaler.scale(2, ()))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    autoscaler = await asyncio.create_subprocess_exec(sys.executable, "-c", source, env=environment)
    async with asyncio.timeout(PATIENCE_S):
        assert await autoscaler.wait() == -signal.SIGKILL
    scaler = world.scaler()
    await world.settle()
    running = await scaler.running()
    assert running.count == 2
    assert running.names is not None
    [first, second] = sorted(running.names)
    await scaler.scale(1, [first])
    assert await world.reached(scaler, 1) == {second}
    # The exit code of another process's child is unknown here.
    os.kill(world.record(second)["pid"], signal.SIGKILL)
    await world.reached(scaler, 0)
    assert scaler.ended == [Ended(second, None, (f"up patient --name {second} True True",))]


async def test_a_number_that_is_used_again_is_no_member(world: Machine, stranger: asyncio.subprocess.Process) -> None:
    scaler = world.scaler()
    [name] = await world.members(scaler, 1)
    record = world.record(name)
    os.kill(record["pid"], signal.SIGKILL)
    await until(lambda: world.is_gone(record))
    # As after a reboot, another process has the number now.
    world.write({**record, "pid": stranger.pid})
    assert await world.scaler().running() == Running(0, frozenset())
    # The scaler also does not kill it for a member whose grace is over.
    world.write({**record, "pid": stranger.pid, "told_s": 0.0})
    later = world.scaler()
    assert await later.running() == Running(0, frozenset())
    assert later.ended == []
    assert stranger.returncode is None
    seen = recognising.look(stranger.pid)
    assert seen is not None
    assert not seen.has_ended
    assert world.records() == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, -9), (signal.SIGTERM, 0)])
async def test_a_member_that_ends_by_itself_is_told_of_and_replaced(
    world: Machine, number: signal.Signals, code: int
) -> None:
    scaler = world.scaler()
    [first, second] = await world.members(scaler, 2)
    world.clock.now_s += LASTING_S
    record = world.record(first)
    os.kill(record["pid"], number)
    await until(lambda: world.is_gone(record))
    assert await scaler.running() == Running(1, frozenset({second}))
    assert scaler.ended == [Ended(first, code, (f"up patient --name {first} True True",))]
    assert not psutil.pid_exists(record["pid"])  # the process is gone
    assert second in await world.members(scaler, 2)
    assert len(scaler.ended) == 1


async def test_a_member_that_was_told_to_end_is_not_told_of(world: Machine) -> None:
    scaler = world.scaler()
    [first, second] = await world.members(scaler, 2)
    pid = world.record(first)["pid"]
    await scaler.scale(1, [first])
    assert await world.reached(scaler, 1) == {second}
    await until(lambda: not psutil.pid_exists(pid))
    assert scaler.ended == []


async def test_of_those_that_ended_the_newest_are_remembered(world: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "ENDED_KEPT", 2)
    monkeypatch.setattr(processes, "LOGS_KEPT", 1)
    scaler = world.scaler()
    names = await world.members(scaler, 3)
    for number, name in enumerate(names, 1):
        record = world.record(name)
        os.kill(record["pid"], signal.SIGKILL)
        await until(partial(world.is_gone, record))
        os.utime(world.folder / f"{name}.log", (number, number))  # the clock of files may not tell them apart
        await scaler.running()
    assert [each.name for each in scaler.ended] == names[1:]
    assert [file.name for file in world.folder.iterdir()] == [f"{names[-1]}.log"]


async def test_sigkill_comes_after_grace_whoever_is_there_to_send_it(
    world: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    first = world.scaler("stubborn")
    [name] = await world.members(first, 1)
    await first.scale(0, [name])
    record = world.record(name)
    assert record["told_s"] == world.clock.now_s
    world.clock.now_s += GRACE_S - 1
    second = world.scaler("stubborn")
    assert await second.running() == Running(0, frozenset())
    assert not world.is_gone(record)
    world.clock.now_s += 1
    with caplog.at_level(logging.WARNING, "ingeborg.autoscale"):
        await second.scale(0, ())
    await until(lambda: world.is_gone(record))
    await second.running()
    assert (world.records(), second.ended) == ([], [])
    assert [each.getMessage() for each in caplog.records] == [
        f"member {name} has not ended 60 s after SIGTERM, so it gets SIGKILL"
    ]


async def test_a_member_that_ends_takes_what_it_started_with_it(world: Machine) -> None:
    """The command can be a shell script, for example."""
    line = f'{sys.executable} -I -S {world.program} patient "$@" & wait'
    scaler = world.scaler(command=("/bin/sh", "-c", line, "sh"))
    await scaler.scale(1, ())
    await until(lambda: all(world.is_up(each["name"]) for each in world.records()))
    assert len(world.processes()) == 2
    await scaler.scale(0, [each["name"] for each in world.records()])
    await until(lambda: not world.processes())


async def test_a_command_that_is_not_there_is_told_and_tried_ever_more_seldom(world: Machine, tmp_path: Path) -> None:
    command = str(tmp_path / "nowhere")
    scaler = world.scaler(command=(command,))
    tried = []
    for _ in range(400):
        with pytest.raises(ScalerError) as error:
            await scaler.scale(3, ())
        tried.append(re.search(r"failed (\S+)", str(error.value)))
        world.clock.now_s += 1.0
    assert str(error.value).startswith(
        f"fewer than 3 members run: '{command}' cannot be started (No such file or directory): "
        "correct [scaler] command; "
    )
    # Attempts at 0, 1, 3, 7, 15, 31, 63, and then each minute.
    counts = [found[1] for found in tried if found is not None]
    assert [counts.index(each) for each in dict.fromkeys(counts)] == [0, 1, 3, 7, 15, 31, 63, 123, 183, 243, 303, 363]
    assert re.search(r"next attempt in (\d+) s$", str(error.value)) is not None
    assert list(world.folder.iterdir()) == []
    # An operator creates the file.
    (tmp_path / "nowhere").write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {world.program} patient "$@"\n')
    (tmp_path / "nowhere").chmod(0o755)
    world.clock.now_s += PAUSE_S_MAX
    await scaler.scale(1, ())
    await world.reached(scaler, 1)


async def test_a_file_that_is_no_program_is_told(world: Machine, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    with pytest.raises(ScalerError, match=r"cannot be started \(Permission denied\): correct \[scaler\] command"):
        await world.scaler(command=(str(tmp_path / "text"),)).scale(1, ())


async def test_members_that_end_at_once_are_no_storm(world: Machine) -> None:
    scaler = world.scaler("failing")
    started: set[str] = set()
    at: list[float] = []
    text = ""
    begin_s = world.clock.now_s
    while world.clock.now_s < begin_s + 200:
        with suppress(ScalerError):
            await scaler.scale(3, ())
        new = {each["name"] for each in world.records()} - started
        started |= new
        at += [world.clock.now_s - begin_s] * len(new)
        await until(lambda: all(world.is_gone(each) for each in world.records()))
        world.clock.now_s += 1.0
        try:
            await scaler.scale(0, ())
        except ScalerError as error:
            text = str(error)
    with pytest.raises(ScalerError) as told:
        await scaler.scale(3, ())
    # Three at first; then one at a time, after 1 s, 2 s, … 60 s.
    assert at[:3] == [0.0, 0.0, 0.0]
    assert len(at) <= 3 + 9
    assert text == ""  # none is wanted, none is wanting
    assert re.fullmatch(
        r"fewer than 3 members run: member orders-\S+ ended right after its start, with exit code 3 and these last "
        r"lines: there is no topic orders; failed \d times in a row, next attempt in \d+ s",
        str(told.value),
    )
    assert {each.code for each in scaler.ended} == {3}
    assert len(scaler.ended) == len(at)


async def test_when_what_was_wrong_is_mended_all_are_started(world: Machine) -> None:
    scaler = world.scaler("failing")
    await scaler.scale(2, ())
    await until(lambda: all(world.is_gone(each) for each in world.records()))
    with pytest.raises(ScalerError, match="failed once, next attempt in 1 s"):
        await scaler.scale(2, ())
    world.program.with_name("mended").touch()
    world.clock.now_s += 1.0
    with pytest.raises(ScalerError, match="fewer than 5 members run"):
        await scaler.scale(5, ())
    assert len(world.records()) == 1  # one for the operator to inspect
    await world.settle()
    world.clock.now_s += LASTING_S
    assert len(await world.members(scaler, 5)) == 5


async def test_groups_may_share_a_folder(world: Machine) -> None:
    orders, others = world.scaler(group="a"), world.scaler(group="a-b")
    mine = await world.members(orders, 2)
    theirs = await world.members(others, 1)
    assert await orders.running() == Running(2, frozenset(mine))
    await orders.scale(0, theirs)
    await world.stays(others, frozenset(theirs))


async def test_a_death_between_note_and_start_leaves_nothing_and_nobody(world: Machine) -> None:
    scaler = world.scaler()
    [first, second] = await world.members(scaler, 2)
    record = world.record(first)
    # The process was started, and its autoscaler died before it could write its number.
    world.write({**record, "pid": None, "started": ""})
    # This process was never started.
    world.write({**record, "name": "orders-here-000000", "pid": None, "started": ""})
    later = world.scaler()
    assert await later.running() == Running(2, frozenset({first, second}))
    assert world.record(first) == record
    assert len(world.records()) == 2


async def test_what_somebody_else_wrote_is_told(world: Machine) -> None:
    world.folder.mkdir()
    for text in ("", "[]", '{"name": "a"}', "\xff"):
        (world.folder / "a.json").write_text(text, encoding="latin-1")
        with pytest.raises(ScalerError, match=r"members/a\.json was not written by an autoscaler: remove it, or"):
            await world.scaler().running()


async def test_a_folder_that_cannot_be_one_is_told(world: Machine) -> None:
    world.folder.write_text("a file")
    with pytest.raises(ScalerError, match=r"^cannot manage members: .*/members: File exists$"):
        await world.scaler().running()


async def test_a_long_log_is_cut_and_written_on(world: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    scaler = world.scaler()
    [name] = await world.members(scaler, 1)
    monkeypatch.setattr(processes, "LOG_BYTES_MAX", 1_000)
    with (world.folder / f"{name}.log").open("a") as log:
        log.write("x" * 5_000 + "\nthe end\n")
    await scaler.running()
    assert world.log(name) == ""
    assert (world.folder / f"{name}.log.old").read_text() == "x" * 991 + "\nthe end\n"
    os.kill(world.record(name)["pid"], signal.SIGUSR1)
    await until(lambda: world.log(name) == "once more\n")
    # Without room for its end, the log is cut anyway.
    monkeypatch.setattr(processes, "LOG_BYTES_MAX", 5)
    (world.folder / f"{name}.log.old").unlink()
    (world.folder / f"{name}.log.old").mkdir()
    assert (await scaler.running()).count == 1
    assert world.log(name) == ""


async def test_a_folder_that_does_not_answer_is_not_waited_for(world: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    scaler = world.scaler()
    asked, answers = threading.Event(), threading.Event()
    members = scaler._members

    def hang() -> Any:
        asked.set()
        assert answers.wait(PATIENCE_S)
        return members()

    monkeypatch.setattr(scaler, "_members", hang)
    monkeypatch.setattr(processes, "PATIENCE_S", 0.05)
    for _ in range(2):
        with pytest.raises(ScalerError, match=r"does not answer within 0\.05 s"):
            await scaler.running()
    assert asked.is_set()
    monkeypatch.setattr(scaler, "_members", members)
    monkeypatch.setattr(processes, "PATIENCE_S", PATIENCE_S)
    answers.set()
    assert await scaler.running() == Running(0, frozenset())


async def test_calls_at_once_take_their_turns(world: Machine) -> None:
    scaler = world.scaler()
    await asyncio.gather(*(scaler.scale(2, ()) for _ in range(5)))
    assert len(await world.members(scaler, 2)) == 2
    assert len(world.processes()) == 2


async def test_a_call_that_is_given_up_does_no_harm(world: Machine) -> None:
    scaler = world.scaler()
    for _ in range(5):
        task = asyncio.ensure_future(scaler.scale(2, ()))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
    assert len(await world.members(scaler, 2)) == 2


async def test_what_may_not_be_signalled_is_told(world: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    scaler = world.scaler()
    [name] = await world.members(scaler, 1)

    def refuse(pid: int, number: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "killpg", refuse)
    with pytest.raises(
        ScalerError, match=rf"no permission to send SIGTERM to member {name}, process \d+: run the autoscaler"
    ):
        await scaler.scale(0, [name])
    monkeypatch.undo()


async def test_a_record_is_written_whole_and_for_its_readers(world: Machine) -> None:
    scaler = world.scaler()
    [name] = await world.members(scaler, 1)
    record = world.record(name)
    assert set(record) == {each.name for each in dataclasses.fields(processes._Record)}
    assert (record["group"], record["name"], record["told_s"]) == ("orders", name, None)
    assert record["since_s"] == world.clock.now_s
    assert not list(world.folder.glob("*.new"))
    assert stat.S_IMODE((world.folder / f"{name}.log").stat().st_mode) & 0o022 == 0
