"""The endpoint's side of the reader process (``ingeborg.broker.shell.reader``). This module starts the process when a
large frame arrives, and gives it one frame at a time.

Owns: the child process, the frames that wait for it, the time-out, and the end of an idle process. Must never: look
into a frame, or block the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import subprocess
from collections.abc import Callable
from typing import cast

from ingeborg.protocol.errors import ProtocolError

from ..children import spawn
from ..core.connections.large import Outcome, pack_arguments, unpack_outcome, unread
from ..core.effects import Read
from ..core.metrics import Metric, counter, counters, gauge
from .logs import Sparing

log = logging.getLogger("ingeborg.reading")

#: Time limit for one frame, in seconds. A frame of 16 MiB takes about 2 s, or ten times that on a machine under full
#: load.
READ_TIMEOUT_S = 60.0

#: Idle time after which a reader ends, in seconds. Its end frees up to about 450 MB of memory.
IDLE_S = 10.0

#: The text of the error if the reader died or was too slow.
FAILED = "The process that reads large frames failed"

#: The text for a client while the process cannot start, which can be temporary.
NOT_STARTED = "The process that reads large messages cannot be started now: try again later, or send smaller messages"

#: Minimum interval between two log lines about a process that cannot start, in seconds.
SAY_S = 30.0

_LENGTH_BYTES = 4


class _Link(asyncio.Protocol):
    """The connection to one reader process. It carries one request at a time."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self._answer: asyncio.Future[memoryview] | None = None  # for the pending request
        self._held = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def ask(self, call: Read) -> asyncio.Future[memoryview]:
        """Send a request and return a future for its answer. Raises ``ConnectionError`` if the process is known to be
        dead."""
        if self.transport.is_closing():
            raise ConnectionResetError("the reader process died")
        answer = self._answer = asyncio.get_running_loop().create_future()
        arguments = pack_arguments(call.is_text, call.payload_bytes_max, call.grant)
        lengths = len(arguments).to_bytes(_LENGTH_BYTES, "big") + call.size.to_bytes(_LENGTH_BYTES, "big")
        self.transport.write(lengths + arguments)
        for piece in call.pieces:
            self.transport.write(piece)  # not modified before the socket has sent it
        return answer

    def data_received(self, data: bytes) -> None:
        held = self._held
        held += data
        if len(held) >= _LENGTH_BYTES:
            end = _LENGTH_BYTES + int.from_bytes(held[:_LENGTH_BYTES], "big")
            if len(held) >= end:
                words, self._held = memoryview(held)[_LENGTH_BYTES:end], bytearray()
                answer, self._answer = self._answer, None  # released early, because an answer may have megabytes
                if answer is not None and not answer.done():
                    answer.set_result(words)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionResetError("the reader process died"))
            self._answer.exception()  # marks the exception as retrieved: perhaps nobody waits for it


