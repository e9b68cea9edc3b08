"""One process of the generator, without a system."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from ingeborg.loadgen.backends.base import About, Bounded
from ingeborg.loadgen.log.rundir import EventFiles
from ingeborg.loadgen.process.driver import Driver
from ingeborg.loadgen.workloads.bounded import Group
from ingeborg.loadgen.workloads.causal import CausalPlan
from ingeborg.loadgen.workloads.plan import Send, payload
from ingeborg.loadgen.workloads.settings import Causal, Traffic
from ingeborg.loadgen.workloads.traffic import TrafficPlan


class Recording:
    """A connection that accepts every publish, and its backend."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, str]] = []
        self.about: list[About] = []
        self.bounded: dict[int, Bounded] = {}  # by connection
        self.hear: dict[int, Callable[[str, str], None]] = {}  # by connection, for received messages
        self._took = asyncio.Event()

    async def connect(self, number: int, on_message: Any, on_error: Any, bounded: Bounded | None = None) -> Any:
        self.hear[number] = on_message
        if bounded is not None:
            self.bounded[number] = bounded
        return self

    async def publish(self, messages: Sequence[tuple[str, str]]) -> None:
        self.taken += messages
        self._took.set()

    async def publish_about(self, messages: Sequence[About]) -> None:
        self.about += messages
        await self.publish([(message.topic, message.payload) for message in messages])

    async def has_taken(self, count: int) -> None:
        async with asyncio.timeout(30):
            while len(self.taken) < count:
                self._took.clear()
                await self._took.wait()

    async def close(self) -> None:
        pass


class Laborious:
    """A plan that does all its work before its first send."""

    topics = ("t",)
    connections = 1
    notes = ()

    def __init__(self) -> None:
        self.worked = False

    def receives(self, connection: int) -> frozenset[int]:
        return frozenset()

    def expected(self, topic: int) -> int:
        return 0

    def publisher(self, topic: int, seq: int, by_ns: int) -> int | None:
        return 0

    def sends(self, rate_per_s: Any, duration_s: float, process: int = 0, processes: int = 1) -> Iterator[Send]:
        self.worked = True
        for seq in range(3):
            yield Send(seq * 1_000_000, 0, 0, seq, seq * 1_000_000, True, 0)


def driver_of(plan: Any, recording: Recording, path: Path) -> Driver:
    return Driver(plan, recording, EventFiles(path, 0), process=0, processes=1, tag="tag")  # type: ignore[arg-type]


async def test_the_work_before_the_first_send_is_done_before_the_time_runs(tmp_path: Path) -> None:
    plan, recording = Laborious(), Recording()
    driver = driver_of(plan, recording, tmp_path)
    await driver.connect()
    driver.begin("run")
    driver.prepare(None, 0.01)
    assert plan.worked
    assert driver.sent == 0
    await driver.run(time.monotonic_ns(), 0.01)
    await driver.close()
    assert len(recording.taken) == driver.sent == 3


async def overtaken(path: Path, *, processes: int, repeats: bool) -> dict[str, Any]:
    """Return the stats of process 0, after each of its connections got its messages of each topic in the order sent,
    but first those that another connection repeats; or, without repetitions, the last one of each topic."""
    settings = Traffic(connections=4, topics=3, fanout=4, seed=3)
    plan, recording = TrafficPlan(settings, duplicates=0.3 if repeats else 0.0), Recording()
    driver = Driver(
        plan,
        recording,  # type: ignore[arg-type]
        EventFiles(path, 0),
        process=0,
        processes=processes,
        tag="tag",
    )
    await driver.connect()
    driver.begin("run")
    driver.prepare(1000, 0.1)
    t0_ns = time.monotonic_ns() - 1_000_000_000  # everything is due
    await driver.run(t0_ns, 0.1)
    sends = list(TrafficPlan(settings, duplicates=0.3 if repeats else 0.0).sends(1000, 0.1))
    again = {(send.topic, send.seq) for send in sends if not send.first}
    last = {send.topic: send.seq for send in sends}
    early = again if repeats else set(last.items())
    news = [send for send in sends if send.first]
    order = [send for send in news if (send.topic, send.seq) in early]
    order += [send for send in news if (send.topic, send.seq) not in early]
    for connection in range(0, 4, processes):
        for send in order:
            text = payload("tag", send.topic, send.seq, t0_ns + send.at_ns, send.content, send.size)
            recording.hear[connection](plan.topics[send.topic], text)
    stats = driver.stats()
    await driver.close()
    highest = {topic: max((seq for of, seq in early if of == topic), default=0) for topic in range(3)}
    late = sum(send.seq < highest[send.topic] for send in news if (send.topic, send.seq) not in early)
    stats["late"] = late * len(range(0, 4, processes))
    return stats


