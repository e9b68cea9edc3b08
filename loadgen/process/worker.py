"""A process of the generator. It performs the coordinator's commands one at a time.

Owns: the conversation with the coordinator. The process reads lines of JSON from stdin: first its assignment, then
commands. It writes lines of JSON to stdout: `{"done": COMMAND}` or `{"failed": text}` for each command, and
`{"stats": …}` a few times a second and before each answer. Must never: outlive its coordinator (the process ends when
stdin ends), or decide anything.
"""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

from ..backends import open_backend
from ..backends.base import BackendError
from ..log.rundir import EventFiles
from ..workloads.settings import WorkloadError
from . import assignment as assignments
from .assignment import Assignment
from .driver import LINES_MAX, Driver, Stalled

#: Seconds between two reports. The interval is short, because the search has to learn soon that a step has ended. A
#: shorter interval is not needed, because people cannot read faster.
STATS_S = 0.25
#: The longest line on stdin, which holds an assignment or a command.
_LINE_BYTES_MAX = 1 << 20
#: File descriptors in addition to those of the connections.
_FILES_SPARE = 64


class Worker:
    """Performs commands. ``answer`` writes one JSON object to the coordinator."""

    def __init__(self, assignment: Assignment, answer: Callable[[dict[str, Any]], None]) -> None:
        self._answer = answer
        plan = assignments.plan(assignment)
        allow_files(plan.connections // assignment.processes + _FILES_SPARE)
        backend = open_backend(
            assignment.system,
            assignment.urls,
            assignment.clients,
            lines=assignment.lines,
            metrics_urls=assignment.metrics_urls,
        )
        if assignment.layer is not None:
            from ..layer.publishing import (
                Deduplicated,  # importing Redis's library takes as long as all other imports, so do it only if needed
            )

            backend = Deduplicated(backend, **assignment.layer)
        self.driver = Driver(
            plan,
            backend,
            EventFiles(Path(assignment.directory), assignment.process),
            process=assignment.process,
            processes=assignment.processes,
            tag=assignment.tag,
            bounds=assignments.bounds(assignment, plan.connections),
            window=assignments.window(assignment),
        )

    async def perform(self, command: dict[str, Any]) -> None:
        """Perform one command. Send an answer even if the command fails."""
        driver, name = self.driver, command["do"]
        failed = None
        try:
            if "phase" in command:
                driver.begin(command["phase"])
            match name:
                case "connect":
                    await driver.connect()
                    # Objects that exist now live until the end, so the garbage collector need not scan them during the
                    # measurements.
                    gc.collect()
                    gc.freeze()
                case "subscribe":
                    await driver.subscribe()
                case "prepare":
                    driver.prepare(command["rate_per_s"], command["duration_s"])
                case "run":
                    await driver.run(command["t0_ns"], command["duration_s"])
                case "flood":
                    await driver.flood(command["window"], command["stall_s"])
                case "give_up":
                    driver.give_up()
                case "unsubscribe":
                    await driver.unsubscribe()
                case "close":
                    await driver.close()
                case _:
                    raise AssertionError(name)
        except (BackendError, Stalled) as error:
            failed = str(error)
        except OSError as error:  # the log could not be written
            failed = f"cannot write the log: {error}"
        self.tell()
        self._answer({"done": name} if failed is None else {"failed": failed})

    def tell(self) -> None:
        """Send the stats to the coordinator."""
        self._answer({"stats": self.driver.stats()})

    async def keep_telling(self) -> None:
        """Send the stats and write the log, a few times a second."""
        while True:
            for _ in range(5):
                await asyncio.sleep(STATS_S / 5)
                if self.driver.lines >= LINES_MAX:
                    self.driver.flush()
            self.driver.flush()
            self.tell()


def allow_files(wanted: int) -> None:
    """Raise this process's limit of open files to ``wanted``. Raises ``WorkloadError`` if the system does not allow
    it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise WorkloadError(
            f"a process may open {hard:,} files, but {wanted:,} are needed: use more --processes (see ulimit -Hn)"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


async def _main() -> int:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(_LINE_BYTES_MAX)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    # A pipe to the coordinator, which reads immediately. If the pipe is full, the write blocks, and so slows this
    # process down.
    output = sys.stdout.buffer

    def answer(message: dict[str, Any]) -> None:
        try:
            output.write(orjson.dumps(message) + b"\n")
            output.flush()
        except BrokenPipeError:  # the coordinator has ended, so stdin ends as well
            os.dup2(os.open(os.devnull, os.O_WRONLY), output.fileno())

    line = await reader.readline()
    if not line.endswith(b"\n"):
        return 1  # the coordinator ended before it had sent the assignment
    try:
        worker = Worker(Assignment.from_json(orjson.loads(line)), answer)
    except (BackendError, WorkloadError, OSError) as error:
        answer({"failed": str(error)})
        return 1
    answer({"done": "start"})
    telling = asyncio.create_task(worker.keep_telling())
    under_way: asyncio.Task[None] | None = None
    try:
        while line := await reader.readline():
            command = orjson.loads(line)
            if command["do"] == "cut":  # this command can arrive at any time, and gets no answer
                worker.driver.cut()
                continue
            if under_way is not None:
                await under_way
            under_way = asyncio.create_task(worker.perform(command))
            if telling.done():
                await telling
        if under_way is not None and not under_way.done():
            under_way.cancel()
            await asyncio.wait({under_way})
    except OSError as error:
        print(f"loadgen: a process of the generator ended: {error}", file=sys.stderr)
        return 1
    finally:
        telling.cancel()
        await asyncio.wait({telling})
        await worker.driver.close()
    return 0


def main() -> int:
    """Run the process, and return its exit code."""
    # Ignore the signal. A signal to all processes of a run also reaches the coordinator, which decides what to do.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(_main())


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's loop factory, or ``None`` if uvloop is not installed (as on Windows)."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


if __name__ == "__main__":
    sys.exit(main())
