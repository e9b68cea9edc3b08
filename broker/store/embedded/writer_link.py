"""The endpoint's side of a writer process: starts it, feeds it, notices when it dies or falls silent, and replaces it.

Owns: the child process, the frames under way and their limit, the time-out, restarts with backoff. Must never: open
LMDB, block the event loop, let two writers of one lane live at once (a later write could overtake an earlier one), or
send anything after frames whose callers got an error.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import signal
import socket
import subprocess
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from ingeborg.broker.children import spawn
from ingeborg.broker.store.base import (
    StoreError,
    StoreLost,
    StoreMisconfigured,
    StoreUnavailable,
    Superseded,
    TooManyFilters,
)
from ingeborg.broker.store.embedded.files import RESTORE, Files
from ingeborg.broker.store.embedded.layout import (
    ERRORS,
    GREETING,
    LAST_WORDS,
    PROGRESS,
    Lane,
    Unpacker,
    pack,
)
from ingeborg.broker.store.embedded.watch import Watch

log = logging.getLogger("ingeborg.store")

WRITER = "ingeborg.broker.store.embedded.writer"
"""The module that a writer process runs."""

SMALL_FRAME_BYTES = 2048
"""Frames up to this size use the small budget, so that they never wait for those of a large batch."""

SMALL_BUDGET_BYTES = 1 << 20
LARGE_BUDGET_BYTES = 8 << 20
"""Bytes of frames sent and not yet acknowledged. Small: 20,000 single subscriptions, which is more than a commit holds.
Large: 250,000 subscriptions, so that a run over millions of topics has several changes for each page. They take 60 MB
in the writer, and one second."""

ACKNOWLEDGED_AT_ONCE = 100
"""Acknowledgements handled in one pass of the event loop. A commit acknowledges thousands together, and the callers
continue in the next pass: about 20 us each."""

LOOKS = 5
"""The link gives up a writer after this many checks without any acknowledgement, each a fifth of the time-out apart. It
counts checks, not time: if this process itself was stopped for a minute, that is one check and no reason to kill the
writer."""

DISK_LOOKS = 75
"""Checks for which the link tolerates a writer that waits for the disk: a minute. Nobody can kill it before the disk
answers, and its successor would wait for the same disk."""

START_TIMEOUT_S = 15.0
"""A start takes 0.1 s. Under full load, or after a reboot with cold disks, it can take a hundred times as long."""

END_TIMEOUT_S = 3.0
"""How long a writer may take to end after the hang-up (one commit) before the endpoint kills it."""

SAY_EVERY_S = 30.0
"""Interval at which the log repeats a lasting problem."""

DAMAGE_SIGNALS = (signal.SIGBUS, signal.SIGSEGV, signal.SIGABRT, signal.SIGFPE)
"""Signals that kill LMDB if its mapped file has been altered, or its disk cannot deliver a page."""

BACKOFF_S = (0.0, 0.1, 0.2, 0.5, 1.0, 2.0)
"""Pauses before attempts to restart; the last one repeats. The first is zero: most deaths are isolated."""


START = "the start of a writer"
"""Name of this step in the log, where others are names of operations."""

WRITER_DIED = "the embedded store's writer process died; the endpoint starts another one"
"""Error of operations under way, which they get at once. The cause is known a moment later."""


class _Call:
    """One operation of a caller: any number of frames, one result."""

    __slots__ = ("all_sent", "done", "results", "unacknowledged")

    def __init__(self, done: asyncio.Future[list[Any]]) -> None:
        self.done, self.unacknowledged, self.all_sent = done, 0, False
        self.results: dict[int, Any] = {}  # by the frame's number; in the order sent

    def finish_if_complete(self) -> None:
        if self.all_sent and not self.unacknowledged and not self.done.done():
            self.done.set_result([result for results in self.results.values() for result in results])

    def fail(self, error: StoreError) -> None:
        if not self.done.done():
            self.done.set_exception(error)


class _Budget:
    """A limit of bytes under way; a single larger frame is allowed. Callers wait in line, each with one frame, so that
    large batches take turns. The line is at most as long as the number of callers."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes, self._taken_bytes = limit_bytes, 0
        self._line: deque[tuple[asyncio.Future[None], int]] = deque()

    async def take(self, size: int) -> None:
        if not self._line and self._fits(size):
            self._taken_bytes += size
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append((turn, size))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # its turn had only just come
                self.give(size)
            raise

    def give(self, size: int) -> None:
        self._taken_bytes -= size
        while self._line:
            turn, wanted = self._line[0]
            if not turn.done():  # already done: its caller was cancelled
                if not self._fits(wanted):
                    return
                self._taken_bytes += wanted
                turn.set_result(None)
            self._line.popleft()

    def dissolve(self) -> None:
        """Let every caller through, because waiting has become pointless."""
        for turn, _ in self._line:
            if not turn.done():
                turn.set_result(None)
        self._line.clear()

    def _fits(self, size: int) -> bool:
        return self._taken_bytes + size <= self._limit_bytes or not self._taken_bytes