@pytest.mark.parametrize("processes", [1, 2])
async def test_what_a_repetition_overtakes_is_no_message_out_of_order(tmp_path: Path, processes: int) -> None:
    """This also holds if another process of the generator sends the repetition."""
    stats = await overtaken(tmp_path, processes=processes, repeats=True)
    assert (stats["reordered"], stats["overtaken"]) == (0, stats["late"])
    assert stats["late"] > 20


async def test_what_one_connection_publishes_alone_has_an_order(tmp_path: Path) -> None:
    stats = await overtaken(tmp_path, processes=1, repeats=False)
    assert (stats["reordered"], stats["overtaken"]) == (stats["late"], 0)
    assert stats["late"] > 20


async def asked(path: Path, **options: Any) -> tuple[Driver, Recording, int]:
    """Ask one question, which one connection is to answer: this one."""
    few: dict[str, Any] = {"clients": 2, "rooms": 1, "members": 2, "speakers": 2, "answers": 1, "chain": 0, "rate": 1.0}
    plan, recording = CausalPlan(Causal(**{**few, "duration_s": 1.0, "partial": 0.0, **options})), Recording()
    driver = driver_of(plan, recording, path)
    await driver.connect()
    driver.begin("run")
    driver.prepare(None, 0.0)
    await driver.run(time.monotonic_ns(), 0.0)
    await recording.has_taken(1)
    return driver, recording, plan.messages[1].connection


async def test_what_is_received_is_answered_once_and_the_log_says_causal(tmp_path: Path) -> None:
    driver, recording, answerer = await asked(tmp_path)
    question = recording.taken[0]
    for connection in (1 - answerer, answerer, answerer):
        recording.hear[connection](*question)
    await recording.has_taken(2)
    recording.hear[answerer](question[0], question[1].replace(" 0 1 ", " 0 2 ").replace(" 0 question", " 7 question"))
    assert driver.errors == {"unexpected message": 1}  # the plan does not have it
    await driver.close()
    rows = [line.split(",") for line in (tmp_path / "events-000-0000.csv").read_text().splitlines()[1:]]
    assert [row[0] for row in rows[:7]] == ["news", "sent", "received", "received", "received", "news", "sent"]
    heard, answered = rows[3], rows[6]
    assert (heard[2], answered[2], answered[-1], rows[1][-1]) == (str(answerer), str(answerer), "causal", "")
    assert int(heard[6]) <= int(answered[5]) <= int(answered[6])
    assert len(recording.taken) == driver.sent == 2


@pytest.mark.parametrize("end", [Driver.cut, Driver.give_up])
async def test_after_the_end_nobody_answers_any_more(tmp_path: Path, end: Callable[[Driver], None]) -> None:
    driver, recording, answerer = await asked(tmp_path, think_ms=60_000.0)
    recording.hear[answerer](*recording.taken[0])
    assert driver.stats()["queued"] == 1
    end(driver)
    assert driver.stats()["queued"] == 0
    assert driver.errors["unsent"] == (end is Driver.give_up)
    await driver.close()
    assert len(recording.taken) == 1


async def test_a_message_that_stands_for_others_is_logged_with_their_number_and_they_are_not_missing(
    tmp_path: Path,
) -> None:
    plan, recording = TrafficPlan(Traffic(connections=2, topics=1, fanout=2, items=2), duplicates=0.0), Recording()
    group = Group(0.5, "screen")
    driver = Driver(
        plan,
        recording,  # type: ignore[arg-type]
        EventFiles(tmp_path, 0),
        process=0,
        processes=1,
        tag="tag",
        bounds=[None, group],
        window=100,
    )
    await driver.connect()
    assert list(recording.bounded) == [1]
    assert recording.bounded[1][:2] == ("screen", 100)
    driver.begin("run")
    driver.prepare(1000, 0.005)
    await driver.run(time.monotonic_ns() - 1_000_000_000, 0.005)
    await recording.has_taken(5)
    assert {message.item for message in recording.about} == {"item 0", "item 1"}
    for topic, text in recording.taken:
        recording.hear[0](topic, text)
    first, *_, last = recording.taken
    recording.bounded[1].on_message(*first, 0)
    recording.bounded[1].on_message(*last, 3)
    stats = driver.stats()
    await driver.close()
    assert [stats[name] for name in ("expected", "delivered", "skipped", "repeated")] == [10, 7, 3, 0]
    rows = [line.split(",") for line in (tmp_path / "events-000-0000.csv").read_text().splitlines()[1:]]
    assert [row[-1] for row in rows if row[0] == "received"] == [""] * 6 + ["3"]
