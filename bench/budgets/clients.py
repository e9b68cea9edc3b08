"""Processes full of clients, and the lines of JSON that they exchange with their starter.

Owns: both ends of the pipes, the clients of each process, and the limit of open files. Must never: know what the lines
say, or leave a process behind.
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

#: Clients of one process: a core connects this many in some ten seconds, and many systems allow 20,000 open files.
CLIENTS_MAX = 10_000
#: Files that an endpoint or a process of clients has open in addition to its clients' connections.
OTHER_FILES = 200
#: Clients of one process that connect at once: keeps both sides busy without already being a storm.
AT_ONCE = 64
#: A line with two numbers for each of these clients.
_LINE_BYTES_MAX = 1 << 24
_END_S = 10.0


def allow_files(wanted: int) -> None:
    """Raise the limit of open files for this process and its children. ``BenchError`` if the system does not allow
    it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or wanted <= soft:
        return
    if hard != resource.RLIM_INFINITY and wanted > hard:
        raise BenchError(f"a process may open {hard:,} files (ulimit -Hn), but {wanted:,} are needed: more endpoints?")
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def shares(clients: int) -> list[tuple[int, int]]:
    """Return for each process its first client's number, and the one after its last. Neighbours, so that every process
    has clients of every endpoint."""
    count = -(-clients // CLIENTS_MAX)
    return [(clients * number // count, clients * (number + 1) // count) for number in range(count)]


class ClientProcess:
    """One process, as its starter sees it."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self._name = name
        self._process = process

    def tell(self, command: Mapping[str, Any]) -> None:
        """Write a line to its stdin."""
        assert self._process.stdin is not None
        self._process.stdin.write(orjson.dumps(command) + b"\n")

    async def told(self, timeout_s: float) -> dict[str, Any]:
        """Return the next line of its stdout. ``BenchError``: it ended, reported a failure, or is silent."""
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
        """Close its stdin, which ends it; kill it if it does not end."""
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
    """Start a process per assignment, which it gets as its only argument; they run until the block ends."""
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
    """Return the next line of each, in their order. ``BenchError``."""
    return await asyncio.gather(*(process.told(timeout_s) for process in processes))


# -- in such a process


def assignment() -> dict[str, Any]:
    """Return the argument of this process."""
    found: dict[str, Any] = orjson.loads(sys.argv[1])
    return found


async def commands() -> AsyncIterator[dict[str, Any]]:
    """Yield the commands from its starter, until that ends the input or is gone."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        yield orjson.loads(line)


def say(**answer: Any) -> None:
    """Write a line to its starter."""
    print(orjson.dumps(answer).decode(), flush=True)


async def each(numbers: Iterable[int], do: Callable[[int], Awaitable[None]]) -> None:
    """Call it for every client, ``AT_ONCE`` at once. The first error ends it."""
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
