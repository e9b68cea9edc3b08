"""The processes of the generator: signals reach them only through their coordinator, and none is left."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import psutil
import pytest

from ingeborg.loadgen.coordinator import crew as crews
from ingeborg.loadgen.coordinator.crew import Crew
from ingeborg.loadgen.process.assignment import Assignment
from ingeborg.loadgen.process.worker import loop_factory
from ingeborg.loadgen.workloads.settings import Traffic


def crew_of(path: Path, processes: int = 2) -> Crew:
    """Return a crew whose processes start, and do nothing: there is no server."""
    assignment = Assignment(
        clients="c",
        tag="t",
        system="ingeborg",
        urls=["ws://127.0.0.1:9"],
        directory=str(path),
        workload="traffic",
        settings=dataclasses.asdict(Traffic(topics=5)),
        duplicates=0.0,
        processes=processes,
    )
    return Crew(assignment)


def run(work: Callable[[], Awaitable[None]]) -> None:
    """Run on the loop that `loadgen` uses."""

    async def within() -> None:
        async with asyncio.timeout(60):
            await work()

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(within())


def test_a_signal_to_the_whole_group_reaches_none_of_them(tmp_path: Path) -> None:
    async def work() -> None:
        async with crew_of(tmp_path) as crew:
            assert {os.getsid(pid) for pid in crew.pids} == set(crew.pids)
            assert {os.getpgid(pid) for pid in crew.pids} == set(crew.pids)

    run(work)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_each_of_them_changes_nothing(tmp_path: Path, number: signal.Signals) -> None:
    async def work() -> None:
        async with crew_of(tmp_path) as crew:
            for pid in crew.pids:
                os.kill(pid, number)
            await crew.do("give_up")  # every process answers

    run(work)


def test_a_cut_that_comes_after_their_end_is_no_error(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    async def work() -> None:
        async with crew_of(tmp_path) as crew:
            pass
        crew.cut()

    run(work)
    assert capfd.readouterr().err == ""


def test_who_is_cancelled_leaves_none_of_them_and_waits_for_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crews, "_CLOSE_TIMEOUT_S", 600)
    processes: list[psutil.Process] = []

    async def work() -> None:
        async with crew_of(tmp_path) as crew:
            processes.extend(map(psutil.Process, crew.pids))
            processes[0].send_signal(signal.SIGSTOP)
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        run(work)
    assert not any(process.is_running() for process in processes)


def test_who_is_cancelled_while_they_end_leaves_none_of_them(tmp_path: Path) -> None:
    processes: list[psutil.Process] = []

    async def work() -> None:
        async with crew_of(tmp_path) as crew:
            processes.extend(map(psutil.Process, crew.pids))
            processes[0].send_signal(signal.SIGSTOP)
            task = asyncio.current_task()
            assert task is not None
            # On leaving this block, the first step of the orderly end is to wait.
            asyncio.get_running_loop().call_soon(task.cancel)

    with pytest.raises(asyncio.CancelledError):
        run(work)
    for process in processes:
        process.wait(10)


@pytest.mark.parametrize("said", [b"", b'{"clients": "c'])
async def test_one_whose_coordinator_ends_before_it_has_said_all_ends_in_silence(said: bytes) -> None:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "ingeborg.loadgen.process.worker"), stdin=pipe, stdout=pipe, stderr=pipe
    )
    async with asyncio.timeout(60):
        out, errors = await process.communicate(said)
    assert (process.returncode, out, errors) == (1, b"", b"")
