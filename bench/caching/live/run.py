"""Run one unit: its broker, its publishers and its subscribers, from their start to their end.

Owns: the order of events, every time-out, and the end of all processes. Must never: leave a failed run without a
reason, or leave a process behind.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

import orjson
import psutil

from ingeborg.bench.caching.live import drawing, parts, verdict
from ingeborg.bench.caching.live.cases import EITHER, KAFKA, LATENCY, RECORDS_MAX, RIAK, THROUGHPUT, WAITING, Case
from ingeborg.bench.caching.live.log import Counters, Log
from ingeborg.bench.caching.live.messages import COUNTERS, MESSAGE_BYTES_MAX, REPORT
from ingeborg.bench.caching.live.publishing import Direct, Publishing, Way
from ingeborg.bench.caching.live.settings import Settings
from ingeborg.bench.caching.live.subscribing import Crowd
from ingeborg.bench.errors import BenchError
from ingeborg.bench.starting import Child, awaited, environment, ready
from ingeborg.protocol.outgoing import OutgoingSocket, connect

Json = dict[str, Any]

CONNECT_S: Final = 20.0
"""Time limit for connecting all subscribers, and then for all subscriptions, in seconds. A busy machine takes a
second."""

STALL_S: Final = 15.0
"""If no record is delivered or published for this time, in seconds, the run has failed."""

LOOK_S: Final = 0.5
"""The pause between two checks for deliveries and publications, in seconds."""

SOON_S: Final = 0.01
"""The pause between two checks whether the broker has processed every record, in seconds."""

ANSWER_S: Final = 20.0
"""Time limit for the broker's counters, or its report."""

END_S: Final = 5.0
"""Time limit for the broker's orderly end, before it is killed."""

LEAD_S: Final = 0.1
"""The pause between the last preparation and the first record."""


@dataclass(frozen=True)
class Places:
    """The systems outside a run. ``kafka`` has Kafka's servers and ``riak`` the nodes of Riak, each as ``HOST:PORT,…``.
    A field is empty if there is no such system."""

    kafka: str = ""
    riak: str = ""


NOWHERE: Final = Places()


Begun = Callable[[Crowd, Child], None]


async def measure(
    unit: Case,
    directory: Path,
    scratch: Path,
    places: Places = NOWHERE,
    begun: Begun = lambda crowd, child: None,
) -> Json:
    """Run the unit, and leave its log in ``directory``, which is new or empty. Return the unit's row, without the
    figures from the digest of the log. The log of a throughput run has no events, because a digest would only show that
    each delivery arrived once. ``scratch`` is a directory for the database and the broker's output. ``begun`` is called
    shortly before the first record, so that tests can cause a fault then. Raises ``BenchError`` if the run has failed.
    The log has the reason, too."""
    if not 1 <= unit.published <= RECORDS_MAX:
        raise BenchError(f"{unit.published} records: the number must be from 1 to {RECORDS_MAX:,}")
    log = Log(directory, _facts(unit))
    try:
        async with AsyncExitStack() as stack:
            return await _Run(unit, places, begun, scratch, log, stack).go()
    except BenchError as error:
        log.close(failed=f"{error}".splitlines()[0])
        raise BenchError(f"{unit.name}: {error}") from error
    except BaseException:
        log.close(failed="it was interrupted")
        raise


