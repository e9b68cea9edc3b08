"""Bare connections, and processes whose CPU time is measured. Several budgets use them.

Owns: connections that hand over messages as bytes, without parsing them. The clients therefore need little CPU, so a
measurement shows the server's limits even on a machine with few cores. Must never: interpret a message.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from ingeborg.bench import starting
from ingeborg.protocol.outgoing import OutgoingSocket, connect

TIMEOUT_S = 30.0

OnMessage = Callable[[OutgoingSocket, bytes], None]


async def dial(url: str, on_message: OnMessage = lambda socket, message: None) -> OutgoingSocket:
    """Connect to a server on this machine."""
    async with asyncio.timeout(TIMEOUT_S):
        return await connect(url, on_message)


async def ask(socket: OutgoingSocket, message: bytes) -> bytes:
    """Send a message and return the next one that arrives."""
    before, answer = socket.on_message, asyncio.get_running_loop().create_future()

    def answered(_: OutgoingSocket, data: bytes) -> None:
        if not answer.done():
            answer.set_result(data)

    socket.on_message = answered
    try:
        socket.write(message)
        async with asyncio.timeout(TIMEOUT_S):
            return bytes(await answer)
    finally:
        socket.on_message = before


@contextlib.contextmanager
def started(module: str, *arguments: str) -> Iterator[tuple[str, psutil.Process]]:
    """Start a server of this project that prints `ready at URL`. Yield its URL and its process; the server runs until
    the block ends. Raises ``BenchError``."""
    with (
        tempfile.TemporaryDirectory() as folder,
        starting.started(module, starting.python(module, *arguments), Path(folder, "log"), patience_s=TIMEOUT_S) as it,
    ):
        yield it.url, it.child.process


def cpu_s(process: psutil.Process) -> float:
    """Return the CPU seconds that the process and its children have used so far. On Linux they are precise to the
    nanosecond. Other systems mostly count them in hundredths of a second."""
    found = 0.0
    for each in (process, *process.children(recursive=True)):
        exact = [int(file.read_text().split()[0]) for file in Path(f"/proc/{each.pid}/task").glob("*/schedstat")]
        times = each.cpu_times()
        found += sum(exact) / 1e9 if exact else times.user + times.system
    return found
