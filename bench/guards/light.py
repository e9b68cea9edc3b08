"""A WebSocket client that costs next to nothing, and processes to measure: what the guards share.

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
from websockets.client import ClientProtocol
from websockets.http11 import Request, Response
from websockets.protocol import OPEN
from websockets.uri import parse_uri

from bench.errors import BenchError
from protocol.sockets import Masks, Socket, masked_text_frame

TIMEOUT_S = 30.0


class Light(Socket):
    """A connection. ``on_message`` is given every message."""

    def __init__(self, ws: ClientProtocol, on_message: Callable[[bytes], None]) -> None:
        super().__init__(ws)
        self.on_message = on_message
        self.opened = asyncio.get_running_loop().create_future()
        self._next_mask = Masks().next

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for the upgrade."""
        super().connection_made(transport)
        assert isinstance(self.ws, ClientProtocol)
        self.ws.send_request(self.ws.connect())
        self.send_protocol()

    def handshake(self, event: Request | Response) -> None:
        """The answer."""
        if self.ws.state is OPEN:
            self.settled()
            self.opened.set_result(None)

    def closed(self) -> None:
        """A server that goes away while it is measured has failed."""
        if not self.opened.done():
            self.opened.set_exception(BenchError("the server closed the connection"))

    def message(self, data: bytes) -> None:
        """A message came."""
        self.on_message(data)

    def say(self, *messages: bytes) -> None:
        """Send messages in one write."""
        self.transport.write(b"".join([masked_text_frame(message, self._next_mask()) for message in messages]))

    async def ask(self, message: bytes) -> bytes:
        """Send a message and wait for the next one that comes."""
        before, answer = self.on_message, asyncio.get_running_loop().create_future()

        def answered(data: bytes) -> None:
            if not answer.done():
                answer.set_result(data)

        self.on_message = answered
        try:
            self.say(message)
            async with asyncio.timeout(TIMEOUT_S):
                return bytes(await answer)
        finally:
            self.on_message = before


async def connect(url: str, on_message: Callable[[bytes], None] = lambda data: None) -> Light:
    """Connect to a server on this machine."""
    uri = parse_uri(url)
    async with asyncio.timeout(TIMEOUT_S):
        _, light = await asyncio.get_running_loop().create_connection(
            lambda: Light(ClientProtocol(uri), on_message), uri.host, uri.port
        )
        await light.opened
    return light


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
