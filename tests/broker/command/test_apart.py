"""A command in a separate process: the end of one is the end of the other, and a death by damage is explained."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ingeborg.broker.command import apart

from ..running import PATIENCE_S, Process, alive, children, started_by

#: Runs the work apart, and reports afterwards: nothing from the child may come back from ``run``.
PROGRAM = """
import os, signal, sys, time
from pathlib import Path
from ingeborg.broker.command import apart

def work():
    print("ready", flush=True)
    %s

code = apart.run("export", Path("/the/store"), work)
print("back", flush=True)
sys.exit(code)
"""


@asynccontextmanager
async def working(work: str, directory: Path) -> AsyncIterator[Process]:
    async with started_by([sys.executable, "-c", PROGRAM % work], directory) as process:
        await process.line("ready")
        yield process


@pytest.mark.parametrize(
    ("work", "code"), [("return 0", 0), ("return 7", 7), ("raise KeyboardInterrupt", 130), ("1 / 0", 1)]
)
async def test_the_exit_code_is_the_works(tmp_path: Path, work: str, code: int) -> None:
    async with working(work, tmp_path) as process:
        assert await process.ended() == code
        assert ("ZeroDivisionError" in process.said()) is (work == "1 / 0")
        assert "damaged" not in process.said()


@pytest.mark.parametrize("number", [signal.SIGBUS, signal.SIGSEGV, signal.SIGABRT])
async def test_a_death_of_damage_is_told_with_what_to_do(tmp_path: Path, number: signal.Signals) -> None:
    async with working(f"os.kill(os.getpid(), {int(number)}); time.sleep(60)", tmp_path) as process:
        assert await process.ended() == 1
        assert "ingeborg export: the store in /the/store is damaged, or its disk fails: " in process.said()
        assert f"died of {number.name}\n" in process.said()
        assert "`ingeborg doctor --store lmdb:/the/store` names the damaged file" in process.said()


async def test_another_death_is_no_damage(tmp_path: Path) -> None:
    async with working("os.kill(os.getpid(), signal.SIGKILL); time.sleep(60)", tmp_path) as process:
        assert await process.ended() == -signal.SIGKILL
        assert process.said() == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_ends_both(tmp_path: Path, number: signal.Signals) -> None:
    async with working("time.sleep(60)", tmp_path) as process:
        (child,) = children(process.pid)
        assert await process.end(number) == (130 if number is signal.SIGINT else -number)
        assert not alive(child)
        assert process.said() == ""


async def test_a_parent_that_is_killed_leaves_no_child(tmp_path: Path) -> None:
    async with working("time.sleep(60)", tmp_path) as process:
        (child,) = children(process.pid)
        os.kill(process.pid, signal.SIGKILL)  # and nobody has waited for it yet, who would end its children
        async with asyncio.timeout(PATIENCE_S):
            while alive(child):  # noqa: ASYNC110
                await asyncio.sleep(0.01)


def test_it_is_waited_for_in_the_middle_of_other_work(capfd: pytest.CaptureFixture[str]) -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    assert apart.run("export", Path("/the/store"), lambda: print("from the child") or 3) == 3
    assert capfd.readouterr().out == "from the child\n"
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before
