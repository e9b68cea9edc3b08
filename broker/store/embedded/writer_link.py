"""The endpoint's side of a writer process. It starts the writer, sends frames to it, and replaces it when it dies or no
longer answers.

Owns: the child process, the unacknowledged frames and their limit, the time-out, and restarts with backoff. Must never:
open LMDB, block the event loop, let two writers of one lane live at the same time (a later write could overtake an
earlier one), or send anything to a writer after frames whose callers got an error.
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
"""Frames up to this size use the small budget, so that they never wait for the frames of a large batch."""

SMALL_BUDGET_BYTES = 1 << 20
LARGE_BUDGET_BYTES = 8 << 20
"""The largest number of bytes of frames that are sent and not yet acknowledged. The small budget is enough for 20,000
single subscriptions, which is more than a commit can have. The large budget is enough for 250,000 subscriptions, so
that a run over millions of topics has several changes for each page. These subscriptions take 60 MB of memory in the
writer, and a second to write."""

ACKNOWLEDGED_AT_ONCE = 100
"""How many acknowledgements are handled in one pass of the event loop. A commit acknowledges thousands together. Their
callers continue in the next pass of the loop, which takes about 20 us for each caller."""

LOOKS = 5
"""The link gives up a writer after this many checks without any acknowledgement. The interval between two checks is a
fifth of the time-out. The link counts checks instead of time. If this process itself was stopped for a minute, that
counts as only one check, which is no reason to kill the writer."""

DISK_LOOKS = 75
"""For this many checks, about a minute, the link tolerates a writer that waits for the disk. Such a process cannot be
killed before the disk answers, and its successor would wait for the same disk."""

START_TIMEOUT_S = 15.0
"""Time limit for the start of a writer. A start takes 0.1 s. Under full load, or after a reboot when no disk page is
cached, it can take a hundred times as long."""

END_TIMEOUT_S = 3.0
"""How long a writer may take to exit after the endpoint has closed the socket, before the endpoint kills it. It may
have to finish one commit."""

SAY_EVERY_S = 30.0
"""Interval at which the log repeats a lasting problem."""

DAMAGE_SIGNALS = (signal.SIGBUS, signal.SIGSEGV, signal.SIGABRT, signal.SIGFPE)
"""Signals that kill the writer if LMDB's mapped file was altered, or the disk cannot deliver a page."""

BACKOFF_S = (0.0, 0.1, 0.2, 0.5, 1.0, 2.0)
"""Pauses before the attempts to restart a writer. The last pause repeats. The first is zero, because most writers die
only once."""


START = "the start of a writer"
"""Name of this step in log lines, in place of the name of an operation."""

WRITER_DIED = "the embedded store's writer process died; the endpoint starts another one"
"""Error of the operations that are running when the writer dies. They fail immediately, a moment before the endpoint
knows the cause."""


class _Call:
    """One operation of a caller, with its frames and its one result."""

    __slots__ = ("all_sent", "done", "results", "unacknowledged")

    def __init__(self, done: asyncio.Future[list[Any]]) -> None:
        self.done, self.unacknowledged, self.all_sent = done, 0, False
        self.results: dict[int, Any] = {}  # indexed by frame number, in the order of sending

    def finish_if_complete(self) -> None:
        if self.all_sent and not self.unacknowledged and not self.done.done():
            self.done.set_result([result for results in self.results.values() for result in results])

    def fail(self, error: StoreError) -> None:
        if not self.done.done():
            self.done.set_exception(error)


class _Budget:
    """Limits the bytes of unacknowledged frames. A single frame may be larger than the limit. Callers wait in a queue,
    each with one frame, so that large batches take turns. The queue is therefore at most as long as the number of
    callers."""

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
            if turn.done() and not turn.cancelled():  # it got its turn just before the cancellation
                self.give(size)
            raise

    def give(self, size: int) -> None:
        self._taken_bytes -= size
        while self._line:
            turn, wanted = self._line[0]
            if not turn.done():  # otherwise its caller was cancelled
                if not self._fits(wanted):
                    return
                self._taken_bytes += wanted
                turn.set_result(None)
            self._line.popleft()

    def dissolve(self) -> None:
        """Let all waiting callers continue, because the link is lost or held and they will fail."""
        for turn, _ in self._line:
            if not turn.done():
                turn.set_result(None)
        self._line.clear()

    def _fits(self, size: int) -> bool:
        return self._taken_bytes + size <= self._limit_bytes or not self._taken_bytes


