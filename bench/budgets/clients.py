"""Processes full of clients, and the lines of JSON they are told and tell.

Owns: both ends of the pipes, which process has which clients, and how many files one may open. Must never: know what
is said, or leave a process behind.
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

#: Clients of one process: a core connects so many in some ten seconds, and many systems allow 20,000 open files.
CLIENTS_MAX = 10_000
#: Files that an endpoint or a process of clients has open besides its clients' connections.
OTHER_FILES = 200
#: Clients of one process that connect at once: keeps both sides busy without being a storm already.
AT_ONCE = 64
#: A line with two numbers for each of so many clients.
_LINE_BYTES_MAX = 1 << 24
_END_S = 10.0


def allow_files(wanted: int) -> None:
    """Let this process and those it starts open so many files. ``BenchError`` where the system does not."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or wanted <= soft:
        return
    if hard != resource.RLIM_INFINITY and wanted > hard:
        raise BenchError(f"a process may open {hard:,} files (ulimit -Hn), {wanted:,} are needed: more endpoints?")
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def shares(clients: int) -> list[tuple[int, int]]:
    """Of each process: its first client's number, and the one after its last. Neighbours, so that every process has
    clients of every endpoint."""
    count = -(-clients // CLIENTS_MAX)
    return [(clients * number // count, clients * (number + 1) // count) for number in range(count)]


class ClientProcess:
    """One of them, as its starter sees it."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self._name = name
        self._process = process

    def tell(self, command: Mapping[str, Any]) -> None:
        """A line on its stdin."""
        assert self._process.stdin is not None
        self._process.stdin.write(orjson.dumps(command) + b"\n")

    async def told(self, timeout_s: float) -> dict[str, Any]:
        """The next line of its stdout. ``BenchError``: it ended, said what failed, or is silent."""
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
        """It ends when nobody is there to tell it anything; if not, it is killed."""
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
    """A process per assignment, which it finds as its one argument, until the block ends."""
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
    """The next line of each, in their order. ``BenchError``."""
    return await asyncio.gather(*(process.told(timeout_s) for process in processes))


# -- in such a process


def assignment() -> dict[str, Any]:
    """What this process was started with."""
    found: dict[str, Any] = orjson.loads(sys.argv[1])
    return found


async def commands() -> AsyncIterator[dict[str, Any]]:
    """What it is told, until its starter has no more to tell, or is gone."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        yield orjson.loads(line)


def say(**answer: Any) -> None:
    """A line to its starter."""
    print(orjson.dumps(answer).decode(), flush=True)


async def each(numbers: Iterable[int], do: Callable[[int], Awaitable[None]]) -> None:
    """Do it for every client, ``AT_ONCE`` at once. The first error ends it."""
    left = iter(numbers)

    async def worker() -> None:
        for number in left:
            await do(number)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(worker())
    except ExceptionGroup as errors:  # of many that failed alike the first one's reason will do
        raise errors.exceptions[0] from None
