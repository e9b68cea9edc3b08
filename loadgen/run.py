"""Drives one run: connect, subscribe, run, drain, unsubscribe; and logs all of it.

Owns: the phases, the senders, and what counts as the end. Must never: know a system (that is the backends'), draw
anything at random (the workload's), or let a slow connection delay another one's schedule.

One sender task per connection sleeps until its next report is due; messages come in by callback; a ticker writes the
log, samples the machine and shows progress once a second. Receiving phase or not, a message is logged under its news'.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from . import machine
from .backends.base import Backend, BackendError, Connection, Counters
from .progress import Progress
from .recorder import Recorder
from .rundir import RunDirectory
from .tally import Tally
from .workload import World

#: Connections or subscribes under way at once: keeps both sides busy without a burst that looks like an attack.
_AT_ONCE_MAX = 64
#: From the last preparation to the first report, so that no sender starts late.
_LEAD_NS = 200_000_000
#: After the last expected delivery: time for one that should not come.
_LINGER_S = 0.5
#: How long a run that was cut short still waits for what is under way.
_CUT_DRAIN_S = 2.0
#: Closing all connections: bounded, since the run is over.
_CLOSE_TIMEOUT_S = 10.0
#: Lines that are written before the second is over, so that memory and pauses stay small at high rates.
_LINES_MAX = 50_000
#: Errors of one kind on one run are logged one by one up to here, and only counted beyond: a broken endpoint must not
#: fill the disk.
_ERRORS_LOGGED_MAX = 100_000


class RunFailed(Exception):
    """The run could not be prepared, or its log not be written; the text says why."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How it ended. ``counters``: by source and name, at the run's beginning and at its end."""

    tally: Tally
    complete: bool
    phases_s: dict[str, float]
    subscriptions: int
    before: list[Counters]
    after: list[Counters]


