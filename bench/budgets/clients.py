"""Processes that run many clients each, and the lines of JSON that they exchange with the process that starts them.

Owns: both ends of the pipes, the clients of each process, and the limit of open files. Must never: interpret the lines,
or leave a process behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

import orjson

from ingeborg.bench.errors import BenchError

#: Maximum number of clients in one process. One core connects this number of clients in about ten seconds, and many
#: systems allow a process 20,000 open files.
CLIENTS_MAX = 10_000
#: Files that an endpoint or a process of clients has open in addition to its clients' connections.
OTHER_FILES = 200
#: Clients of one process that connect at the same time. This number keeps both sides busy without overloading them.
AT_ONCE = 64
#: Maximum size of a line, which can have two numbers for each client of a process.
_LINE_BYTES_MAX = 1 << 24
_END_S = 10.0


def allow_files(wanted: int) -> None:
    """Raise the limit of open files for this process and its children. Raises ``BenchError`` if the system does not
    allow it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or wanted <= soft:
        return
    if hard != resource.RLIM_INFINITY and wanted > hard:
        raise BenchError(
            f"a process may open {hard:,} files (ulimit -Hn), but {wanted:,} are needed: try more endpoints"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def shares(clients: int) -> list[tuple[int, int]]:
    """Return the number of each process's first client, and the number after its last client. The clients of a process
    have consecutive numbers. So each process has clients of every endpoint."""
    count = -(-clients // CLIENTS_MAX)
    return [(clients * number // count, clients * (number + 1) // count) for number in range(count)]


class ClientProcess:
    """One process of clients, seen from the process that has started it."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self._name = name
        self._process = process

    def tell(self, command: Mapping[str, Any]) -> None:
        """Write a line to the process's stdin."""
        assert self._process.stdin is not None
        self._process.stdin.write(orjson.dumps(command) + b"\n")

    async def told(self, timeout_s: float) -> dict[str, Any]:
        """Return the next line of the process's stdout. Raises ``BenchError`` if the process has ended, reports a
        failure, or sends nothing in time."""
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(timeout_s):
                line = await self._process.stdout.readline()
        except TimeoutError:
            raise BenchError(f"{self._name}: no answer within {timeout_s:g} s") from None
        answer: dict[str, Any] = orjson.loads(line) if line else {"failed": "ended"}
        if "failed" in answer:
            raise BenchError(f"{self._name}: {answer['failed']}")
        return answer

    async def end(self) -> None:
        """Close the process's stdin, which makes it end. Kill it if it does not end in time."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            async with asyncio.timeout(_END_S):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()


@contextlib.asynccontextmanager
async def started_clients(module: str, assignments: Sequence[Mapping[str, Any]]) -> AsyncIterator[list[ClientProcess]]:
    """Start a process for each assignment. The assignment is the only argument of the process. The processes run until
    the block ends."""
    processes: list[ClientProcess] = []
    try:
        for number, assignment in enumerate(assignments):
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", module, orjson.dumps(assignment).decode()),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=_LINE_BYTES_MAX,
            )
            processes.append(ClientProcess(f"{module} {number}", process))
        yield processes
    finally:
        await asyncio.gather(*(process.end() for process in processes))


async def all_told(processes: Sequence[ClientProcess], timeout_s: float) -> list[dict[str, Any]]:
    """Return the next line of each process, in the order of the processes. Raises ``BenchError``."""
    return await asyncio.gather(*(process.told(timeout_s) for process in processes))


# -- In a process of clients


def assignment() -> dict[str, Any]:
    """Return the argument of this process."""
    found: dict[str, Any] = orjson.loads(sys.argv[1])
    return found


async def commands() -> AsyncIterator[dict[str, Any]]:
    """Yield the commands from the process that has started this one, until it closes the input or ends."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        yield orjson.loads(line)


def say(**answer: Any) -> None:
    """Write a line to the process that has started this one."""
    print(orjson.dumps(answer).decode(), flush=True)


async def each(numbers: Iterable[int], do: Callable[[int], Awaitable[None]]) -> None:
    """Call ``do`` for every client, for ``AT_ONCE`` clients at a time. The first error ends all calls."""
    left = iter(numbers)

    async def worker() -> None:
        for number in left:
            await do(number)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(worker())
    except ExceptionGroup as errors:  # if many failed alike, the first reason is enough
        raise errors.exceptions[0] from None