class _Link(asyncio.Protocol):
    """The connection to one writer process."""

    def __init__(self, timeout_s: float, watch: Watch, on_lost: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._timeout_s, self._watch, self._on_lost = timeout_s, watch, on_lost
        self.greeting: asyncio.Future[tuple[str, Any]] = self._loop.create_future()
        self.lost: asyncio.Future[str] = self._loop.create_future()  # its result is the reason
        self._transport: asyncio.Transport
        self._unpacker = Unpacker()
        self._numbers = itertools.count()
        self._under_way: dict[int, tuple[_Call, int]] = {}  # indexed by frame number, with the frame's size
        self._small, self._large = _Budget(SMALL_BUDGET_BYTES), _Budget(LARGE_BUDGET_BYTES)
        self._looks = 0
        self._look: asyncio.TimerHandle | None = None
        # The link is *held* while the writer waits for the disk. Meanwhile it sends no more frames to the writer.
        self._held_for = ""  # the error that callers get; empty if the link is not held
        self._held_since = 0.0
        self._disk_looks = 0  # checks in a row that found the writer waiting for the disk
        self._released = asyncio.Event()
        self._said: deque[tuple[int, str, Any]] = deque()  # answers of the writer that are not handled yet
        self._heeding = False  # whether the next pass of the event loop handles more of these answers

    # --- the caller's side

    async def call(self, operation: str, arguments: Iterable[Any]) -> list[Any]:
        """Send one frame for each argument. When all are acknowledged, return all results, in the order of the
        arguments."""
        call = _Call(self._loop.create_future())
        try:
            for argument in arguments:
                number = next(self._numbers)
                frame = pack((number, operation, argument))
                if self._held_for:
                    await self._until_released()
                if not self._held_for and not self.lost.done():  # a lost link never releases any budget
                    await self._budget(len(frame)).take(len(frame))
                if call.done.done():
                    break  # another frame of this call failed meanwhile
                if self.lost.done():
                    raise StoreUnavailable(self.lost.result())
                if self._held_for:
                    raise StoreUnavailable(self._held_for)
                self._send(call, number, frame)
                await asyncio.sleep(0)  # let the event loop run after every frame of a large batch
                if call.done.done():
                    break  # a frame has failed, and the whole batch with it
            call.all_sent = True
            call.finish_if_complete()
            return await call.done
        finally:
            call.done.cancel()  # if this call was cancelled, nothing waits for the future any more

    @property
    def is_held(self) -> bool:
        """See ``WriterProcess``."""
        return bool(self._held_for)

    async def _until_released(self) -> None:
        """Wait until the link is no longer held, or is lost, or the time-out is up."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._timeout_s):
                await self._released.wait()

    def _budget(self, size: int) -> _Budget:
        return self._small if size <= SMALL_FRAME_BYTES else self._large

    def _send(self, call: _Call, number: int, frame: bytes) -> None:
        self._under_way[number] = call, len(frame)
        call.results[number] = None
        call.unacknowledged += 1
        self._transport.write(frame)  # the budgets also limit the transport's buffer
        if self._look is None:
            self._looks = 0
            self._look = self._loop.call_later(self._timeout_s / LOOKS, self._look_for_progress)

    # --- the writer's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self.lost.done():
            return  # the callers have got their error already
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
        """Close the sending side of the socket, which tells the writer to exit."""
        self._transport.write_eof()

    def abort(self) -> None:
        """Close the connection, and drop all data that is not yet sent."""
        self._transport.abort()

    def fail(self, reason: str) -> None:
        """Give up this link. All running operations fail with this reason."""
        while self._said:  # first, because acknowledged frames have been written
            self._heed_one()
        if self.lost.done():
            return
        self.lost.set_result(reason)
        self._on_lost()  # immediately, so that the next caller waits for the successor
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
                self._looks = 0  # after the disk has answered, the writer gets the full time again
                self._disk_looks += 1
                self._hold(waiter)
        if self._looks < LOOKS:
            self._look = self._loop.call_later(self._timeout_s / LOOKS, self._look_for_progress)
        else:
            self.fail(
                f"the embedded store's writer confirmed nothing in {self._timeout_s:g} s; {self._watch.suspect()}"
            )

    def _hold(self, waiter: int) -> None:
        """Hold the link because of the disk. All running operations fail with that reason. The writer may still execute
        them, large operations after small ones. So later operations wait until the writer has confirmed everything that
        it has received."""
        if self._held_for:
            self._held_for = self._watch.stalled(waiter, self._loop.time() - self._held_since, is_first=False)
            return
        self._held_since = self._loop.time() - self._timeout_s  # the writer has already been silent for the time-out
        self._held_for = self._watch.stalled(waiter, self._loop.time() - self._held_since, is_first=True)
        self._released.clear()
        for call, _ in self._under_way.values():
            call.fail(StoreUnavailable(self._held_for))
        self._small.dissolve()
        self._large.dissolve()

    def _release(self) -> None:
        self._held_for, self._disk_looks = "", 0
        self._small, self._large = _Budget(SMALL_BUDGET_BYTES), _Budget(LARGE_BUDGET_BYTES)  # nothing is unacknowledged
        self._watch.over(self._loop.time() - self._held_since)
        self._released.set()


class WriterProcess:
    """One lane's writer. It is restarted whenever it dies, until ``close``."""

    def __init__(
        self, directory: Path, lane: Lane, *, map_size_bytes: int, timeout_s: float, death_fd: int = -1
    ) -> None:
        """Keep the settings. ``writer.py`` explains ``death_fd``, which the caller has to close."""
        self._death_fd = death_fd
        self.restarts = 0
        self._watch = Watch(directory, lane)
        self.pid: int | None = None  # the id of the current process, or None
        self._directory, self._lane = directory, lane
        self._map_size_bytes, self._timeout_s = map_size_bytes, timeout_s
        self._process: subprocess.Popen[bytes]
        self._link: _Link
        self._up = asyncio.Event()
        self._why_down = "the embedded store is not open"
        self._supervisor: asyncio.Task[None] | None = None
        self._troubles: dict[str, str] = {}  # operation -> the logged error, until the operation works again
        self._said_until: dict[str, float] = {}
        self.files: Files | None = None  # the files that the first writer opened; all later writers must open the same
        self.lost: StoreLost | None = None  # set if a later writer finds other files; then no write is possible

    async def open(self) -> None:
        """Start the writer. If the writer cannot open the directory, raise its error."""
        await self._start()
        self._supervisor = asyncio.create_task(self._supervise())

    @property
    def disk_stalls(self) -> int:
        """Return how often writes had to wait for the disk for longer than the time-out."""
        return self._watch.stalls

    @property
    def is_held(self) -> bool:
        """Return whether the writer waits for its disk. It may then still execute operations that have failed with an
        error."""
        return self._up.is_set() and self._link.is_held

    async def close(self) -> None:
        """End the writer. Running operations, and later ones, raise ``StoreUnavailable``."""
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
        """Send one frame for each argument, and return all results. Wait while the writer is being restarted."""
        try:
            results = await self._call(operation, arguments)
        except (StoreLost, Superseded):
            raise  # the endpoint reports this error and exits
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
        """Log the problem, at most once in ``SAY_EVERY_S`` for each operation, even if the operation succeeds in
        between."""
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
        """Return why the process died, and what the operator can do."""
        path, code = self._directory / self._lane, self._process.returncode
        if -code in DAMAGE_SIGNALS:
            return (
                f"the embedded store's writer died of {signal.Signals(-code).name}: {path / 'data.mdb'} is damaged, or "
                "its disk fails or is full. Run `ingeborg doctor` to find out which. If the file is damaged, stop "
                f"every endpoint of this store, and {RESTORE}"
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
        """Wait until the process is dead and reaped, however long that takes, because two writers must never live at
        the same time."""
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
                    self._up.set()  # so that waiting callers get the error
                    return
                except StoreError as error:
                    self._why_down = str(error)  # operations get this error meanwhile
                    self._say(START, self._why_down)


def _bury(process: subprocess.Popen[bytes], patience_s: float) -> None:
    try:
        process.wait(patience_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