class _Run:
    def __init__(
        self, unit: Case, places: Places, begun: Begun, scratch: Path, log: Log, stack: AsyncExitStack
    ) -> None:
        self._unit = unit
        self._places = places
        self._begun = begun
        self._scratch = scratch
        self._log = log
        self._stack = stack
        self._drawn = drawing.drawn(unit.published, unit.subscribers, unit.seed)
        self._owed = self._drawn.owed()
        self._expected = sum(map(len, self._owed))
        if not self._expected:
            raise BenchError("none of these records has a subscriber")
        self._answer: asyncio.Future[bytes] | None = None
        self._child: Child
        self._control: OutgoingSocket

    async def go(self) -> Json:
        unit, drawn = self._unit, self._drawn
        topic = await self._topic() if unit.via == KAFKA else None
        begun_ns = time.monotonic_ns()
        url = await self._start(topic)
        crowd = Crowd(drawn.wishes, self._expected, hurries=unit.fetches == WAITING)
        self._stack.push_async_callback(crowd.end)
        async with self._limit(CONNECT_S, "not all subscribers have connected"):
            self._control = await connect(url, self._said, message_bytes_max=MESSAGE_BYTES_MAX)
            self._stack.callback(self._control.abort)
            await crowd.connect(url)
            publisher = await connect(url, lambda _, message: None)
            self._stack.callback(publisher.abort)
        connected_ns = time.monotonic_ns()
        async with self._limit(CONNECT_S, "not all subscribers have subscribed"):
            await crowd.subscribe()
        way: Way = Direct(publisher)
        losses: list[asyncio.Future[Any]] = [publisher.over]
        if topic is not None:
            from ingeborg.bench.caching.live import kafka

            producer = await self._stack.enter_async_context(kafka.producing(*topic))
            losses.append(producer.failed)
            way = producer
        before = await self._counters()
        busy = _Busy(self._child)
        subscribed_ns = time.monotonic_ns()
        publishing = Publishing(drawn.payloads)
        self._begun(crowd, self._child)
        start_ns = await self._publish(publishing, way, crowd, losses)
        end_ns = crowd.got[-1].at_ns
        shares = busy.since((time.monotonic_ns() - start_ns) / 1e9)
        after = await self._whole()
        report = orjson.loads(await self._ask(REPORT))
        made = self._judged(crowd, after)
        await crowd.end()
        await awaited(self._child.end(END_S))
        if unit.kind == LATENCY:
            self._log.events(publishing, made, report["readers"], unit.subscribers)
        self._log.phase("connect", begun_ns, connected_ns, unit.subscribers)
        self._log.phase("subscribe", connected_ns, subscribed_ns, unit.subscribers)
        self._log.run(start_ns, end_ns, unit.rate_per_s, before, after)
        self._log.close()
        return self._row(publishing, made, report, after, (end_ns - start_ns) / 1e9, shares)

    async def _topic(self) -> tuple[str, str]:
        if not self._places.kafka:
            raise BenchError("the unit needs a Kafka: give its servers")
        from ingeborg.bench.caching.live import kafka  # imported only if needed: aiokafka belongs to an extra

        return self._places.kafka, await self._stack.enter_async_context(kafka.topic(self._places.kafka))

    async def _start(self, topic: tuple[str, str] | None) -> str:
        """Start the broker, and return its URL."""
        unit = self._unit
        if unit.database == RIAK and not self._places.riak:
            raise BenchError("the unit needs a Riak: give its nodes")
        self._scratch.mkdir(parents=True, exist_ok=True)
        settings = Settings(
            strategy=unit.strategy,
            parameters=dict(unit.parameters),
            bytes_max=None if unit.capacity is None else int(self._drawn.bytes * unit.capacity),
            entries=round(unit.published * (1.0 if unit.capacity is None else unit.capacity)),
            database=f"riak:{self._places.riak}" if unit.database == RIAK else str(self._scratch / "store"),
            waits=unit.fetches == WAITING,
            either=unit.writes == EITHER,
            kafka=topic,
        )
        self._child = Child("the broker", settings.command(), self._scratch / "broker.log", environment=environment())
        self._stack.push_async_callback(self._ended)
        return (await awaited(ready(self._child))).url

    async def _ended(self) -> None:
        await awaited(self._child.end())

    @asynccontextmanager
    async def _limit(self, seconds: float, why: str) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(seconds):
                yield
        except TimeoutError:
            raise await self._failure(BenchError(f"{why} within {seconds:g} s")) from None
        except OSError as error:
            raise await self._failure(BenchError(f"{why}: {error}")) from error

    async def _publish(self, publishing: Publishing, way: Way, crowd: Crowd, losses: list[asyncio.Future[Any]]) -> int:
        """Publish everything, and wait for all deliveries. Return the start time."""
        rate = self._unit.rate_per_s
        start_ns = time.monotonic_ns() + round(LEAD_S * 1e9)
        crowd.begin(asyncio.get_running_loop().time() + LEAD_S)
        if rate is None:
            start_ns = time.monotonic_ns()
            sending = asyncio.ensure_future(self._in_rounds(publishing, way, crowd))
        else:
            sending = asyncio.ensure_future(publishing.on_schedule(way, start_ns, rate))
        everything = asyncio.gather(sending, crowd.done)
        went_on_at, state = time.monotonic(), (0, crowd.left)
        try:
            while not everything.done():
                await asyncio.wait([everything, *losses], timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED)
                for lost in losses:
                    if lost.done() and not everything.done():
                        raise BenchError(f"the publishers have lost their connection: {lost.result()[1]}")
                if state != (now := (len(publishing.sent_ns), crowd.left)):
                    went_on_at, state = time.monotonic(), now
                elif time.monotonic() - went_on_at > STALL_S:
                    raise BenchError(f"nothing has arrived for {STALL_S:g} s")
            everything.result()
        except BenchError as error:
            come = self._expected - crowd.left
            told = f"{error}; {come:,} of {self._expected:,} deliveries had arrived"
            raise await self._failure(BenchError(told)) from error
        finally:
            everything.cancel()
            await asyncio.wait([everything])
            if not everything.cancelled():
                everything.exception()  # mark the exception as seen
        return start_ns

    async def _in_rounds(self, publishing: Publishing, way: Way, crowd: Crowd) -> None:
        due = list(accumulate(self._drawn.world.utilities, initial=0))
        await publishing.at_full_speed(way, self._unit.records, lambda count: crowd.came_to(due[count]))

    async def _failure(self, error: BenchError) -> BenchError:
        """Add the broker's message as the reason, if the broker has ended."""
        for _ in range(20):
            if not self._child.runs:
                code = self._child.code or 0
                how = f"ended with exit code {code}" if code >= 0 else f"was ended by {signal.Signals(-code).name}"
                return BenchError(f"the broker {how}: {error}{self._child.tail()}")
            await asyncio.sleep(0.05)
        return error

    def _said(self, _: OutgoingSocket, message: bytes) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(message[1:])

    async def _ask(self, what: bytes) -> bytes:
        self._answer = asyncio.get_running_loop().create_future()
        self._control.write(what)
        async with self._limit(ANSWER_S, "the broker does not answer"):
            ends: list[asyncio.Future[Any]] = [self._answer, self._control.over]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if not self._answer.done():
            raise await self._failure(BenchError("the connection to the broker is lost"))
        return self._answer.result()

    async def _counters(self) -> Counters:
        found = orjson.loads(await self._ask(COUNTERS))
        return found["at_ns"], found["values"]

    async def _whole(self) -> Counters:
        """Return the broker's counters when the broker has processed every record. A record without subscribers can
        arrive, or be written, after the last delivery."""
        ends = time.monotonic() + STALL_S
        while True:
            at_ns, values = await self._counters()
            if values["caching_records_total"] == self._unit.published and not values["caching_queued"]:
                return at_ns, values
            if time.monotonic() > ends:
                raise BenchError(f"the broker has not processed every record after {STALL_S:g} s")
            await asyncio.sleep(SOON_S)

    def _judged(self, crowd: Crowd, after: Counters) -> list[verdict.Batch]:
        """Return the answers, if they are all correct."""
        made, faults = verdict.batches(crowd.got, self._drawn.payloads)
        faults += verdict.faults_of(made, self._owed)
        reads = after[1]["caching_reads_total"]
        if reads != self._expected:
            faults.append(f"the broker counts {reads:,} reads, but {self._expected:,} were due")
        if faults:
            raise BenchError(f"not every record arrived once and in order: {verdict.summary(faults)}")
        return made

    def _row(
        self,
        publishing: Publishing,
        made: list[verdict.Batch],
        report: Mapping[str, Any],
        after: Counters,
        seconds: float,
        shares: Mapping[str, float],
    ) -> Json:
        counted = {name.removeprefix("caching_").removesuffix("_total"): value for name, value in after[1].items()}
        del counted["records"], counted["queued"]  # see ``_whole``
        row = {
            **self._unit.facts(),
            "bytes_of_records": self._drawn.bytes,
            "deliveries": self._expected,
            "seconds": round(seconds, 6),
            **counted,
            "hit_rate": counted["hits"] / counted["reads"],
            "duplication": counted["admitted_utility"] / counted["admitted"] if counted["admitted"] else 0.0,
            "latency_mean_ms": round(parts.mean_ms(made, publishing.intended_ns), 6),
            "parts": parts.parts(made, publishing.intended_ns, report),
            **shares,
        }
        if self._unit.kind == THROUGHPUT:
            row["records_per_s"] = round(self._unit.published / seconds, 3)
            row["deliveries_per_s"] = round(self._expected / seconds, 3)
        return row


class _Busy:
    """The load of the two processes: CPU seconds, and shares of a core."""

    def __init__(self, child: Child) -> None:
        self._processes = {"broker": child.process, "load": psutil.Process()}
        self._before = {name: self._seconds(process) for name, process in self._processes.items()}

    def since(self, seconds: float) -> dict[str, float]:
        """Return the load since this object was created, ``seconds`` ago."""
        used = {name: self._seconds(process) - self._before[name] for name, process in self._processes.items()}
        cpu_s = {f"{name}_cpu_s": round(value, 3) for name, value in used.items()}
        return cpu_s | {f"{name}_busy": round(value / seconds, 3) for name, value in used.items()}

    @staticmethod
    def _seconds(process: psutil.Process) -> float:
        times = process.cpu_times()
        return float(times.user + times.system)


def _facts(unit: Case) -> Json:
    return {
        "run": unit.name,
        "system": "the document's broker",
        "variant": f"{unit.strategy}, {'unbounded' if unit.capacity is None else f'{100 * unit.capacity:g} %'}",
        "workload": f"caching {unit.kind}",
        "seed": unit.seed,
        "config": {**unit.facts(), "processes": 1},
        "goals": {},
    }