class Run:
    """One run of ``world`` against ``backend``; ``execute`` once. ``run_id`` goes into every payload."""

    def __init__(
        self,
        world: World,
        backend: Backend,
        directory: RunDirectory,
        progress: Progress,
        *,
        run_id: str,
        duration_s: float,
        drain_s: float,
    ) -> None:
        self._world = world
        self._backend = backend
        self._directory = directory
        self._progress = progress
        self._run_id = run_id
        self._duration_s = duration_s
        self._drain_s = drain_s

        clients = len(world.wishes)
        self._tally = Tally(clients)
        self._recorder = Recorder()
        self._wished = [frozenset(topics) for topics in world.wishes]
        topics = world.schedule.topics
        self._news_by_content = {
            (topics[news.topic], news.station, news.start_ms): number for number, news in enumerate(world.schedule.news)
        }
        self._connections: list[Connection] = []
        self._phase = "connect"
        self._phase_end_ns: int | None = None
        self._phases_s: dict[str, float] = {}
        self._counters: dict[tuple[str, str], list[Counters]] = {}
        self._t0_ns = 0  # when second 0 of the schedule is
        self._announced = 0  # news whose time has come
        self._cut = asyncio.Event()  # Ctrl-C: keep what there is, and end
        self._cut_ns: int | None = None
        self._sleeping: dict[int, asyncio.Task[None]] = {}
        self._awaited: int | None = None  # deliveries that end the drain
        self._all_there = asyncio.Event()

    def cut(self) -> None:
        """End the run now and keep what was measured. For a signal handler."""
        if self._cut_ns is None:
            self._cut_ns = time.monotonic_ns()
            self._cut.set()
            for task in self._sleeping.values():
                task.cancel()

    async def execute(self) -> Outcome:
        """Run all phases. ``RunFailed`` when connecting or subscribing fails; the directory is closed in any case."""
        ticker = asyncio.create_task(self._tick(), name="ticker")
        complete = False
        try:
            ready = await self._prepare(ticker)
            if ready:
                # What exists now lives to the end: the collector need not look at it again while latencies are taken.
                gc.collect()
                gc.freeze()
                async with self._in_phase("run", measured=True):
                    await self._until(self._send_all(), ticker, cut=False)
                async with self._in_phase("drain"):
                    await self._drain(ticker)
                if not self._cut.is_set():
                    async with self._in_phase("unsubscribe"):
                        await self._until(self._each(self._unsubscribe), ticker)
            complete = ready and not self._cut.is_set()
        finally:
            gc.unfreeze()
            ticker.cancel()
            await asyncio.wait({ticker})
            await self._close_connections()
            self._announce()
            self._flush()
            self._directory.close(complete=complete)
        before, after = self._counters.get(("run", "start"), []), self._counters.get(("drain", "end"), [])
        return Outcome(self._tally, complete, self._phases_s, self._world.subscriptions, before, after)

    # -- phases

    async def _prepare(self, ticker: asyncio.Task[None]) -> bool:
        try:
            async with self._in_phase("connect"):
                await self._until(self._each(self._connect), ticker)
            if not self._cut.is_set():
                async with self._in_phase("subscribe"):
                    await self._until(self._each(self._subscribe), ticker)
        except BaseExceptionGroup as group:
            # Of many clients that failed alike the first one's reason will do; anything else is a bug, and stays whole.
            failures, others = group.split(BackendError)
            if failures is None or others is not None:
                raise
            raise RunFailed(f"{self._phase}: {failures.exceptions[0]}") from failures
        return not self._cut.is_set()

    @asynccontextmanager
    async def _in_phase(self, name: str, *, measured: bool = False) -> AsyncIterator[None]:
        """A phase of the log, with the servers' counters at both ends."""
        self._phase = name
        await self._log_counters(name, "start")
        start_ns = time.monotonic_ns()
        self._phase_end_ns = start_ns + int(self._duration_s * 1e9) if name == "run" else None
        try:
            yield
        finally:
            end_ns = time.monotonic_ns()
            self._phases_s[name] = (end_ns - start_ns) / 1e9
            self._directory.phase(name, start_ns, end_ns, measured)
            await self._log_counters(name, "end")

    async def _log_counters(self, phase: str, end: str) -> None:
        self._counters[phase, end] = found = await self._backend.counters()
        for server in found:
            self._directory.counters(server.at_ns, phase, server.source, server.values)

    async def _until(self, work: Coroutine[Any, Any, object], ticker: asyncio.Task[None], *, cut: bool = True) -> None:
        """Await ``work``; end it early when the ticker fails or, with ``cut``, when the run is cut short."""
        task = asyncio.create_task(work)
        ends: set[asyncio.Task[Any]] = {ticker}
        if cut:
            ends.add(asyncio.create_task(self._cut.wait()))
        try:
            await asyncio.wait({task, *ends}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for other in (task, *(ends - {ticker})):
                other.cancel()
            await asyncio.wait({task, *(ends - {ticker})})
        if ticker.done() and not ticker.cancelled() and (error := ticker.exception()):
            raise RunFailed(f"cannot write the log: {error}") from error
        if not task.cancelled():
            task.result()

    async def _each(self, do: Callable[[int], Awaitable[None]]) -> None:
        """Do it for every client number, so many at once."""
        numbers = iter(range(len(self._wished)))

        async def worker() -> None:
            for number in numbers:
                await do(number)

        self._connections = self._connections or [_NOT_CONNECTED] * len(self._wished)
        async with asyncio.TaskGroup() as group:
            for _ in range(min(_AT_ONCE_MAX, len(self._wished))):
                group.create_task(worker())

    async def _connect(self, number: int) -> None:
        def on_message(topic: str, payload: Any) -> None:
            self._received(number, topic, payload)

        def on_error(code: str) -> None:
            self._failed(number, code)

        self._connections[number] = await self._backend.connect(number, on_message, on_error)

    async def _subscribe(self, number: int) -> None:
        topics = self._topics_of(number)
        if topics:
            await self._connections[number].subscribe(topics)

    async def _unsubscribe(self, number: int) -> None:
        topics = self._topics_of(number)
        try:
            if topics:
                await self._connections[number].unsubscribe(topics)
        except BackendError as error:
            self._failed(number, error.code)  # the measuring is over; it is told like any other error

    def _topics_of(self, number: int) -> list[str]:
        names = self._world.schedule.topics
        return [names[topic] for topic in self._world.wishes[number]] + self._world.idle[number]

    async def _drain(self, ticker: asyncio.Task[None]) -> None:
        self._announce()
        self._awaited = self._tally.expected
        if self._tally.delivered < self._awaited:
            limit_s = _CUT_DRAIN_S if self._cut.is_set() else self._drain_s
            try:
                async with asyncio.timeout(limit_s):
                    await self._until(self._all_there.wait(), ticker, cut=not self._cut.is_set())
            except TimeoutError:
                self._progress.say(f"drain: {self._tally.lost:,} deliveries had not come after {limit_s:g} s")
        if not self._cut.is_set():
            await self._until(asyncio.sleep(_LINGER_S), ticker)

    async def _close_connections(self) -> None:
        closing = [asyncio.create_task(each.close()) for each in self._connections if each is not _NOT_CONNECTED]
        if closing:
            done, late = await asyncio.wait(closing, timeout=_CLOSE_TIMEOUT_S)
            for task in late:
                task.cancel()
            for task in done:
                task.result()

    # -- messages

    async def _send_all(self) -> None:
        self._t0_ns = time.monotonic_ns() + _LEAD_NS
        end_ns = self._t0_ns + int(self._duration_s * 1e9)
        self._phase_end_ns = end_ns
        async with asyncio.TaskGroup() as group:
            for number, reports in enumerate(self._world.schedule.reports):
                if reports:
                    group.create_task(self._send(number))
            group.create_task(self._sleep_to(-1, end_ns))  # the run lasts as long as it was said to

    async def _send(self, number: int) -> None:
        connection = self._connections[number]
        schedule = self._world.schedule
        for report in schedule.reports[number]:
            intended_ns = self._t0_ns + report.at_ns
            await self._sleep_to(number, intended_ns)
            if self._cut_ns is not None and intended_ns > self._cut_ns:
                return
            news = schedule.news[report.news]
            payload = {"run": self._run_id, "station": news.station, "start_ms": news.start_ms}
            try:
                await connection.publish(schedule.topics[news.topic], payload)
            except BackendError as error:
                self._failed(number, error.code)
                continue
            self._tally.sent += 1
            self._recorder.sent("run", number, news.topic, news.seq, intended_ns, time.monotonic_ns(), report.first)

    async def _sleep_to(self, number: int, at_ns: int) -> None:
        """Until then, or until the run is cut: that cancels the sleep and nothing else."""
        # A loop: timers are rounded to milliseconds, and a report must not leave before its time.
        while (left_ns := at_ns - time.monotonic_ns()) > 0 and self._cut_ns is None:
            task = asyncio.current_task()
            assert task is not None
            self._sleeping[number] = task
            try:
                await asyncio.sleep(left_ns / 1e9)
            except asyncio.CancelledError:
                if self._cut_ns is None or task.uncancel() > 0:
                    raise
            finally:
                del self._sleeping[number]

    def _received(self, number: int, topic: str, payload: Any) -> None:
        at_ns = time.monotonic_ns()
        try:
            index = self._news_by_content[topic, payload["station"], payload["start_ms"]]
            ours = payload["run"] == self._run_id
        except (KeyError, TypeError):
            ours = False
        if not ours:
            self._failed(number, "unexpected message")  # of another run or program: no loss, but worth knowing
            return
        news = self._world.schedule.news[index]
        if news.topic not in self._wished[number]:
            self._failed(number, "misdelivered")
            return
        intended_ns = self._t0_ns + news.at_ns
        self._recorder.received("run", number, news.topic, news.seq, intended_ns, at_ns)
        self._tally.add_received(number, index, news.topic, news.seq, at_ns - intended_ns)
        if self._awaited is not None and self._tally.delivered >= self._awaited:
            self._all_there.set()

    def _failed(self, number: int, code: str) -> None:
        self._tally.errors[code] += 1
        if self._tally.errors[code] <= _ERRORS_LOGGED_MAX:
            self._recorder.error(self._phase, number, time.monotonic_ns(), code)

    # -- once a second

    async def _tick(self) -> None:
        second_ns = 1_000_000_000
        next_ns = time.monotonic_ns() + second_ns
        sent = received = 0
        while True:
            # Rather than sleeping a second each time, which would drift; a full recorder does not wait for its second.
            while (left_ns := next_ns - time.monotonic_ns()) > 0:
                await asyncio.sleep(min(left_ns / 1e9, 0.25))
                if len(self._recorder) >= _LINES_MAX:
                    self._flush()
            late_ns = time.monotonic_ns() - next_ns
            next_ns += second_ns * (1 + late_ns // second_ns)
            self._announce()
            self._flush()
            await self._sample()
            left_s = None if self._phase_end_ns is None else (self._phase_end_ns - time.monotonic_ns()) / 1e9
            elapsed_s = 1 + late_ns / 1e9
            tally = self._tally
            self._progress.line(
                self._phase, left_s, tally, (tally.sent - sent) / elapsed_s, (tally.received - received) / elapsed_s
            )
            sent, received = tally.sent, tally.received

    def _announce(self) -> None:
        """Log the news whose time has come; a news is one even when all its reports fail to leave."""
        if not self._t0_ns:
            return
        now_ns = self._cut_ns if self._cut_ns is not None else time.monotonic_ns()
        news = self._world.schedule.news
        while self._announced < len(news) and self._t0_ns + news[self._announced].at_ns <= now_ns:
            each = news[self._announced]
            expected = self._world.subscribers[each.topic]
            self._recorder.news("run", each.topic, each.seq, self._t0_ns + each.at_ns, expected)
            self._tally.add_news(expected)
            self._announced += 1

    def _flush(self) -> None:
        lines = len(self._recorder)
        if lines:
            self._directory.events(self._recorder.take(), lines)

    async def _sample(self) -> None:
        now_ns = time.monotonic_ns()
        self._directory.machine(now_ns, "generator", machine.generator())
        self._directory.machine(now_ns, "host", machine.host())
        for server in await self._backend.counters():
            levels: Iterable[float | int | None] = (server.cpu_s, server.rss_bytes, None, None, None, None)
            self._directory.machine(server.at_ns, server.source, levels)


class _NotConnected:
    """Stands for a connection until there is one; the phases see to it that nobody uses it."""

    async def subscribe(self, topics: object) -> None:
        raise AssertionError("not connected")

    unsubscribe = subscribe

    async def publish(self, topic: str, payload: object) -> None:
        raise AssertionError("not connected")

    async def close(self) -> None:
        return


_NOT_CONNECTED: Connection = _NotConnected()
