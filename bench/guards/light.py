"""Bare connections, and processes to measure: what the guards share.

Owns: connections that hand over bytes as they come, so that on few cores the server is what is measured. Must never:
know what a message means.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator

import psutil

from bench.errors import BenchError
from protocol.outgoing import OutgoingSocket, connect

TIMEOUT_S = 30.0

OnMessage = Callable[[OutgoingSocket, bytes], None]


async def dial(url: str, on_message: OnMessage = lambda socket, message: None) -> OutgoingSocket:
    """A connection to a server on this machine."""
    async with asyncio.timeout(TIMEOUT_S):
        return await connect(url, on_message)


async def ask(socket: OutgoingSocket, message: bytes) -> bytes:
    """Send a message and wait for the next one that comes."""
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
    """A server of ours that prints `ready at URL`: its URL and process, until the block ends."""
    process = subprocess.Popen(
        [sys.executable, "-m", module, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if "ready at " in line:
                yield line.rpartition("ready at ")[2].strip(), psutil.Process(process.pid)
                return
        raise BenchError(f"{module} did not start")
    finally:
        process.terminate()
        try:
            process.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def cpu_s(process: psutil.Process) -> float:
    """CPU seconds so far, of the process and those it has started."""
    times = [each.cpu_times() for each in (process, *process.children(recursive=True))]
    return sum(one.user + one.system for one in times)