class _Link(asyncio.Protocol):
    """The connection to one incarnation of the writer."""

    def __init__(self, timeout_s: float, watch: Watch, on_lost: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._timeout_s, self._watch, self._on_lost = timeout_s, watch, on_lost
        self.greeting: asyncio.Future[tuple[str, Any]] = self._loop.create_future()
        self.lost: asyncio.Future[str] = self._loop.create_future()  # its result: why
        self._transport: asyncio.Transport
        self._unpacker = Unpacker()
        self._numbers = itertools.count()
        self._under_way: dict[int, tuple[_Call, int]] = {}  # by number, with the frame's size; the budgets bound it
        self._small, self._large = _Budget(SMALL_BUDGET_BYTES), _Budget(LARGE_BUDGET_BYTES)
        self._looks = 0
        self._look: asyncio.TimerHandle | None = None
        # The link is held while the writer waits for the disk: the writer has everything under way, and gets no more.
        self._held_for = ""  # the reason that callers get; empty: not held
        self._held_since = 0.0
        self._disk_looks = 0  # without an answer of the writer, which waited for the disk
        self._released = asyncio.Event()
        self._said: deque[tuple[int, str, Any]] = deque()  # answers of the writer that are not yet handled
        self._heeding = False  # the next pass of the event loop continues

    # --- the caller's side

    async def call(self, operation: str, arguments: Iterable[Any]) -> list[Any]:
        """Send one frame per argument. Return all results, in that order, once all are acknowledged."""
        call = _Call(self._loop.create_future())
        try:
            for argument in arguments:
                number = next(self._numbers)
                frame = pack((number, operation, argument))
                if self._held_for:
                    await self._until_released()
                if not self._held_for and not self.lost.done():  # a lost link gives no budget back
                    await self._budget(len(frame)).take(len(frame))
                if call.done.done():
                    break  # a frame of this call failed while it waited for its turn
                if self.lost.done():
                    raise StoreUnavailable(self.lost.result())
                if self._held_for:
                    raise StoreUnavailable(self._held_for)
                self._send(call, number, frame)
                await asyncio.sleep(0)  # a large batch yields to the loop at every frame
                if call.done.done():
                    break  # a frame has failed, and the whole batch with it
            call.all_sent = True
            call.finish_if_complete()
            return await call.done
        finally:
            call.done.cancel()  # nobody waits for it, should this have been cancelled

    @property
    def is_held(self) -> bool:
        """See ``WriterProcess``."""
        return bool(self._held_for)

    async def _until_released(self) -> None:
        """Return when the link is released or lost, or the time-out is over."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._timeout_s):
                await self._released.wait()

    def _budget(self, size: int) -> _Budget:
        return self._small if size <= SMALL_FRAME_BYTES else self._large

    def _send(self, call: _Call, number: int, frame: bytes) -> None:
        self._under_way[number] = call, len(frame)
        call.results[number] = None
        call.unacknowledged += 1
        self._transport.write(frame)  # the budgets also bound the transport's buffer
        if self._look is None:
            self._looks = 0
            self._look = self._loop.call_later(self._timeout_s / LOOKS, self._look_for_progress)

    # --- the writer's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self.lost.done():
            return  # the callers already have their error
        self._looks = self._disk_looks = 0
        self._said.extend(self._unpacker.feed(data))
        if not self._heeding:
            self._heed()

    def _heed(self) -> None:
        self._heeding = False
        for _ in range(ACKNOWLEDGED_AT_ONCE):
            if not self._said:
                return
            self._heed_one()
        if self._said:
            self._heeding = True
            self._loop.call_soon(self._heed)

    def _heed_one(self) -> None:
        number, outcome, body = self._said.popleft()
        if number == GREETING:
            self.greeting.set_result((outcome, body))
        elif number == LAST_WORDS:
            self._said.clear()
            self.fail(f"the embedded store's writer had to end: {body}; the endpoint starts another one")
        elif number != PROGRESS:
            call, size = self._under_way.pop(number)
            self._budget(size).give(size)
            call.unacknowledged -= 1
            if outcome:
                call.fail(ERRORS[outcome](body))
            else:
                call.results[number] = body
                call.finish_if_complete()
            if self._held_for and not self._under_way:
                self._release()

    def connection_lost(self, exc: Exception | None) -> None:
        self.fail(WRITER_DIED)

    def hang_up(self) -> None:
        """Tell the writer to end."""
        self._transport.write_eof()

    def abort(self) -> None:
        """Drop the connection and all data not yet sent."""
        self._transport.abort()

    def fail(self, reason: str) -> None:
        """Close this link: every operation under way ends with the reason."""
        while self._said:  # first: acknowledged frames have been written
            self._heed_one()
        if self.lost.done():
            return
        self.lost.set_result(reason)
        self._on_lost()  # do this at once: the next caller waits for the successor
        if not self.greeting.done():
            self.greeting.set_result((StoreUnavailable.__name__, reason))
        if self._look is not None:
            self._look.cancel()
        for call, _ in self._under_way.values():
            call.fail(StoreUnavailable(reason))
        self._under_way.clear()
        self._small.dissolve()
        self._large.dissolve()
        self._released.set()

    def _look_for_progress(self) -> None:
        self._look = None
        if not self._under_way:
            return
        self._looks += 1
        if (self._looks == LOOKS or self._held_for) and self._disk_looks < DISK_LOOKS:
            waiter = self._watch.waiter()
            if waiter is not None:
                self._looks = 0  # once the disk has answered, the writer has the full time again
                self._disk_looks += 1
                self._hold(waiter)
        if self._looks < LOOKS:
            self._look = self._loop.call_later(self._timeout_s / LOOKS, self._look_for_progress)
        else:
            self.fail(
                f"the embedded store's writer confirmed nothing in {self._timeout_s:g} s; {self._watch.suspect()}"
            )

    def _hold(self, waiter: int) -> None:
        """Wait for the disk: every operation under way ends with that reason. The writer may still do them, large ones
        after small ones. So later operations wait until it has confirmed everything that it received."""
        if self._held_for:
            self._held_for = self._watch.stalled(waiter, self._loop.time() - self._held_since, is_first=False)
            return
        self._held_since = self._loop.time() - self._timeout_s  # it has been silent for that long
        self._held_for = self._watch.stalled(waiter, self._loop.time() - self._held_since, is_first=True)
        self._released.clear()
        for call, _ in self._under_way.values():
            call.fail(StoreUnavailable(self._held_for))
        self._small.dissolve()
        self._large.dissolve()

    def _release(self) -> None:
        self._held_for, self._disk_looks = "", 0
        self._small, self._large = _Budget(SMALL_BUDGET_BYTES), _Budget(LARGE_BUDGET_BYTES)  # nothing is under way
        self._watch.over(self._loop.time() - self._held_since)
        self._released.set()


class WriterProcess:
    """One lane's writer, restarted as long as this is open."""

    def __init__(
        self, directory: Path, lane: Lane, *, map_size_bytes: int, timeout_s: float, death_fd: int = -1
    ) -> None:
        """Keep the settings. ``death_fd``: see ``writer.py``; the caller closes it."""
        self._death_fd = death_fd
        self.restarts = 0
        self._watch = Watch(directory, lane)
        self.pid: int | None = None  # the current process's; None: no process
        self._directory, self._lane = directory, lane
        self._map_size_bytes, self._timeout_s = map_size_bytes, timeout_s
        self._process: subprocess.Popen[bytes]
        self._link: _Link
        self._up = asyncio.Event()
        self._why_down = "the embedded store is not open"
        self._supervisor: asyncio.Task[None] | None = None
        self._troubles: dict[str, str] = {}  # by operation: the error that was logged
        self._said_until: dict[str, float] = {}
        self.files: Files | None = None  # opened by the first writer: all others have to open the same
        self.lost: StoreLost | None = None  # they cannot: no write is possible from then on

    async def open(self) -> None:
        """Start the writer. Raises the writer's error about the directory."""
        await self._start()
        self._supervisor = asyncio.create_task(self._supervise())

    @property
    def disk_stalls(self) -> int:
        """Return how often the disk has kept writes waiting for longer than the time-out."""
        return self._watch.stalls

    @property
    def is_held(self) -> bool:
        """Tell whether the writer waits for its disk, and may still do operations that have ended with an error."""
        return self._up.is_set() and self._link.is_held

    async def close(self) -> None:
        """End the writer; operations under way, and later ones, end with ``StoreUnavailable``."""
        if self._supervisor is None:
            return
        supervisor, self._supervisor = self._supervisor, None
        supervisor.cancel()
        await asyncio.wait({supervisor})
        self._why_down = "the embedded store is closed"
        if self._up.is_set() and self.lost is None:
            self._link.fail(self._why_down)
            self._link.hang_up()
            await self._end(END_TIMEOUT_S)
            self._link.abort()

    async def call(self, operation: str, arguments: Iterable[Any]) -> list[Any]:
        """Send one frame per argument and return all results. Waits while the writer is being restarted."""
        try:
            results = await self._call(operation, arguments)
        except (StoreLost, Superseded):
            raise  # the endpoint reports that, and ends
        except TooManyFilters:
            raise  # one client's fault, not the store's
        except StoreError as error:
            self._say(operation, str(error))
            error.is_logged = True
            raise
        if operation in self._troubles:
            del self._troubles[operation]
            log.warning("%s: %s works again", self._directory / self._lane, operation)
        return results

    async def _call(self, operation: str, arguments: Iterable[Any]) -> list[Any]:
        if not self._up.is_set():
            if self.lost is None and self._supervisor is None:
                raise StoreUnavailable(self._why_down)
            try:
                async with asyncio.timeout(self._timeout_s):
                    await self._up.wait()
            except TimeoutError:
                raise StoreUnavailable(self._why_down) from None
        if self.lost is not None:
            raise self.lost
        return await self._link.call(operation, arguments)

    def _say(self, operation: str, trouble: str) -> None:
        """Log it once in ``SAY_EVERY_S`` for each operation, even if the operation succeeds in between."""
        now = asyncio.get_running_loop().time()
        if self._supervisor is not None and now >= self._said_until.get(operation, 0.0):
            self._said_until[operation] = now + SAY_EVERY_S
            self._troubles[operation] = trouble
            log.error("%s: %s failed: %s", self._directory / self._lane, operation, trouble)

    async def _start(self) -> None:
        link = _Link(self._timeout_s, self._watch, self._up.clear)
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                self._process = self._spawn(theirs)
            self._watch.of(self._process.pid)
            await asyncio.get_running_loop().create_unix_connection(lambda: link, sock=ours)
        except OSError as error:
            ours.close()
            raise StoreUnavailable(f"the embedded store cannot start its writer process: {error}") from error
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                outcome, body = await link.greeting
            if outcome:
                raise ERRORS[outcome](body)
        except BaseException as error:
            suspect = self._watch.suspect()
            link.abort()
            died = link.lost.done() and link.lost.result() == WRITER_DIED
            await self._end(END_TIMEOUT_S if died else 0.0)
            if isinstance(error, TimeoutError):
                raise StoreUnavailable(
                    f"the embedded store's writer was not ready in {START_TIMEOUT_S:g} s; {suspect}"
                ) from None
            if died and isinstance(error, StoreError):
                raise StoreMisconfigured(f"{self._death()}, before it was ready") from None
            raise
        opened, notes = body
        self.files = Files(*opened)
        for note in notes:
            log.warning("the embedded store: %s", note)
        self.pid, self._link = self._process.pid, link
        self._troubles.pop(START, None)
        self._up.set()

    def _death(self) -> str:
        """Say why the dead process died, and what to do."""
        path, code = self._directory / self._lane, self._process.returncode
        if -code in DAMAGE_SIGNALS:
            return (
                f"the embedded store's writer died of {signal.Signals(-code).name}: {path / 'data.mdb'} is damaged, or "
                f"its disk fails or is full. `ingeborg doctor` tells; stop every endpoint of this store, and {RESTORE}"
            )
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        return f"the embedded store's writer of {path} {how} (its own messages, if any, are in this log)"

    def _spawn(self, theirs: socket.socket) -> subprocess.Popen[bytes]:
        return spawn(
            WRITER,
            theirs,
            str(self._directory),
            self._lane.value,
            str(self._map_size_bytes),
            str(self._death_fd),
            *([] if self.files is None else [":".join(map(str, self.files))]),
            descriptors=() if self._death_fd < 0 else (self._death_fd,),
        )

    async def _end(self, patience_s: float) -> None:
        """Return once the process is dead and reaped, however long that takes: two must never live at once."""
        self.pid = None
        await asyncio.shield(asyncio.to_thread(_bury, self._process, patience_s))

    async def _supervise(self) -> None:
        while True:
            self._why_down = await asyncio.shield(self._link.lost)
            died = self._why_down == WRITER_DIED
            self._link.abort()
            await self._end(END_TIMEOUT_S if died else 0.0)
            if died:
                self._why_down = f"{self._death()}; the endpoint starts another one"
            log.error("%s", self._why_down)
            for pause_s in itertools.chain(BACKOFF_S, itertools.repeat(BACKOFF_S[-1])):
                await asyncio.sleep(pause_s)
                self.restarts += 1
                try:
                    await self._start()
                    break
                except StoreLost as error:
                    self.lost = error
                    self._up.set()  # waiting callers get the error
                    return
                except StoreError as error:
                    self._why_down = str(error)  # the error of operations meanwhile
                    self._say(START, self._why_down)


def _bury(process: subprocess.Popen[bytes], patience_s: float) -> None:
    try:
        process.wait(patience_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