class Reader:
    """The queue of frames for the reader. When a frame's turn comes, ``wanted`` says whether its outcome is still
    needed. ``done`` gets each call's number and outcome. The outcome is ``None`` if it was not needed."""

    def __init__(self, wanted: Callable[[int], bool], done: Callable[[int, Outcome | None], None]) -> None:
        self._wanted = wanted
        self._done = done
        self._waiting: dict[int, Read] = {}  # indexed by call number, in the order of arrival
        self._oldest_next = False  # the queue alternates between its smallest and its oldest frame
        self._task: asyncio.Task[None] | None = None
        self._came = asyncio.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._link: _Link | None = None
        self._saying = Sparing(SAY_S)
        self.frames = 0  # frames read
        self.starts = 0
        self.failures = 0  # frames that the reader failed to read

    def metrics(self) -> list[Metric]:
        """The reader's metrics."""
        frames = [(("read",), float(self.frames)), (("failed",), float(self.failures))]
        return [
            gauge("large_frames_waiting", "Large frames that wait for the process that reads them", self.waiting),
            counters(
                "large_frames",
                "Large frames that the separate process read, and large frames that could not be read",
                ("result",),
                frames,
            ),
            counter("reader_starts", "Starts of the process that reads large frames", self.starts),
        ]

    @property
    def pid(self) -> int | None:
        """The reader's process id, or ``None`` if no reader is running."""
        return None if self._process is None else self._process.pid

    @property
    def waiting(self) -> int:
        """The number of frames that wait for their turn."""
        return len(self._waiting)

    def read(self, call: Read) -> None:
        """Queue the frame."""
        self._waiting[call.number] = call
        self._came.set()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def forget(self, number: int) -> None:
        """Drop a frame whose outcome is no longer needed. ``done`` is not called for the frame, unless the reader
        already has it."""
        self._waiting.pop(number, None)

    async def close(self) -> None:
        """End the process, and drop the waiting frames."""
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    def _next(self) -> Read | None:
        """Return the next frame, or ``None`` if no waiting frame is needed. Small frames do not wait for all large
        frames, and large frames do not starve."""
        for number in [number for number in self._waiting if not self._wanted(number)]:
            del self._waiting[number]
            self._done(number, None)
        if not self._waiting:
            return None
        self._oldest_next = not self._oldest_next
        if self._oldest_next:
            number = min(self._waiting, key=lambda number: self._waiting[number].size)
        else:
            number = next(iter(self._waiting))
        return self._waiting.pop(number)

    async def _run(self) -> None:
        try:
            while True:
                if self._waiting:
                    await self._read_one()
                else:
                    await self._rest()
        finally:
            await self._bury()

    async def _read_one(self) -> None:
        call = self._next()
        if call is not None:
            self._done(call.number, await self._outcome(call))

    async def _rest(self) -> None:
        """Wait for a frame; end the process if none comes for a while."""
        self._came.clear()
        try:
            async with asyncio.timeout(None if self._link is None else IDLE_S):
                await self._came.wait()
        except TimeoutError:
            await self._bury()

    async def _outcome(self, call: Read) -> Outcome:
        """Return the process's outcome for the frame.

        A process that was already running can have died for any reason, even while idle. So the frame then goes to a
        new process. If the new process dies as well, the frame is the cause.
        """
        while True:
            was_there = self._link is not None
            try:
                async with asyncio.timeout(READ_TIMEOUT_S):
                    if self._link is None:
                        try:
                            self._link = await self._start()
                        except OSError as error:  # no descriptor, process or memory is left
                            return self._not_started(call, error)
                    outcome = unpack_outcome(await self._link.ask(call))
                self.frames += 1
                return outcome
            except ConnectionError as error:
                await self._bury()
                if was_there:
                    continue
                why: Exception = error
            except Exception as error:  # any error, because the waiting frames still have to be read
                await self._bury()
                why = error
            self.failures += 1
            log.error("%s on a frame of %d bytes; a new process reads the next frame: %r", FAILED, call.size, why)
            return unread(call.pieces, ProtocolError("internal", f"{FAILED} on this frame"))

    def _not_started(self, call: Read, error: OSError) -> Outcome:
        self.failures += 1
        if self._saying.is_due():
            log.error("the process that reads large frames cannot be started: %s", error)
        return unread(call.pieces, ProtocolError("peer_unavailable", NOT_STARTED))

    async def _start(self) -> _Link:
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                self._process = spawn("ingeborg.broker.shell.reader", theirs)
            _, link = await asyncio.get_running_loop().create_unix_connection(_Link, sock=ours)
        except BaseException:
            ours.close()
            raise
        self.starts += 1
        return link

    async def _bury(self) -> None:
        """Kill the process, which holds nothing that could be lost, and wait until it is dead."""
        if self._link is not None:
            self._link.transport.abort()
            self._link = None
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            await asyncio.shield(asyncio.to_thread(process.wait))
