"""The processes of the generator, as their coordinator sees them.

Owns: starting the processes, sending them commands, and adding up their stats. Must never: wait longer than its
time-outs. If a process dies or is silent, the run ends with a reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import orjson

from ..process.assignment import Assignment
from ..process.tally import Latencies

#: Time limit for a process to import its modules and to draw a plan of a hundred thousand clients.
_START_TIMEOUT_S = 120.0
#: Time limit for a process to close all connections and to write the last lines.
_CLOSE_TIMEOUT_S = 30.0
#: Time limit for the end of a killed process.
_KILL_TIMEOUT_S = 5.0
#: The longest line from a process. A line with statistics has a few hundred buckets.
_LINE_BYTES_MAX = 1 << 22


#: The fields of the stats whose sum over all processes is computed.
_ADDED = (
    *("amount", "sent", "received", "expected", "news", "delivered", "skipped", "repeated", "reordered", "overtaken"),
    "queued",
)


class CrewFailed(Exception):
    """Raised if a process could not carry out a command. The error message says why."""


@dataclass
class Sum:
    """The stats of all processes, added up. See ``Driver.stats``."""

    amount: int = 0
    sent: int = 0
    received: int = 0
    expected: int = 0
    news: int = 0
    delivered: int = 0
    skipped: int = 0
    repeated: int = 0
    reordered: int = 0
    overtaken: int = 0
    queued: int = 0
    lag_ns: int = 0  # the largest of any process
    errors: Counter[str] = field(default_factory=Counter)
    latencies: Latencies = field(default_factory=Latencies)

    @property
    def behind(self) -> int:
        """The number of expected deliveries that have not arrived and that no other delivery has replaced."""
        return self.expected - self.delivered - self.skipped


class _Member:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.stats: dict[str, Any] | None = None
        self.told_s = time.monotonic()
        self.answers: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            message = orjson.loads(line)
            if "stats" in message:
                self.stats, self.told_s = message["stats"], time.monotonic()
            else:
                self.answers.put_nowait(message)
        status = await self.process.wait()
        self.answers.put_nowait({"failed": f"a process of the generator ended with status {status}"})

    def tell(self, command: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        if self.process.stdin.is_closing():  # the process has ended, or `_end` has closed its input, so send nothing
            return
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.process.stdin.write(orjson.dumps(command) + b"\n")


class Crew:
    """``async with Crew(assignment) as crew`` starts the processes, and ends them at the end of the block."""

    def __init__(self, assignment: Assignment) -> None:
        self._assignment = assignment
        self._members: list[_Member] = []

    @property
    def pids(self) -> list[int]:
        """The process ids, in the order of the processes' numbers."""
        return [member.process.pid for member in self._members]

    async def __aenter__(self) -> Crew:
        try:
            for number in range(self._assignment.processes):
                process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-m",
                    "ingeborg.loadgen.process.worker",
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    limit=_LINE_BYTES_MAX,
                    # So a signal to the whole group (Ctrl-C) reaches only the coordinator, even right after the start.
                    start_new_session=True,
                )
                member = _Member(process)
                self._members.append(member)
                member.tell(self._assignment.for_process(number).to_json())
            await self._answers("start", _START_TIMEOUT_S)
        except BaseException as error:
            await self._end(at_once=isinstance(error, asyncio.CancelledError))
            raise
        return self

    async def __aexit__(self, _: object, error: BaseException | None, at: object) -> None:
        await self._end(at_once=isinstance(error, asyncio.CancelledError))

    async def do(self, command: str, timeout_s: float | None = None, **fields: Any) -> None:
        """Let all processes perform a command, and wait until all are done. Raises ``CrewFailed``."""
        for member in self._members:
            member.tell({"do": command, **fields})
        await self._answers(command, timeout_s)

    def cut(self) -> None:
        """Tell all processes to send nothing more, in any phase."""
        for member in self._members:
            member.tell({"do": "cut"})

    def sum(self) -> Sum:
        """Add up the latest stats of all processes."""
        total = Sum()
        told = [member.stats for member in self._members if member.stats is not None]
        for stats in told:
            for name in _ADDED:
                setattr(total, name, getattr(total, name) + stats[name])
            total.errors.update(stats["errors"])
            total.lag_ns = max(total.lag_ns, stats["lag_ns"])
        total.latencies = Latencies.merged(stats["latencies"] for stats in told)
        return total

    @property
    def told_s(self) -> float:
        """The monotonic time up to which all processes have reported. A late report delays this time, and does not mean
        that the system is silent."""
        return min((member.told_s for member in self._members), default=time.monotonic())

    async def _answers(self, command: str, timeout_s: float | None) -> None:
        """Wait for one answer from each process. The first failure immediately fails the whole crew."""

        async def answer(member: _Member) -> None:
            if "failed" in (told := await member.answers.get()):
                raise CrewFailed(told["failed"])

        waiting = [asyncio.create_task(answer(member)) for member in self._members]
        try:
            done, late = await asyncio.wait(waiting, timeout=timeout_s, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            for task in waiting:
                task.cancel()
        for failed in [error for task in done if (error := task.exception()) is not None]:
            raise failed
        if late:
            raise CrewFailed(f"not done after {timeout_s:g} s")

    async def _end(self, *, at_once: bool) -> None:
        """Request an orderly end, which completes the log. Kill the processes that do not end in time. With
        ``at_once``, kill all processes immediately. All processes end, even if this call is cancelled."""
        for member in self._members:
            if member.process.stdin is not None:
                member.process.stdin.close()
        waiting = [asyncio.create_task(member.process.wait()) for member in self._members]
        try:
            if waiting and not at_once:
                await asyncio.wait(waiting, timeout=_CLOSE_TIMEOUT_S)
        finally:
            for member in self._members:
                if member.process.returncode is None:
                    member.process.kill()
        if waiting:
            await asyncio.wait(waiting, timeout=_KILL_TIMEOUT_S)
        for member in self._members:
            member.reader.cancel()
        await asyncio.gather(*(member.reader for member in self._members), return_exceptions=True)
