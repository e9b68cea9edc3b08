"""`bench/demo.sh`, interrupted as by a terminal at each of its steps; stand-ins replace the programs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from pathlib import Path

import psutil
import pytest

from ingeborg.bench.starting.child import over

DEMO = Path(__file__).parents[2] / "bench" / "demo.sh"

#: Stands in for every program: reports its name and process id, then follows orders. Its children live as long.
STAND_IN = r"""#!/usr/bin/env bash
me="$(basename "$0") ${1:-}"
sleep 1000 &
child=$!
trap 'kill $child; exit 0' TERM
echo "$me,$$,$child" >"$SAID"
case "$me" in
    *serve) printf 'ws://127.0.0.1:1\nws://127.0.0.1:2\n'; wait ;;
    "$HANGS") wait ;;
    python*) echo 1 ;;
esac
kill $child
[ "$me" != "$FAILS" ] || exit 2
"""

STEPS = [
    "loadgen preview",
    "python -c",
    "ingeborg serve",
    "loadgen replay",
    "bench digest",
    "bench report",
    "bench summary",
]


class Demo:
    """The script, in its own session, and its programs' reports."""

    def __init__(self, folder: Path, hangs: str = "", fails: str = "") -> None:
        self.processes: list[psutil.Process] = []
        self._folder = folder
        self._fifo = folder / "said"
        os.mkfifo(self._fifo)
        (folder / "bench").mkdir()
        shutil.copy(DEMO, folder / "bench")
        programs = folder / ".venv" / "bin"
        programs.mkdir(parents=True)
        for name in ("ingeborg", "loadgen", "bench", "python"):
            (programs / name).write_text(STAND_IN)
            (programs / name).chmod(0o755)
        wanted = {
            "REPLAY": "log.csv",
            "RUN": str(folder / "run"),
            "SAID": str(self._fifo),
            "HANGS": hangs,
            "FAILS": fails,
        }
        self._environment = os.environ | wanted

    async def __aenter__(self) -> Demo:
        # Open for reading and writing: a writer need not wait, and the end of one writer does not end the stream.
        self._said = os.fdopen(os.open(self._fifo, os.O_RDWR))
        pipe = asyncio.subprocess.PIPE
        self.script = await asyncio.create_subprocess_exec(
            *("bash", "bench/demo.sh"),
            cwd=self._folder,
            env=self._environment,
            stdout=pipe,
            stderr=pipe,
            start_new_session=True,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        for process in self.processes:
            if process.is_running():
                process.kill()
        if self.script.returncode is None:
            self.script.kill()
            await self.script.wait()
        self._said.close()

    async def says(self) -> str:
        """Return the programs that have begun."""
        who, *pids = (await asyncio.to_thread(self._said.readline)).strip().split(",")
        for pid in map(int, pids):
            with contextlib.suppress(psutil.NoSuchProcess):  # it has ended already
                self.processes.append(psutil.Process(pid))
        return who

    def interrupt(self, number: signal.Signals) -> None:
        """Interrupt the whole foreground group, as a terminal does."""
        os.killpg(self.script.pid, number)

    async def ended(self) -> tuple[int, list[str]]:
        """Wait for its end; return its exit code and its standard error."""
        _, errors = await self.script.communicate()
        assert self.script.returncode is not None
        return self.script.returncode, errors.decode().splitlines()

    def left(self) -> list[psutil.Process]:
        """Return the programs that do not end. The kernel may still be ending some."""
        psutil.wait_procs([each for each in self.processes if not over(each)], timeout=1)
        return [each for each in self.processes if not over(each)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("step", STEPS)
async def test_a_signal_in_any_step_is_told_in_a_line_and_leaves_no_process(
    tmp_path: Path, step: str, number: signal.Signals
) -> None:
    async with asyncio.timeout(60), Demo(tmp_path, hangs=step) as demo:
        while await demo.says() != step:
            pass
        demo.interrupt(number)
        code, errors = await demo.ended()
        assert (code, errors) == (128 + number, [f"demo: interrupted; its files are in {tmp_path}/run"])
        assert demo.left() == []


async def test_a_log_that_is_refused_is_so_before_anything_is_started(tmp_path: Path) -> None:
    async with asyncio.timeout(60), Demo(tmp_path, fails="loadgen preview") as demo:
        assert await demo.says() == "loadgen preview"
        assert await demo.ended() == (2, [f"demo: failed; its files are in {tmp_path}/run"])
        assert demo.left() == []


async def test_undisturbed_it_does_all_its_steps(tmp_path: Path) -> None:
    async with asyncio.timeout(60), Demo(tmp_path) as demo:
        assert [await demo.says() for _ in STEPS] == STEPS
        assert await demo.ended() == (0, [])
        assert demo.left() == []
