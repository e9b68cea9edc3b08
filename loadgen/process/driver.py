"""One process's part of a run: its connections, their publishes, and their deliveries.

Owns: sending on time, recognising received messages, and logging both. Each connection has its own lane, so that a
connection that accepts no more messages does not delay the others. Must never: depend on a system (the backends do),
draw random numbers (the plan does), or decide what comes next (the coordinator does).

To send a message, the driver takes one item of the plan, makes one text, and puts it in a lane. One `publish` call
sends many messages that are due on a connection. To receive a message, the driver splits the text once, converts three
numbers, and makes one line of the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import chain, islice
from typing import NamedTuple, Protocol, cast

from ..backends.base import (
    About,
    Backend,
    BackendError,
    Bounded,
    BoundingBackend,
    BoundingConnection,
    Connection,
)
from ..log.recorder import Recorder
from ..log.rundir import EventFiles
from ..workloads.bounded import Group
from ..workloads.plan import Plan, Replying, Send, content, heading, payload
from .tally import Latencies, Sequences

#: The maximum number of connects or subscribe calls that one process has under way. This number keeps both sides busy,
#: but does not look like an attack.
_AT_ONCE_MAX = 64
#: The maximum number of messages in one call of ``publish``. The number is small, so that the call returns soon after
#: its messages were written.
_BATCH_MAX = 256
#: A sender that is behind its schedule lets receivers run after this many messages.
_TURN_MAX = 128
#: The precision of the event loop's timers. A shorter sleep would return immediately, and the sender would use the CPU
#: all the time.
_SLEEP_S_MIN = 0.001
#: The longest sleep of a sender. A sender notices only after its sleep that the run is cut short.
_SLEEP_S_MAX = 0.1
#: The first errors of each kind, up to this number, get a line each in the log. Further errors are only counted, so
#: that a broken server cannot fill the disk.
_ERRORS_LOGGED_MAX = 10_000
#: When this many log lines wait for the disk, the process writes them early, so that writing never takes long.
LINES_MAX = 20_000


class _Due(NamedTuple):
    topic: str
    text: str
    send: Send
    intended_ns: int


class _Receive(Protocol):
    """Handles a received message. ``skipped``: the number of other messages that this message replaces."""

    def __call__(self, topic: str, text: str, skipped: int = 0, /) -> None: ...


class _Lane:
    """The queue of one connection, and the task that sends it."""

    __slots__ = ("due", "task", "waiter")

    def __init__(self) -> None:
        self.due: list[_Due] = []
        self.task: asyncio.Task[None] | None = None
        self.waiter: asyncio.Future[None] | None = None


class Stalled(Exception):
    """Nothing arrived for too long while messages were in flight."""


class Driver:
    """Runs the connections of one process: those whose number modulo ``processes`` is ``process``. ``tag``: see
    ``plan.payload``. ``bounds``: the bounds of each client, indexed by connection number. The sequence is empty if no
    client has bounds. Otherwise, the backend must be a ``BoundingBackend``. ``window``: the window of all clients with
    bounds (see ``Bounded``)."""

    def __init__(
        self,
        plan: Plan,
        backend: Backend,
        files: EventFiles,
        *,
        process: int,
        processes: int,
        tag: str,
        bounds: Sequence[Group | None] = (),
        window: int | None = None,
    ) -> None:
        self._plan = plan
        self._replying: Replying | None = plan if isinstance(plan, Replying) else None
        self._replies_over = False
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_ns = 0  # when the alarm should go off, from the segment's beginning
        self._backend = backend
        self._files = files
        self._processes = processes
        self._process = process
        self._tag = tag
        self._bounds = bounds
        self._window = window
        self._own = range(process, plan.connections, processes)
        self._connections: dict[int, Connection] = {}
        self._lanes: dict[int, _Lane] = {}
        self._woken: set[_Lane] = set()
        self._recorder = Recorder()
        self._sequences = Sequences(len(self._own), len(plan.topics))
        self._cut = asyncio.Event()

        self._phase = "connect"
        # Messages count in the phase of their segment, even if they arrive during the next one.
        self._segment = self._segment_before = "connect"
        self._t0_ns = 0
        self._sends: Iterator[Send] = iter(())  # the sends of the segment that is about to run
        self._drawn_ns = math.inf  # all sends that are due before this time are drawn
        self.amount = 0  # connections or subscriptions that the present phase has made
        self.sent = 0
        self.received = 0
        self.expected = 0  # deliveries, at all processes, of the news items that this process publishes first
        self.news = 0  # how many of these news items have receivers
        self.delivered = 0  # deliveries at this process, of any news item
        self.skipped = 0  # messages that these deliveries replace
        self.errors: Counter[str] = Counter()
        self._latencies = Latencies()
        self._awaited: tuple[int, asyncio.Future[None]] | None = None

    # -- phases

    def begin(self, phase: str) -> None:
        """Begin a phase. Later errors belong to it, and so do the messages of a segment that begins in it."""
        self._phase = phase
        self.amount = 0

    async def connect(self) -> None:
        """Open all connections of this process. Raises ``BackendError``."""

        async def one(number: int) -> None:
            self._connections[number] = await self._connected(number)
            self.amount += 1

        await self._each(one)

    async def _connected(self, number: int) -> Connection:
        receive = self._receiver(number)
        group = self._bounds[number] if self._bounds else None

        def failed(code: str) -> None:
            self._failed(number, code)

        if group is None:
            return await self._backend.connect(number, receive, failed)
        bounded = Bounded(group.bounds, self._window, receive)
        return await cast(BoundingBackend, self._backend).connect(number, receive, failed, bounded)

    async def subscribe(self) -> None:
        """Subscribe all connections to their topics. Raises ``BackendError``."""

        async def one(number: int) -> None:
            if topics := self._plan.subscriptions(number):
                await self._connections[number].subscribe(topics)
                self.amount += len(topics)

        await self._each(one)

    async def unsubscribe(self) -> None:
        """Undo ``subscribe``. The measured part has ended, so failures are only counted and no client replies any
        more."""
        self._replies_over = True

        async def one(number: int) -> None:
            if topics := self._plan.subscriptions(number):
                try:
                    await self._connections[number].unsubscribe(topics)
                    self.amount += len(topics)
                except BackendError as error:
                    self._failed(number, error.code)

        await self._each(one)

    def prepare(self, rate_per_s: float | None, duration_s: float) -> None:
        """Draw the next segment of the plan up to its first send, before the segment starts. A plan with its own times
        may sort all its sends here. Later, the sorting would delay the first seconds of the segment."""
        self._judge_order()
        sends = iter(self._plan.sends(rate_per_s, duration_s, self._process, self._processes))
        self._sends = chain(list(islice(sends, 1)), sends)

    async def run(self, t0_ns: int, duration_s: float) -> None:
        """Put each send of the prepared segment into its lane when it is due. Return at the segment's end, even if the
        lanes still hold messages."""
        self._begin_segment(t0_ns)
        turn = 0
        for send in self._sends:
            self._drawn_ns = intended_ns = t0_ns + send.at_ns
            turn += 1
            while (left_ns := intended_ns - time.monotonic_ns()) > 0 or turn > _TURN_MAX:
                self._wake()
                turn = 0
                await asyncio.sleep(min(max(left_ns / 1e9, _SLEEP_S_MIN), _SLEEP_S_MAX) if left_ns > 0 else 0)
                if self._cut.is_set():
                    self._drawn_ns = math.inf
                    return
            if send.connection % self._processes == self._process:
                self._put(send, t0_ns, intended_ns)
        self._drawn_ns = math.inf
        self._wake()
        left_s = (t0_ns - time.monotonic_ns()) / 1e9 + duration_s
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._cut.wait(), max(left_s, 0.0))

    async def flood(self, window: int, stall_s: float) -> None:
        """Publish the plan's next segment as fast as possible, with at most ``window`` messages in flight, and wait
        until all have arrived. The publisher and its subscriber both have to be in this process. Raises ``Stalled`` and
        ``BackendError``."""
        self._begin_segment(time.monotonic_ns())
        sends = iter(self._plan.sends(None, 0.0))
        sent = 0
        floor = self.received
        while batch := list(islice(sends, min(_BATCH_MAX, window))):
            if self._cut.is_set():
                return
            await self._until_received(floor + sent + len(batch) - window, stall_s)
            now_ns = time.monotonic_ns()
            due = [self._announced(send, now_ns, now_ns) for send in batch]
            await self._publish(batch[0].connection, due)
            sent += len(batch)
            await asyncio.sleep(0)
        await self._until_received(floor + sent, stall_s)

    def give_up(self) -> None:
        """Empty the lanes and count their messages as unsent, because the system has accepted nothing for too long."""
        for number, lane in self._lanes.items():
            for _ in lane.due:
                self._failed(number, "unsent")
            lane.due = []
        for number in self._no_more_replies():
            self._failed(number, "unsent")

    def cut(self) -> None:
        """Start nothing new. Messages that are in the lanes are still sent."""
        self._cut.set()
        self._no_more_replies()

    async def close(self) -> None:
        """Close connections, backend and log. Idempotent."""
        if self._alarm is not None:
            self._alarm.cancel()
        tasks = [lane.task for lane in self._lanes.values() if lane.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._lanes.clear()
        await asyncio.gather(*(connection.close() for connection in self._connections.values()))
        self._connections.clear()
        await self._backend.close()
        self.flush()
        self._files.close()
        for task in tasks:
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error

    # -- stats

    def flush(self) -> None:
        """Write the waiting lines of the log."""
        if lines := len(self._recorder):
            self._files.write(self._recorder.take(), lines)

    @property
    def lines(self) -> int:
        """Lines of the log that wait for the disk."""
        return len(self._recorder)

    def stats(self) -> dict[str, object]:
        """Return all counts so far, with the latencies and the lag of the present segment."""
        self._judge_order()
        now_ns = time.monotonic_ns()
        oldest_ns = min((lane.due[0].intended_ns for lane in self._lanes.values() if lane.due), default=now_ns)
        thinking = 0 if self._replying is None else self._replying.pending()
        return {
            "amount": self.amount,
            "sent": self.sent,
            "received": self.received,
            "expected": self.expected,
            "news": self.news,
            "delivered": self.delivered,
            "skipped": self.skipped,
            "repeated": self._sequences.repeated,
            "reordered": self._sequences.reordered,
            "overtaken": self._sequences.overtaken,
            "errors": dict(self.errors),
            "queued": sum(len(lane.due) for lane in self._lanes.values()) + thinking,
            "lag_ns": max(now_ns - oldest_ns, 0),
            "latencies": self._latencies.dump(),
        }

    # -- sending

    def _begin_segment(self, t0_ns: int) -> None:
        self._segment_before, self._segment = self._segment, self._phase
        self._t0_ns = t0_ns
        self._latencies = Latencies()

    def _put(self, send: Send, t0_ns: int, intended_ns: int) -> None:
        lane = self._lanes.get(send.connection)
        if lane is None:
            lane = self._lanes[send.connection] = _Lane()
        lane.due.append(self._announced(send, t0_ns + send.news_ns, intended_ns))
        self._woken.add(lane)
        if lane.task is None:
            lane.task = asyncio.create_task(self._sender(send.connection, lane))

    def _announced(self, send: Send, news_ns: int, intended_ns: int) -> _Due:
        """Prepare a send for its lane. Log its news item now, because the log needs the item even if every publish
        fails."""
        if send.first:
            expected = self._plan.expected(send.topic)
            self._recorder.news(self._segment, send.topic, send.seq, news_ns, expected)
            self.expected += expected
            self.news += expected > 0
        text = payload(self._tag, send.topic, send.seq, news_ns, send.content, send.size)
        return _Due(self._plan.topics[send.topic], text, send, intended_ns)

    def _hear(self, replying: Replying, number: int, text: str, at_ns: int) -> None:
        """Schedule the replies to a message that the connection has received for the first time."""
        if self._replies_over:
            return
        try:
            replying.heard(number, content(text), at_ns - self._t0_ns)
        except ValueError:
            self._failed(number, "unexpected message")
            return
        due_ns = replying.next_ns()
        if due_ns is not None:
            self._reply_at(due_ns, time.monotonic_ns() - self._t0_ns)

    def _reply_at(self, due_ns: int, now_ns: int) -> None:
        """Set the alarm to ``due_ns`` unless it goes off earlier. Both times are relative to the segment's
        beginning."""
        if self._alarm is not None:
            if self._alarm_ns <= due_ns:
                return
            self._alarm.cancel()
        left_s = (due_ns - now_ns) / 1e9
        delay_s = max(left_s, _SLEEP_S_MIN) if left_s > 0 else 0.0
        self._alarm_ns = due_ns
        self._alarm = asyncio.get_running_loop().call_later(delay_s, self._reply)

    def _reply(self) -> None:
        """Put the due replies into the lanes."""
        self._alarm = None
        assert self._replying is not None
        now_ns = time.monotonic_ns() - self._t0_ns
        for send in self._replying.due(now_ns):
            self._put(send, self._t0_ns, self._t0_ns + send.at_ns)
        self._wake()
        if (next_ns := self._replying.next_ns()) is not None:
            self._reply_at(next_ns, now_ns)

    def _no_more_replies(self) -> list[int]:
        """Drop the replies that are not due yet. Return the connections that would have sent them."""
        self._replies_over = True
        return [] if self._replying is None else self._replying.forget()

    def _wake(self) -> None:
        for lane in self._woken:
            if lane.waiter is not None and not lane.waiter.done():
                lane.waiter.set_result(None)
        self._woken.clear()

    async def _sender(self, number: int, lane: _Lane) -> None:
        loop = asyncio.get_running_loop()
        while True:
            while not lane.due:
                lane.waiter = loop.create_future()
                await lane.waiter
            batch, lane.due = lane.due[:_BATCH_MAX], lane.due[_BATCH_MAX:]
            try:
                await self._publish(number, batch)
            except BackendError as error:
                for _ in batch:
                    self._failed(number, error.code)

    async def _publish(self, number: int, batch: list[_Due]) -> None:
        connection = self._connections[number]
        if any(due.send.item is not None or due.send.weight is not None for due in batch):
            about = [About(due.topic, due.text, due.send.item, due.send.weight) for due in batch]
            await cast(BoundingConnection, connection).publish_about(about)
        else:
            await connection.publish([(due.topic, due.text) for due in batch])
        at_ns = time.monotonic_ns()
        self.sent += len(batch)
        record, segment = self._recorder.sent, self._segment
        for due in batch:
            send = due.send
            record(segment, number, send.topic, send.seq, due.intended_ns, at_ns, send.first, send.causal)

    # -- receiving

    def _receiver(self, number: int) -> _Receive:
        """Return the callback for each message of a connection."""
        receives = self._plan.receives(number)
        topics = self._plan.topics
        own = number // self._processes
        clock = time.monotonic_ns
        record = self._recorder.received
        first_time, skip = self._sequences.add, self._sequences.skip
        replying = self._replying

        def on_message(topic: str, text: str, skipped: int = 0) -> None:
            at_ns = clock()
            head = heading(self._tag, text)
            if head is None:  # the message is from another run or program: not a loss, but worth reporting
                self._failed(number, "unexpected message")
                return
            if head.topic not in receives or topics[head.topic] != topic:
                self._failed(number, "misdelivered")
                return
            intended_ns = head.intended_ns
            current = intended_ns >= self._t0_ns
            segment = self._segment if current else self._segment_before
            record(segment, number, head.topic, head.seq, intended_ns, at_ns, skipped)
            self.received += 1
            if current:
                self._latencies.add(at_ns - intended_ns)
            if first_time(own, head.topic, head.seq, at_ns):
                self.delivered += 1
                if replying is not None:
                    self._hear(replying, number, text, at_ns)
            if skipped:
                self.skipped += skipped
                skip(own, head.topic, skipped)
            if self._awaited is not None and self.received >= self._awaited[0] and not self._awaited[1].done():
                self._awaited[1].set_result(None)

        return on_message

    def _judge_order(self) -> None:
        """Judge the order of the messages that arrived before ``_drawn_ns``. Up to that time, the sends of all
        processes are drawn."""
        t0_ns, publisher = self._t0_ns, self._plan.publisher
        self._sequences.judge(lambda topic, seq, at_ns: publisher(topic, seq, at_ns - t0_ns), self._drawn_ns)

    async def _until_received(self, count: int, stall_s: float) -> None:
        """Wait until ``count`` messages have arrived. Raises ``Stalled`` if no message arrives for ``stall_s``."""
        while self.received < count and not self._cut.is_set():
            before = self.received
            future = asyncio.get_running_loop().create_future()
            self._awaited = (count, future)
            try:
                async with asyncio.timeout(stall_s):
                    await future
            except TimeoutError:
                if self.received == before:
                    missing = self.expected - self.delivered - self.skipped
                    raise Stalled(f"nothing was delivered for {stall_s:g} s; {missing:,} messages missing") from None
            finally:
                self._awaited = None

    def _failed(self, number: int, code: str) -> None:
        self.errors[code] += 1
        if self.errors[code] <= _ERRORS_LOGGED_MAX:
            self._recorder.error(self._phase, number, time.monotonic_ns(), code)

    async def _each(self, do: Callable[[int], Awaitable[None]]) -> None:
        """Call ``do`` for every connection of this process, with a few calls under way at a time. Stop at the first
        ``BackendError`` and raise it."""
        numbers: Iterator[int] = iter(self._own)

        async def worker() -> None:
            for number in numbers:
                if self._cut.is_set():
                    return
                await do(number)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(_AT_ONCE_MAX, len(self._own))):
                    group.create_task(worker())
        except BaseExceptionGroup as errors:
            # If many clients failed for the same reason, the first error is enough. Any other exceptions are bugs, and
            # their whole group is raised.
            failures, others = errors.split(BackendError)
            if failures is None or others is not None:
                raise
            first: BaseException = failures
            while isinstance(first, BaseExceptionGroup):
                first = first.exceptions[0]
            raise first from None
