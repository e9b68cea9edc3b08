"""Runs a soak. It starts endpoints and clients, and finds the rate. Then it publishes, moves clients and kills
endpoints until the time is over.

Owns: the schedule, and the record of the run. Must never: judge the result.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import platform
import random
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import orjson
import psutil

from ingeborg import form
from ingeborg.bench.budgets.clients import OTHER_FILES, allow_files, each
from ingeborg.bench.errors import BenchError

from . import ramp
from .clients import Subscriber
from .endpoints import EndpointProcess, running
from .ledger import Ledger
from .publishers import Publisher
from .record import Folder, Kill, Sample, Writer
from .settings import Settings

#: At this interval, all publishes that have become due are sent together.
TICK_S = 0.005
SAMPLE_S, COUNT_S, SETTLE_S = 1.0, 5.0, 0.5
#: Time from the first publish of a message to its repetition, in microseconds.
REPEAT_US = 1_000_000
#: Limit of unanswered publishes on all connections together. Beyond this limit, the soak withholds publishes and counts
#: them.
OUTSTANDING_MAX = 15_000
#: Time limit until all publishes of a step or of the run are answered and their messages are read.
DRAIN_S = 60.0
CONNECT_S = 180.0
#: Number of topics to which only the slow clients and one other client subscribe. Their numbers follow those of the
#: other topics.
BULK_TOPICS = 5
#: Thresholds of the garbage collector. Only closed connections leave cycles, so a collection every few thousand
#: messages would find nothing.
_GC = (100_000, 20, 50)

_Begin = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]


class Soak:
    """One soak. It writes its record into a folder that does not exist yet."""

    def __init__(self, settings: Settings, path: Path, say: Callable[[str], None]) -> None:
        self.settings = settings
        self.folder = Folder(path)
        self._say = say
        self._writer = Writer(self.folder)
        clients = range(settings.clients)
        self.slow = frozenset(clients[:: max(1, settings.clients // settings.slow)][: settings.slow])
        self._ledger = Ledger(self._writer, self.slow)
        self._random = random.Random(settings.seed)
        self._began_ns = time.monotonic_ns()
        self._tag = f"{time.time_ns():x}"
        self.subscribers_of = self._subscriptions()
        self._topics = [orjson.dumps(self._topic(number)) for number in range(len(self.subscribers_of))]
        self._subscribers: list[Subscriber] = []
        self._publishers: list[Publisher] = []
        self._repetitions: deque[tuple[int, int, int, int, bytes]] = deque()
        self._pad = b"x" * settings.payload_bytes
        self._bulk_pad = b"x" * settings.bulk_bytes
        self._rate = self._bulk = 0.0
        self.withheld = 0
        self.kills: list[Kill] = []
        self.samples: list[Sample] = []
        self.steps: list[ramp.Step] = []
        self.phases: dict[str, int] = {}

    def now_us(self) -> int:
        """Return the microseconds since the run began."""
        return (time.monotonic_ns() - self._began_ns) // 1000

    def _topic(self, number: int) -> str:
        return f"soak {self._tag} {number}"

    def _subscriptions(self) -> list[list[int]]:
        """Return the clients of each topic. Every client has the same number of ordinary topics, in random order. The
        bulk topics come last."""
        settings = self.settings
        fanout = min(settings.fanout, settings.clients)
        order = list(range(settings.clients))
        self._random.shuffle(order)
        at = itertools.cycle(order)
        found = [[next(at) for _ in range(fanout)] for _ in range(settings.topics)]
        brisk = next(client for client in order if client not in self.slow)
        return found + [sorted({*self.slow, brisk}) for _ in range(BULK_TOPICS)]

    async def run(self) -> None:
        """Run the soak. Raises ``BenchError`` if it cannot run. The record then ends early."""
        settings = self.settings
        gc.set_threshold(*_GC)
        allow_files(settings.clients + settings.publishers + OTHER_FILES)
        variables = {"INGEBORG_MAX_OUTBOX_BYTES": str(settings.outbox_bytes)}
        options = ["--dedup-ttl", str(settings.dedup_ttl_s)]
        with tempfile.TemporaryDirectory(prefix="ingeborg-soak-") as state:
            try:
                async with running(settings.endpoints, Path(state), options, variables) as endpoints:
                    try:
                        await self._load(endpoints)
                    finally:
                        self._save(endpoints)
            except BaseException:
                self._writer.close()
                raise
        self._writer.close()

    async def _load(self, endpoints: list[EndpointProcess]) -> None:
        settings = self.settings
        urls = [endpoint.url for endpoint in endpoints]
        topics: list[list[str]] = [[] for _ in range(settings.clients)]
        for topic, clients in enumerate(self.subscribers_of):
            for client in clients:
                topics[client].append(self._topic(topic))
        self._subscribers = [
            Subscriber(
                number,
                f"soak {self._tag} {number}",
                sorted(set(topics[number])),
                urls,
                settings,
                self._ledger,
                self.now_us,
                slow=number in self.slow,
            )
            for number in range(settings.clients)
        ]
        self._publishers = [
            Publisher(number, f"soak publisher {number}", urls, self._ledger, self.now_us)
            for number in range(settings.publishers)
        ]
        async with _together() as begin:
            for publisher in self._publishers:
                begin(publisher.run())

            async def connected(number: int) -> None:
                begin(self._subscribers[number].run())
                await self._subscribers[number].listening.wait()

            try:
                async with asyncio.timeout(CONNECT_S):
                    await each(range(settings.clients), connected)
            except TimeoutError:
                raise BenchError(f"{settings.clients:,} clients did not connect within {CONNECT_S:g} s") from None
            self._say(f"{settings.clients:,} clients at {settings.endpoints} endpoints, {len(self.slow)} are slow")
            begin(self._sample(endpoints))
            begin(self._count(endpoints))
            begin(self._settle())
            begin(self._publish())
            begin(self._move())
            try:
                self._bulk = settings.bulk_per_s
                rate = settings.rate or settings.load * await self._greatest()
                await self._soak(rate, endpoints, begin)
            finally:
                self._rate = self._bulk = 0.0
            await self._drained(DRAIN_S)
            await self._all_read()
            await asyncio.gather(*(endpoint.count() for endpoint in endpoints if endpoint.runs))
            for subscriber in self._subscribers:
                subscriber.stop()
            for publisher in self._publishers:
                publisher.stop()
            self.phases["end_us"] = self.now_us()
        self._ledger.settle(self.now_us(), all=True)

    async def _greatest(self) -> float:
        """Find the greatest sustained rate, step by step."""
        search = ramp.search(self.settings.start_rate)
        rate = next(search)
        while True:
            step = await self._step(rate)
            self.steps.append(step)
            verdict = "sustained" if step.sustained else "not sustained"
            self._say(
                f"  {rate:8,.0f}/s: sent {step.sent_per_s:,.0f}/s, p99 {step.p99_ms:.0f} ms, "
                f"{step.unanswered:,} unanswered: {verdict}"
            )
            try:
                rate = search.send(step.sustained)
            except StopIteration as over:
                found = float(over.value)
                if not found:
                    raise BenchError(
                        f"not even {self.settings.start_rate:g}/s is sustained: lower --start-rate"
                    ) from None
                self._say(f"greatest rate: {found:,.0f}/s; the soak runs at {self.settings.load:.0%} of this rate")
                return found

    async def _step(self, rate: float) -> ramp.Step:
        seconds, ledger = self.settings.step_s, self._ledger
        self._rate = rate
        await asyncio.sleep(seconds / 4)  # until the effects of the new rate have settled
        ledger.begin_window()
        began_us = self.now_us()
        await asyncio.sleep(seconds)
        took_s = (self.now_us() - began_us) / 1e6
        latencies, unanswered = ledger.end_window(), ledger.outstanding
        offered = rate * (1 + self.settings.repeated) + self._bulk
        sent_per_s = ledger.window_sent / took_s * rate / offered
        self._rate = 0.0
        await self._drained(DRAIN_S)
        p99_ms = latencies[int(0.99 * len(latencies))] / 1000 if latencies else float("inf")
        kept = ramp.sustained(rate, sent_per_s, p99_ms, unanswered, self.settings.p99_ms)
        return ramp.Step(rate, sent_per_s, p99_ms, unanswered, kept)

    async def _soak(self, rate: float, endpoints: list[EndpointProcess], begin: _Begin) -> None:
        seconds = self.settings.minutes * 60
        self._say(f"soak: {rate:,.0f}/s for {seconds:,.0f} s")
        self.phases["soak_us"] = self.now_us()
        self._rate = rate
        killing = begin(self._kill(endpoints, seconds))
        await asyncio.sleep(seconds)
        self.phases["over_us"] = self.now_us()
        self._rate = self._bulk = 0.0
        await killing

    # Tasks that run in parallel

    async def _publish(self) -> None:
        """Publish on schedule. Each turn sends the messages that have become due since the last turn, with their due
        times."""
        due_us = bulk_us = float(self.now_us())
        topics, count = self.settings.topics, len(self._publishers)
        while True:
            await asyncio.sleep(TICK_S)
            now_us = self.now_us()
            while self._repetitions and self._repetitions[0][0] <= now_us:
                self._send_again(*self._repetitions.popleft()[1:])
            if not self._rate:
                due_us = now_us
            else:
                step_us = 1e6 / self._rate
                while due_us + step_us <= now_us:
                    due_us += step_us
                    self._send(self._random.randrange(topics), int(due_us), self._pad)
            if not self._bulk:
                bulk_us = now_us
            else:
                while bulk_us + 1e6 / self._bulk <= now_us:
                    bulk_us += 1e6 / self._bulk
                    self._send(topics + self._random.randrange(BULK_TOPICS), int(bulk_us), self._bulk_pad)
            for number in range(count):
                self._publishers[number].flush()

    def _free(self, topic: int) -> Publisher | None:
        """Return the topic's own publisher, or another publisher if the topic's publisher cannot send more now. Return
        ``None`` if no publisher can send more."""
        count = len(self._publishers)
        if self._ledger.outstanding >= OUTSTANDING_MAX:
            return None
        return next(
            (one for at in range(count) if (one := self._publishers[(topic + at) % count]).takes_more),
            None,
        )

    def _send(self, topic: int, due_us: int, pad: bytes) -> None:
        publisher = self._free(topic)
        if publisher is None:
            self.withheld += 1
            return
        again = topic < self.settings.topics and self._random.random() < self.settings.repeated
        number = self._ledger.due(topic, due_us, 1 + again)
        payload = b'"%d %d %b"' % (number, due_us, pad)
        publisher.publish(number, 0, self._topics[topic], payload)
        if again:
            self._repetitions.append((due_us + REPEAT_US, number, topic, publisher.number, payload))

    def _send_again(self, number: int, topic: int, first: int, payload: bytes) -> None:
        publisher = self._free(first + 1)
        if publisher is None:
            self.withheld += 1
            self._ledger.not_sent(number)
            return
        publisher.publish(number, 1, self._topics[topic], payload)

    async def _move(self) -> None:
        """Let random clients close their connections and listen elsewhere, at the rate of the settings."""
        brisk = [client for client in self._subscribers if not client.slow]
        per_s = self.settings.moving_share_per_s * len(self._subscribers)
        moves = set()
        while per_s:
            await asyncio.sleep(1 / per_s)
            move = asyncio.ensure_future(self._random.choice(brisk).move())
            moves.add(move)
            move.add_done_callback(moves.discard)

    async def _kill(self, endpoints: list[EndpointProcess], seconds: float) -> None:
        """Kill one endpoint at a time, at intervals. The first endpoint is never killed, because one life must last
        long enough to judge its memory."""
        began_us = self.now_us()
        every_us = int(self.settings.kill_every_s * 1e6)
        for turn in itertools.count(1):
            # The last endpoint to be killed, and its clients, have to be back before the time is over.
            if turn * self.settings.kill_every_s + 2 * self.settings.down_s > seconds or len(endpoints) < 2:
                return
            await asyncio.sleep((began_us + turn * every_us - self.now_us()) / 1e6)
            endpoint = endpoints[1 + (turn - 1) % (len(endpoints) - 1)]
            await endpoint.count()
            kill = Kill(endpoint.number, self.now_us())
            self.kills.append(kill)
            await endpoint.kill()
            await asyncio.sleep(self.settings.down_s)
            await endpoint.start()
            kill.ready_us = self.now_us()
            away_s = (kill.ready_us - kill.killed_us) / 1e6
            self._say(
                f"  {(self.now_us() - began_us) / 1e6:6.0f} s: endpoint {endpoint.number} was killed, and is back "
                f"after {away_s:.1f} s; {self._ledger.sent:,} published, {self._ledger.delivered:,} delivered so far"
            )

    async def _sample(self, endpoints: list[EndpointProcess]) -> None:
        own = psutil.Process()
        while True:
            at_us, memory, times = self.now_us(), own.memory_info(), own.cpu_times()
            self.samples.append(Sample(at_us, -1, 0, memory.rss - memory.shared, times.user + times.system))
            for endpoint in endpoints:
                if (usage := endpoint.usage()) is not None:
                    self.samples.append(Sample(at_us, endpoint.number, endpoint.life, *usage))
            await asyncio.sleep(SAMPLE_S)

    async def _count(self, endpoints: list[EndpointProcess]) -> None:
        while True:
            for endpoint in endpoints:
                if endpoint.runs:
                    await endpoint.count()
            await asyncio.sleep(COUNT_S)

    async def _settle(self) -> None:
        while True:
            await asyncio.sleep(SETTLE_S)
            self._ledger.settle(self.now_us())

    async def _drained(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):  # the record then marks the publishes as unanswered
            async with asyncio.timeout(seconds):
                while self._ledger.outstanding or self._repetitions:  # noqa: ASYNC110
                    await asyncio.sleep(TICK_S)

    async def _all_read(self) -> None:
        brisk = [client for client in self._subscribers if not client.slow]
        with contextlib.suppress(TimeoutError):  # the record then shows which outboxes are unread
            async with asyncio.timeout(DRAIN_S):
                await asyncio.gather(*(client.all_read() for client in brisk))

    def _save(self, endpoints: list[EndpointProcess]) -> None:
        folder = self.folder
        counters = [
            {"endpoint": endpoint.number, "life": life, "counters": found}
            for endpoint in endpoints
            for life, found in enumerate(endpoint.counters)
        ]
        self.phases.setdefault("end_us", self.now_us())
        greatest = max((step.rate for step in self.steps if step.sustained), default=0.0)
        facts = {
            "settings": asdict(self.settings),
            "slow": sorted(self.slow),
            "urls": [endpoint.url for endpoint in endpoints],
            "subscribers": self.subscribers_of,
            "steps": [step._asdict() for step in self.steps],
            "rate": self.settings.rate or self.settings.load * greatest,
            "phases": self.phases,
            "withheld": self.withheld,
            "refusals": sum((client.refusals for client in self._subscribers), Counter()),
            "faults": [line for endpoint in endpoints for line in endpoint.said().splitlines() if "Traceback" in line],
            "machine": {
                "cores": psutil.cpu_count(),
                "memory_bytes": psutil.virtual_memory().total,
                "kernel": f"{platform.system()} {platform.release()}",
                "python": sys.version.split()[0],
                "ingeborg": version("ingeborg"),
                "form": form.name(),  # also the form of the endpoints, which this process started
            },
            "began_unix_s": round(time.time() - self.now_us() / 1e6),
        }
        folder.save("run.json", facts)
        folder.save("counters.json", counters)
        folder.save_rows("kills.json", self.kills)
        folder.save_rows("samples.json", self.samples)
        folder.save_rows("lives.json", [life for client in self._subscribers for life in client.lives])
        folder.save_rows("publisher_lives.json", [life for one in self._publishers for life in one.lives])
        for endpoint in endpoints:
            if endpoint.log.exists():
                (folder / endpoint.log.name).write_text(endpoint.said(), encoding="utf-8")


@contextlib.asynccontextmanager
async def _together() -> AsyncIterator[_Begin]:
    """Run tasks, and cancel them at the end of the block. A task that fails ends the block immediately, with the task's
    error."""
    tasks: set[asyncio.Task[None]] = set()
    failure: list[BaseException] = []
    whole = asyncio.current_task()
    assert whole is not None

    def over(task: asyncio.Task[None]) -> None:
        tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not failure:
            failure.append(error)
            whole.cancel()

    def begin(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        tasks.add(task)
        task.add_done_callback(over)
        return task

    try:
        yield begin
    except asyncio.CancelledError:
        if failure:
            whole.uncancel()
            raise failure[0] from None
        raise
    finally:
        for task in tasks:
            task.remove_done_callback(over)
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
