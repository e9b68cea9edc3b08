"""Runs one history: carries out a plan on a bed, and records it.

Owns: the clients and the order of events: everybody listens, operations and faults follow their times, all faults are
repaired, the run awaits every loose end, and reads the counters. Must never: judge, or draw anything.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from websockets.exceptions import WebSocketException

from ingeborg.bench.errors import BenchError

from .allowances import REPLY_S, WHOLE_S
from .bed import Bed, Endpoint
from .faults import Faults
from .lines import Line
from .pages import Pages
from .plan import ALL, EVERYTHING, KEEP_S, PAGE, SETTINGS, Plan, Step, chosen
from .record import Event, Recorder
from .streams import Page

#: Interval between two samples of every endpoint's metrics, in seconds: how precisely the record shows a presumed
#: death.
LOOKS_EVERY_S = 0.3

#: Wait of a client that lost its connection before it tries the next endpoint, in seconds.
AGAIN_S = 0.1

#: Tries to read an endpoint's counters before the run goes on without them.
LOOKS = 4

#: A subscriber with this many unanswered commands begins no more: each can take as long as the store's time-out.
UNANSWERED_MAX = 3

#: Returns of each reader at the end, each with one of its positions.
TIMES_BACK = 4

#: Errors of failed connection attempts.
UNREACHABLE = (OSError, TimeoutError, WebSocketException)


class Subscriber:
    """A client that listens wherever it can; operations that need a connection run one after the other."""

    def __init__(self, history: HistoryRun, name: str, first: str) -> None:
        self._history = history
        self._turns = itertools.cycle(sorted(history.bed.endpoints, key=lambda other: (other != first, other)))
        self._lock = asyncio.Lock()
        self._moved = asyncio.Event()
        self.name = name
        self.line: Line | None = None
        self.former: list[Line] = []  # left for the broker to close

    async def connect(self, to: str | None = None, *, leave: bool = False) -> bool:
        """Make a new connection that listens. ``leave``: close the present one first; else the broker has to. Without
        ``to``: wherever it can, for as long as it takes."""
        async with self._lock:
            if leave and self.line is not None:
                await self.line.close()
            while True:
                name = to or next(self._turns)
                line = await self._history.open(self.name, name)
                if line is not None:
                    if self.line is not None:
                        self.former.append(self.line)
                    self.line = line
                    self._moved.set()
                    with suppress(asyncio.CancelledError):
                        reply = await self.listen(line)
                        if reply.get("result") == "success":
                            return True
                    _reraise_cancellation()
                if to is not None:
                    return False
                await asyncio.sleep(AGAIN_S)

    async def listen(self, line: Line) -> dict[str, Any]:
        """Send the first command of a connection; return its reply."""
        return await line.send("listen")

    def say(self, line: Line, step: Step) -> None:
        """Send a command of the plan."""
        line.send("listen" if step.do == "listen again" else step.do, **step.fields)

    async def keep(self) -> None:
        """Reconnect whenever the connection is gone, as a library does."""
        while True:
            line = self.line
            if line is None or line.over.is_set():
                await self.connect()
            else:
                self._moved.clear()
                # The old connection can outlive the new one, if its own `listen` takes the client back.
                waits = [asyncio.create_task(event.wait()) for event in (line.over, self._moved)]
                try:
                    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for wait in waits:
                        wait.cancel()
                if line.over.is_set():
                    await asyncio.sleep(AGAIN_S)

    @property
    def idle(self) -> bool:
        """Can it take one more command?"""
        return self.line is not None and self.line.is_open and len(self.line.unanswered) < UNANSWERED_MAX


class Reader(Subscriber):
    """A client that recovers: it comes back with any of the positions that it ever received."""

    def __init__(self, history: HistoryRun, name: str, first: str, draws: Sequence[float]) -> None:
        super().__init__(history, name, first)
        self._recorder = history.recorder
        self._draws = itertools.cycle(draws)
        self._saved: list[tuple[int, str]] = []  # number in the record, position
        self._recovered: asyncio.Event = asyncio.Event()

    async def listen(self, line: Line) -> dict[str, Any]:
        recovered = self._recovered = asyncio.Event()
        is_first = not self._saved

        def told(number: int, position: str, is_end: bool) -> None:
            # With two connections, it believes the one on which it listened last.
            if line is self.line:
                self._saved.append((number, position))
            if is_end or is_first:
                recovered.set()

        line.on_position = told
        sent = line.send("listen", recover=True) if is_first else self._returns(line, next(self._draws))
        reply = await sent
        if reply.get("result") != "success":
            await line.close()  # otherwise a later `listen` without `recover` would make it an ordinary client
        return reply

    def _returns(self, line: Line, draw: float) -> asyncio.Future[dict[str, Any]]:
        number, position = self._chosen(draw)
        self._recorder.add("back", connection=line.number, number=number)
        return line.send("listen", recover=position)

    def _chosen(self, draw: float) -> tuple[int, str]:
        return self._saved[chosen(len(self._saved), draw)]

    def say(self, line: Line, step: Step) -> None:
        if step.do == "listen anew":
            # One at a time: messages between two answers could belong to either.
            if self._saved and not line.unanswered:
                self._returns(line, step.fields["recover"])
        elif "since" not in step.fields:
            super().say(line, step)
        elif self._saved:
            line.send(step.do, **{**step.fields, "since": self._chosen(step.fields["since"])[1]})

    async def come_back(self) -> None:
        """Wait until it has recovered on a new connection."""
        while True:
            await self.connect(leave=True)
            line, recovered = self.line, self._recovered
            assert line is not None
            waits = [asyncio.create_task(event.wait()) for event in (line.over, recovered)]
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for wait in waits:
                    wait.cancel()
            if recovered.is_set():
                return

    async def look_in(self, topics: Sequence[str]) -> None:
        """Request the history of all topics, and its second half."""
        line = self.line
        assert line is not None

        async def look(topic: str) -> None:
            reply = await line.send("history", topic=topic, last=ALL)
            mids = [one["mid"] for one in reply.get("publications", ())]
            if mids:
                about = {"limit": PAGE, "filter": EVERYTHING}
                await line.send("history", topic=topic, since=mids[len(mids) // 2], **about)

        with suppress(asyncio.CancelledError):
            await asyncio.gather(*map(look, topics))
        _reraise_cancellation()


def _reraise_cancellation() -> None:
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


class HistoryRun:
    """Runs one plan on one bed. ``reach``: a test's own address for clients to connect to, instead of the
    endpoint's."""

    def __init__(self, bed: Bed, plan: Plan, *, reach: Callable[[str, Endpoint], str] | None = None) -> None:
        self.bed = bed
        self.plan = plan
        self.recorder = Recorder()
        self._reach = reach or (lambda client, endpoint: endpoint.url)
        self._in_lines = reach is None  # a test may look at each frame
        self._numbers = itertools.count(1)
        self._lines: list[Line] = []
        self._readers = {name: Reader(self, name, plan.at[name], draws) for name, draws in plan.readers.items()}
        self._subscribers: dict[str, Subscriber] = {
            **{name: Subscriber(self, name, plan.at[name]) for name in plan.subscribers},
            **self._readers,
        }
        streams = itertools.count(1)
        self._streams = [
            Page(bed, self.recorder, streams, name, topics, draws) for name, (topics, draws) in plan.streams.items()
        ]
        self._publishers: dict[str, Line] = {}
        self._faults = Faults(bed, self.recorder)
        self._pages = Pages(bed, self.recorder)

    async def run(self) -> list[Event]:
        """Run it and return the record. It always ends, even if the broker hangs."""
        plan = self.plan
        self.recorder.add(
            "history",
            seed=plan.seed,
            store=plan.store,
            network=plan.network,
            endpoints=list(plan.endpoints),
            faults=plan.kinds,
            replication=self.bed.settings.replication,
            history=self.bed.settings.history,
            changed=self.bed.changed or SETTINGS in plan.kinds,
            readers=list(plan.readers),
            grace_s=self.bed.grace_s,
        )
        try:
            await self._counters("begin")
            looking = asyncio.create_task(self._look_on())
            try:
                await self._go()
            finally:
                looking.cancel()
                (ended,) = await asyncio.gather(looking, return_exceptions=True)
            assert isinstance(ended, asyncio.CancelledError), ended
        finally:
            await asyncio.gather(*(line.close() for line in self._lines), return_exceptions=True)
            await self._pages.close()
        return self.recorder.events

    async def _go(self) -> None:
        await asyncio.gather(*(subscriber.connect() for subscriber in self._subscribers.values()))
        began = self.recorder.now()
        tasks: set[asyncio.Task[Any]] = set()
        keepers = [asyncio.create_task(subscriber.keep()) for subscriber in self._subscribers.values()]
        publishers = [asyncio.create_task(self._keep_publisher(name)) for name in self.plan.endpoints]
        streams = [asyncio.create_task(page.keep()) for page in self._streams]
        faults = [asyncio.create_task(self._fault(began, fault)) for fault in self.plan.faults]
        writing = asyncio.create_task(self._write_pages(began))
        try:
            for step in self.plan.steps:
                await asyncio.sleep(max(0.0, began + step.at_s - self.recorder.now()))
                self._step(step, tasks)
            await asyncio.gather(*faults)
            await asyncio.gather(*tasks)
            await writing
            for endpoint in self.bed.endpoints.values():
                if not endpoint.runs:
                    await self._faults.start(endpoint)
            await self._end()
        finally:
            every = (*keepers, *publishers, *streams, *faults, *tasks, writing)
            for task in every:
                task.cancel()
            await asyncio.gather(*every, return_exceptions=True)

    async def _write_pages(self, began: float) -> None:
        async with asyncio.TaskGroup() as tasks:
            for writing in self.plan.pages:
                await asyncio.sleep(max(0.0, began + writing.at_s - self.recorder.now()))
                tasks.create_task(self._pages.write(writing))

    async def _fault(self, began: float, fault: Any) -> None:
        await asyncio.sleep(max(0.0, began + fault.at_s - self.recorder.now()))
        await self._faults.inject(fault)

    def _step(self, step: Step, tasks: set[asyncio.Task[Any]]) -> None:
        if step.who in self._subscribers:
            subscriber = self._subscribers[step.who]
            if step.do in ("move", "reconnect"):
                moving = subscriber.connect(step.fields["to"], leave=step.do == "reconnect")
                task = asyncio.create_task(moving)
                tasks.add(task)
            elif subscriber.idle:
                assert subscriber.line is not None
                subscriber.say(subscriber.line, step)
            return
        line = self._publishers.get(step.who)
        if line is not None and line.is_open:
            line.send(step.do, **step.fields)

    async def open(self, client: str, name: str) -> Line | None:
        """Connect to that endpoint, if possible."""
        endpoint = self.bed.endpoints[name]
        line = Line(self.recorder, next(self._numbers), client, name, endpoint.life)
        self._lines.append(line)
        try:
            # Every other connection.
            await line.open(self._reach(client, endpoint), lines=line.number % 2 == 0 and self._in_lines)
        except UNREACHABLE:
            return None
        return line

    async def _keep_publisher(self, name: str) -> None:
        """Give each endpoint a client that publishes there and nowhere else."""
        client = f"{self.plan.seed} p-{name}"
        while True:
            line = await self.open(client, name)
            if line is not None:
                self._publishers[client] = line
                await line.over.wait()
            await asyncio.sleep(AGAIN_S)

    async def _look_on(self) -> None:
        async def look(endpoint: Endpoint) -> None:
            life = endpoint.life
            seen = await endpoint.look() if endpoint.runs else None
            about: dict[str, Any] = {"answered": seen is not None}
            if seen is not None:
                values = seen["values"]
                about |= {
                    "joined": bool(values["joined"]),
                    "lapses": values["leases_lapsed_total"],
                    "peers": seen["peers"],
                }
            if life == endpoint.life:
                self.recorder.add("look", endpoint=endpoint.name, life=life, **about)

        while True:
            await asyncio.gather(*(look(endpoint) for endpoint in self.bed.endpoints.values()))
            await asyncio.sleep(LOOKS_EVERY_S)

    # The end: all faults are over, so everything has to be right.

    async def _end(self) -> None:
        try:
            await self.bed.cluster.linked(*self.plan.endpoints, within_s=WHOLE_S)
            async with asyncio.timeout(WHOLE_S):
                await self._answered()
                await self._all_listen()
                await self._probe()
                await self._answered()
                await self._streams_are_whole()
                for _ in range(TIMES_BACK):
                    await asyncio.gather(*(reader.come_back() for reader in self._readers.values()))
                await asyncio.gather(*(reader.look_in(self.plan.topics) for reader in self._readers.values()))
                await self.bed.cluster.idle()
                await self._pages.look(writing.number for writing in self.plan.pages)
        except (AssertionError, BenchError, TimeoutError) as error:
            self.recorder.add("whole", yes=False, reason=str(error) or "commands have no replies")
            return
        self.recorder.add("whole", yes=True)
        # A reply comes after everything that was in an outbox by then. (Subscribers only: publishers receive nothing.)
        present = [subscriber.line for subscriber in self._subscribers.values()]
        lines = {line for line in (*present, *self._lines) if line is not None and line.is_open}
        with suppress(TimeoutError, asyncio.CancelledError):
            async with asyncio.timeout(REPLY_S):
                here = [line for line in present if line is not None and line.is_open]
                asked = [line.send("location") for line in here]
                asked += [here[0].send("subscribers", topic=topic, limit=1000) for topic in self.plan.topics if here]
                await asyncio.gather(*asked, *(line.send("subscriptions", limit=1000) for line in lines))
        _reraise_cancellation()
        await self._counters("end")

    async def _answered(self) -> None:
        """Wait until every command has its reply, or its connection has ended."""
        for line in self._lines:
            waiting = list(line.unanswered.values())
            if waiting:
                await asyncio.wait(waiting, timeout=REPLY_S)

    async def _all_listen(self) -> None:
        """Have all clients listen, wherever they are: by now a failed command can be repeated, and has to succeed."""
        for subscriber in self._subscribers.values():
            while True:
                line = subscriber.line
                if line is not None and line.is_open:
                    with suppress(asyncio.CancelledError):
                        if (await line.send("listen")).get("result") == "success":
                            break
                    _reraise_cancellation()
                await asyncio.sleep(AGAIN_S)

    async def _probe(self) -> None:
        """Send a last message to every topic from every endpoint, and one to everybody."""
        for name in self.plan.endpoints:
            client = f"{self.plan.seed} p-{name}"
            line = await self._publisher(client)
            kept = {"keep_s": KEEP_S} if self._streams else {}
            for topic in self.plan.topics:
                line.send("publish", topic=topic, payload=self._last(name, topic), ack=True, **kept)
            line.send("broadcast", payload=f"{self.plan.seed} last of {name}", ack=True)

    def _last(self, name: str, topic: str) -> str:
        """Return the payload of the last message to the topic at that endpoint."""
        return f"{self.plan.seed} last of {name} {self.plan.topics.index(topic)}"

    async def _streams_are_whole(self) -> None:
        """Have each page come back, and publish a last message for it, which comes after everything else. The check
        tells whether it has come."""
        for page in self._streams:
            page.come_back()
        names = self.plan.endpoints
        with suppress(TimeoutError):
            async with asyncio.timeout(REPLY_S):
                for page in self._streams:
                    await page.has({self._last(name, topic) for name in names for topic in page.topics})
                await self.bed.cluster.idle()
                line = await self._publisher(f"{self.plan.seed} p-{names[0]}")
                for page in self._streams:
                    payload = f"{page.name} end"
                    line.send("publish", topic=page.topics[0], payload=payload, ack=True, keep_s=KEEP_S)
                    await page.has({payload})

    async def _publisher(self, client: str) -> Line:
        while True:
            line = self._publishers.get(client)
            if line is not None and line.is_open:
                return line
            await asyncio.sleep(AGAIN_S)

    async def _counters(self, phase: str) -> None:
        for endpoint in self.bed.running():
            seen = None
            # without the first reading the sums would begin elsewhere
            for _ in range(LOOKS if phase == "begin" else 1):
                seen = seen or await endpoint.look(timeout_s=5.0)
            if seen is not None:
                about = {"values": seen["values"], "drops": seen["drops"], "errors": seen["errors"]}
                self.recorder.add("counters", endpoint=endpoint.name, life=endpoint.life, phase=phase, **about)


async def run_history(bed: Bed, plan: Plan, **options: Any) -> list[Event]:
    """Run one history and return its record."""
    return await HistoryRun(bed, plan, **options).run()
