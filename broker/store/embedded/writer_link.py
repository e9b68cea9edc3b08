"""The endpoint's side of a writer process: starts it, feeds it, notices that it died or fell silent, replaces it.

Owns: the child process, the frames under way and their limit, the time-out, restarts with backoff. Must never: open
LMDB, block the event loop, let two writers of one lane live at once (a later write could overtake an earlier one), or
send anything behind frames whose callers have been told that they failed.
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
"""Up to this size a frame has the small budget, so that it never waits for those of a large batch."""

SMALL_BUDGET_BYTES = 1 << 20
LARGE_BUDGET_BYTES = 8 << 20
"""Frames sent and not yet acknowledged. Small: 20,000 single subscriptions, more than a commit takes in. Large: 250,000
subscriptions, so that a run over millions of topics finds several for each page; 60 MB in the writer, one second."""

ACKNOWLEDGED_AT_ONCE = 100
"""Frames that are acknowledged in one pass of the event loop. A commit acknowledges thousands together, and whatever
waited for one goes on in the next pass: some 20 us each."""

LOOKS = 5
"""A writer is given up after this many looks without any acknowledgement, a time-out's fifth apart. Looks, and not a
clock: when this process itself was stopped for a minute, that is one look, and no reason to kill the writer."""

DISK_LOOKS = 75
"""Looks that a writer is waited for while it waits for the disk: a minute. It cannot be killed before the disk answers,
and its successor would wait for the same disk."""

START_TIMEOUT_S = 15.0
"""A start takes 0.1 s; on a machine under full load, or after a reboot with cold disks, a hundred times that."""

END_TIMEOUT_S = 3.0
"""How long a writer that was hung up on may take to end (one commit) before it is killed."""

SAY_EVERY_S = 30.0
"""A trouble that lasts is logged this often."""

DAMAGE_SIGNALS = (signal.SIGBUS, signal.SIGSEGV, signal.SIGABRT, signal.SIGFPE)
"""What LMDB dies of where the file that it has mapped is not as it left it, or its disk cannot give it."""

BACKOFF_S = (0.0, 0.1, 0.2, 0.5, 1.0, 2.0)
"""Pauses before the tries to restart; the last one repeats. The first is none: most deaths are single ones."""


START = "the start of a writer"
"""In the log beside the names of operations."""

WRITER_DIED = "the embedded store's writer process died; another one is started"
"""What operations under way are told at once; what it died of is known a moment later."""


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
    """So many bytes under way at most, or one frame. Callers with a frame ready wait in line, each with one frame, so
    that large batches take turns; the line is as long as there are callers."""

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
            if turn.done() and not turn.cancelled():  # its turn had just come
                self.give(size)
            raise

    def give(self, size: int) -> None:
        self._taken_bytes -= size
        while self._line:
            turn, wanted = self._line[0]
            if not turn.done():  # done: its caller was cancelled
                if not self._fits(wanted):
                    return
                self._taken_bytes += wanted
                turn.set_result(None)
            self._line.popleft()

    def dissolve(self) -> None:
        """Let everybody through: there is nothing to wait for any more."""
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
        self._under_way: dict[int, tuple[_Call, int]] = {}  # by number, with the frame's size; bounded by the budgets
        self._small, self._large = _Budget(SMALL_BUDGET_BYTES), _Budget(LARGE_BUDGET_BYTES)
        self._looks = 0
        self._look: asyncio.TimerHandle | None = None
        # While the disk is waited for the link is held: what is under way is the writer's, and nothing more is sent.
        self._held_for = ""  # why, as callers are told; empty: it is not
        self._held_since = 0.0
        self._disk_looks = 0  # without a word of the writer, which waited for the disk
        self._released = asyncio.Event()
        self._said: deque[tuple[int, str, Any]] = deque()  # by the writer, and not yet heeded
        self._heeding = False  # the next pass of the event loop goes on with it

    # --- the caller's side

    async def call(self, operation: str, arguments: Iterable[Any]) -> list[Any]:
        """Send one frame per argument; the results of all, in that order, once all are acknowledged."""
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
                    break  # while it was waiting for its turn, frames of it have failed
                if self.lost.done():
                    raise StoreUnavailable(self.lost.result())
                if self._held_for:
                    raise StoreUnavailable(self._held_for)
                self._send(call, number, frame)
                await asyncio.sleep(0)  # a large batch lets go of the loop at every frame
                if call.done.done():
                    break  # a frame has failed, and the whole batch with it
            call.all_sent = True
            call.finish_if_complete()
            return await call.done
        finally:
            call.done.cancel()  # nobody waits for it any more, should this have been cancelled

    @property
    def is_held(self) -> bool:
        """See ``WriterProcess``."""
        return bool(self._held_for)

    async def _until_released(self) -> None:
        """Return when the link is not held any more, or is lost, or the time-out is over."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._timeout_s):
                await self._released.wait()

    def _budget(self, size: int) -> _Budget:
        return self._small if size <= SMALL_FRAME_BYTES else self._large

    def _send(self, call: _Call, number: int, frame: bytes) -> None:
        self._under_way[number] = call, len(frame)
        call.results[number] = None
        call.unacknowledged += 1
        self._transport.write(frame)  # what the transport buffers is under way, so the budgets bound that too
        if self._look is None:
            self._looks = 0
            self._look = self._loop.call_later(self._timeout_s / LOOKS, self._look_for_progress)

    # --- the writer's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self.lost.done():
            return  # whoever asked has been told that it failed
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
            self.fail(f"the embedded store's writer had to end: {body}; another one is started")
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
        """Drop the connection, and with it what is not yet sent."""
        self._transport.abort()

    def fail(self, reason: str) -> None:
        """Nothing goes over this link any more: every operation under way ends with the reason."""
        while self._said:  # before: what is acknowledged has been written
            self._heed_one()
        if self.lost.done():
            return
        self.lost.set_result(reason)
        self._on_lost()  # at once: whoever calls next waits for the successor
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
                self._looks = 0  # when the disk has answered, the writer has all the time that it always has
                self._disk_looks += 1
                self._hold(waiter)
        if self._looks < LOOKS:
            self._look = self._loop.call_later(self._timeout_s / LOOKS, self._look_for_progress)
        else:
            self.fail(
                f"the embedded store's writer confirmed nothing in {self._timeout_s:g} s; {self._watch.suspect()}"
            )

    def _hold(self, waiter: int) -> None:
        """Wait for the disk: every operation under way ends with that reason. The writer may yet do them, and large
        ones after small ones; so the next ones wait until it has confirmed all that it was given."""
        if self._held_for:
            self._held_for = self._watch.stalled(waiter, self._loop.time() - self._held_since, is_first=False)
            return
        self._held_since = self._loop.time() - self._timeout_s  # it has been silent through all of its looks
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
    """One lane's writer, restarted for as long as this is open."""

    def __init__(
        self, directory: Path, lane: Lane, *, map_size_bytes: int, timeout_s: float, death_fd: int = -1
    ) -> None:
        """``death_fd``: see ``writer.py``; the caller's to close."""
        self._death_fd = death_fd
        self.restarts = 0
        self._watch = Watch(directory, lane)
        self.pid: int | None = None  # of the current process; None while there is none
        self._directory, self._lane = directory, lane
        self._map_size_bytes, self._timeout_s = map_size_bytes, timeout_s
        self._process: subprocess.Popen[bytes]
        self._link: _Link
        self._up = asyncio.Event()
        self._why_down = "the embedded store is not open"
        self._supervisor: asyncio.Task[None] | None = None
        self._troubles: dict[str, str] = {}  # by operation: why it fails, where that was logged
        self._said_until: dict[str, float] = {}
        self.files: Files | None = None  # that the first writer has opened: all others have to open the same
        self.lost: StoreLost | None = None  # they cannot: nothing is written any more

    async def open(self) -> None:
        """Start the writer; what it says about the directory is raised."""
        await self._start()
        self._supervisor = asyncio.create_task(self._supervise())

    @property
    def disk_stalls(self) -> int:
        """How often the disk has kept writes waiting for longer than the time-out."""
        return self._watch.stalls

    @property
    def is_held(self) -> bool:
        """It waits for its disk, and may yet do what has ended with an error."""
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
        """One frame per argument; the results of all. While a writer is being restarted, it is waited for."""
        try:
            results = await self._call(operation, arguments)
        except (StoreLost, Superseded):
            raise  # the endpoint says so, and ends
        except TooManyFilters:
            raise  # of one client's, and no trouble of the store's
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
        """Log it, once in ``SAY_EVERY_S`` for each operation: one that works now and then is no reason for more."""
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
        """What the process, which is dead, died of, and what to do."""
        path, code = self._directory / self._lane, self._process.returncode
        if -code in DAMAGE_SIGNALS:
            return (
                f"the embedded store's writer died of {signal.Signals(-code).name}: {path / 'data.mdb'} is damaged, or "
                f"its disk fails or is full. `ingeborg doctor` tells; stop every endpoint of it, and {RESTORE}"
            )
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        return f"the embedded store's writer of {path} {how} (its own words, if any, are in this log)"

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
        """Return when the process is dead and buried, however long that takes: two must never live at once."""
        self.pid = None
        await asyncio.shield(asyncio.to_thread(_bury, self._process, patience_s))

    async def _supervise(self) -> None:
        while True:
            self._why_down = await asyncio.shield(self._link.lost)
            died = self._why_down == WRITER_DIED
            self._link.abort()
            await self._end(END_TIMEOUT_S if died else 0.0)
            if died:
                self._why_down = f"{self._death()}; another one is started"
            log.error("%s", self._why_down)
            for pause_s in itertools.chain(BACKOFF_S, itertools.repeat(BACKOFF_S[-1])):
                await asyncio.sleep(pause_s)
                self.restarts += 1
                try:
                    await self._start()
                    break
                except StoreLost as error:
                    self.lost = error
                    self._up.set()  # whoever waits is told
                    return
                except StoreError as error:
                    self._why_down = str(error)  # what operations say meanwhile
                    self._say(START, self._why_down)


def _bury(process: subprocess.Popen[bytes], patience_s: float) -> None:
    try:
        process.wait(patience_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
